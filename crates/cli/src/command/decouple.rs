//! `cudele decouple`: a subtree for this client alone.

use std::fmt::Write as _;

use clap::Args as ClapArgs;
use cudele::{Errno, Error, Result};
use serde_json::json;
use terminal::context::Context;

use crate::owned;

/// Take a subtree for this client alone. Later commands of this user on this machine act as
/// its owner: `merge`, `diff` and `discard`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:\n  cudele decouple /scratch/job batchfs")]
pub(crate) struct Args {
    /// Directory in the namespace
    path: String,
    /// The name of a preset, or a policy file [default: the policy in force at PATH]
    policy: Option<String>,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<()> {
    let path = cudele::parse_path(&args.path)?;
    let cluster = context.cluster()?;
    // Asked again by the machine that has it, it is the same client that asks.
    let fs = match owned::owner(&cluster, &path)? {
        Some(owner) => cluster.mount_as(owner.client())?,
        None => cluster.mount()?,
    };
    let policy = match &args.policy {
        Some(argument) => owned::policy(argument)?,
        None => fs.policy(path.to_bytes())?.0,
    };
    if !policy.is_decoupled() {
        let cause = format!("the policy `{}` does not decouple", policy.effective());
        return Err(Error::new(Errno::Invalid, path.to_string(), cause)
            .remedy("name one that contains append_client_journal, such as batchfs"));
    }
    let subtree = fs.decouple(path.to_bytes(), &policy)?;
    subtree.remember()?;
    let owner = subtree.state().owner()?.ok_or_else(|| {
        Error::new(Errno::Io, subtree.state().path().display().to_string(), "not remembered")
    })?;
    let value = json!({
        "path": path.to_string(), "ino": owner.ino, "client": owner.client,
        "inodes": owner.ranges, "epoch": owner.epoch, "empty": owner.empty,
        "policy": policy.to_json(), "state": subtree.state().path(),
    });
    context.print(&value, || {
        let path = path.quoted();
        let mut text = format!("{path} belongs to {}\n", owner.client());
        for range in owner.ranges() {
            let (start, last) = (range.start, range.end.saturating_sub(1));
            let _ = writeln!(text, "  inodes   {start}..={last} ({})", range.len());
        }
        let _ = writeln!(text, "  policy   {}", policy.effective());
        let _ = writeln!(text, "  others   {} while it lasts", policy.interfere);
        let _ =
            writeln!(text, "Give it back with `cudele merge {path}` or `cudele discard {path}`.");
        text
    })
}
