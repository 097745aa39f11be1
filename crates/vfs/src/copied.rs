//! Files that are not written to where they are: the server of a branch refuses that (`EROFS`), because what
//! is in the snapshot is everybody's. A copy takes the file's place, and whoever opens it by name again
//! finds the copy.
//!
//! Invariant: nothing is written to a file that was refused.

use cudele::{Errno, Error, Ino, Result};

use crate::Vfs;

impl Vfs {
    /// Judges how opening a file for writing ended. If that is only to be done elsewhere, it says `ESTALE`:
    /// a kernel looks the name up once more, as whoever opens by path should.
    pub(crate) fn or_copied<T>(&self, ino: Ino, opened: Result<T>) -> Result<T> {
        match opened {
            Err(error) if error.errno == Errno::ReadOnly && !self.options.read_only => {
                let (parent, name) = self.nodes().name(ino).ok_or(error)?;
                self.walked(parent, || self.fs.replace_by_copy(parent, &name, ino))?;
                Err(Error::new(Errno::Stale, ino.to_string(), "a copy is in its place now"))
            }
            opened => opened,
        }
    }
}
