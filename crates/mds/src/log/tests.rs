use journal::{SegmentHeader, Writer};
use metastore::request::{StoreResult, segment_name};
use types::{ClientId, ConnId, Rank, Tid};
use wire::Answer;

use super::write::LogCx;
use super::*;
use crate::session::Sessions;
use crate::store::StoreOps;
use crate::{Counters, MdsEffects};

/// A journal whose last write failed so often and was repeated under another name: the first
/// write to a segment, or a later one.
fn written_again(begins: bool, failures: usize) -> Log {
    let mut log = Log::new();
    let says_done = true;
    let segment = |index, first, last| Segment { index, first, last, bytes: 100, says_done };
    let (first, last, mut data) = (Seq(8), Seq(9), vec![0; 10]);
    if begins {
        let writer = Writer::Mds { rank: Rank(0) };
        let header = SegmentHeader { writer, epoch: Epoch(1), first_seq: first };
        data.splice(0..0, header.encode());
        log.segments.push_back(segment(0, first, last));
    } else {
        log.segments.push_back(segment(0, Seq(1), last));
    }
    log.next_index = 1;
    let (token, since) = (None, Moment(0));
    let flight = Flight { token, since, segment: 0, first, last, done: false, failed: None };
    log.flights.push_back(flight);
    let mut op = StoreOp::Append { object: segment_name(Rank(0), 0), data };
    for _ in 0..failures {
        op = log.elsewhere(Rank(0), 0, op);
    }
    log.safe = last;
    log
}

#[test]
fn a_reply_waits_for_its_own_events_and_its_turn() {
    let mut log = Log::new();
    let mut effects = MdsEffects::default();
    for _ in 1..5 {
        log.append(Moment(0), Origin::default(), &Event::NOTHING);
    }
    // All of them wait for the event that introduces this client.
    for tid in 1..4 {
        let (known, at) = (Seq(1), ReplyTo { conn: ConnId(7), tid: Tid(tid) });
        let (seq, time) = (Seq(tid), Timestamp(1));
        let reply = HeldReply { until: known, seq, time, at, answer: Answer::Done };
        log.answer_once_safe(reply, &mut effects);
    }
    // And this one for its own.
    let at = ReplyTo { conn: ConnId(7), tid: Tid(4) };
    log.answer_when_safe(Seq(4), Timestamp(1), at, Answer::Done, &mut effects);
    assert_eq!((effects.outbox.sends.len(), log.waiters.len()), (0, 4));
    log.safe = Seq(1);
    log.answer_waiters(&mut effects);
    let left: Vec<_> = log.waiters.iter().map(|waiter| waiter.at.tid).collect();
    assert_eq!(left, [Tid(4)]);
    assert!(!effects.outbox.sends.is_empty());
}

#[test]
fn session_records_are_continued_by_the_next_whole_segment() {
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

#[test]
fn summaries_larger_than_a_segment_do_not_begin_one_at_each_write() {
    let (mut log, mut sessions) = (Log::new(), Sessions::default());
    (1..200).for_each(|client| sessions.recovered(ClientId(client), Tid(7)));
    let settings = Settings { segment_bytes_max: 100, ..Settings::default() };
    let (mut store, mut counters) = (StoreOps::new(Rank(0)), Counters::default());
    let mut effects = MdsEffects::default();
    for _ in 0..50 {
        log.append(Moment(0), Origin::default(), &Event::NOTHING);
        let (rank, now) = (Rank(0), Moment(0));
        let (log, counters) = (&mut log, &mut counters);
        let (sessions, settings, store) = (&sessions, &settings, &mut store);
        let mut cx = LogCx { log, sessions, store, counters, settings, rank, now };
        cx.step(true, &mut effects);
        let token = cx.log.flights.front().and_then(|flight| flight.token).expect("a write");
        cx.stored(token, Ok(StoreResult::Done), &mut effects);
    }
    // The summaries have more than 1,000 bytes, and each event has some 40.
    assert!(log.summary_bytes > 1000, "{}", log.summary_bytes);
    assert!(log.segment_count() < 5, "{} segments", log.segment_count());
    assert!(counters.journal_bytes < 50 * log.summary_bytes / 5, "{}", counters.journal_bytes);
}
