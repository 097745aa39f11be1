//! Inodes with numbers that were reserved: another part of the job has made them already.

use namespace::PlannedInode;
use types::{
    Cred, EntryName, Errno, FILE_BYTES_MAX, FileType, INLINE_BYTES_MAX, Ino, InoRange, check_name,
};

use super::ClientSubtree;

impl ClientSubtree {
    /// Takes up to so many numbers out, in one block; empty without numbers.
    pub fn reserve(&mut self, count: u64) -> InoRange {
        while let Some(range) = self.ranges.front_mut() {
            let end = range.start.saturating_add(count).min(range.end);
            let block = InoRange { start: range.start, end };
            range.start = end;
            if !block.is_empty() {
                self.last = Ino(end - 1);
                return block;
            }
            self.ranges.pop_front();
        }
        InoRange { start: 0, end: 0 }
    }

    /// The end of the block that was reserved last is unused, unless numbers were taken since.
    pub fn give_back(&mut self, unused: InoRange) {
        if !unused.is_empty() && self.last == Ino(unused.end - 1) {
            self.last = Ino(unused.start - 1);
            self.ranges.push_front(unused);
        }
    }

    /// Creates like [`ClientSubtree::create`], with a number that was reserved.
    ///
    /// # Errors
    /// As [`ClientSubtree::create`].
    pub fn place(
        &mut self,
        cred: &Cred,
        ino: Ino,
        at: EntryName<'_>,
        new: &PlannedInode<'_>,
    ) -> Result<(), Errno> {
        check_new(at.name, new)?;
        self.append_create(cred, ino, at, new);
        Ok(())
    }
}

/// Checks the name and the parts of a new inode.
#[inline]
pub(super) fn check_new(name: &[u8], new: &PlannedInode<'_>) -> Result<(), Errno> {
    check_name(name)?;
    if FileType::from_mode(new.mode).is_none() {
        return Err(Errno::Invalid);
    }
    if new.data.len() > INLINE_BYTES_MAX || new.size > FILE_BYTES_MAX {
        return Err(Errno::TooBig);
    }
    Ok(())
}
