//! Parts of files that take no room: how they come about, and where they are.

use cudele::{Errno, Error, Ino, Result, StripedFile};
use posix::Seek;

use crate::content::ContentCx;
use crate::file::{Body, checked_end, usize_of};

impl ContentCx<'_> {
    /// The start of data or of a hole at or behind an offset of a file (`SEEK_DATA`, `SEEK_HOLE`).
    /// An unsynced change through a mapping may be inside a reported hole: only the kernel knows of
    /// it.
    ///
    /// # Errors
    /// `ENXIO` behind the end, or for data if there is no more; `EIO`, `ESTALE`.
    pub(crate) fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64> {
        let nowhere = || Error::of(Errno::NoSuchPlace, "file");
        let file = self.trees.file(ino)?;
        let mut content = file.held();
        let size = if content.shared {
            self.drain(ino, &mut content)?;
            self.shared_size(ino, &mut content)?
        } else {
            self.load(ino, &mut content)?;
            content.size
        };
        if offset >= size {
            return Err(nowhere());
        }
        let inline = matches!(content.body, Body::Inline(_)) && !content.shared;
        let place = StripedFile::new(ino, content.stripe);
        drop(content);
        match (what, inline) {
            (Seek::Data, true) => Ok(offset),
            (Seek::Hole, true) => Ok(size),
            (Seek::Data, false) => self.fs.next_data(place, size, offset)?.ok_or_else(nowhere),
            (Seek::Hole, false) => self.fs.next_hole(place, size, offset),
        }
    }

    /// Allocates or frees a part of a file: `fallocate` without a mode (`KEEP_SIZE` 1), with
    /// `PUNCH_HOLE` (2) or `ZERO_RANGE` (16).
    ///
    /// # Errors
    /// `EOPNOTSUPP` for anything else; `EFBIG`, `EINVAL`, `ENOSPC`, `EIO`.
    pub(crate) fn allocate(&self, ino: Ino, offset: u64, length: u64, mode: u32) -> Result<()> {
        const KEEP_SIZE: u32 = 1;
        const PUNCH_HOLE: u32 = 2;
        const ZERO_RANGE: u32 = 16;
        let (zero, keep) = match mode {
            0 => (false, false),
            KEEP_SIZE => (false, true),
            ZERO_RANGE => (true, false),
            _ if mode == PUNCH_HOLE | KEEP_SIZE || mode == ZERO_RANGE | KEEP_SIZE => (true, true),
            _ => return Err(Error::of(Errno::NotSupported, "fallocate")),
        };
        let end = checked_end(offset, length)?;
        let file = self.trees.file(ino)?;
        let mut content = file.held();
        if content.shared && content.nameless.is_none() {
            self.write_back(ino, &mut content)?;
            content.note_change(offset..end);
            return self.allocate_shared(ino, offset..end, zero, keep);
        }
        self.load(ino, &mut content)?;
        if zero {
            let end = end.min(content.size);
            if let Body::Inline(held) = &mut content.body {
                held[usize_of(offset.min(end))..usize_of(end)].fill(0);
            } else if offset < end {
                let place = StripedFile::new(ino, content.stripe);
                content.note_change(offset..end);
                self.fs.zero_range(place, content.size, offset..end)?;
            }
        }
        if !keep {
            self.grow(ino, &mut content, end)?;
        }
        content.touch();
        Ok(())
    }
}
