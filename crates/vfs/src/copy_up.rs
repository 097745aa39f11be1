//! Files that are not written in place: the server of a branch rejects that (`EROFS`), because all
//! branches share the snapshot. A copy takes the file's place, and a later open by name finds the
//! copy.
//!
//! Invariant: nothing is written to a file that was refused.

use cudele::{Errno, Error, Ino, Result};

use crate::open::FilesCx;

impl FilesCx<'_> {
    /// Judges the result of opening a file for writing. If only a copy can be written, it returns
    /// `ESTALE`: a kernel then looks the name up again, and so must callers by path.
    pub(crate) fn or_copy_up<T>(&self, ino: Ino, opened: Result<T>) -> Result<T> {
        match opened {
            Err(error) if error.errno == Errno::ReadOnly && !self.options.read_only => {
                let (parent, name) = self.trees.nodes().name(ino).ok_or(error)?;
                self.trees.walked(parent, || self.fs.replace_by_copy(parent, &name, ino))?;
                Err(Error::new(Errno::Stale, ino.to_string(), "a copy is in its place now"))
            }
            opened => opened,
        }
    }
}
