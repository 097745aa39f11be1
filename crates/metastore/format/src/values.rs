//! Value segments: content and long attributes of inodes that runs only point to (I-09).
//!
//! Merging a run rewrites all of its rows. Long values are therefore stored beside the runs, once,
//! and rows point to them; the manifest has the number of live bytes of a segment, and decides when
//! the segment is deleted. Not here: reading and writing objects.
//!
//! Invariant: a value is whole, or its checksum shows the damage; segments never change.

use crc32c::{crc32c, crc32c_append};
use types::DirFragId;
use types::bytes::{Malformed, Put, Reader};

use crate::error::{FormatError, KNOWN_VERSION, malformed};
use crate::object::{RunId, put_dirfrag, read_dirfrag, values_name};

/// The format of value segments.
pub const VALUES_VERSION: u16 = 1;
/// Shorter values are not worth a pointer.
pub const VALUE_BYTES_MIN: usize = 256;

const MAGIC: &[u8; 8] = b"CUDLVALS";
const HEADER_BYTES: usize = 8 + 2 + 2 + 16 + 8 + CRC_BYTES;
const CRC_BYTES: usize = 4;

/// Where the content and the extra of an inode are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pointer {
    /// In which segment of the directory fragment.
    pub segment: RunId,
    /// Where its content begins, in bytes from the start of the object.
    pub offset: u64,
    /// The length of its content in bytes.
    pub data: u32,
    /// The length of the extra that follows it.
    pub extra: u32,
}

impl Pointer {
    /// How many bytes it points to, with their checksum.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        u64::from(self.data) + u64::from(self.extra) + CRC_BYTES as u64
    }

    /// Content and extra, from the bytes at `offset` of the segment; later bytes are ignored.
    ///
    /// # Errors
    /// If they are not whole. The error names the object.
    pub fn read<'a>(
        &self,
        dirfrag: DirFragId,
        bytes: &'a [u8],
    ) -> Result<(&'a [u8], &'a [u8]), FormatError> {
        let wrong = |expected| {
            let offset = usize::try_from(self.offset).unwrap_or(usize::MAX);
            FormatError::new(values_name(dirfrag, self.segment), malformed(offset, expected))
        };
        let length = usize::try_from(self.bytes()).unwrap_or(usize::MAX);
        let Some((body, crc)) =
            bytes.get(..length).and_then(|value| value.split_last_chunk::<CRC_BYTES>())
        else {
            return Err(wrong("more bytes"));
        };
        if crc32c(body) != u32::from_le_bytes(*crc) {
            return Err(wrong("a value with a checksum that matches"));
        }
        Ok(body.split_at(self.data as usize))
    }
}

/// A value segment as the manifest of its fragment knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValueSegment {
    /// Its number: that of the run with which it was written.
    pub id: RunId,
    /// The length of the object.
    pub bytes: u64,
    /// The CRC-32C of the whole object.
    pub crc: u32,
    /// The runs that point into it, and to how many bytes.
    pub uses: Vec<(RunId, u64)>,
}

impl ValueSegment {
    /// A segment with these bytes.
    #[must_use]
    pub fn of(id: RunId, bytes: &[u8], uses: Vec<(RunId, u64)>) -> Self {
        Self { id, bytes: bytes.len() as u64, crc: crc32c(bytes), uses }
    }

    /// The number of bytes that runs point to, including rows that newer ones hide: only a merge of
    /// the runs finds those.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.uses.iter().fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
    }

    /// Checks that `bytes` are the object that the manifest of `dirfrag` means.
    ///
    /// # Errors
    /// If they are not; the error names the object.
    pub fn check(&self, dirfrag: DirFragId, bytes: &[u8]) -> Result<(), FormatError> {
        let check = || {
            if bytes.len() as u64 != self.bytes {
                return Err(malformed(bytes.len(), "the length that the manifest states"));
            }
            if crc32c(bytes) != self.crc {
                return Err(malformed(0, "the checksum that the manifest states"));
            }
            if read_header(bytes)? != (dirfrag, self.id) {
                return Err(malformed(12, "the identity that the object's name states"));
            }
            Ok(())
        };
        check().map_err(|malformed| FormatError::new(values_name(dirfrag, self.id), malformed))
    }
}

fn read_header(bytes: &[u8]) -> Result<(DirFragId, RunId), Malformed> {
    let mut reader = Reader::new(bytes);
    if reader.take(MAGIC.len())? != MAGIC {
        return Err(malformed(0, "the magic of a value segment"));
    }
    if reader.u16()? != VALUES_VERSION {
        return Err(malformed(MAGIC.len(), KNOWN_VERSION));
    }
    if reader.u16()? != 0 {
        return Err(malformed(MAGIC.len() + 2, "flags that this version defines"));
    }
    let (dirfrag, id) = (read_dirfrag(&mut reader)?, RunId(reader.u64()?));
    let end = reader.offset();
    if reader.u32()? != crc32c(&bytes[..end]) {
        return Err(malformed(end, "a checksum that matches"));
    }
    Ok((dirfrag, id))
}

/// A segment in the making. Finished bytes can be taken away while it grows.
#[derive(Debug)]
pub(crate) struct ValuesBuilder {
    dirfrag: DirFragId,
    id: RunId,
    /// From how many bytes on a value belongs here.
    pub(crate) value_bytes_min: usize,
    out: Vec<u8>,
    /// How many bytes were taken away, and their checksum.
    taken: u64,
    crc: u32,
}

impl ValuesBuilder {
    pub(crate) fn new(dirfrag: DirFragId, id: RunId, value_bytes_min: usize) -> Self {
        Self { dirfrag, id, value_bytes_min, out: Vec::new(), taken: 0, crc: 0 }
    }

    /// Appends a value; says where it is.
    pub(crate) fn push(&mut self, data: &[u8], extra: &[u8]) -> Pointer {
        if self.taken == 0 && self.out.is_empty() {
            self.put_header();
        }
        let start = self.out.len();
        let offset = self.taken + start as u64;
        self.out.extend_from_slice(data);
        self.out.extend_from_slice(extra);
        let crc = crc32c(&self.out[start..]);
        self.out.put_u32(crc);
        let fits = |bytes: usize| u32::try_from(bytes).expect("content of an inode is small");
        Pointer { segment: self.id, offset, data: fits(data.len()), extra: fits(extra.len()) }
    }

    fn put_header(&mut self) {
        self.out.extend_from_slice(MAGIC);
        self.out.put_u16(VALUES_VERSION);
        self.out.put_u16(0); // flags: this version defines none
        put_dirfrag(&mut self.out, self.dirfrag);
        self.out.put_u64(self.id.0);
        let crc = crc32c(&self.out);
        self.out.put_u32(crc);
        debug_assert_eq!(self.out.len(), HEADER_BYTES, "the header has a fixed length");
    }

    pub(crate) fn ready_bytes(&self) -> usize {
        self.out.len()
    }

    pub(crate) fn take(&mut self) -> Vec<u8> {
        let ready = std::mem::take(&mut self.out);
        self.taken += ready.len() as u64;
        self.crc = crc32c_append(self.crc, &ready);
        ready
    }

    /// The bytes that were not taken away, and the length and checksum of all; None without values.
    pub(crate) fn finish(self) -> Option<(Vec<u8>, ValueSegment)> {
        let bytes = self.taken + self.out.len() as u64;
        let crc = crc32c_append(self.crc, &self.out);
        (bytes > 0).then(|| (self.out, ValueSegment { id: self.id, bytes, crc, uses: Vec::new() }))
    }
}

#[cfg(test)]
mod tests;
