//! The content of files that are open.
//!
//! Small content is held here and goes to the inode when a file is flushed. Larger content is in
//! the buffers of module `write_back` when a write returns, and the length goes to the inode at the
//! flush. The policy of the directory at the time of the write decides which content is small. All
//! handles of a process share one content, so they are consistent at once; another process sees a
//! write if it opens the file after a flush (close-to-open).
//!
//! Invariants: inline content is as long as the file; bytes in the object store beyond the end of a
//! file read as zeros; a file without a name keeps attributes and content here.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, TryLockError};

use cudele::{Attr, AttrChange, Errno, Error, FILE_BYTES_MAX, Result, Stripe, Timestamp};

use crate::held;
use crate::lost_writes::Lost;
use crate::unsynced::Unsynced;
use crate::write_back::WriteBuffer;

/// A file that is open.
#[derive(Debug)]
pub(crate) struct File {
    content: Mutex<Content>,
}

#[derive(Debug)]
pub(crate) struct Content {
    pub(crate) size: u64,
    pub(crate) body: Body,
    /// How it is striped in the object store.
    pub(crate) stripe: Stripe,
    /// The inode does not know of it yet.
    pub(crate) dirty: bool,
    /// The file was written since it was opened here, and is not shared: the length here is the
    /// right one.
    pub(crate) changed: bool,
    /// When it was written last.
    written: Timestamp,
    /// Content in the object store that may not be durable.
    pub(crate) unsynced: Unsynced,
    /// Content that is still to be written there.
    pub(crate) buffered: WriteBuffer,
    /// Content that could not be written there.
    pub(crate) lost: Lost,
    /// The object store may have bytes of lost writes below this offset; 0 if it has none.
    pub(crate) tail: u64,
    /// The attributes, when the inode has lost its last name.
    pub(crate) nameless: Option<Attr>,
    /// The attributes when they were seen last.
    pub(crate) last: Attr,
    /// When it was read last, if that is worth telling and the inode does not know.
    pub(crate) accessed: Option<Timestamp>,
    /// How often it was closed, for reading and for writing, since it has no name.
    pub(crate) unclosed: [u32; 2],
    /// Several clients have the file open, and one of them writes: no content is held here, unless
    /// the file is `lazy`.
    pub(crate) shared: bool,
    /// Other clients of a shared file see writes of this one at the flush (`sharing: lazy`).
    pub(crate) lazy: bool,
    /// How far it was written here while it was, if the server has not been told.
    pub(crate) grown: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    /// Nobody has looked.
    Unread,
    Inline(Vec<u8>),
    /// In the object store.
    Striped,
}

impl File {
    pub(crate) fn new(attr: &Attr, body: Body) -> Self {
        let content = Content {
            size: attr.size,
            body,
            stripe: attr.stripe,
            dirty: false,
            changed: false,
            written: Timestamp(0),
            unsynced: Unsynced::unknown(),
            buffered: WriteBuffer::default(),
            lost: Lost::default(),
            tail: 0,
            nameless: None,
            unclosed: [0; 2],
            last: *attr,
            accessed: None,
            shared: false,
            lazy: false,
            grown: 0,
        };
        Self { content: Mutex::new(content) }
    }

    /// One that was made just now: there is nothing of it that could be durable.
    pub(crate) fn empty(attr: &Attr) -> Self {
        let file = Self::new(attr, Body::Inline(Vec::new()));
        file.held().unsynced = Unsynced::default();
        file
    }

    pub(crate) fn held(&self) -> MutexGuard<'_, Content> {
        held(&self.content)
    }

    /// The content, unless another call is using it.
    pub(crate) fn if_idle(&self) -> Option<MutexGuard<'_, Content>> {
        match self.content.try_lock() {
            Ok(content) => Some(content),
            Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The attributes, if it has lost its last name.
    pub(crate) fn nameless(&self) -> Option<Attr> {
        let content = self.held();
        let attr = content.nameless?;
        Some(content.over(attr))
    }

    /// Changes attributes of a file without a name; false if it has one.
    pub(crate) fn change_nameless(&self, change: &AttrChange) -> bool {
        let mut content = self.held();
        let Some(attr) = &mut content.nameless else { return false };
        let kind = attr.mode & !0o7777;
        attr.mode = change.mode.map_or(attr.mode, |mode| kind | (mode & 0o7777));
        attr.uid = change.uid.unwrap_or(attr.uid);
        attr.gid = change.gid.unwrap_or(attr.gid);
        attr.atime = change.atime.unwrap_or(attr.atime);
        attr.mtime = change.mtime.unwrap_or(attr.mtime);
        attr.ctime = cudele::now_coarse();
        content.accessed = content.accessed.filter(|_| change.atime.is_none());
        content.forget_written(change);
        true
    }
}

impl Content {
    /// The attributes that a process with the file open sees. `attr` may be older than the writes
    /// here.
    pub(crate) fn over(&self, attr: Attr) -> Attr {
        let atime = self.accessed.map_or(attr.atime, |at| at.max(attr.atime));
        let changed = self.changed && !self.shared;
        let known_here = self.dirty || changed || self.nameless.is_some();
        let size = if known_here { self.size } else { attr.size.max(self.grown) };
        let attr = Attr { size, atime, ..attr };
        // A later change of the inode has the right times.
        if self.dirty || (changed && attr.ctime < self.written) {
            let (mtime, ctime) = (attr.mtime.max(self.written), attr.ctime.max(self.written));
            return Attr { mtime, ctime, ..attr };
        }
        attr
    }

    /// Other clients have opened the file: no content is held here from now on.
    pub(crate) fn share(&mut self, lazy: bool) {
        (self.body, self.shared, self.lazy) = (Body::Striped, true, lazy);
    }

    /// The file is private again: writes of other clients are not known here.
    pub(crate) fn unshare(&mut self) {
        (self.body, self.size) = (Body::Unread, self.last.size.max(self.grown));
        (self.shared, self.changed) = (false, false);
    }

    /// The times here must not undo an explicit change of times.
    pub(crate) fn forget_written(&mut self, change: &AttrChange) {
        if change.mtime.is_some() {
            self.written = Timestamp(0);
        }
    }

    /// It has lost its last name.
    pub(crate) fn lose_name(&mut self, attr: Attr) {
        let ctime = cudele::now_coarse();
        let attr = self.over(attr);
        if self.shared {
            self.size = self.size.max(attr.size);
        }
        self.nameless = Some(Attr { nlink: 0, ctime, ..attr });
    }

    /// Makes room up to a length: content that gets too long for the inode moves to the store.
    pub(crate) fn make_room(&mut self, end: u64, inline_bytes: impl FnOnce() -> u64) {
        let Body::Inline(held) = &mut self.body else { return };
        if end <= held.len() as u64 {
            return;
        }
        if end <= inline_bytes() {
            held.resize(usize_of(end), 0);
            return;
        }
        self.unsynced.note(self.stripe, 0..held.len() as u64);
        self.buffered.take_inline(std::mem::take(held));
        self.body = Body::Striped;
    }

    /// A range of it in the object store is about to change.
    pub(crate) fn note_change(&mut self, range: Range<u64>) {
        self.unsynced.note(self.stripe, range.clone());
        self.lost.replace(range);
    }

    /// Whether something of it is known here only, or may not be durable.
    pub(crate) fn is_unwritten(&self) -> bool {
        self.dirty || self.grown > 0 || self.unsynced.is_changed()
    }

    pub(crate) fn touch(&mut self) {
        (self.dirty, self.changed) = (true, true);
        self.written = cudele::now_coarse();
    }
}

pub(crate) fn usize_of(length: u64) -> usize {
    usize::try_from(length).unwrap_or(usize::MAX)
}

pub(crate) fn checked_end(offset: u64, length: u64) -> Result<u64> {
    let end = offset.checked_add(length).filter(|end| *end <= FILE_BYTES_MAX);
    end.ok_or_else(|| Error::new(Errno::TooBig, "file", "a file holds at most 1 EiB"))
}

#[cfg(test)]
mod tests;
