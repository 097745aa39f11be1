//! A snapshot that a client takes itself, of a store without servers: after a clean stop the
//! metadata store has the whole namespace.
//!
//! Invariant: as long as this takes no server can start, and nothing is taken of a store in which a
//! journal says something that the directories do not.

use engine::{load_dir_at, take_snapshot};
use metastore::{Snapshot, Subtrees};
use namespace::{Namespace, Refusal};
use objstore::{ObjectStore, Store};
use types::{Errno, Error, Ino, Path, Rank, Result};

/// Reads a directory as it is: nothing is kept under as large a number.
const NOW: u64 = u64::MAX;

pub(crate) fn take(store: &dyn Store, path: &Path, id: u64) -> Result<()> {
    let owner = std::process::id().to_string();
    let lock = store.lock(&format!("rank/{:04x}.lock", Rank(0).0), &owner);
    let _lock = lock.map_err(|error| {
        if error.errno != Errno::Busy {
            return error;
        }
        let cause = "a metadata server uses the store";
        Error::new(Errno::Busy, path.to_string(), cause)
            .remedy("name its cluster (--dir, --mon), which takes the snapshot then")
    })?;
    if let Some(segment) = store.list("journal/mds.")?.first() {
        let cause = format!("the store is not at rest: it has a journal ({segment})");
        return Err(Error::new(Errno::Busy, path.to_string(), cause)
            .remedy("start the cluster and stop it cleanly (`cudele up`, `cudele down`)"));
    }
    check_ranks(store)?;
    let mut namespace = Namespace::new();
    namespace.store().leave_links_to_store();
    load(store, &mut namespace, Ino::ANCHOR)?;
    // It has no name, and nothing but the one of the root in it.
    let root = loop {
        let cred = types::Cred::root();
        let walked = namespace.walk(&cred, Ino::ROOT, path);
        match walked {
            Ok(walked) => break walked.attr,
            Err(Refusal::Cold(dir)) => load(store, &mut namespace, dir)?,
            Err(Refusal::Errno(errno)) => return Err(Error::of(errno, path.to_string())),
        }
    };
    let root = root.ok_or_else(|| Error::of(Errno::NotFound, path.to_string()))?;
    if !root.is_dir() {
        return Err(Error::of(Errno::NotDirectory, path.to_string()));
    }
    loop {
        match namespace.access(&cudele::own_cred(), root.ino, 5) {
            Ok(_) => break,
            Err(Refusal::Cold(dir)) => load(store, &mut namespace, dir)?,
            Err(Refusal::Errno(errno)) => return Err(Error::of(errno, path.to_string())),
        }
    }
    let (source, in_force) = namespace.effective_policy(root.ino);
    let policy = source.map(|_| in_force.policy.to_yaml()).unwrap_or_default();
    let (time, path) = (cudele::now(), path.to_bytes());
    take_snapshot(store, &Snapshot { number: 0, id, time, path, policy, root }).map(drop)
}

fn load(store: &dyn Store, namespace: &mut Namespace, dir: Ino) -> Result<()> {
    match load_dir_at(store, dir, NOW)? {
        Some(loaded) => {
            namespace.store().load(dir, loaded.rows.iter());
            namespace.store().finish_load(dir, loaded.manifest.position, loaded.manifest.touched);
        }
        None => namespace.store().finish_load(dir, types::Seq(0), Default::default()),
    }
    Ok(())
}

/// Servers of other ranks than the locked one could still start.
fn check_ranks(store: &dyn ObjectStore) -> Result<()> {
    let list = match store.get(metastore::SUBTREES_NAME) {
        Ok((bytes, _)) => Subtrees::decode(&bytes)?,
        Err(error) if error.errno == Errno::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    match list.unjoined().find(|subtree| subtree.rank != Rank(0)) {
        None => Ok(()),
        Some(subtree) => {
            let path = String::from_utf8_lossy(&subtree.path).into_owned();
            let cause = format!("{} serves it", subtree.rank);
            Err(Error::new(Errno::Busy, path, cause).remedy(
                "bring it back to rank 0 first (`cudele mds pin PATH 0`), or start the cluster",
            ))
        }
    }
}
