//! Encoding of replies.

use std::time::Duration;

use posix::{Entry, IdMap};
use types::Attr;

use super::abi::OUT_HEADER_BYTES;

/// Bytes of an entry with attributes, before its name, in a listing.
const ENTRY_BYTES: usize = 128;
/// Bytes of a plain entry, before its name, in a listing.
const DIRENT_BYTES: usize = 24;

/// Bytes a program should read or write at a time.
const BLOCK_BYTES: u32 = 128 * 1024;
/// The unit of the room of a file.
const BLOCK_UNIT: u64 = 512;
/// A file of this length takes so long to read that a search for its holes pays.
const LARGE: u64 = 1 << 30;

/// A reply under construction. Its memory is reused for the next reply.
#[derive(Debug)]
pub(crate) struct Out {
    bytes: Vec<u8>,
    /// The bytes that belong to the reply.
    length: usize,
    /// Where the reply says for how long the kernel may use it without asking.
    validities: Vec<Validity>,
    /// The translation of owners, if the machine has numbers of its own.
    ids: Option<&'static IdMap>,
}

/// The place of the times for which a kernel may use a part of a reply.
#[derive(Clone, Copy, Debug)]
struct Validity {
    seconds: usize,
    nanos: usize,
}

impl Validity {
    const SECONDS_BYTES: usize = 8;
    const NANOS_BYTES: usize = 4;
}

/// One name in a listing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dirent<'a> {
    pub(crate) number: u64,
    /// The position behind the entry.
    pub(crate) next: u64,
    pub(crate) mode: u32,
    pub(crate) name: &'a [u8],
}

impl Dirent<'_> {
    fn padded(&self) -> usize {
        (DIRENT_BYTES + self.name.len()).next_multiple_of(8)
    }
}

impl Out {
    pub(super) fn new() -> Self {
        let bytes = vec![0; OUT_HEADER_BYTES];
        Self { bytes, length: OUT_HEADER_BYTES, validities: Vec::new(), ids: None }
    }

    /// Begins a new reply.
    pub(super) fn begin(&mut self) {
        self.length = OUT_HEADER_BYTES;
        self.validities.clear();
    }

    /// Shows owners by the machine's numbers.
    pub(crate) fn translate(&mut self, ids: Option<&'static IdMap>) {
        self.ids = ids;
    }

    /// Whether the kernel may use a part of the reply without asking again.
    pub(super) fn lends(&self) -> bool {
        !self.validities.is_empty()
    }

    /// The reply is late: the kernel may use nothing of it without asking again.
    pub(super) fn withdraw(&mut self) {
        for Validity { seconds, nanos } in self.validities.drain(..) {
            self.bytes[seconds..seconds + Validity::SECONDS_BYTES].fill(0);
            self.bytes[nanos..nanos + Validity::NANOS_BYTES].fill(0);
        }
    }

    /// Completes the reply. `code` is 0, a negative errno, or the code of a notification.
    pub(super) fn finish(&mut self, unique: u64, code: i32) -> &[u8] {
        if code < 0 {
            self.length = OUT_HEADER_BYTES;
        }
        let length = u32::try_from(self.length).unwrap_or(u32::MAX);
        self.bytes[..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes[4..8].copy_from_slice(&code.to_ne_bytes());
        self.bytes[8..16].copy_from_slice(&unique.to_ne_bytes());
        &self.bytes[..self.length]
    }

    /// The length of the payload.
    pub(super) fn written(&self) -> usize {
        self.length - OUT_HEADER_BYTES
    }

    /// Room behind the payload, to be filled and then added with [`Out::fill`]. It contains bytes
    /// of earlier replies.
    pub(crate) fn room(&mut self, length: usize) -> &mut [u8] {
        let end = self.length + length;
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        &mut self.bytes[self.length..end]
    }

    /// Adds the first bytes of the room to the payload.
    pub(crate) fn fill(&mut self, length: usize) {
        self.length += length;
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.room(bytes.len()).copy_from_slice(bytes);
        self.fill(bytes.len());
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.bytes(&value.to_ne_bytes());
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.bytes(&value.to_ne_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.bytes(&value.to_ne_bytes());
    }

    fn zeros(&mut self, count: usize) {
        self.room(count).fill(0);
        self.fill(count);
    }

    fn attr(&mut self, attr: &Attr, number: u64) {
        let times = [attr.atime, attr.mtime, attr.ctime];
        for value in [number, attr.size, blocks(attr)] {
            self.u64(value);
        }
        for time in times {
            self.bytes(&time.0.div_euclid(1_000_000_000).to_ne_bytes());
        }
        for time in times {
            self.u32(u32::try_from(time.0.rem_euclid(1_000_000_000)).unwrap_or_default());
        }
        let Attr { mode, nlink, mut uid, mut gid, rdev, .. } = *attr;
        if let Some(ids) = self.ids {
            (uid, gid) = (ids.user_here(uid), ids.group_here(gid));
        }
        for value in [mode, nlink, uid, gid, rdev, BLOCK_BYTES, 0] {
            self.u32(value);
        }
    }

    /// Attributes, with their timeout.
    pub(crate) fn attributes(&mut self, attr: &Attr, number: u64, valid: Duration) {
        if !valid.is_zero() {
            let (seconds, nanos) = (self.length, self.length + 8);
            self.validities.push(Validity { seconds, nanos });
        }
        self.u64(valid.as_secs());
        self.u32(valid.subsec_nanos());
        self.u32(0);
        self.attr(attr, number);
    }

    /// An entry, with its timeouts; number 0 means that the name does not exist.
    pub(crate) fn entry(&mut self, entry: &Entry, number: u64) {
        let Entry { attr, valid, name_valid } = entry;
        for (valid, seconds, nanos) in [(name_valid, 16, 32), (valid, 24, 36)] {
            if !valid.is_zero() {
                let (seconds, nanos) = (self.length + seconds, self.length + nanos);
                self.validities.push(Validity { seconds, nanos });
            }
        }
        // Inode numbers are never reused, so the generation is always 0.
        for value in [number, 0, name_valid.as_secs(), valid.as_secs()] {
            self.u64(value);
        }
        self.u32(name_valid.subsec_nanos());
        self.u32(valid.subsec_nanos());
        self.attr(attr, number);
    }

    /// The handle of an open file or directory.
    pub(crate) fn opened(&mut self, handle: u64, how: u32) {
        self.u64(handle);
        self.u32(how);
        self.u32(0);
    }

    /// A single number: bytes written, or the length of an extended attribute.
    pub(crate) fn count(&mut self, count: u32) {
        self.u32(count);
        self.u32(0);
    }

    /// Adds an entry to a listing of at most `size` bytes; false if the entry does not fit.
    pub(crate) fn dirent(&mut self, entry: &Dirent<'_>, size: u32) -> bool {
        if self.written() + entry.padded() > size as usize {
            return false;
        }
        self.u64(entry.number);
        self.u64(entry.next);
        self.u32(u32::try_from(entry.name.len()).unwrap_or_default());
        self.u32(entry.mode >> 12);
        self.bytes(entry.name);
        self.zeros(entry.padded() - DIRENT_BYTES - entry.name.len());
        true
    }

    /// The same with attributes.
    pub(crate) fn dirent_plus(&mut self, entry: &Entry, dirent: &Dirent<'_>, size: u32) -> bool {
        if self.written() + ENTRY_BYTES + dirent.padded() > size as usize {
            return false;
        }
        self.entry(entry, dirent.number);
        self.dirent(dirent, size)
    }
}

/// The room of a file in units of 512 bytes, holes included. A large file takes a unit less than
/// its length: programs that would read all of it (`cp`, `tar -S`) then first ask for its holes.
fn blocks(attr: &Attr) -> u64 {
    if attr.is_dir() {
        return 0;
    }
    if attr.size < LARGE { attr.size.div_ceil(BLOCK_UNIT) } else { attr.size / BLOCK_UNIT - 1 }
}

#[cfg(test)]
mod tests;
