//! Requests about the content of files.

use std::io::Write as _;
use std::sync::atomic::Ordering;

use posix::{Caching, Caller, Features, Seek};
use types::{Errno, Error, Ino, Result};

use crate::adapter::{Adapter, Given};
use crate::arguments::{O_ACCMODE, O_APPEND, O_WRONLY, SEEK_DATA, SEEK_HOLE, open_mode};
use crate::fuse::abi::fopen;
use crate::fuse::{Out, Write};

/// How the kernel caches an open file. A file that is only written gains nothing from the page
/// cache, and copying into the cache costs as much as writing to a store. But direct writes leave
/// old pages in the cache, which the kernel finds only if it compares the times of files.
pub(crate) fn how(caching: Caching, flags: i32, features: Features) -> u32 {
    let is_direct = flags & O_ACCMODE == O_WRONLY && features.shared_content;
    let direct = if is_direct { fopen::DIRECT_IO } else { 0 };
    match caching {
        Caching::Keep => fopen::KEEP_CACHE | direct,
        Caching::Afresh => direct,
        Caching::None => fopen::DIRECT_IO,
    }
}

/// Logs the file, the block and the remedy of damaged content: the program gets an error number.
fn log_damage(error: &Error) {
    if error.errno == Errno::Io {
        let line = error.to_string().replace(char::is_control, "?");
        // A mount without a log continues to work.
        let _ = writeln!(std::io::stderr().lock(), "cannot read {line}");
    }
}

impl Adapter {
    pub(crate) fn open(
        &self,
        caller: &Caller,
        ino: Ino,
        flags: i32,
        out: &mut Out,
    ) -> Result<Given> {
        let mode = open_mode(flags);
        let caching = self.fs.open(caller, ino, mode)?;
        let how = how(caching, flags, self.fs.features());
        out.opened(self.next_handle.fetch_add(1, Ordering::Relaxed), how);
        Ok(Given::File(ino, mode.write))
    }

    pub(crate) fn read(&self, ino: Ino, offset: u64, size: u32, out: &mut Out) -> Result<Given> {
        let read = self.fs.read(ino, offset, out.room(size as usize));
        let length = read.inspect_err(log_damage)?;
        out.fill(length);
        Ok(Given::Nothing)
    }

    pub(crate) fn write(&self, ino: Ino, write: &Write<'_>, out: &mut Out) -> Result<Given> {
        if write.drops_set_id {
            self.fs.drop_set_id(ino)?;
        }
        let append = write.flags & O_APPEND != 0 && !write.is_cached;
        self.fs.write(ino, write.offset, write.data, append)?;
        out.count(u32::try_from(write.data.len()).unwrap_or(u32::MAX));
        Ok(Given::Nothing)
    }

    pub(crate) fn flush(&self, ino: Ino, owner: u64) -> Result<Given> {
        let flushed = self.fs.flush(ino);
        // After the flush: the next holder of the lock must see the writes made under it.
        self.fs.unlock_process(ino, owner);
        flushed.map(|()| Given::Nothing)
    }

    pub(crate) fn release(&self, ino: Ino, handle: u64, flags: i32) -> Result<Given> {
        self.fs.unlock_file(ino, handle);
        self.fs.close(ino, open_mode(flags).write).map(|()| Given::Nothing)
    }

    pub(crate) fn seek(&self, ino: Ino, offset: i64, whence: i32, out: &mut Out) -> Result<Given> {
        let what = match whence {
            SEEK_DATA => Seek::Data,
            SEEK_HOLE => Seek::Hole,
            // The kernel handles the other kinds.
            _ => return Err(Error::of(Errno::Invalid, "lseek")),
        };
        // A negative position is before the file.
        let offset = u64::try_from(offset).map_err(|_| Error::of(Errno::NoSuchPlace, "lseek"))?;
        out.u64(self.fs.seek(ino, offset, what)?);
        Ok(Given::Nothing)
    }
}
