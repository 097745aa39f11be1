//! The rank's journal (mechanism Stream, M-02): events are gathered, written to segments in the
//! object store, and reported safe when the store confirms.
//!
//! A request is answered when it is applied; the journal follows a few milliseconds later with many
//! requests at once (group commit), or at once if a request waits for it.

use std::collections::VecDeque;

use journal::{Event, JournalBuffer, SegmentHeader, Writer};
use metastore::request::{StoreFailure, StoreOp, StoreResult, Token, segment_name};
use types::{ConnId, Epoch, Errno, Moment, Origin, Seq, Span, Tid, Timestamp};
use wire::Answer;

use crate::{Mds, MdsEffects, Phase, Settings, Waiting};

/// How long to wait before a failed write is tried again.
const RETRY: Span = Span::from_millis(500);

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
    pub(crate) fn recovered(index: u64, (first, last): (Seq, Seq), bytes: u64) -> Self {
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

/// A reply that is held back until its event, or an earlier one, is safe.
#[derive(Debug)]
struct Waiter {
    until: Seq,
    seq: Seq,
    time: Timestamp,
    conn: ConnId,
    tid: Tid,
    answer: Answer,
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
    flights: VecDeque<Flight>,
    /// Everything up to here was handed to the store.
    written: Seq,
    safe: Seq,
    waiters: VecDeque<Waiter>,
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
        (next_index, last): (u64, Seq),
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
    pub(crate) fn first_kept(&self) -> Seq {
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

    /// Whether a write should start now.
    fn is_due(&self, now: Moment, settings: &Settings) -> bool {
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

impl Mds {
    /// Starts journal writes that are due. Called after every input.
    pub(crate) fn log_step(&mut self, effects: &mut MdsEffects) {
        let hurry = self.phase == Phase::Stopping
            || self.merge_wants_journal()
            || (!self.authority.is_plain() && self.authority_wants_journal())
            || self.checkpoint.wants_journal(self.log.safe());
        while (hurry || self.log.is_due(self.clock.now, &self.settings))
            && self.log.pending_since.is_some()
            && self.log.may_start(&self.settings)
        {
            self.start_write(effects);
        }
    }

    fn start_write(&mut self, effects: &mut MdsEffects) {
        let log = &mut self.log;
        let busy = log.segments.back().map(|segment| segment.index);
        let in_flight = log.flights.iter().any(|flight| Some(flight.segment) == busy);
        let full = log.segments.back().is_none_or(|s| s.bytes >= self.settings.segment_bytes_max);
        let mut data = Vec::new();
        if !log.open || full || in_flight {
            // Every segment lists which requests are done, so that older segments can go.
            for (client, tids) in self.sessions.summaries() {
                for tid in tids {
                    log.buffer.append(Origin::default(), &Event::Session { client, tid });
                }
            }
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
        let (token, since) = (None, self.clock.now);
        let flight =
            Flight { token, since, segment: index, first, last, done: false, failed: None };
        log.flights.push_back(flight);
        let token = self.store(Waiting::Log, StoreOp::Append { object, data }, effects);
        if let Some(flight) = self.log.flights.back_mut() {
            flight.token = Some(token);
        }
    }

    pub(crate) fn log_stored(
        &mut self,
        token: Token,
        result: Result<StoreResult, Box<StoreFailure>>,
        effects: &mut MdsEffects,
    ) {
        let now = self.clock.now;
        let Some(flight) = self.log.flights.iter_mut().find(|flight| flight.token == Some(token))
        else {
            return;
        };
        match result {
            Ok(_) => flight.done = true,
            Err(failure) => {
                let errno = failure.error.errno;
                // No acknowledged event is lost: the events stay here and are written again. Until
                // that succeeds, changes are refused and no client is notified that a change is
                // safe.
                flight.failed = Some((failure.op, now));
                // How the segment ends is unknown: nothing more is written to it.
                let segment = flight.segment;
                self.log.open &= self.log.segments.back().map(|last| last.index) != Some(segment);
                self.log.failed = Some(errno);
                if errno == Errno::Stale {
                    // The store has shut this server out, because another has the rank.
                    effects.fatal = Some(failure.error);
                }
                self.refuse_waiters(errno, effects);
                self.finish_merges(effects);
                return;
            }
        }
        while self.log.flights.front().is_some_and(|flight| flight.done) {
            if let Some(flight) = self.log.flights.pop_front() {
                assert!(flight.last > self.log.safe, "the durable journal grows");
                self.log.safe = flight.last;
            }
        }
        if self.log.flights.iter().all(|flight| flight.failed.is_none()) {
            self.log.failed = None;
        }
        self.answer_waiters(effects);
        self.commit_captured(effects);
        self.finish_merges(effects);
    }

    /// Tries failed writes again.
    pub(crate) fn log_tick(&mut self, effects: &mut MdsEffects) {
        let now = self.clock.now;
        for at in 0..self.log.flights.len() {
            let due = |(_, since): &(StoreOp, Moment)| now.since(*since) >= RETRY;
            if !self.log.flights[at].failed.as_ref().is_some_and(due) {
                continue;
            }
            if let Some((op, _)) = self.log.flights[at].failed.take() {
                let op = self.elsewhere(at, op);
                let token = self.store(Waiting::Log, op, effects);
                self.log.flights[at].token = Some(token);
            }
        }
    }

    /// A failed write goes to a segment of its own: its outcome in the old one is unknown, and a
    /// store may refuse another write there. Replay tolerates seeing events twice.
    fn elsewhere(&mut self, at: usize, op: StoreOp) -> StoreOp {
        let StoreOp::Append { data, .. } = op else { return op };
        let log = &mut self.log;
        let Flight { first, last, done, .. } = log.flights[at];
        assert!(!done, "a write that is done is not repeated");
        let header = SegmentHeader {
            writer: Writer::Mds { rank: self.rank },
            epoch: log.epoch,
            first_seq: first,
        };
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
        StoreOp::Append { object: segment_name(self.rank, index), data }
    }

    /// Answers now if everything up to `seq` is durable, else as soon as it is.
    pub(crate) fn answer_when_safe(
        &mut self,
        (seq, time): (Seq, Timestamp),
        at: (ConnId, Tid),
        answer: Answer,
        effects: &mut MdsEffects,
    ) {
        self.answer_once_safe(seq, (seq, time), at, answer, effects);
    }

    /// The same of a change that is answered as soon as everything up to `until` is durable.
    pub(crate) fn answer_once_safe(
        &mut self,
        until: Seq,
        (seq, time): (Seq, Timestamp),
        (conn, tid): (ConnId, Tid),
        answer: Answer,
        effects: &mut MdsEffects,
    ) {
        if let Some(errno) = self.log.failed
            && seq > self.log.safe
        {
            self.reply_error(conn, tid, errno.into(), effects);
        } else if until <= self.log.safe {
            self.reply((conn, tid), seq, time, Ok(answer), effects);
        } else {
            assert!(until <= self.log.last(), "{until} is an event, and will be durable");
            self.log.waiters.push_back(Waiter { until, seq, time, conn, tid, answer });
        }
    }

    fn answer_waiters(&mut self, effects: &mut MdsEffects) {
        let safe = self.log.safe;
        let mut left = VecDeque::new();
        for waiter in std::mem::take(&mut self.log.waiters) {
            if waiter.until <= safe {
                let Waiter { seq, time, conn, tid, answer, .. } = waiter;
                self.reply((conn, tid), seq, time, Ok(answer), effects);
            } else {
                left.push_back(waiter);
            }
        }
        self.log.waiters = left;
    }

    fn refuse_waiters(&mut self, errno: Errno, effects: &mut MdsEffects) {
        for waiter in std::mem::take(&mut self.log.waiters) {
            self.reply_error(waiter.conn, waiter.tid, errno.into(), effects);
        }
    }
}

mod validate;

#[cfg(test)]
mod tests {
    use types::Rank;

    use super::*;

    /// A journal whose last write failed so often and was repeated under another name: the first
    /// write to a segment, or a later one.
    fn written_again(begins: bool, failures: usize) -> Log {
        let mut mds = Mds::new(Rank(0), Settings::default());
        let says_done = true;
        let segment = |index, first, last| Segment { index, first, last, bytes: 100, says_done };
        let (first, last, mut data) = (Seq(8), Seq(9), vec![0; 10]);
        if begins {
            let writer = Writer::Mds { rank: Rank(0) };
            let header = SegmentHeader { writer, epoch: Epoch(1), first_seq: first };
            data.splice(0..0, header.encode());
            mds.log.segments.push_back(segment(0, first, last));
        } else {
            mds.log.segments.push_back(segment(0, Seq(1), last));
        }
        mds.log.next_index = 1;
        let (token, since) = (None, Moment(0));
        let flight = Flight { token, since, segment: 0, first, last, done: false, failed: None };
        mds.log.flights.push_back(flight);
        let mut op = StoreOp::Append { object: segment_name(Rank(0), 0), data };
        for _ in 0..failures {
            op = mds.elsewhere(0, op);
        }
        mds.log.safe = last;
        mds.log
    }

    #[test]
    fn a_reply_waits_for_no_more_than_it_must_and_for_its_turn() {
        let mut mds = Mds::new(Rank(0), Settings::default());
        let mut effects = MdsEffects::default();
        for _ in 1..5 {
            mds.log.append(Moment(0), Origin::default(), &Event::NOTHING);
        }
        // All of them wait for the event that introduces this client.
        for tid in 1..4 {
            let (known, at) = (Seq(1), (ConnId(7), Tid(tid)));
            let when = (Seq(tid), Timestamp(1));
            mds.answer_once_safe(known, when, at, Answer::Done, &mut effects);
        }
        // And this one for its own.
        let at = (ConnId(7), Tid(4));
        mds.answer_when_safe((Seq(4), Timestamp(1)), at, Answer::Done, &mut effects);
        assert_eq!((effects.outbox.sends.len(), mds.log.waiters.len()), (0, 4));
        mds.log.safe = Seq(1);
        mds.answer_waiters(&mut effects);
        let left: Vec<_> = mds.log.waiters.iter().map(|waiter| waiter.tid).collect();
        assert_eq!(left, [Tid(4)]);
        assert!(!effects.outbox.sends.is_empty());
    }

    #[test]
    fn what_a_segment_says_of_clients_outlives_it() {
        let twice = written_again(false, 2);
        assert!(!twice.is_continued(), "a part of a segment is not enough, and has a header");
        let mut log = written_again(false, 1);
        assert!(!log.is_continued(), "a part of a segment is not enough");
        let (first, last) = (Seq(10), Seq(12));
        log.segments.push_back(Segment { index: 2, first, last, bytes: 100, says_done: true });
        assert!(!log.is_continued(), "it is not in the store yet");
        log.safe = last;
        assert!(log.is_continued());
        for failures in 1..3 {
            assert!(written_again(true, failures).is_continued(), "the beginning of a segment is");
        }
    }
}
