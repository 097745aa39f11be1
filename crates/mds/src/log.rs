//! The rank's journal (mechanism Stream, M-02): events are gathered, written to segments in the
//! object store, and reported safe when the store confirms.
//!
//! A request is answered when it is applied; the journal follows a few milliseconds later with many
//! requests at once (group commit), or at once if a request waits for it.

mod replies;
mod write;

use std::collections::VecDeque;

use journal::{Event, JournalBuffer};
use metastore::request::{StoreOp, Token};
use types::{Epoch, Errno, Moment, Origin, Seq, Timestamp};
use wire::Answer;

use crate::{ReplyTo, Settings};

pub(crate) use write::{LogCx, Written};

/// A segment in the store.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) index: u64,
    pub(crate) first: Seq,
    pub(crate) last: Seq,
    bytes: u64,
    /// Whether it has the number up to which each client's changes are done, so that older segments
    /// can go.
    says_done: bool,
}

impl Segment {
    /// One that a recovery found. Whether it has the session summaries is not looked up: the first
    /// segment that this term begins has them.
    pub(crate) fn recovered(index: u64, first: Seq, last: Seq, bytes: u64) -> Self {
        Self { index, first, last, bytes, says_done: false }
    }
}

/// A write under way.
#[derive(Debug)]
struct Flight {
    token: Option<Token>,
    /// When it was handed to the store first.
    since: Moment,
    segment: u64,
    first: Seq,
    last: Seq,
    done: bool,
    /// The operation, after it failed.
    failed: Option<(StoreOp, Moment)>,
}

/// A reply that is held back until the journal is safe up to an event.
#[derive(Debug)]
pub(crate) struct HeldReply {
    pub(crate) until: Seq,
    /// The event of the change, or an earlier one, and its time.
    pub(crate) seq: Seq,
    pub(crate) time: Timestamp,
    pub(crate) at: ReplyTo,
    pub(crate) answer: Answer,
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Log {
    epoch: Epoch,
    buffer: JournalBuffer,
    pending_since: Option<Moment>,
    segments: VecDeque<Segment>,
    /// The last of `segments` is still written to.
    open: bool,
    next_index: u64,
    /// Bytes of the session summaries with which the last segment begins.
    summary_bytes: u64,
    flights: VecDeque<Flight>,
    /// Everything up to here was handed to the store.
    written: Seq,
    safe: Seq,
    waiters: VecDeque<HeldReply>,
    failed: Option<Errno>,
}

impl Log {
    pub(crate) fn new() -> Self {
        Self {
            epoch: Epoch(0),
            buffer: JournalBuffer::new(Seq(1), true),
            pending_since: None,
            segments: VecDeque::new(),
            open: false,
            next_index: 0,
            summary_bytes: 0,
            flights: VecDeque::new(),
            written: Seq(0),
            safe: Seq(0),
            waiters: VecDeque::new(),
            failed: None,
        }
    }

    /// Takes over after recovery: the segments that exist, and where to go on.
    pub(crate) fn resume(
        &mut self,
        epoch: Epoch,
        segments: VecDeque<Segment>,
        next_index: u64,
        last: Seq,
    ) {
        assert!(self.is_idle(), "a journal is resumed before its first event");
        let known = segments.iter().all(|it| it.last <= last && it.index < next_index);
        assert!(known, "the journal continues behind its segments, at {last} in {next_index}");
        self.epoch = epoch;
        self.next_index = next_index;
        self.segments = segments;
        self.buffer = JournalBuffer::new(Seq(last.0 + 1), true);
        (self.written, self.safe) = (last, last);
    }

    #[inline]
    pub(crate) fn append(&mut self, now: Moment, origin: Origin, event: &Event<'_>) -> Seq {
        self.pending_since.get_or_insert(now);
        let seq = self.buffer.append(origin, event);
        debug_assert!(seq > self.written, "{seq} is behind the written events");
        seq
    }

    /// Position of the newest event.
    pub(crate) fn last(&self) -> Seq {
        Seq(self.buffer.next_seq().0 - 1)
    }

    /// Everything up to here is durable.
    pub(crate) fn safe(&self) -> Seq {
        self.safe
    }

    /// Index that the next segment will have: no object of that name or a later one exists.
    pub(crate) fn next_index(&self) -> u64 {
        self.next_index
    }

    #[cfg(test)]
    pub(crate) fn set_safe(&mut self, safe: Seq) {
        self.safe = safe;
    }

    pub(crate) fn failed(&self) -> Option<Errno> {
        self.failed
    }

    /// Since when the oldest write is under way.
    pub(crate) fn oldest_write(&self) -> Option<Moment> {
        self.flights.front().map(|flight| flight.since)
    }

    /// Everything up to here was handed to the store.
    pub(crate) fn written(&self) -> Seq {
        self.written
    }

    /// The next write begins a segment.
    pub(crate) fn end_segment(&mut self) {
        self.open = false;
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.buffer.is_empty() && self.flights.is_empty()
    }

    pub(crate) fn segment_count(&self) -> usize {
        self.segments.len()
    }

    /// Position of the first event that the segments still hold.
    pub(crate) fn first_retained(&self) -> Seq {
        self.segments.front().map_or(Seq(u64::MAX), |segment| segment.first)
    }

    /// Position of the first event that a replay could begin with.
    pub(crate) fn first_replayed(&self) -> Seq {
        let unwritten = (!self.buffer.is_empty()).then_some(Seq(self.written.0 + 1));
        self.segments.front().map(|segment| segment.first).or(unwritten).unwrap_or(Seq(u64::MAX))
    }

    /// Whether a journal exists: with no streaming subtree none is ever written (M-02).
    pub(crate) fn has_segments(&self) -> bool {
        !self.segments.is_empty()
    }

    /// The position up to which the store must have everything for all but the newest `keep`
    /// segments to be trimmed.
    pub(crate) fn trim_target(&self, keep: usize) -> Option<Seq> {
        let count = self.segments.len().checked_sub(keep.max(1))?;
        self.segments.get(count.checked_sub(1)?).map(|segment| segment.last)
    }

    /// The segment that would be trimmed next, if it is closed and safe.
    pub(crate) fn oldest(&self) -> Option<&Segment> {
        let oldest = self.segments.front()?;
        let in_use = self.flights.iter().any(|flight| flight.segment == oldest.index);
        (!in_use && oldest.last <= self.safe).then_some(oldest)
    }

    /// Whether a segment behind the oldest is in the store, at least its beginning, which repeats
    /// the oldest one's summaries of the clients. A part of a segment that was rewritten under
    /// another name does not: if it were all that is left, a client that resends a request would be
    /// refused.
    pub(crate) fn is_continued(&self) -> bool {
        let mut behind = self.segments.iter().skip(1);
        behind.any(|segment| segment.says_done && segment.first <= self.safe)
    }

    pub(crate) fn drop_oldest(&mut self) -> Option<u64> {
        let segment = self.segments.pop_front()?;
        assert!(segment.last <= self.safe, "only a durable segment is trimmed");
        if self.segments.is_empty() {
            self.open = false;
        }
        Some(segment.index)
    }

    /// Whether an event is not handed to the store yet.
    #[inline]
    pub(crate) fn is_pending(&self) -> bool {
        self.pending_since.is_some()
    }

    /// Whether a write should start now.
    #[inline]
    pub(crate) fn is_due(&self, now: Moment, settings: &Settings) -> bool {
        let Some(since) = self.pending_since else { return false };
        !self.waiters.is_empty()
            || self.buffer.bytes() >= settings.commit_bytes
            || now.since(since) >= settings.commit_interval
    }

    fn may_start(&self, settings: &Settings) -> bool {
        if self.failed.is_some() {
            return false;
        }
        self.flights.is_empty()
            || (self.flights.len() < settings.dispatch
                && self.buffer.bytes() >= settings.commit_bytes
                && self.begins())
    }

    /// Whether the store has the beginning of the journal. If a crash lost the first segment but
    /// not the second, the first could not be told from a trimmed one.
    fn begins(&self) -> bool {
        self.segments.front().is_none_or(|oldest| oldest.first <= self.safe)
    }
}

mod validate;

#[cfg(test)]
mod tests;
