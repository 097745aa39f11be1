//! Opening and reading files.

use std::cell::RefCell;

use cudele::{Ino, Result};
use fuser::{FopenFlags, OpenFlags, ReplyData, ReplyOpen};
use vfs::Caching;

use crate::filesystem::{FILE, Filesystem};
use crate::{answer, kernel};

thread_local! {
    /// What a thread reads into, for one read after the other.
    static READ: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// What the kernel may remember of a file that is open.
pub(crate) fn how(caching: Caching, flags: OpenFlags) -> FopenFlags {
    match caching {
        Caching::Keep => FopenFlags::FOPEN_KEEP_CACHE | kernel::open_flags(flags),
        Caching::Afresh => kernel::open_flags(flags),
        Caching::None => FopenFlags::FOPEN_DIRECT_IO,
    }
}

impl Filesystem {
    /// Says that a file is open, and what the kernel may remember of it.
    pub(crate) fn opened(caching: Result<Caching>, flags: OpenFlags, reply: ReplyOpen) {
        match caching {
            Ok(caching) => reply.opened(FILE, how(caching, flags)),
            Err(error) => reply.error(answer::errno(&error)),
        }
    }

    pub(crate) fn read_content(&self, ino: Ino, offset: u64, length: usize, reply: ReplyData) {
        READ.with_borrow_mut(|buffer| {
            // As long as the longest read so far: new memory would cost as much as the copying.
            if buffer.len() < length {
                buffer.resize(length, 0);
            }
            match self.vfs.read(ino, offset, &mut buffer[..length]) {
                Ok(length) => reply.data(&buffer[..length]),
                Err(error) => reply.error(answer::errno(&error)),
            }
        });
    }
}
