use std::sync::Arc;
use std::time::Instant;

use exporter::TextForm;
use mds::{Mds, Settings};
use types::{ConnId, Cred, Ino, Moment, Rank, Seq, Tid, Timestamp};
use wire::{Answer, Message, Op, Outbox, ReadOp, Reply, Request};

use super::mds_counters::COUNTERS;
use super::requests::{RequestTimes, SlowRequest};
use super::store::StoreTimes;

fn request(tid: u64) -> Message<'static> {
    let op = Op::Read(ReadOp::GetAttr { ino: Ino(1) });
    Message::Request(Request::new(Tid(tid), Tid(0), Cred::default(), op))
}

fn reply(conn: ConnId, tid: u64) -> Outbox {
    let (seq, time) = (Seq(1), Timestamp(2));
    let reply =
        Reply { tid: Tid(tid), seq, time, safe: seq, grants: None, result: Ok(Answer::Done) };
    let mut outbox = Outbox::default();
    outbox.send(conn, &Message::Recall { ino: Ino(tid) });
    outbox.send(conn, &Message::Reply(reply));
    outbox
}

fn send(times: &mut RequestTimes, now: u64, outbox: &Outbox) -> Vec<SlowRequest> {
    outbox.iter().filter_map(|(conn, frame)| times.sent(conn, Moment(now), frame)).collect()
}

#[test]
fn every_counter_of_the_server_is_a_metric() {
    let mds = Mds::new(Rank(0), Settings::default());
    let mut counted: Vec<String> = mds.counters().into_iter().map(|(name, _)| name).collect();
    let mut known: Vec<&str> = COUNTERS.iter().map(|(name, _)| *name).collect();
    counted.sort_unstable();
    known.sort_unstable();
    assert_eq!(counted, known);
}

#[test]
fn names_are_unique_and_follow_the_conventions() {
    let all = [exporter::metrics(), super::mds_metrics(), super::mon_metrics()].concat();
    for (at, metric) in all.iter().enumerate() {
        let name = metric.name;
        assert!(all[..at].iter().all(|other| other.name != name), "{name} is there twice");
        let letters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        assert!(name.chars().all(letters) && !name.ends_with("_total"), "{name}");
        assert!(!metric.help.is_empty() && !metric.help.contains(['|', '\n', '\\']), "{name}");
        for unit in ["millis", "micros", "nanos", "_ms", "kib", "percent"] {
            assert!(!name.contains(unit), "{name} is in base units");
        }
    }
}

#[test]
fn a_reply_ends_the_time_of_its_request() {
    let mut times = RequestTimes::new(None);
    let conn = ConnId(7);
    times.arrived(conn, Moment(1000), &request(1));
    times.arrived(ConnId(8), Moment(1000), &request(1));
    times.arrived(conn, Moment(2000), &request(2));
    send(&mut times, 5000, &reply(conn, 1));
    send(&mut times, 6000, &reply(conn, 1));
    assert_eq!(times.under_way(Moment(7000)), (2, types::Span(6000)));
    times.closed(ConnId(8));
    assert_eq!(times.under_way(Moment(7000)).0, 1);
    let [(name, durations)] = times.kinds() else { panic!("one kind came") };
    assert_eq!((*name, durations.count()), ("getattr", 1));
    assert!((durations.seconds() - 4e-6).abs() < 1e-12);
}

#[test]
fn a_request_that_waits_for_a_change_is_not_slow() {
    let mut times = RequestTimes::new(Some(types::Span(1000)));
    let conn = ConnId(3);
    let op = Op::Read(ReadOp::Watch { path: b"/", after: None, wait: 2000 });
    let watch = Message::Request(Request::new(Tid(1), Tid(0), Cred::default(), op));
    times.arrived(conn, Moment(0), &watch);
    times.arrived(conn, Moment(0), &request(2));
    let slow: Vec<_> = times.overdue(Moment(5000)).iter().map(|slow| slow.op).collect();
    assert_eq!(slow, ["getattr"]);
    assert!(send(&mut times, 5000, &reply(conn, 1)).is_empty());
}

#[test]
fn a_slow_request_is_told_once() {
    let mut times = RequestTimes::new(Some(types::Span(1000)));
    let conn = ConnId(7);
    (1..=3).for_each(|tid| times.arrived(conn, Moment(0), &request(tid)));
    assert_eq!(send(&mut times, 999, &reply(conn, 1)), []);
    let slow = |took, is_answered| {
        let took = types::Span(took);
        SlowRequest { op: "getattr", conn, uid: 0, took, is_answered }
    };
    assert_eq!(send(&mut times, 1000, &reply(conn, 2)), [slow(1000, true)]);
    assert_eq!(times.overdue(Moment(5000)), [slow(5000, false)]);
    assert_eq!(times.overdue(Moment(6000)), []);
    assert_eq!(send(&mut times, 7000, &reply(conn, 3)), []);
}

#[test]
fn requests_that_share_a_place_are_counted() {
    let mut times = RequestTimes::new(None);
    let conn = ConnId(1);
    times.arrived(conn, Moment(0), &request(1));
    times.arrived(conn, Moment(0), &request(1 + 4096));
    send(&mut times, 10, &reply(conn, 1));
    assert_eq!((times.unmeasured(), times.kinds()[0].1.count()), (1, 0));
    send(&mut times, 10, &reply(conn, 1 + 4096));
    assert_eq!(times.kinds()[0].1.count(), 1);
}

#[test]
fn asynchronous_requests_get_no_reply_and_no_place() {
    let mut times = RequestTimes::new(None);
    let Message::Request(request) = request(1) else { unreachable!() };
    let request = Message::Request(Request { is_async: true, ..request });
    times.arrived(ConnId(1), Moment(0), &request);
    assert_eq!(times.under_way(Moment(1)).0, 0);
}

#[test]
fn a_page_has_the_figures_of_the_server_and_no_path() {
    let mut settings = Settings::default();
    settings.chosen.push(("inodes_max".to_owned(), 7));
    let mds = Mds::new(Rank(0), settings);
    let store = StoreTimes::default();
    store.note(0, [Instant::now(); 2], true);
    let page = super::mds::page(
        &mds::Figures::of(&mds, false),
        &RequestTimes::new(None),
        &store,
        Moment(0),
    );
    let text = Arc::new(page).text(TextForm::OpenMetrics);
    for line in [
        "cudele_mds_state{rank=\"0\",state=\"replaying\"} 1",
        "cudele_mds_setting{setting=\"inodes_max\"} 7",
        "cudele_mds_store_operation_failures_total{op=\"append\"} 1",
        "cudele_mds_health{code=\"STORE_FULL\"} 0",
        "cudele_mds_subtree_hits_per_second{ino=\"0x1\",path=\"\",kind=\"inode_read\"} 0.0",
    ] {
        assert!(text.lines().any(|known| known == line), "{line} is missing in\n{text}");
    }
}

/// The cost of a request for the measurements: `cargo test --release -p daemon cost -- --ignored
/// --nocapture`.
#[test]
#[ignore = "a measurement"]
fn cost_of_a_request() {
    const REQUESTS: u64 = 2_000_000;
    let clocks = crate::clock::Clocks::new();
    let (request, outbox) = (request(1), reply(ConnId(7), 1));
    let frame = &outbox.frames[outbox.sends[1].1.clone()];
    let mut times = RequestTimes::new(None);
    let mut best = f64::MAX;
    for _ in 0..10 {
        let began = Instant::now();
        for _ in 0..REQUESTS {
            let now = std::hint::black_box(&clocks).now();
            times.arrived(ConnId(7), now, std::hint::black_box(&request));
            times.sent(ConnId(7), now, std::hint::black_box(frame));
            times.turned(now, now);
        }
        best = best.min(began.elapsed().as_secs_f64() * 1e9 / 2e6);
    }
    assert_eq!(times.kinds()[0].1.count(), 10 * REQUESTS);
    println!("{best:.1} ns for each request that has a turn of its own");
}
