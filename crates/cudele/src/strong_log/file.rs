//! The file of a log: a journal that begins again when the server has stored its events.
//!
//! Invariants: after any interruption, the file has a whole header with all needed events behind
//! it; a process that uses the file holds a lock on it, so a file without a lock belongs to a dead
//! process.

use std::fs::{File, TryLockError};
use std::io::{ErrorKind, Read, Result, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use journal::segment::{HEADER_BYTES, SegmentReader};
use journal::{Event, JournalBuffer, SegmentHeader};
use types::{ClientId, Epoch, Origin, Seq, Timestamp};

use crate::own_file;

/// The beginning of the names of logs. The time of their start and the number of the client follow,
/// so that no process overwrites the log of an earlier process with the same client.
const PREFIX: &str = "strong.";

/// See the module documentation.
#[derive(Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    file: File,
    header: SegmentHeader,
    next: Seq,
}

/// The name of a log that a client begins.
pub(super) fn name(client: ClientId, now: Timestamp) -> String {
    format!("{PREFIX}{:016x}.{:x}", now.0, client.0)
}

/// Whether a file is a log, or was to become one.
pub(crate) fn is_log(name: &std::ffi::OsStr) -> bool {
    name.to_string_lossy().starts_with(PREFIX)
}

/// The start of a log, and its client.
pub(super) fn beginning(path: &Path) -> Option<(u64, u64)> {
    let (time, client) = path.file_name()?.to_str()?.strip_prefix(PREFIX)?.split_once('.')?;
    Some((u64::from_str_radix(time, 16).ok()?, u64::from_str_radix(client, 16).ok()?))
}

fn to_io(error: &impl ToString) -> std::io::Error {
    std::io::Error::new(ErrorKind::InvalidData, error.to_string())
}

impl LogFile {
    /// Writes a log with these blocks, in the place of an existing one.
    pub(super) fn start(path: &Path, header: SegmentHeader, blocks: &[u8]) -> Result<Self> {
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(".new");
        if let Some(parent) = path.parent() {
            crate::own_file::make_dirs(parent)?;
        }
        let mut file = own_file::create(temporary.as_ref())?;
        // Locked before it has its name: a file with the name is never taken for a dead client's.
        file.try_lock()?;
        file.write_all(&header.encode())?;
        file.write_all(blocks)?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)?;
        if let Some(parent) = path.parent() {
            File::open(parent)?.sync_all()?;
        }
        let mut log = Self { path: path.to_owned(), file, header, next: header.first_seq };
        log.next = log.intact()?.1;
        Ok(log)
    }

    /// The log of a process that is dead; nothing if it lives or has just removed the log.
    pub(super) fn of_the_dead(path: &Path) -> Result<Option<Self>> {
        let file = match own_file::open_existing(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        // Between open and lock, a new log may have taken the name.
        let locked = file.metadata()?;
        let named = match std::fs::metadata(path) {
            Ok(named) => named,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        if (locked.dev(), locked.ino()) != (named.dev(), named.ino()) {
            return Ok(None);
        }
        let mut start = [0; HEADER_BYTES];
        let length = usize::try_from(locked.len()).unwrap_or(HEADER_BYTES).min(HEADER_BYTES);
        file.read_exact_at(&mut start[..length], 0)?;
        let header = SegmentHeader::decode(&start[..length]).map_err(|error| to_io(&error))?;
        let mut log = Self { path: path.to_owned(), file, header, next: header.first_seq };
        log.next = log.intact()?.1;
        Ok(Some(log))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn header(&self) -> SegmentHeader {
        self.header
    }

    /// Position of the next event.
    pub(super) fn next(&self) -> Seq {
        self.next
    }

    /// How many events are in it.
    pub(super) fn events(&self) -> u64 {
        self.next.0 - self.header.first_seq.0
    }

    /// Adds an event; `written` is called before it is made durable. After an error nothing may be
    /// added any more: the end of the file is not known.
    pub(super) fn append(&mut self, event: &Event<'_>, written: impl FnOnce()) -> Result<()> {
        let mut buffer = JournalBuffer::new(self.next, false);
        buffer.append(Origin::default(), event);
        buffer.close_block();
        self.file.write_all(&buffer.blocks().concat())?;
        written();
        self.file.sync_data()?;
        self.next.0 += 1;
        Ok(())
    }

    /// All of it but a torn end, and the position behind that.
    pub(super) fn intact(&self) -> Result<(Vec<u8>, Seq)> {
        let mut file = &self.file;
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(0))?;
        file.read_to_end(&mut bytes)?;
        let scan = journal::segment::scan(&bytes).map_err(|error| to_io(&error))?;
        if let Some(damage) = scan.damage.filter(|damage| damage.resumes.is_some()) {
            return Err(to_io(&format!("{}, and more follows", damage.error)));
        }
        bytes.truncate(scan.intact);
        Ok((bytes, scan.next_seq))
    }

    /// Everything in it is with the server of this term, and needed if that one crashes.
    pub(super) fn set_epoch(&mut self, epoch: Epoch) -> Result<()> {
        let header = SegmentHeader { epoch, ..self.header };
        // It fits into one sector, of which a disk writes all or nothing.
        self.file.write_all_at(&header.encode(), 0)?;
        self.file.sync_data()?;
        self.header = header;
        Ok(())
    }

    /// Begins again with the events from a position on.
    pub(super) fn restart(&mut self, epoch: Epoch, from: Seq) -> Result<()> {
        let (bytes, next) = self.intact()?;
        let mut reader = SegmentReader::open(&bytes).map_err(|error| to_io(&error))?;
        let mut offset = reader.offset();
        while let Some(block) = reader.next_block().map_err(|error| to_io(&error))? {
            if block.first_seq >= from {
                break;
            }
            offset = reader.offset();
        }
        let header = SegmentHeader { epoch, first_seq: from.min(next), ..self.header };
        *self = Self::start(&self.path, header, &bytes[offset..])?;
        Ok(())
    }

    /// Removes the file.
    pub(super) fn remove(&self) -> Result<()> {
        std::fs::remove_file(&self.path)
    }
}

#[cfg(test)]
mod tests;
