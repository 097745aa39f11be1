//! Rewrites segments: events are erased and damage is closed.
//!
//! Nothing moves: an event that stays keeps its position, because merges, manifests and the
//! following segments refer to positions. An event without effect replaces an erased or lost event
//! ([`Event::erased`], [`Event::NOTHING`]). A block without erased events stays the same, byte by
//! byte.

use std::ops::Range;

use types::{ClientId, Origin, Seq, Tid};

use crate::block::Record;
use crate::buffer::JournalBuffer;
use crate::event::Event;
use crate::segment::SegmentHeader;
use crate::survey::{Intact, Survey};

/// A segment that was rewritten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewritten {
    /// The segment.
    pub bytes: Vec<u8>,
    /// Events that stand in it as before.
    pub kept: u64,
    /// Events that were there and are erased.
    pub erased: u64,
    /// Position after the last event.
    pub next_seq: Seq,
}

/// Rewrites a segment: all positions in `range`, with the events that `keep` accepts. `keep` is
/// called once for each readable event, in order, also outside of the range.
pub fn rewrite(
    survey: &Survey<'_>,
    range: &Range<Seq>,
    keep: &mut dyn FnMut(&Record<'_>) -> bool,
) -> Rewritten {
    let first = range.start.max(survey.header.first_seq);
    let header = SegmentHeader { first_seq: first, ..survey.header };
    let mut out = Rewritten::empty(&header);
    for intact in &survey.blocks {
        let mut wanted = Vec::new();
        intact.each(&mut |record| wanted.push(keep(record)));
        out.block(intact, range, &wanted);
    }
    out.fill(range.end.min(survey.next_seq));
    out
}

/// A new journal of the events that `keep` accepts, in order, at positions from 2 on. Servers
/// identify a partly applied journal by its first block, so the new journal begins with an event
/// that only describes the following events: no other selection, and not the whole journal, begins
/// so.
pub fn extract(survey: &Survey<'_>, keep: &mut dyn FnMut(&Record<'_>) -> bool) -> Vec<u8> {
    let mut events = JournalBuffer::new(Seq(2), false);
    survey.each(&mut |record| {
        if keep(record) {
            events.append(record.origin, &record.event);
        }
    });
    events.close_block();
    let blocks = events.take_blocks().concat();
    let mut first = JournalBuffer::new(Seq(1), false);
    let tid = Tid(u64::from(crate::checksum(&blocks)));
    first.append(Origin::default(), &Event::Session { client: ClientId(0), tid });
    first.close_block();
    let header = SegmentHeader { first_seq: Seq(1), ..survey.header };
    [&header.encode()[..], &first.take_blocks().concat(), &blocks].concat()
}

impl Rewritten {
    /// A segment without events.
    #[must_use]
    pub fn empty(header: &SegmentHeader) -> Self {
        let bytes = header.encode().to_vec();
        Self { bytes, kept: 0, erased: 0, next_seq: header.first_seq }
    }

    /// Fills up with [`Event::NOTHING`] until the next event would have this position.
    pub fn fill(&mut self, until: Seq) {
        let mut buffer = JournalBuffer::new(self.next_seq, false);
        while buffer.next_seq() < until {
            buffer.append(Origin::default(), &Event::NOTHING);
        }
        self.take(buffer);
    }

    fn block(&mut self, intact: &Intact<'_>, range: &Range<Seq>, wanted: &[bool]) {
        let block = &intact.block;
        let end = Seq(block.first_seq.0 + u64::from(block.count));
        self.fill(block.first_seq.min(range.end));
        let whole = intact.whole && wanted.iter().all(|wanted| *wanted);
        if whole && range.start <= block.first_seq && end <= range.end {
            self.bytes.extend_from_slice(intact.bytes);
            self.kept += wanted.len() as u64;
            self.next_seq = end;
            return;
        }
        let mut buffer = JournalBuffer::new(self.next_seq, block.has_origins());
        let mut wanted = wanted.iter();
        intact.each(&mut |record| {
            let wanted = wanted.next().is_some_and(|wanted| *wanted);
            if !range.contains(&record.seq) {
                return;
            }
            if wanted {
                buffer.append(record.origin, &record.event);
                self.kept += 1;
            } else {
                buffer.append(Origin::default(), &record.event.erased());
                self.erased += u64::from(!record.event.is_nothing());
            }
        });
        self.take(buffer);
        self.fill(end.min(range.end));
    }

    fn take(&mut self, mut buffer: JournalBuffer) {
        buffer.close_block();
        self.next_seq = buffer.next_seq();
        self.bytes.extend(buffer.take_blocks().concat());
    }
}
