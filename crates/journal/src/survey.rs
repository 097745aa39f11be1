//! A survey of a segment that may be damaged: every stretch of it that can still be read, and
//! every one that cannot.
//!
//! [`crate::segment::scan`] ends at the first damage, and servers and clients trust nothing behind
//! it. A survey continues behind the damage. It serves people who repair journals.
//!
//! Invariant: positions only grow. A block is believed if it continues the believed blocks before
//! it, or skips no more events than [`GAP_EVENTS_MAX`]; all other bytes between are damage.

use std::ops::Range;

use types::Seq;

use crate::block::{Block, Record};
use crate::error::JournalError;
use crate::segment::{SegmentHeader, SegmentReader, find_block};

/// The most events that may be missing between the blocks of a segment. A block that claims more
/// counts as a stray one: filling such a gap would cost more than the remaining events are worth.
pub const GAP_EVENTS_MAX: u64 = 1 << 24;
/// Fewest bytes of an event.
const EVENT_BYTES_MIN: u64 = 2;

/// A damaged stretch of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedRegion {
    /// Where, in bytes from the start of the segment. Empty if only positions are missing.
    pub bytes: Range<usize>,
    /// Positions of the events that are lost. At a torn end their number is unknown: empty.
    pub lost: Range<Seq>,
    /// What is wrong.
    pub error: JournalError,
    /// Nothing that could be read follows: perhaps an interrupted write, of which nothing was
    /// acknowledged.
    pub torn: bool,
}

impl std::fmt::Display for DamagedRegion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { bytes, lost, error, torn } = self;
        write!(f, "bytes {}..{}: {}", bytes.start, bytes.end, error.cause)?;
        if *torn {
            write!(f, "; a torn end, events from {} on are lost", lost.start.0)
        } else {
            write!(f, "; events {}..{} are lost", lost.start.0, lost.end.0)
        }
    }
}

/// A block of which the first events can be read.
#[derive(Clone, Debug)]
pub struct Intact<'a> {
    pub(crate) block: Block<'a>,
    /// How many: all of them, unless some do not decode although the checksum matches.
    pub(crate) events: u32,
    /// Whether that is the whole block.
    pub(crate) whole: bool,
    /// The block as it stands.
    pub(crate) bytes: &'a [u8],
}

/// See the module documentation.
#[derive(Clone, Debug)]
pub struct Survey<'a> {
    /// The verified header.
    pub header: SegmentHeader,
    /// The damage, in order.
    pub damage: Vec<DamagedRegion>,
    /// Events that can be read.
    pub events: u64,
    /// Position after the last event that can be read.
    pub next_seq: Seq,
    pub(crate) blocks: Vec<Intact<'a>>,
    /// Events missing between blocks.
    missing: u64,
}

impl<'a> Survey<'a> {
    /// Reads a segment from end to end.
    ///
    /// # Errors
    /// If the header is unusable: only the header names the writer of the events.
    pub fn of(bytes: &'a [u8]) -> Result<Self, JournalError> {
        let reader = SegmentReader::open(bytes)?;
        let header = reader.header;
        let mut survey = Self {
            header,
            damage: Vec::new(),
            events: 0,
            next_seq: header.first_seq,
            blocks: Vec::new(),
            missing: 0,
        };
        let mut offset = reader.offset();
        while offset < bytes.len() {
            let error = match Block::read(bytes, offset) {
                Ok((block, next)) => match survey.doubt(&block) {
                    None => {
                        survey.believe(block, bytes, offset..next);
                        offset = next;
                        continue;
                    }
                    Some(cause) => JournalError::new(offset, cause),
                },
                Err(error) => error,
            };
            offset = survey.skip(bytes, offset, error);
        }
        Ok(survey)
    }

    /// Hands out every event that can be read, in order.
    pub fn each(&self, show: &mut dyn FnMut(&Record<'_>)) {
        for intact in &self.blocks {
            intact.each(show);
        }
    }

    /// A position that no event of this journal has, nor any after it: not those either that stood
    /// in a torn end.
    #[must_use]
    pub fn free_seq(&self) -> Seq {
        let torn = self.damage.iter().filter(|region| region.torn);
        let bytes = torn.map(|region| region.bytes.len() as u64).max().unwrap_or(0);
        Seq(self.next_seq.0.saturating_add(bytes / EVENT_BYTES_MIN))
    }

    /// Why a block does not belong where it is found.
    fn doubt(&self, block: &Block<'_>) -> Option<String> {
        let (expected, found) = (self.next_seq.0, block.first_seq.0);
        let end = found.checked_add(u64::from(block.count));
        let cause = format!("expected event {expected}, found event {found}");
        (found != expected || end.is_none()).then_some(cause)
    }

    /// Takes a block in, as far as its events decode.
    fn believe(&mut self, block: Block<'a>, bytes: &'a [u8], range: Range<usize>) {
        let mut reader = block.events();
        let mut events = 0;
        let error = loop {
            match reader.next_event() {
                Ok(Some(_)) => events += 1,
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
        };
        let end = Seq(block.first_seq.0 + u64::from(block.count));
        let lost = Seq(block.first_seq.0 + u64::from(events))..end;
        let whole = error.is_none();
        if let Some(error) = error {
            let start = usize::try_from(error.offset).unwrap_or(range.start);
            let bytes = start.clamp(range.start, range.end)..range.end;
            self.damage.push(DamagedRegion { bytes, lost, error, torn: false });
        }
        self.events += u64::from(events);
        self.next_seq = end;
        self.blocks.push(Intact { block, events, whole, bytes: &bytes[range] });
    }

    /// Records the damage at `from`, and returns the offset of the next readable block.
    fn skip(&mut self, bytes: &'a [u8], from: usize, error: JournalError) -> usize {
        let expected = self.next_seq;
        let mut at = from;
        while let Some(found) = find_block(bytes, at) {
            let Ok((block, next)) = Block::read(bytes, found) else { break };
            let gap = block.first_seq.0.checked_sub(expected.0);
            let fits = block.first_seq.0.checked_add(u64::from(block.count)).is_some();
            let most = GAP_EVENTS_MAX - self.missing;
            if let Some(gap) = gap.filter(|gap| fits && *gap <= most) {
                self.missing += gap;
                let lost = expected..block.first_seq;
                self.damage.push(DamagedRegion { bytes: from..found, lost, error, torn: false });
                self.next_seq = block.first_seq;
                return found;
            }
            at = next;
        }
        let lost = expected..expected;
        self.damage.push(DamagedRegion { bytes: from..bytes.len(), lost, error, torn: true });
        bytes.len()
    }
}

impl Intact<'_> {
    /// Hands out the events that can be read.
    pub(crate) fn each(&self, show: &mut dyn FnMut(&Record<'_>)) {
        let mut reader = self.block.events();
        for _ in 0..self.events {
            let Ok(Some(record)) = reader.next_event() else { return };
            show(&record);
        }
    }
}

#[cfg(test)]
mod tests;
