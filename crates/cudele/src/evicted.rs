//! Requests about inodes that a server may have evicted, or not loaded since its start: carries out
//! the decisions of [`client::Walks`].
//!
//! Invariant: `ESTALE` means that the path leads to nothing, or to another inode. A path that
//! could not be walked for another reason is that reason's error.

use client::{WalkStep, Walks, leads_to};
use types::{Cred, Errno, Ino, Path, Result};
use wire::{Op, ReadOp};

use crate::Fs;

/// Makes a request about so many inodes, and again after a walk to each of them if a server has not
/// loaded them. `walk` walks to one, and says whether the path leads to it.
///
/// # Errors
/// Those of the request and of the walks; `ESTALE` if a path does not lead to its inode.
pub fn walked<T>(
    inos: usize,
    mut request: impl FnMut() -> Result<T>,
    mut walk: impl FnMut(usize) -> Result<bool>,
) -> Result<T> {
    let mut walks = Walks::new(inos);
    let mut result = request();
    let _ = walks.next(false);
    let mut good = !is_stale(&result);
    loop {
        match walks.next(good) {
            WalkStep::Request => {
                result = request();
                good = !is_stale(&result);
            }
            WalkStep::Walk(at) => good = walk(at)?,
            WalkStep::End => return result,
        }
    }
}

fn is_stale<T>(result: &Result<T>) -> bool {
    result.as_ref().is_err_and(|error| error.errno == Errno::Stale)
}

impl Fs {
    /// Makes a request about inodes, and again after a walk to each of them if a server has not
    /// loaded them.
    ///
    /// # Errors
    /// Those of the request, and of [`Fs::walk_to`]; `ESTALE` if a path does not lead to its inode.
    pub fn walked<T>(
        &self,
        places: &[(&Path, Ino)],
        request: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        let walk = |at: usize| {
            let (path, ino) = places[at];
            self.walk_to(Ino::ROOT, path, ino)
        };
        walked(places.len(), request, walk)
    }

    /// Walks from a directory to an inode, so that the server loads it. Returns whether the path
    /// leads to this inode.
    ///
    /// # Errors
    /// `ESTALE` if the server has not loaded `base`; those of the cluster, `EACCES`, `EBUSY` in
    /// another client's subtree. A path that leads nowhere is no error.
    pub fn walk_to(&self, base: Ino, path: &Path, ino: Ino) -> Result<bool> {
        self.walk_to_as(self.cred(), base, path, ino)
    }

    /// The same on behalf of another user.
    ///
    /// # Errors
    /// As [`Fs::walk_to`].
    pub fn walk_to_as(&self, cred: &Cred, base: Ino, path: &Path, ino: Ino) -> Result<bool> {
        let bytes = path.to_bytes();
        let answer = self.call_as(cred, Op::Read(ReadOp::Walk { base, path: &bytes }));
        leads_to(ino, answer).map_err(|error| error.about(path.to_string()))
    }
}
