//! Subtrees that this machine owns: this machine's state knows their clients, not the command line.

use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::Duration;

use cudele::{
    Cluster, DecoupledSubtree, Errno, Error, Path, Policy, Result, StateDir, Subtree, SubtreeOwner,
};
use terminal::context::Context;

/// Longer than the interval of a metadata server's reports about decoupled subtrees to the monitor.
const BEACON: Duration = Duration::from_millis(600);

/// A policy as an argument: the name of a preset or a cell, or a policy file. Its warnings go to
/// standard error.
///
/// # Errors
/// `EINVAL`, with the place in the file; the system's error about the file.
pub(crate) fn policy(argument: &str) -> Result<Policy> {
    if let Some(policy) = policy::policy_named(argument) {
        return Ok(policy);
    }
    let file = FilePath::new(argument);
    let text = match std::fs::read(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let names = policy::policy_names().join(", ");
            return Err(Error::new(Errno::Invalid, argument, "no such policy and no such file")
                .remedy(format!("name a policy file or one of {names}")));
        }
        Err(error) => return Err(terminal::io(file, &error)),
    };
    let parsed = Policy::parse_bytes(&text).map_err(|error| error.in_file(argument))?;
    for warning in &parsed.warnings {
        eprintln!("cudele: {argument}: {warning}");
    }
    Ok(parsed.policy)
}

/// The owner of the subtree at a path, from the metadata server's last beacon.
///
/// # Errors
/// If the monitor does not answer.
pub(crate) fn holder(cluster: &Cluster, path: &Path) -> Result<Option<DecoupledSubtree>> {
    let bytes = path.to_bytes();
    Ok(cluster.status()?.decoupled.into_iter().find(|known| known.path == bytes))
}

/// The same, for a caller that knows of an owner: the decoupling may be a moment old.
///
/// # Errors
/// As [`not_ours`].
pub(crate) fn await_holder(cluster: &Cluster, path: &Path) -> Result<DecoupledSubtree> {
    if let Some(known) = holder(cluster, path)? {
        return Ok(known);
    }
    std::thread::sleep(BEACON);
    match holder(cluster, path)? {
        Some(known) => Ok(known),
        None => Err(not_ours(cluster, path)?),
    }
}

/// The owner of the subtree at a path, if that is this machine.
///
/// # Errors
/// If the monitor does not answer; `EBADMSG` if this machine's state is damaged.
pub(crate) fn owner(cluster: &Cluster, path: &Path) -> Result<Option<SubtreeOwner>> {
    let map = cluster.status()?;
    if let Some(owner) = StateDir::owner_at(&map.cluster, path)? {
        return Ok(Some(owner));
    }
    // It may have been renamed since.
    let bytes = path.to_bytes();
    let Some(known) = map.decoupled.into_iter().find(|known| known.path == bytes) else {
        return Ok(None);
    };
    let owner = StateDir::of(&map.cluster, known.ino)?.owner()?;
    Ok(owner.filter(|owner| owner.merged_in.is_none() && owner.client() == known.client))
}

/// Takes up a subtree as the client that owns it.
///
/// # Errors
/// `ENOENT` if no client has it, `EBUSY` if another machine does, and as `Fs::attach`.
pub(crate) fn attach(context: &Context, text: impl AsRef<[u8]>) -> Result<Subtree> {
    let path = cudele::parse_path(text)?;
    let cluster = context.cluster()?;
    match owner(&cluster, &path)? {
        Some(owner) => as_owner(&cluster, &owner)?.attach(path.to_bytes()),
        None => Err(not_ours(&cluster, &path)?),
    }
}

fn as_owner(cluster: &Arc<Cluster>, owner: &SubtreeOwner) -> Result<Arc<cudele::Fs>> {
    cluster.mount_as(owner.client())
}

/// Why a subtree cannot be taken up here.
pub(crate) fn not_ours(cluster: &Cluster, path: &Path) -> Result<Error> {
    let subject = path.to_string();
    // The server's next beacon reports the change.
    std::thread::sleep(BEACON);
    Ok(match holder(cluster, path)? {
        Some(known) => {
            let cause =
                format!("decoupled by {}, of which this machine knows nothing", known.client);
            Error::new(Errno::Busy, subject, cause).remedy(
                "run this on the machine that decoupled it, as the same user; \
                 root gives it up with `cudele discard --force`",
            )
        }
        None => Error::new(Errno::NotFound, subject, "no decoupled subtree is here")
            .remedy("`cudele status` lists them; `cudele decouple` makes one"),
    })
}
