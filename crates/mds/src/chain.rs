//! The segments of a journal in the order of their events, as recovery finds them.
//!
//! Segments are mostly found in that order. They are not if several were written at the same time
//! and one of them had to be written again under another name, and some objects may hold nothing
//! acknowledged: the torn ends of interrupted writes, and segments behind a lost one. This module
//! decides which segments count; `recover` reads and applies them.
//!
//! Invariant: each segment that is handed out continues the previous one, event by event, and was
//! written in the same term or a later one.

use std::collections::{BTreeMap, VecDeque};

use journal::{SegmentHeader, segment};
use types::{Epoch, Errno, Error, Result, Seq};

use crate::log::Segment;

/// Segments held back to find their order, if fewer are written at the same time.
const WINDOW_MIN: usize = 8;

/// A segment that was read and verified.
#[derive(Debug)]
pub(crate) struct VerifiedSegment {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
    /// Bytes that are intact.
    pub(crate) intact: usize,
    header: SegmentHeader,
    last: Seq,
}

/// The next step.
#[derive(Debug)]
pub(crate) enum Next {
    /// Read a segment.
    Read(String),
    /// Apply a segment.
    Apply(VerifiedSegment),
    /// Everything was handed out.
    End,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Chain {
    /// Segments yet to be read.
    names: VecDeque<String>,
    /// Segments that were read, by their first event.
    read: BTreeMap<Seq, VerifiedSegment>,
    /// Most segments that are written at the same time.
    dispatch: usize,
    started: bool,
    epoch: Epoch,
    /// The last event handed out.
    last: Seq,
    next_index: u64,
    /// The segments that were handed out.
    segments: VecDeque<Segment>,
    /// Objects that hold nothing that counts.
    garbage: Vec<String>,
}

impl Chain {
    /// A journal that continues after `last`, in objects of these names, sorted. New segments get
    /// indices from `next_index` on.
    pub(crate) fn new(names: Vec<String>, dispatch: usize, next_index: u64, last: Seq) -> Self {
        let used = names.iter().map(|name| index_of(name) + 1).max().unwrap_or_default();
        let next_index = next_index.max(used);
        Self { names: names.into(), dispatch, last, next_index, ..Self::default() }
    }

    /// The last event.
    pub(crate) fn last(&self) -> Seq {
        self.last
    }

    /// The index for the next segment: no object has it or a larger one.
    pub(crate) fn next_index(&self) -> u64 {
        self.next_index
    }

    /// The segments that count, oldest first, and the names of those that do not.
    pub(crate) fn into_parts(self) -> (VecDeque<Segment>, Vec<String>) {
        (self.segments, self.garbage)
    }

    /// Checks that the segments that were handed out continue each other.
    ///
    /// # Panics
    /// If they do not.
    pub(crate) fn validate(&self) {
        let mut before: Option<&Segment> = None;
        for segment in &self.segments {
            let (first, last) = (segment.first, segment.last);
            assert!(segment.index < self.next_index, "new segments get numbers behind this one");
            assert!(last <= self.last, "the events up to {last} were handed out");
            let before = before.replace(segment).map(|before| before.last);
            let gap = before.is_some_and(|before| first.0 > before.0 + 1);
            assert!(!gap, "no event is missing between {before:?} and {first}");
            assert!(before.is_none_or(|before| last > before), "{last} is a new event");
        }
        for (first, found) in &self.read {
            assert!(found.header.first_seq == *first, "a segment is kept under its first event");
            assert!(found.intact <= found.bytes.len(), "the intact bytes are in the segment");
        }
    }

    /// Returns the next step.
    ///
    /// # Errors
    /// `EBADMSG` if events are missing that were acknowledged.
    pub(crate) fn next(&mut self) -> Result<Next> {
        loop {
            let window = self.dispatch.max(WINDOW_MIN);
            if self.read.len() < window
                && let Some(name) = self.names.pop_front()
            {
                return Ok(Next::Read(name));
            }
            let Some((first, found)) = self.read.pop_first() else { return Ok(Next::End) };
            if found.last <= self.last || found.header.epoch < self.epoch {
                // Already stored, or seen, or given up by a later term.
                self.garbage.push(found.name);
                continue;
            }
            if self.started && first.0 > self.last.0 + 1 {
                self.give_up(first, found)?;
                continue;
            }
            let before = self.segments.back().map(|before| before.last);
            assert!(before.is_none_or(|before| before < found.last), "{}: new events", found.name);
            self.started = true;
            self.epoch = found.header.epoch;
            self.last = found.last;
            let bytes = found.bytes.len() as u64;
            let index = index_of(&found.name);
            self.segments.push_back(Segment::recovered(index, first, found.last, bytes));
            return Ok(Next::Apply(found));
        }
    }

    /// Events before this segment are missing. That is as it should be if it was written in
    /// parallel with the one that is missing: then neither was acknowledged.
    fn give_up(&mut self, first: Seq, found: VerifiedSegment) -> Result<()> {
        let epoch = found.header.epoch;
        let parallel = self.read.values().filter(|other| other.header.epoch == epoch).count() + 1;
        if parallel >= self.dispatch.max(1) {
            let expected = Seq(self.last.0 + 1);
            let cause = format!("events {expected} to {first} are missing before this segment");
            return Err(Error::new(Errno::BadMessage, found.name, cause)
                .remedy("run `cudele journal inspect` to see what is still there"));
        }
        self.garbage.push(found.name);
        Ok(())
    }

    /// A segment was read. It is checked as a whole before anything of it is applied.
    ///
    /// # Errors
    /// `EBADMSG` if it is damaged before its end.
    pub(crate) fn found(&mut self, name: String, bytes: Vec<u8>) -> Result<()> {
        if bytes.len() < segment::HEADER_BYTES {
            // It was being created: nothing in it was acknowledged.
            self.garbage.push(name);
            return Ok(());
        }
        let damaged = |error: journal::JournalError| error.in_journal(&name);
        let scan = segment::scan(&bytes).map_err(damaged)?;
        if let Some(damage) = scan.damage.filter(|damage| damage.resumes.is_some()) {
            return Err(damaged(damage.error));
        }
        let header = SegmentHeader::decode(&bytes).map_err(damaged)?;
        assert!(scan.next_seq >= header.first_seq, "{name}: the events count up");
        let last = Seq(scan.next_seq.0 - 1);
        let found = VerifiedSegment { name, bytes, intact: scan.intact, header, last };
        let better = self.read.get(&header.first_seq).is_none_or(|known| {
            (known.header.epoch, known.last) < (found.header.epoch, found.last)
        });
        if !better {
            self.garbage.push(found.name);
        } else if let Some(worse) = self.read.insert(header.first_seq, found) {
            self.garbage.push(worse.name);
        }
        Ok(())
    }
}

/// The number in a segment's name.
fn index_of(name: &str) -> u64 {
    let hex = name.rsplit('/').next().unwrap_or_default();
    u64::from_str_radix(hex, 16).unwrap_or_default()
}
