//! Requests about inodes that a server may have evicted, or not loaded since its start.
//!
//! A request names an inode by its number, and the object store finds an inode only through the
//! directory that has its name. A server without the inode in memory answers `ESTALE`; the client
//! then walks the path, which makes the server load the inode, and sends the request again.
//!
//! Invariant: `ESTALE` means that the path leads to nothing, or to another inode. A path that
//! could not be walked for another reason is that reason's error.

use types::{Cred, Errno, Ino, Path, Result};
use wire::{Answer, Op};

use crate::Fs;
use crate::fs::unexpected;

/// Most walks for one request: more than one only if the server is restarted, or evicts the
/// inode, between the walk and the request.
pub const WALKS_MAX: u32 = 8;

impl Fs {
    /// Makes a request about inodes, and again after a walk to each of them if a server has not
    /// loaded them.
    ///
    /// # Errors
    /// Those of the request, and of [`Fs::walk_to`]; `ESTALE` if a path does not lead to its inode.
    pub fn walked<T>(
        &self,
        places: &[(&Path, Ino)],
        mut request: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        for _ in 0..WALKS_MAX {
            let stale = match request() {
                Err(error) if error.errno == Errno::Stale => error,
                result => return result,
            };
            for (path, ino) in places {
                if !self.walk_to((Ino::ROOT, path), *ino)? {
                    return Err(stale);
                }
            }
        }
        request()
    }

    /// Walks from a directory to an inode, so that the server loads it. Returns whether the path
    /// leads to this inode.
    ///
    /// # Errors
    /// `ESTALE` if the server has not loaded `base`; those of the cluster, `EACCES`, `EBUSY` in
    /// another client's subtree. A path that leads nowhere is no error.
    pub fn walk_to(&self, from: (Ino, &Path), ino: Ino) -> Result<bool> {
        self.walk_to_as(self.cred(), from, ino)
    }

    /// The same on behalf of another user.
    ///
    /// # Errors
    /// As [`Fs::walk_to`].
    pub fn walk_to_as(&self, cred: &Cred, (base, path): (Ino, &Path), ino: Ino) -> Result<bool> {
        let bytes = path.to_bytes();
        match self.call_as(cred, Op::Walk { base, path: &bytes }) {
            Ok(Answer::Walked { attr, .. }) => Ok(attr.is_some_and(|attr| attr.ino == ino)),
            Ok(answer) => Err(unexpected(&answer)),
            Err(error) if leads_nowhere(error.errno) => Ok(false),
            Err(error) => Err(error.about(path.to_string())),
        }
    }
}

fn leads_nowhere(errno: Errno) -> bool {
    matches!(errno, Errno::NotFound | Errno::NotDirectory | Errno::Loop)
}
