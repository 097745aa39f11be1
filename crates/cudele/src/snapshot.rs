//! The requests of a metadata server that branches need: a snapshot of a directory, and the
//! directory for the merge of a branch.

use types::{Epoch, Errno, Error, Ino, Path, Result};
use wire::{AdminOp, Answer, JobOp, Op};

use crate::Fs;
use crate::fs::unexpected;

impl Fs {
    /// Takes a snapshot of a directory, under an identity that no other snapshot has. The snapshot
    /// has every name that is visible when this returns, and every change that was acknowledged
    /// before the call.
    ///
    /// # Errors
    /// `EBUSY` if a part of the directory has a server of its own; the errors of the path.
    pub fn snapshot(&self, path: &Path, id: u64) -> Result<()> {
        let about = |error: Error| error.about(path.to_string());
        let root =
            self.walk(path)?.1.ok_or_else(|| Error::of(Errno::NotFound, path.to_string()))?;
        let answer =
            self.call(Op::Admin(AdminOp::Snapshot { dir: root.ino, id })).map_err(about)?;
        let Answer::Snapshot(_) = answer else { return Err(unexpected(&answer)) };
        Ok(())
    }

    /// Takes a directory for this client to merge a published branch into it, with the inode
    /// numbers of the branch. `path` leads to the directory: walking it brings the directory into
    /// the server's memory. With `block`, other clients get `EBUSY` in the directory until this
    /// client releases it. Returns the epoch for the header of the merged journal.
    ///
    /// # Errors
    /// `EBUSY` if a client has the directory, one above or one below; `ESTALE` if the directory was
    /// removed.
    pub fn adopt(&self, subtree: Ino, path: &Path, branch: &str, block: bool) -> Result<Epoch> {
        let _ = self.walk(path);
        let op = Op::Job(JobOp::Adopt { subtree, branch: branch.as_bytes(), block });
        let answer = self.call(op).map_err(|error| error.about(path.to_string()))?;
        let Answer::Decoupled(decoupled) = answer else { return Err(unexpected(&answer)) };
        Ok(decoupled.epoch)
    }
}
