//! Files without their content: a dump has names and attributes only.
//!
//! A hole reads as zeros, which a program cannot tell from content. So the user must ask for holes.

use cudele::{Errno, Error, FileType, NewFile, Result};

use super::{Intake, split};
use crate::source::{SourceEntry, shown};

impl Intake<'_> {
    /// A file without its content.
    pub(super) fn hollow(&mut self, entry: &SourceEntry<'_>, size: u64) -> Result<()> {
        if !self.hollow {
            let cause = format!("the source has its size of {size} bytes, but not its content");
            return Err(Error::new(Errno::NoData, shown(entry.path), cause)
                .remedy("choose --hollow: such files are made with a hole of their size"));
        }
        let dir = self.place(entry.path)?;
        let new = NewFile { size, ..self.new_file(entry, FileType::Regular) };
        let made = self.create(dir, split(entry.path).1, entry.path, &new)?;
        self.tally.hollow += 1;
        self.xattrs(dir, made.ino, entry)
    }
}
