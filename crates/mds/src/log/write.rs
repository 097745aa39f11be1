//! Writing the journal: events are gathered in blocks, and blocks go to segments.

use journal::{Event, SegmentHeader, Writer};
use metastore::request::{StoreFailure, StoreOp, StoreResult, Token, segment_name};
use types::{Errno, Moment, Origin, Rank, Seq, Span};

use super::{Flight, Log, Segment};
use crate::session::Sessions;
use crate::store::{StoreOps, Waiting};
use crate::{Counters, MdsEffects, Settings};

/// How long to wait before a failed write is tried again.
const RETRY: Span = Span::from_millis(500);

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// More events are durable, perhaps.
    Safe,
    /// The store refused it; it is tried again.
    Failed,
}

/// The writing of the journal, with all that it may touch.
pub(crate) struct LogCx<'a> {
    pub(crate) log: &'a mut Log,
    pub(crate) sessions: &'a Sessions,
    pub(crate) store: &'a mut StoreOps,
    pub(crate) counters: &'a mut Counters,
    pub(crate) settings: &'a Settings,
    pub(crate) rank: Rank,
    pub(crate) now: Moment,
}

impl LogCx<'_> {
    /// Starts journal writes that are due; `hurry` if a part of the server waits for the journal.
    pub(crate) fn step(&mut self, hurry: bool, effects: &mut MdsEffects) {
        while (hurry || self.log.is_due(self.now, self.settings))
            && self.log.is_pending()
            && self.log.may_start(self.settings)
        {
            self.start_write(effects);
        }
    }

    fn start_write(&mut self, effects: &mut MdsEffects) {
        let log = &mut *self.log;
        let busy = log.segments.back().map(|segment| segment.index);
        let in_flight = log.flights.iter().any(|flight| Some(flight.segment) == busy);
        // After a restart the summaries may be larger than a segment. At least half of each segment
        // is events, else each write would repeat all summaries.
        let most = self.settings.segment_bytes_max.max(log.summary_bytes.saturating_mul(2));
        let full = log.segments.back().is_none_or(|s| s.bytes >= most);
        let mut data = Vec::new();
        if !log.open || full || in_flight {
            // Every segment lists which requests are done, so that older segments can go.
            let before = log.buffer.bytes();
            for (client, tids) in self.sessions.summaries() {
                for tid in tids {
                    log.buffer.append(Origin::default(), &Event::Session { client, tid });
                }
            }
            log.summary_bytes = log.buffer.bytes().saturating_sub(before);
            let index = log.next_index;
            log.next_index += 1;
            let first_seq = Seq(log.written.0 + 1);
            let writer = Writer::Mds { rank: self.rank };
            let header = SegmentHeader { writer, epoch: log.epoch, first_seq };
            data.extend_from_slice(&header.encode());
            let (first, last) = (first_seq, first_seq);
            log.segments.push_back(Segment { index, first, last, bytes: 0, says_done: true });
            log.open = true;
        }
        log.buffer.close_block();
        for block in log.buffer.take_blocks() {
            data.extend_from_slice(&block);
            log.buffer.recycle(block);
        }
        log.pending_since = None;
        let (first, last) = (Seq(log.written.0 + 1), log.last());
        assert!(first <= last, "a write of the journal has an event");
        log.written = last;
        self.counters.journal_bytes += data.len() as u64;
        self.counters.journal_writes += 1;
        self.counters.journal_events = last.0;
        let Some(segment) = log.segments.back_mut() else { return };
        segment.last = last;
        segment.bytes += data.len() as u64;
        let index = segment.index;
        let object = segment_name(self.rank, index);
        let (token, since) = (None, self.now);
        let flight =
            Flight { token, since, segment: index, first, last, done: false, failed: None };
        log.flights.push_back(flight);
        let token = self.store.begin(Waiting::Log, StoreOp::Append { object, data }, effects);
        if let Some(flight) = self.log.flights.back_mut() {
            flight.token = Some(token);
        }
    }

    /// A write ended. Returns whether the journal got further or failed, if it was one of these.
    pub(crate) fn stored(
        &mut self,
        token: Token,
        result: Result<StoreResult, Box<StoreFailure>>,
        effects: &mut MdsEffects,
    ) -> Option<Written> {
        let mut flights = self.log.flights.iter_mut();
        let flight = flights.find(|flight| flight.token == Some(token))?;
        match result {
            Ok(_) => flight.done = true,
            Err(failure) => {
                let errno = failure.error.errno;
                // No acknowledged event is lost: the events stay here and are written again. Until
                // that succeeds, changes are refused and no client is notified that a change is
                // safe.
                flight.failed = Some((failure.op, self.now));
                // How the segment ends is unknown: nothing more is written to it.
                let segment = flight.segment;
                self.log.open &= self.log.segments.back().map(|last| last.index) != Some(segment);
                self.log.failed = Some(errno);
                if errno == Errno::Stale {
                    // The store has shut this server out, because another has the rank.
                    effects.fatal = Some(failure.error);
                }
                self.log.refuse_waiters(errno, effects);
                return Some(Written::Failed);
            }
        }
        while self.log.flights.front().is_some_and(|flight| flight.done) {
            if let Some(flight) = self.log.flights.pop_front() {
                assert!(flight.last > self.log.safe, "the durable journal grows");
                self.log.safe = flight.last;
            }
        }
        effects.safe = self.log.safe;
        if self.log.flights.iter().all(|flight| flight.failed.is_none()) {
            self.log.failed = None;
        }
        self.log.answer_waiters(effects);
        Some(Written::Safe)
    }

    /// Tries failed writes again.
    pub(crate) fn tick(&mut self, effects: &mut MdsEffects) {
        let now = self.now;
        for at in 0..self.log.flights.len() {
            let due = |(_, since): &(StoreOp, Moment)| now.since(*since) >= RETRY;
            if !self.log.flights[at].failed.as_ref().is_some_and(due) {
                continue;
            }
            if let Some((op, _)) = self.log.flights[at].failed.take() {
                let op = self.log.elsewhere(self.rank, at, op);
                let token = self.store.begin(Waiting::Log, op, effects);
                self.log.flights[at].token = Some(token);
            }
        }
    }
}

impl Log {
    /// A failed write goes to a segment of its own: its outcome in the old one is unknown, and a
    /// store may refuse another write there. Replay tolerates seeing events twice.
    pub(super) fn elsewhere(&mut self, rank: Rank, at: usize, op: StoreOp) -> StoreOp {
        let StoreOp::Append { data, .. } = op else { return op };
        let log = self;
        let Flight { first, last, done, .. } = log.flights[at];
        assert!(!done, "a write that is done is not repeated");
        let header =
            SegmentHeader { writer: Writer::Mds { rank }, epoch: log.epoch, first_seq: first };
        let with_header = SegmentHeader::decode(&data).is_ok();
        let data = if with_header { data } else { [&header.encode()[..], &data].concat() };
        let index = log.next_index;
        log.next_index += 1;
        let bytes = data.len() as u64;
        // Only the beginning of a segment has the session summaries. A part that is written again
        // has a header since its first attempt, too.
        let old = log.segments.iter().find(|segment| segment.index == log.flights[at].segment);
        let says_done = old.is_some_and(|old| old.says_done && old.first == first);
        // Segments are trimmed in the order of their events.
        let after = log.segments.partition_point(|segment| segment.first <= first);
        log.segments.insert(after, Segment { index, first, last, bytes, says_done });
        log.flights[at].segment = index;
        StoreOp::Append { object: segment_name(rank, index), data }
    }
}
