//! Processes of one user that have the same decoupled subtree at the same time.
//!
//! Each process holds a shared lock on the directory of the subtree while it lives, and a process
//! alone can get an exclusive one. Only one process at a time changes its lock, under a lock on the
//! directory above: to change a lock is to release it for a moment.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use types::Result;

use super::{StateDir, io_error};

/// Shows other processes that this one has the subtree, until it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    dir: File,
    path: PathBuf,
}

impl Share {
    /// From now on this process has the subtree.
    ///
    /// # Errors
    /// `EIO`, `ENOSPC`.
    pub(crate) fn new(state: &StateDir) -> Result<Self> {
        let path = state.path().to_owned();
        let open = || -> std::io::Result<File> {
            crate::own_file::make_dirs(&path)?;
            let _gate = gate(&path)?;
            let dir = File::open(&path)?;
            dir.lock_shared()?;
            Ok(dir)
        };
        let dir = open().map_err(|error| io_error(&path, &error))?;
        Ok(Self { dir, path })
    }

    /// Does something if no other process has the subtree, and lets none have it until it is done.
    ///
    /// # Errors
    /// `EIO`, and the errors of `act`.
    pub(crate) fn if_sole_user(&self, act: impl FnOnce() -> Result<()>) -> Result<()> {
        let failed = |error| io_error(&self.path, &error);
        let _gate = gate(&self.path).map_err(failed)?;
        let done = match self.dir.try_lock() {
            Ok(()) => act(),
            Err(TryLockError::WouldBlock) => Ok(()),
            Err(TryLockError::Error(error)) => Err(failed(error)),
        };
        self.dir.lock_shared().map_err(failed)?;
        done
    }
}

fn gate(path: &Path) -> std::io::Result<File> {
    let gate = File::open(path.parent().unwrap_or(path))?;
    gate.lock()?;
    Ok(gate)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn only_the_sole_holder_runs_the_action() {
        let home = tempfile::tempdir().unwrap();
        let state = StateDir::at(&home.path().join("subtrees/1"));
        let one = Share::new(&state).unwrap();
        let done = Cell::new(0);
        let attempt = |share: &Share| {
            share.if_sole_user(|| {
                done.set(done.get() + 1);
                Ok(())
            })
        };
        attempt(&one).unwrap();
        assert_eq!(done.get(), 1);
        let two = Share::new(&state).unwrap();
        attempt(&one).unwrap();
        attempt(&two).unwrap();
        assert_eq!(done.get(), 1, "there are two");
        drop(one);
        attempt(&two).unwrap();
        assert_eq!(done.get(), 2);
    }
}
