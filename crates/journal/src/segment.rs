//! Segments: one object or file of a journal.
//!
//! ```text
//! 0   magic      8  "CUDLJRN1"
//! 8   version    2  2; 1 is read
//! 10  writer     1  0 metadata server, 1 client
//! 11  reserved   1  zero
//! 12  reserved   4  zero
//! 16  id         8  rank or client id
//! 24  epoch      8  term of the writer
//! 32  subtree    8  root of the decoupled subtree; 0 in a metadata server's journal
//! 40  first_seq  8  position of the first event
//! 48  crc32c     4  of bytes 0..48
//! 52  blocks
//! ```

use types::bytes::{Put, Reader};
use types::{ClientId, Epoch, Ino, Rank, Seq};

use crate::block::{self, Block};
use crate::error::JournalError;

/// Length of a segment header in bytes.
pub const HEADER_BYTES: usize = 52;
const MAGIC: &[u8; 8] = b"CUDLJRN1";
/// Version 1 had no stripes; the value in their place is read as the default stripe.
const VERSION: u16 = 3;

/// The writer of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// A metadata server.
    Mds {
        /// Which rank.
        rank: Rank,
    },
    /// A client that works in a decoupled subtree.
    Client {
        /// Which client.
        client: ClientId,
        /// The root of its subtree.
        subtree: Ino,
    },
}

/// The start of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Who wrote it.
    pub writer: Writer,
    /// In which term: a journal is fenced by its epoch.
    pub epoch: Epoch,
    /// Position of its first event.
    pub first_seq: Seq,
}

impl SegmentHeader {
    /// The header's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let (kind, id, subtree) = match self.writer {
            Writer::Mds { rank } => (0, u64::from(rank.0), 0),
            Writer::Client { client, subtree } => (1, client.0, subtree.0),
        };
        let mut out = Vec::with_capacity(HEADER_BYTES);
        out.extend_from_slice(MAGIC);
        out.put_u16(VERSION);
        out.put_u8(kind);
        out.put_u8(0);
        out.put_u32(0);
        out.put_u64(id);
        out.put_u64(self.epoch.0);
        out.put_u64(subtree);
        out.put_u64(self.first_seq.0);
        out.put_u32(crc32c::crc32c(&out));
        out.try_into().expect("the fields above add up to the header's length")
    }

    /// Reads and verifies a header.
    ///
    /// # Errors
    /// Truncated, foreign, corrupt or from a newer version.
    pub fn decode(bytes: &[u8]) -> Result<Self, JournalError> {
        let Some(header) = bytes.get(..HEADER_BYTES) else {
            return Err(JournalError::new(0, "too short for a journal"));
        };
        if &header[..8] != MAGIC {
            return Err(JournalError::new(0, "not a Cudele journal"));
        }
        if crc32c::crc32c(&header[..48]).to_le_bytes() != header[48..] {
            return Err(JournalError::new(0, "journal header checksum does not match"));
        }
        Self::claimed(bytes)
    }

    /// The fields of a header, even if its checksum does not match: for repairs. Callers must
    /// verify each field.
    ///
    /// # Errors
    /// The header is truncated, from a newer version, or has a value that no header has.
    pub fn claimed(bytes: &[u8]) -> Result<Self, JournalError> {
        let Some(header) = bytes.get(..HEADER_BYTES) else {
            return Err(JournalError::new(0, "too short for a journal"));
        };
        let mut reader = Reader::new(&header[8..]);
        let malformed = |error| JournalError::at(8, error);
        let version = reader.u16().map_err(malformed)?;
        let kind = reader.u8().map_err(malformed)?;
        reader.take(5).map_err(malformed)?;
        let id = reader.u64().map_err(malformed)?;
        let epoch = Epoch(reader.u64().map_err(malformed)?);
        let subtree = Ino(reader.u64().map_err(malformed)?);
        let first_seq = Seq(reader.u64().map_err(malformed)?);
        if !(1..=VERSION).contains(&version) {
            let cause =
                format!("journal format version {version}, this program reads up to {VERSION}");
            return Err(JournalError::new(8, cause));
        }
        let writer = match (kind, u16::try_from(id)) {
            (0, Ok(rank)) => Writer::Mds { rank: Rank(rank) },
            (1, _) => Writer::Client { client: ClientId(id), subtree },
            _ => return Err(JournalError::new(10, "unknown kind of journal")),
        };
        if first_seq == Seq(0) {
            return Err(JournalError::new(40, "no event has the position 0"));
        }
        Ok(Self { writer, epoch, first_seq })
    }

    /// A segment with this header in the place of its own.
    #[must_use]
    pub fn put_on(&self, segment: &[u8]) -> Vec<u8> {
        let mut out = self.encode().to_vec();
        out.extend_from_slice(segment.get(HEADER_BYTES..).unwrap_or_default());
        out
    }
}

/// Reads a segment block by block.
#[derive(Clone, Debug)]
pub struct SegmentReader<'a> {
    /// The verified header.
    pub header: SegmentHeader,
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> SegmentReader<'a> {
    /// Verifies the header.
    ///
    /// # Errors
    /// As [`SegmentHeader::decode`].
    pub fn open(bytes: &'a [u8]) -> Result<Self, JournalError> {
        Ok(Self { header: SegmentHeader::decode(bytes)?, bytes, offset: HEADER_BYTES })
    }

    /// Where the next block starts.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// The next block, or `None` at the end.
    ///
    /// # Errors
    /// As [`Block::read`]; the reader stays where it is.
    pub fn next_block(&mut self) -> Result<Option<Block<'a>>, JournalError> {
        if self.offset == self.bytes.len() {
            return Ok(None);
        }
        let (block, next) = Block::read(self.bytes, self.offset)?;
        self.offset = next;
        Ok(Some(block))
    }
}

/// How far a segment can be trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentScan {
    /// Bytes from the start that are intact.
    pub intact: usize,
    /// Events in them.
    pub events: u64,
    /// Position after the last intact event.
    pub next_seq: Seq,
    /// The damage behind the intact part, if any.
    pub damage: Option<Damage>,
}

/// The bytes behind the intact part of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Where and what.
    pub error: JournalError,
    /// Offset of an intact block behind the damage. Then this is not the torn end of an
    /// interrupted write, but a hole in the middle: something that was safe is gone.
    pub resumes: Option<usize>,
}

/// Verifies every checksum of a segment and the continuity of its positions, and tells a torn end
/// (an interrupted write, nothing acknowledged is lost) from damage in the middle.
///
/// # Errors
/// If the header is unusable.
pub fn scan(bytes: &[u8]) -> Result<SegmentScan, JournalError> {
    let mut reader = SegmentReader::open(bytes)?;
    let mut scan = SegmentScan {
        intact: reader.offset(),
        events: 0,
        next_seq: reader.header.first_seq,
        damage: None,
    };
    loop {
        let offset = reader.offset();
        let error = match reader.next_block() {
            Ok(None) => return Ok(scan),
            Ok(Some(block)) if block.first_seq == scan.next_seq => {
                let Some(next) = block.first_seq.0.checked_add(u64::from(block.count)) else {
                    let error = JournalError::new(offset, "positions end before this block does");
                    scan.damage = Some(Damage { error, resumes: None });
                    return Ok(scan);
                };
                scan.intact = reader.offset();
                scan.events += u64::from(block.count);
                scan.next_seq.0 = next;
                continue;
            }
            Ok(Some(block)) => JournalError::new(
                offset,
                format!("expected event {}, found event {}", scan.next_seq.0, block.first_seq.0),
            ),
            Err(error) => error,
        };
        let resumes = find_block(bytes, offset + 1);
        scan.damage = Some(Damage { error, resumes });
        return Ok(scan);
    }
}

/// The offset of the first intact block at or after `from`.
#[must_use]
pub fn find_block(bytes: &[u8], from: usize) -> Option<usize> {
    let mut offset = from;
    while let Some(found) = bytes
        .get(offset..)
        .and_then(|rest| rest.windows(block::MAGIC.len()).position(|window| window == block::MAGIC))
    {
        if Block::read(bytes, offset + found).is_ok() {
            return Some(offset + found);
        }
        offset += found + 1;
    }
    None
}
