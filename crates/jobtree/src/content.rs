//! The content of files: one record that doubles when it gets too small.

use std::sync::atomic::Ordering;

use crate::alloc::class_bytes;
use crate::inode::{CONTENT, CTIME, Inode, LOCK, MODE, MTIME, SIZE};
use crate::region::{Denied, Host, JobRegion};
use crate::slots::Visit;

/// A file with more bytes does not stay in the region.
pub const CONTENT_BYTES_MAX: u64 = 512 << 20;

impl JobRegion {
    /// Copies content out, for a thread that is inside. Returns the number of bytes, fewer than the
    /// buffer has only at the end.
    #[inline]
    pub fn read(&self, inode: Inode, offset: u64, buffer: &mut [u8]) -> usize {
        // The size first: the record that is read after it has at least so many bytes, unless
        // another thread truncates the file.
        let size = self.field(inode, SIZE);
        let content = self.field(inode, CONTENT);
        if content == 0 || offset >= size {
            let len = size.saturating_sub(offset).min(buffer.len() as u64) as usize;
            buffer[..len].fill(0);
            return len;
        }
        let size = size.min(class_bytes((content & 63) as u32 % 32));
        let len = size.saturating_sub(offset).min(buffer.len() as u64) as usize;
        self.copy_out((content & !63) + offset, &mut buffer[..len]);
        len
    }

    /// The content of an inode that no thread can change, without a copy.
    #[must_use]
    pub fn content(&self, inode: Inode) -> &[u8] {
        let content = self.field(inode, CONTENT);
        let size = self.field(inode, SIZE).min(class_bytes((content & 63) as u32 % 32));
        match self.pointer(content & !63, size) {
            // SAFETY: in the region; the caller knows that no thread writes.
            Some(at) if content != 0 => unsafe { std::slice::from_raw_parts(at, size as usize) },
            Some(_) | None => &[],
        }
    }
}

impl<H: Host> Visit<'_, H> {
    /// Writes to a file; without an offset at its end. Returns the position behind the write.
    ///
    /// # Errors
    /// [`Denied::Unable`] if there is no room.
    pub fn write(
        &self,
        inode: Inode,
        offset: Option<u64>,
        bytes: &[u8],
        now: i64,
        keeps_set_id: bool,
    ) -> Result<u64, Denied> {
        let region = self.region;
        let lock = self.lock(region.word(inode.0 + LOCK))?;
        let size = region.field(inode, SIZE);
        let start = offset.unwrap_or(size);
        let end = start.checked_add(bytes.len() as u64).ok_or(Denied::Unable)?;
        if bytes.is_empty() {
            return Ok(start);
        }
        let content = self.make_room(inode, size, end)?;
        if start > size {
            region.zero(content + size, start - size);
        }
        region.copy_in(content + start, bytes);
        if end > size {
            region.set_field(inode, SIZE, end);
        }
        drop(lock);
        region.set_field(inode, MTIME, now as u64);
        region.set_field(inode, CTIME, now as u64);
        if !keeps_set_id {
            self.drop_set_id(inode);
        }
        Ok(end)
    }

    /// A write by a user without the right to keep them removes set-user-id and set-group-id.
    fn drop_set_id(&self, inode: Inode) {
        let mode = self.region.mode(inode);
        let drop = if mode & 0o010 == 0 { 0o4000 } else { 0o6000 };
        if mode & drop != 0 {
            self.region.set_field(inode, MODE, (mode & !drop).into());
        }
    }

    /// The record of the content, with room up to `end`. The inode is locked.
    fn make_room(&self, inode: Inode, size: u64, end: u64) -> Result<u64, Denied> {
        let region = self.region;
        let content = region.field(inode, CONTENT);
        let (old, class) = (content & !63, (content & 63) as u32 % 32);
        if content != 0 && end <= class_bytes(class) {
            return Ok(old);
        }
        if end > CONTENT_BYTES_MAX {
            return Err(Denied::Unable);
        }
        let bigger = Self::content_class(end).max(if content == 0 { 0 } else { class + 1 });
        let new = self.take(bigger).ok_or(Denied::Unable)?;
        if content != 0 {
            let len = size.min(class_bytes(class));
            if let Some(from) = region.pointer(old, len) {
                // SAFETY: in the region, and the new record is this thread's.
                region.copy_in(new, unsafe { std::slice::from_raw_parts(from, len as usize) });
            }
        } else {
            // A file that was lengthened without a write has no record yet.
            region.zero(new, size.min(class_bytes(bigger)));
        }
        region.word(inode.0 + CONTENT).store(new | u64::from(bigger), Ordering::Release);
        if content != 0 {
            self.retire(old, class);
        }
        Ok(new)
    }

    /// Sets the length.
    ///
    /// # Errors
    /// [`Denied::Unable`] if there is no room.
    pub fn truncate(
        &self,
        inode: Inode,
        size: u64,
        now: i64,
        keeps_set_id: bool,
    ) -> Result<(), Denied> {
        let region = self.region;
        let lock = self.lock(region.word(inode.0 + LOCK))?;
        let before = region.field(inode, SIZE);
        if size > before {
            let content = self.make_room(inode, before, size)?;
            region.zero(content + before, size - before);
        }
        region.set_field(inode, SIZE, size);
        drop(lock);
        region.set_field(inode, MTIME, now as u64);
        region.set_field(inode, CTIME, now as u64);
        if !keeps_set_id {
            self.drop_set_id(inode);
        }
        Ok(())
    }
}
