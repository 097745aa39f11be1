//! Reads and writes of the content of open files.
//!
//! Limits: a file that is not open has no content here; module `open` opens and closes.

use std::sync::Arc;

use cudele::{Error, Fs, INLINE_BYTES_MAX, Ino, Result, StripedFile};

use crate::VfsOptions;
use crate::file::{Body, Content, checked_end, usize_of};
use crate::shared::WriteAt;
use crate::tree::Trees;
use crate::write_back::WriteBack;

/// The content of open files, with all that its calls may touch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ContentCx<'a> {
    pub(crate) fs: &'a Arc<Fs>,
    pub(crate) options: &'a VfsOptions,
    pub(crate) trees: &'a Trees,
    pub(crate) write_back: &'a WriteBack,
}

impl ContentCx<'_> {
    /// Finds the place of the content, and reads it if it is small. Content in the object store is
    /// complete.
    pub(crate) fn load(&self, ino: Ino, content: &mut Content) -> Result<()> {
        self.drain(ino, content)?;
        self.find(ino, content)
    }

    pub(crate) fn find(&self, ino: Ino, content: &mut Content) -> Result<()> {
        if content.body != Body::Unread {
            return Ok(());
        }
        let small = content.size <= INLINE_BYTES_MAX as u64;
        let mut data = if small { self.trees.data(ino)? } else { Vec::new() };
        content.body = if small && (!data.is_empty() || content.size == 0) {
            data.resize(usize_of(content.size), 0);
            Body::Inline(data)
        } else {
            Body::Striped
        };
        Ok(())
    }

    /// Reads from an open file; returns how many bytes, fewer than asked for only at its end.
    ///
    /// # Errors
    /// `EIO`, `ESTALE`; those of writes before.
    pub(crate) fn read(&self, ino: Ino, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let file = self.trees.file(ino)?;
        let mut content = file.held();
        self.note_read(&mut content);
        let size = if content.shared {
            self.drain(ino, &mut content)?;
            let end = offset.saturating_add(buffer.len() as u64);
            if content.lazy && end <= content.size {
                content.size
            } else {
                self.shared_size(ino, &mut content)?
            }
        } else {
            self.load(ino, &mut content)?;
            content.size
        };
        let length = usize_of((buffer.len() as u64).min(size.saturating_sub(offset)));
        let buffer = &mut buffer[..length];
        if let (Body::Inline(data), false) = (&content.body, content.shared) {
            if length > 0 {
                let start = usize_of(offset);
                buffer.copy_from_slice(&data[start..start + length]);
            }
            return Ok(length);
        }
        let stripe = content.stripe;
        drop(content);
        let read = self.fs.read_into(StripedFile::new(ino, stripe), offset, buffer);
        read.map_err(|error| self.named(ino, error))?;
        Ok(length)
    }

    /// Names the file's path in an error about an inode, if the mount knows the path.
    fn named(&self, ino: Ino, error: Error) -> Error {
        match self.trees.nodes().path(ino) {
            Some(path) => Error { subject: path.to_string(), ..error },
            None => error,
        }
    }

    /// Writes to an open file; with `append` at its end, wherever that is.
    ///
    /// # Errors
    /// `EFBIG`, `ENOSPC`, `EIO`, `ESTALE`.
    pub(crate) fn write(&self, ino: Ino, offset: u64, data: &[u8], append: bool) -> Result<()> {
        let file = self.trees.file(ino)?;
        let mut content = file.held();
        if content.shared && content.lazy && !append && content.nameless.is_none() {
            return self.write_lazily(ino, &mut content, offset, data);
        }
        if content.shared {
            self.write_back(ino, &mut content)?;
            let at = if append { WriteAt::End } else { WriteAt::Offset(offset) };
            return self.write_shared(ino, &mut content, at, data);
        }
        self.find(ino, &mut content)?;
        let offset = if append { content.size } else { offset };
        let end = checked_end(offset, data.len() as u64)?;
        self.make_room(ino, &mut content, end)?;
        if let Body::Inline(held) = &mut content.body {
            let start = usize_of(offset);
            held[start..start + data.len()].copy_from_slice(data);
            content.lost.replace(offset..end);
            content.size = content.size.max(end);
        } else {
            self.write_buffered(ino, &mut content, offset, data)?;
        }
        content.touch();
        Ok(())
    }

    /// Makes room up to a length: content that gets too long for the inode goes to the store.
    fn make_room(&self, ino: Ino, content: &mut Content, end: u64) -> Result<()> {
        let was_inline = matches!(content.body, Body::Inline(_));
        content.make_room(end, || self.trees.inline_bytes(ino));
        if was_inline && content.body == Body::Striped {
            self.trees.note_content(ino)?;
        }
        Ok(())
    }

    pub(crate) fn grow(&self, ino: Ino, content: &mut Content, end: u64) -> Result<()> {
        self.make_room(ino, content, end)?;
        self.drain(ino, content)?;
        self.clear_tail(ino, content)?;
        content.size = content.size.max(end);
        Ok(())
    }

    pub(crate) fn resize(&self, ino: Ino, content: &mut Content, size: u64) -> Result<()> {
        content.lost.replace(size..u64::MAX);
        if size > content.size {
            return self.grow(ino, content, size);
        }
        match &mut content.body {
            Body::Inline(held) => held.truncate(usize_of(size)),
            Body::Striped | Body::Unread => {
                // The content of a shared file stays in the object store, which all its clients
                // read.
                let place = StripedFile::new(ino, content.stripe);
                content.note_change(size..content.size);
                if content.shared || (size > 0 && size > self.trees.inline_bytes(ino)) {
                    self.fs.zero_range(place, content.size, size..content.size)?;
                } else {
                    // Short again: it goes back to where short content is.
                    let data = self.fs.read_at(place, 0, usize_of(size))?;
                    let body = std::mem::replace(&mut content.body, Body::Inline(data));
                    let before = std::mem::replace(&mut content.size, size);
                    // Before the inode has it, nothing goes.
                    if let Err(error) = self.write_back(ino, content) {
                        (content.body, content.size) = (body, before);
                        return Err(error);
                    }
                    return self.fs.withdraw_data(place, before.max(content.tail));
                }
            }
        }
        content.size = size;
        Ok(())
    }
}
