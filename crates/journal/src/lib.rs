//! The journal: every change of a namespace is an [`Event`], and this crate gives events their
//! one byte format.
//!
//! The metadata server's stream, a client's journal in memory, a journal file on a local disk and
//! a journal object in the store all hold the same bytes (seeds, section IV-B "one format
//! everywhere"; J-05). The layers, outermost first:
//!
//! * a *segment* ([`segment`]) is one object or file: a header naming its writer, then blocks;
//! * a *block* ([`block`]) is up to 64 KiB of events behind a checksum;
//! * an *event* ([`Event`]) is delta-encoded against the one before it in the block (`codec`).
//!
//! This crate reads and writes no files, knows no namespace, and decides nothing about trimming.
//! The byte layout is documented in `docs/formats/journal.md`.
//!
//! Invariant: decoding never panics and never trusts a length; for any bytes, the result is events
//! or a [`JournalError`] with the offset where they stopped making sense.

pub mod block;
mod buffer;
mod codec;
mod error;
mod event;
mod loss;
mod rewrite;
pub mod segment;
mod survey;

pub use block::{Block, BlockReader, Mark, Record};
pub use buffer::JournalBuffer;
pub use codec::Encoder;
pub use error::JournalError;
pub use event::{Create, Event, EventKind, InodeSnapshot};
pub use loss::Loss;
pub use rewrite::{Rewritten, extract, rewrite};
pub use segment::{SegmentHeader, SegmentReader, Writer};
pub use survey::{DamagedRegion, GAP_EVENTS_MAX, Intact, Survey};

/// The checksum that every format of the project uses (CRC-32C).
#[must_use]
pub fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// Entry point of the fuzz targets.
#[doc(hidden)]
pub mod fuzz {
    /// Decodes arbitrary bytes as a segment and as a single block; must not panic.
    pub fn decode(data: &[u8]) {
        if let Ok(mut reader) = crate::SegmentReader::open(data) {
            while let Ok(Some(block)) = reader.next_block() {
                drain(block.events());
            }
            let _ = crate::segment::scan(data);
            if let Ok(survey) = crate::Survey::of(data) {
                let all = types::Seq(0)..types::Seq(u64::MAX);
                let _ = crate::rewrite(&survey, &all, &mut |record| record.seq.0 % 2 == 0);
            }
        }
        if let Some((flags, payload)) = data.split_first() {
            drain(crate::Block::unchecked(payload, flags & 1 == 1).events());
        }
    }

    fn drain(mut events: crate::BlockReader<'_>) {
        while let Ok(Some(record)) = events.next_event() {
            std::hint::black_box(&record);
        }
    }
}

#[cfg(test)]
mod tests;
