//! Blocks: events behind one checksum.
//!
//! ```text
//! 0   magic      4  "CJB1"
//! 4   flags      2  bit 0: events carry their origins
//! 6   reserved   2  zero
//! 8   payload    4  length in bytes
//! 12  count      4  events in the payload
//! 16  first_seq  8  position of the first event
//! 24  crc32c     4  of bytes 0..24 and of the payload
//! 28  payload
//! ```

use types::bytes::Reader;
use types::{Origin, Seq};

use crate::codec::{Decoder, State};
use crate::error::JournalError;
use crate::event::{Create, Event};

/// Length of a block header in bytes.
pub const HEADER_BYTES: usize = 28;
/// Blocks are closed at this size; only a single larger event makes a larger block.
pub const BLOCK_BYTES: usize = 64 * 1024;
/// The largest payload a reader accepts.
pub const PAYLOAD_BYTES_MAX: usize = 64 * 1024 * 1024;

pub(crate) const MAGIC: &[u8; 4] = b"CJB1";
const FLAG_ORIGINS: u16 = 1;
/// The smallest event: a create whose name repeats the previous one.
const EVENT_BYTES_MIN: usize = 2;

/// Fills in the header of a block whose payload follows 28 reserved bytes.
pub(crate) fn seal(block: &mut [u8], origins: bool, count: u32, first_seq: Seq) {
    let (header, payload) = block.split_at_mut(HEADER_BYTES);
    header[..4].copy_from_slice(MAGIC);
    header[4..6].copy_from_slice(&(if origins { FLAG_ORIGINS } else { 0 }).to_le_bytes());
    header[6..8].fill(0);
    let length = u32::try_from(payload.len()).expect("blocks are far smaller than 4 GiB");
    header[8..12].copy_from_slice(&length.to_le_bytes());
    header[12..16].copy_from_slice(&count.to_le_bytes());
    header[16..24].copy_from_slice(&first_seq.0.to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&header[..24]), payload);
    header[24..28].copy_from_slice(&crc.to_le_bytes());
}

/// A verified block.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    /// Position of its first event.
    pub first_seq: Seq,
    /// How many events it holds.
    pub count: u32,
    /// Offset of the payload in the bytes from which the block was read.
    pub(crate) base: usize,
    payload: &'a [u8],
    origins: bool,
}

impl<'a> Block<'a> {
    /// Reads the block at `offset` of `bytes` and verifies its checksum. Returns it and the
    /// offset after it.
    ///
    /// # Errors
    /// Truncated, foreign, corrupt or from a newer version.
    pub fn read(bytes: &'a [u8], offset: usize) -> Result<(Self, usize), JournalError> {
        let fail = |cause: &str| JournalError::new(offset, cause);
        let rest = bytes.get(offset..).unwrap_or_default();
        let Some(header) = rest.get(..HEADER_BYTES) else {
            return Err(fail("block header is cut off"));
        };
        if &header[..4] != MAGIC {
            return Err(fail("no block starts here"));
        }
        let mut reader = Reader::new(&header[4..]);
        let malformed = |error| JournalError::at(offset + 4, error);
        let flags = reader.u16().map_err(malformed)?;
        let reserved = reader.u16().map_err(malformed)?;
        let length = reader.u32().map_err(malformed)? as usize;
        let count = reader.u32().map_err(malformed)?;
        let first_seq = Seq(reader.u64().map_err(malformed)?);
        let crc = reader.u32().map_err(malformed)?;
        if length > PAYLOAD_BYTES_MAX {
            return Err(fail("block length is absurd"));
        }
        let Some(payload) = rest.get(HEADER_BYTES..HEADER_BYTES + length) else {
            return Err(fail("block is cut off"));
        };
        if crc32c::crc32c_append(crc32c::crc32c(&header[..24]), payload) != crc {
            return Err(fail("block checksum does not match"));
        }
        if flags & !FLAG_ORIGINS != 0 || reserved != 0 {
            return Err(fail("block is of a newer version"));
        }
        if count as usize > length / EVENT_BYTES_MIN {
            return Err(fail("block counts more events than it can hold"));
        }
        let base = offset + HEADER_BYTES;
        let origins = flags & FLAG_ORIGINS != 0;
        Ok((Self { first_seq, count, base, payload, origins }, base + length))
    }

    /// A block made of bare payload bytes, for fuzzing the event decoder behind the checksum.
    #[doc(hidden)]
    #[must_use]
    pub fn unchecked(payload: &'a [u8], origins: bool) -> Self {
        let count = u32::try_from(payload.len() / EVENT_BYTES_MIN).unwrap_or(u32::MAX);
        Self { first_seq: Seq(1), count, base: 0, payload, origins }
    }

    /// The events, in order.
    #[must_use]
    pub fn events(&self) -> BlockReader<'a> {
        BlockReader {
            decoder: Decoder::new(self.payload, self.origins),
            seq: self.first_seq,
            left: self.count,
            base: self.base,
        }
    }

    /// The events from a place on that a reader of this block marked.
    #[must_use]
    pub fn events_from(&self, mark: &Mark) -> BlockReader<'a> {
        BlockReader {
            decoder: Decoder::resumed(self.payload, self.origins, &mark.state),
            seq: mark.seq,
            left: mark.left,
            base: self.base,
        }
    }

    /// Whether its events say which request caused them.
    #[must_use]
    pub fn has_origins(&self) -> bool {
        self.origins
    }

    /// Length of the encoded events in bytes.
    #[must_use]
    pub fn payload_bytes(&self) -> usize {
        self.payload.len()
    }
}

/// One event as it stands in a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its position.
    pub seq: Seq,
    /// Which request caused it; zeros in journals that do not say.
    pub origin: Origin,
    /// The change.
    pub event: Event<'a>,
}

/// Iterates over the events of a block. Lending: an event borrows from the reader until the next
/// one is asked for, because names are put together in place.
#[derive(Clone, Debug)]
pub struct BlockReader<'a> {
    decoder: Decoder<'a>,
    seq: Seq,
    left: u32,
    base: usize,
}

/// Where a [`BlockReader`] stands, to go on from there later.
#[derive(Clone, Debug)]
pub struct Mark {
    state: State,
    seq: Seq,
    left: u32,
}

impl BlockReader<'_> {
    /// Marks the place before the next event.
    #[must_use]
    pub fn mark(&self) -> Mark {
        Mark { state: self.decoder.state(), seq: self.seq, left: self.left }
    }

    /// The next event if it is a create. Most events are, and an event of any kind is several
    /// times as large, which costs more than decoding it.
    ///
    /// # Errors
    /// As [`BlockReader::next_event`].
    #[inline]
    pub fn next_create(&mut self) -> Result<Option<(Seq, Origin, Create<'_>)>, JournalError> {
        let base = self.base;
        if self.left == 0 || !self.decoder.is_at_create() {
            return Ok(None);
        }
        self.left -= 1;
        let seq = self.seq;
        self.seq.0 = self.seq.0.wrapping_add(1);
        match self.decoder.next_create() {
            Ok((origin, create)) => Ok(Some((seq, origin, create))),
            Err(malformed) => Err(JournalError::at(base, malformed)),
        }
    }

    /// The next event, or `None` after the last.
    ///
    /// # Errors
    /// If the payload does not decode although its checksum matched, that is, if it was written
    /// by something else.
    #[inline]
    pub fn next_event(&mut self) -> Result<Option<Record<'_>>, JournalError> {
        let base = self.base;
        let offset = self.decoder.reader.offset();
        if self.left == 0 {
            if !self.decoder.reader.is_at_end() {
                return Err(JournalError::new(base + offset, "bytes after the last event"));
            }
            return Ok(None);
        }
        self.left -= 1;
        let seq = self.seq;
        self.seq.0 = self.seq.0.wrapping_add(1);
        match self.decoder.next() {
            Ok(Some((origin, event))) => Ok(Some(Record { seq, origin, event })),
            Ok(None) => Err(JournalError::new(base + offset, "fewer events than counted")),
            Err(malformed) => Err(JournalError::at(base, malformed)),
        }
    }
}
