use types::{Attr, Clock, Cred, Epoch, Span, Tid};
use wire::{ChangeOp, Hello, ReadOp, Replay, SessionOp};

use super::*;
use crate::Mds;

const FILE: Ino = Ino(1 << 41);
const NOT_FOUND: Errno = Errno::NotFound;

fn at(millis: u64) -> Moment {
    Moment::default() + Span::from_millis(millis)
}

fn change(tid: u64) -> Request<'static> {
    Request::new(
        Tid(tid),
        Tid(0),
        Cred::root(),
        Op::Change(ChangeOp::Unlink { parent: Ino::ROOT, name: b"a" }),
    )
}

/// A change that is sent again, with the position that it had.
fn resent(tid: u64, seq: u64) -> Request<'static> {
    Request { replay: Some(Replay { seq: Seq(seq), ..Replay::default() }), ..change(tid) }
}

fn frame(request: &Request<'_>) -> Vec<u8> {
    Message::Request(request.clone()).to_frame()
}

/// A server that waits for its clients until 2 s, and whose clients may have leases until 1 s.
fn reconnecting() -> Mds {
    let mut mds = Mds::new(types::Rank(0), Settings::default());
    mds.phase = Phase::Reconnecting { until: at(2000), leased: at(1000) };
    mds
}

/// Connects a client that has so many changes to send again. Its connection has its number.
fn connect(mds: &mut Mds, client: u64, unsafe_requests: u64) {
    let hello = Hello { client: ClientId(client), epoch: Epoch(1), unsafe_requests };
    mds.hello(ConnId(client), hello, &mut MdsEffects::default());
}

/// A server that executes changes of clients, in this order.
fn executing(changes: &[(u64, Request<'_>)]) -> Mds {
    let mut mds = reconnecting();
    mds.phase = Phase::Active;
    (mds.resend.busy, mds.resend.all_returned) = (true, true);
    for (client, request) in changes {
        mds.resend.ordered.push_back((ClientId(*client), frame(request)));
    }
    mds
}

fn keep(mds: &mut Mds, client: u64, request: &Request<'_>) {
    mds.early.keep(ConnId(client), frame(request), &mut MdsEffects::default());
}

#[test]
fn the_course_of_an_early_request_depends_on_its_kind() {
    let again = |op| Request { op, ..resent(1, 0) };
    let reopen = again(Op::Session(SessionOp::Reopen { ino: FILE, access: Default::default() }));
    let cases = [
        ("new", change(1), true, true, EarlyCourse::Later),
        ("resent", resent(1, 5), true, true, EarlyCourse::Resent),
        ("resent, without a position", resent(1, 0), true, true, EarlyCourse::Resent),
        ("of an unknown connection", resent(1, 5), false, true, EarlyCourse::Later),
        ("during the replay", resent(1, 5), true, false, EarlyCourse::Later),
        (
            "the last one",
            again(Op::Session(SessionOp::Sync)),
            true,
            true,
            EarlyCourse::Complete { is_believed: true },
        ),
        (
            "a sync",
            Request { op: Op::Session(SessionOp::Sync), ..change(1) },
            true,
            true,
            EarlyCourse::Later,
        ),
        ("a report", reopen, true, true, EarlyCourse::Now),
    ];
    for (what, request, is_known, is_reconnecting, expected) in cases {
        let course = early_course(&request, (is_known, true), is_reconnecting);
        assert_eq!(course, expected, "{what}");
    }
}

#[test]
fn a_resent_change_is_kept_with_its_position() {
    let mut mds = reconnecting();
    connect(&mut mds, 1, 2);
    let request = resent(7, 5);
    let course = ResendCx::of(&mut mds).take_early(ConnId(1), &request, &mut MdsEffects::default());
    assert_eq!(course, EarlyCourse::Resent);
    assert_eq!(mds.resend.requests, [(Seq(5), ConnId(1), frame(&request))]);
    assert!(mds.early.is_empty());
}

#[test]
fn a_new_request_waits_among_the_early_frames() {
    let mut mds = reconnecting();
    connect(&mut mds, 1, 0);
    let course =
        ResendCx::of(&mut mds).take_early(ConnId(1), &change(7), &mut MdsEffects::default());
    assert_eq!(course, EarlyCourse::Later);
    assert!(mds.early.is_any_of(ConnId(1)) && mds.resend.requests.is_empty());
}

#[test]
fn a_client_has_returned_when_it_has_sent_everything_again() {
    let mut mds = reconnecting();
    connect(&mut mds, 1, 1);
    assert!(!mds.sessions.all_returned());
    let last = Request { op: Op::Session(SessionOp::Sync), ..resent(9, 0) };
    let course = ResendCx::of(&mut mds).take_early(ConnId(1), &last, &mut MdsEffects::default());
    assert!(matches!(course, EarlyCourse::Complete { .. }));
    assert!(mds.sessions.all_returned());
}

#[test]
fn resent_changes_come_in_their_first_order() {
    // Connection, request number, position; then the order of the request numbers.
    let cases = [
        (vec![(1, 11, 9), (2, 21, 3), (1, 12, 10)], vec![21, 11, 12]),
        // No position is known of an answer that was lost: these come first.
        (vec![(1, 11, 9), (2, 21, 0)], vec![21, 11]),
        // A later term gave the first change a later position.
        (vec![(1, 11, 90), (1, 12, 4), (2, 21, 5)], vec![11, 12, 21]),
        (vec![(1, 12, 4), (1, 11, 90), (2, 21, 3)], vec![21, 11, 12]),
        (vec![], vec![]),
    ];
    for (sent, expected) in cases {
        let mut requests: Vec<_> = sent
            .iter()
            .map(|(conn, tid, seq)| (Seq(*seq), ConnId(*conn), frame(&resent(*tid, *seq))))
            .collect();
        in_first_order(&mut requests);
        let tid = |frame: &[u8]| match decode(frame) {
            Some(Message::Request(request)) => request.tid.0,
            other => panic!("{other:?}"),
        };
        let order: Vec<u64> = requests.iter().map(|(.., frame)| tid(frame)).collect();
        assert_eq!(order, expected, "{sent:?}");
    }
}

#[test]
fn an_asynchronous_operation_keeps_its_position() {
    let ahead = Request { is_async: true, ..resent(11, 90) };
    let all = [(Seq(90), ConnId(1), frame(&ahead)), (Seq(4), ConnId(1), frame(&resent(12, 4)))];
    let mut requests = all.to_vec();
    in_first_order(&mut requests);
    assert_eq!(requests, [all[1].clone(), all[0].clone()]);
}

#[test]
fn a_broken_connection_takes_its_resent_changes_with_it() {
    let mut resend = Resend::default();
    for conn in [1, 2, 1] {
        resend.requests.push((Seq(1), ConnId(conn), Vec::new()));
    }
    assert!(resend.forget(ConnId(1)) && resend.requests.len() == 1);
    assert!(!resend.forget(ConnId(1)), "nothing of it is left");
}

#[test]
fn the_wait_lasts_until_leases_and_caches_of_the_last_term_ended() {
    let settings = Settings::default();
    let reconnect = Moment::default() + settings.reconnect;
    let late = reconnect + Span::from_millis(1);
    for (leased, expected) in [(Moment::default(), reconnect), (late, late)] {
        let mut mds = Mds::new(types::Rank(0), settings.clone());
        ResendCx::of(&mut mds).wait_for_clients(leased);
        assert_eq!(mds.phase, Phase::Reconnecting { until: expected, leased });
    }
}

#[test]
fn the_wait_ends_when_all_are_back_and_no_lease_is_in_use_or_the_time_is_over() {
    let cases = [
        (999, true, false),
        (1000, true, true),
        (1000, false, false),
        (1999, false, false),
        (2000, false, true),
    ];
    for (now, returned, ends) in cases {
        let mut mds = reconnecting();
        mds.clock = Clock { now: at(now), ..Clock::default() };
        connect(&mut mds, 1, u64::from(!returned));
        let wanted = ResendCx::of(&mut mds).stop_waiting();
        assert_eq!(wanted.is_some(), ends, "after {now} ms, returned: {returned}");
        assert_eq!(mds.sessions.all_returned(), ends || returned);
    }
}

#[test]
fn a_server_that_does_not_wait_ends_no_wait() {
    for phase in [Phase::Recovering, Phase::Active, Phase::Stopping, Phase::Stopped] {
        let mut mds = reconnecting();
        mds.phase = phase;
        mds.clock = Clock { now: at(5000), ..Clock::default() };
        assert!(ResendCx::of(&mut mds).stop_waiting().is_none(), "{phase:?}");
        assert!(!ResendCx::of(&mut mds).become_active(), "{phase:?}");
        assert_eq!(mds.phase, phase);
    }
}

#[test]
fn the_inodes_of_resent_changes_are_wanted_without_those_that_they_create() {
    let (one, two) = (Ino(FILE.0 + 1), Ino(FILE.0 + 2));
    let replay = Some(Replay { ino: one, ..Replay::default() });
    let parent = |parent| Op::Change(ChangeOp::Unlink { parent, name: b"a" });
    let mut resend = Resend::default();
    for request in [
        Request { replay, op: parent(FILE), ..change(1) },
        Request { replay: Some(Replay::default()), op: parent(one), ..change(2) },
    ] {
        resend.requests.push((Seq(0), ConnId(1), frame(&request)));
    }
    let wanted = resend.wanted([one, two].into_iter());
    assert_eq!(wanted.into_iter().collect::<Vec<_>>(), [FILE, two]);
}

#[test]
fn a_server_waits_again_for_a_client_that_broke_off_during_the_search() {
    let mut mds = reconnecting();
    connect(&mut mds, 1, 1);
    assert!(!ResendCx::of(&mut mds).become_active());
    mds.clock = Clock { now: at(2000), ..Clock::default() };
    assert!(ResendCx::of(&mut mds).become_active());
    assert!(mds.phase == Phase::Active && mds.resend.is_busy());
}

#[test]
fn changes_of_unknown_connections_are_not_executed() {
    let mut mds = reconnecting();
    connect(&mut mds, 1, 0);
    for conn in [1, 2] {
        mds.resend.requests.push((Seq(conn), ConnId(conn), frame(&resent(5, conn))));
    }
    assert!(ResendCx::of(&mut mds).become_active());
    assert_eq!(mds.resend.ordered, [(ClientId(1), frame(&resent(5, 1)))]);
    assert_eq!(mds.counters.replayed, 2);
}

#[test]
fn a_change_is_executed_for_its_client_with_or_without_a_connection() {
    let mut mds = executing(&[(1, resent(5, 1)), (2, resent(6, 2))]);
    connect(&mut mds, 1, 0);
    let (one, two) = (frame(&resent(5, 1)), frame(&resent(6, 2)));
    assert_eq!(ResendCx::of(&mut mds).step(), Some(ResendNeed::Frame(ConnId(1), one)));
    assert_eq!(ResendCx::of(&mut mds).step(), Some(ResendNeed::Absent(ClientId(2), two)));
    assert!(mds.resend.is_busy());
    assert_eq!(ResendCx::of(&mut mds).step(), None);
    assert!(!mds.resend.is_busy());
}

#[test]
fn the_next_change_waits_while_one_is_blocked() {
    let mut mds = executing(&[(1, resent(5, 1))]);
    mds.sessions.get_mut(ClientId(3)).blocked.push_back(vec![1]);
    assert_eq!(ResendCx::of(&mut mds).step(), None);
    assert!(mds.resend.is_busy() && mds.resend.ordered.len() == 1);
    mds.sessions.get_mut(ClientId(3)).blocked.clear();
    assert!(ResendCx::of(&mut mds).step().is_some());
}

#[test]
fn a_change_behind_a_late_one_of_its_client_is_late() {
    let mut mds = executing(&[(1, resent(6, 2)), (2, resent(7, 3))]);
    mds.resend.late.push_back((ClientId(1), frame(&resent(5, 1))));
    let seven = frame(&resent(7, 3));
    assert_eq!(ResendCx::of(&mut mds).step(), Some(ResendNeed::Absent(ClientId(2), seven)));
    let late: Vec<_> = mds.resend.late.iter().map(|(client, _)| client.0).collect();
    assert_eq!(late, [1, 1]);
}

#[test]
fn late_changes_come_behind_the_other_resent_changes_and_before_new_requests() {
    let mut mds = executing(&[(2, resent(7, 2))]);
    mds.resend.late.push_back((ClientId(1), frame(&resent(5, 1))));
    keep(&mut mds, 3, &change(8));
    for (client, request) in [(2, resent(7, 2)), (1, resent(5, 1))] {
        let need = Some(ResendNeed::Absent(ClientId(client), frame(&request)));
        assert_eq!(ResendCx::of(&mut mds).step(), need);
    }
    assert_eq!(mds.resend.turn, Turn::Late);
    assert_eq!(ResendCx::of(&mut mds).step(), None);
    assert!(!mds.resend.is_busy());
    assert_eq!(ResendCx::of(&mut mds).take_waiting(), [(ConnId(3), frame(&change(8)))]);
}

/// A request without a position that makes the name for which a resent change is refused.
fn missing(tid: u64) -> Request<'static> {
    let new = wire::NewInode::default();
    let create = ChangeOp::Create { parent: Ino::ROOT, name: b"a", new };
    Request { op: Op::Change(create), ..change(tid) }
}

/// A server with clients 1 to 3 that cannot execute a resent change of client 1.
fn stuck(later: &[(u64, Request<'_>)]) -> Mds {
    let mut mds = executing(later);
    (1..=3).for_each(|client| connect(&mut mds, client, 0));
    keep(&mut mds, 3, &change(30));
    keep(&mut mds, 2, &change(20));
    keep(&mut mds, 2, &missing(21));
    keep(&mut mds, 2, &change(22));
    assert!(ResendCx::of(&mut mds).comes_late(ClientId(1), &resent(5, 1), NOT_FOUND));
    mds
}

#[test]
fn a_late_change_comes_right_behind_the_request_that_it_needs() {
    let mut mds = stuck(&[(3, resent(6, 2))]);
    let awaited = [(ConnId(2), frame(&change(20))), (ConnId(2), frame(&missing(21)))];
    let need = Some(ResendNeed::Frames(VecDeque::from(awaited)));
    assert_eq!(ResendCx::of(&mut mds).step(), need);
    assert!(!mds.resend.must_wait(&mds.sessions, ConnId(2), &missing(21)));
    for (conn, request) in [(1, resent(5, 1)), (3, resent(6, 2))] {
        let need = Some(ResendNeed::Frame(ConnId(conn), frame(&request)));
        assert_eq!(ResendCx::of(&mut mds).step(), need);
    }
    assert_eq!(ResendCx::of(&mut mds).step(), None);
    assert!(!mds.resend.is_busy());
    let left = ResendCx::of(&mut mds).take_waiting();
    assert_eq!(left, [(ConnId(3), frame(&change(30))), (ConnId(2), frame(&change(22)))]);
}

#[test]
fn a_new_request_has_no_turn_while_an_awaited_one_waits_for_a_directory() {
    let mut mds = stuck(&[]);
    assert!(matches!(ResendCx::of(&mut mds).step(), Some(ResendNeed::Frames(_))));
    mds.sessions.get_mut(ClientId(2)).blocked.push_back(vec![1]);
    assert_eq!(ResendCx::of(&mut mds).step(), None);
    assert!(mds.resend.must_wait(&mds.sessions, ConnId(2), &change(23)));
    mds.sessions.get_mut(ClientId(2)).blocked.clear();
    let need = Some(ResendNeed::Frame(ConnId(1), frame(&resent(5, 1))));
    assert_eq!(ResendCx::of(&mut mds).step(), need);
}

#[test]
fn a_late_change_awaits_no_request_behind_resent_changes_of_its_client() {
    let mut mds = stuck(&[(2, resent(7, 3))]);
    let need = Some(ResendNeed::Frame(ConnId(2), frame(&resent(7, 3))));
    assert_eq!(ResendCx::of(&mut mds).step(), need);
    assert_eq!(mds.resend.turn, Turn::Sent);
    // These are done, and the late change still lacks the name.
    let need = Some(ResendNeed::Frame(ConnId(1), frame(&resent(5, 1))));
    assert_eq!(ResendCx::of(&mut mds).step(), need);
    assert_eq!(mds.resend.turn, Turn::Late);
    assert!(ResendCx::of(&mut mds).comes_late(ClientId(1), &resent(5, 1), NOT_FOUND));
    let awaited = [(ConnId(2), frame(&change(20))), (ConnId(2), frame(&missing(21)))];
    let frames = Some(ResendNeed::Frames(VecDeque::from(awaited)));
    assert_eq!(ResendCx::of(&mut mds).step(), frames);
    assert_eq!(ResendCx::of(&mut mds).step(), need);
}

#[test]
fn a_server_stops_behind_the_resent_changes() {
    let mut mds = executing(&[(1, resent(5, 1))]);
    mds.terminate(true, &mut MdsEffects::default());
    assert!(matches!(ResendCx::of(&mut mds).step(), Some(ResendNeed::Absent(..))));
    assert_eq!(ResendCx::of(&mut mds).step(), None);
    assert_eq!(mds.phase, Phase::Active);
    mds.advance_stop(&mut MdsEffects::default());
    assert_eq!(mds.phase, Phase::Stopping);
}

#[test]
fn early_frames_wait_for_an_active_server_without_resent_changes() {
    let cases = [
        (Phase::Active, false, true),
        (Phase::Active, true, false),
        (Phase::Stopping, false, false),
        (Phase::Recovering, false, false),
    ];
    for (phase, busy, taken) in cases {
        let mut mds = reconnecting();
        (mds.phase, mds.resend.busy) = (phase, busy);
        keep(&mut mds, 1, &change(5));
        assert_eq!(
            ResendCx::of(&mut mds).take_waiting().len(),
            usize::from(taken),
            "{phase:?}, {busy}"
        );
        assert_eq!(mds.early.is_empty(), taken);
    }
}

#[test]
fn a_request_waits_for_resent_changes_unless_it_is_its_turn() {
    let cases = [
        ("nothing is resent", false, Turn::Sent, 1, change(5), false),
        ("a resent change", true, Turn::Sent, 1, resent(5, 1), false),
        ("a new request", true, Turn::Sent, 1, change(5), true),
        ("an awaited request", true, Turn::Awaited, 1, change(5), false),
        ("of a client with late changes", true, Turn::Awaited, 2, change(5), true),
        ("of an unknown connection", true, Turn::Awaited, 9, change(5), true),
        ("while late changes are executed", true, Turn::Late, 1, change(5), true),
    ];
    for (what, busy, turn, conn, request, waits) in cases {
        let mut mds = executing(&[]);
        connect(&mut mds, 1, 0);
        connect(&mut mds, 2, 0);
        (mds.resend.busy, mds.resend.turn) = (busy, turn);
        mds.resend.late.push_back((ClientId(2), Vec::new()));
        assert_eq!(mds.resend.must_wait(&mds.sessions, ConnId(conn), &request), waits, "{what}");
    }
}

#[test]
fn a_change_comes_late_if_it_was_answered_and_may_depend_on_a_request_of_another_client() {
    let ahead = Request { is_async: true, ..resent(5, 1) };
    let waits = |client| Some((client, missing(8)));
    let cases = [
        ("answered", true, Turn::Sent, waits(3), 1, resent(5, 1), true),
        ("done", false, Turn::Sent, waits(3), 1, resent(5, 1), false),
        ("late already", true, Turn::Late, waits(3), 1, resent(5, 1), true),
        ("for an awaited request", true, Turn::Awaited, waits(3), 1, resent(5, 1), false),
        ("nothing waits", true, Turn::Sent, None, 1, resent(5, 1), false),
        ("its client waits", true, Turn::Sent, waits(1), 1, resent(5, 1), false),
        ("another name", true, Turn::Sent, Some((3, change(8))), 1, resent(5, 1), false),
        ("of the monitor", true, Turn::Sent, waits(3), 0, resent(5, 1), false),
        ("not answered", true, Turn::Sent, waits(3), 1, resent(5, 0), false),
        ("new", true, Turn::Sent, waits(3), 1, change(5), false),
        ("asynchronous", true, Turn::Sent, waits(3), 1, ahead, false),
    ];
    for (what, busy, turn, waits, client, request, late) in cases {
        for all_returned in [true, false] {
            let mut mds = executing(&[]);
            (mds.resend.busy, mds.resend.turn) = (busy, turn);
            mds.resend.all_returned = all_returned;
            if let Some((client, request)) = &waits {
                connect(&mut mds, *client, 0);
                keep(&mut mds, *client, request);
            }
            let late = late && all_returned;
            assert_eq!(
                ResendCx::of(&mut mds).comes_late(ClientId(client), &request, NOT_FOUND),
                late,
                "{what}"
            );
            assert_eq!(mds.resend.late.len(), usize::from(late), "{what}");
            mds.resend.validate(false);
        }
    }
}

#[test]
fn a_change_comes_late_if_a_crash_left_earlier_ones_with_later_positions() {
    let at = |request: Request<'static>, time| {
        let replay = request.replay.map(|replay| Replay { time: Timestamp(time), ..replay });
        Request { replay, ..request }
    };
    let cases = [
        ("earlier", at(resent(6, 90), 4), Turn::Sent, true),
        ("at one time", at(resent(6, 90), 5), Turn::Sent, false),
        ("at an unknown time", resent(6, 90), Turn::Sent, false),
        ("while late changes are executed", at(resent(6, 90), 4), Turn::Late, false),
    ];
    for (what, later, turn, late) in cases {
        let mut mds = executing(&[(2, later)]);
        mds.resend.turn = turn;
        let request = at(resent(5, 1), 5);
        let comes = ResendCx::of(&mut mds).comes_late(ClientId(1), &request, NOT_FOUND);
        assert_eq!((comes, mds.resend.stuck), (late, None), "{what}");
    }
}

#[test]
fn all_clients_have_returned_unless_the_time_was_over_or_one_broke_off() {
    for (now, returned, broken, expected) in [
        (1000, true, false, true),
        (2000, true, false, true),
        (2000, false, false, false),
        (2000, true, true, false),
    ] {
        let mut mds = reconnecting();
        mds.clock = Clock { now: at(now), ..Clock::default() };
        connect(&mut mds, 1, u64::from(!returned));
        assert!(ResendCx::of(&mut mds).stop_waiting().is_some());
        if broken {
            // It connects again, and has not sent its changes yet.
            mds.hello(
                ConnId(2),
                Hello { client: ClientId(1), epoch: Epoch(1), unsafe_requests: 1 },
                &mut MdsEffects::default(),
            );
        }
        assert!(ResendCx::of(&mut mds).become_active());
        assert_eq!(mds.resend.all_returned, expected, "after {now} ms");
    }
}

#[test]
fn a_request_is_astray_if_a_place_is_unknown_since_the_restart() {
    // The file is known, and the directory with its name is not.
    let mut namespace = Namespace::new();
    let attr = Attr { ino: FILE, mode: 0o100_644, nlink: 1, ..Attr::default() };
    namespace.store().load_entry(Ino(FILE.0 + 1), b"file", &attr, b"");
    let elsewhere = Ino(FILE.0 + 2);
    let cases = [
        (false, FILE, false),
        (true, FILE, true),
        (true, Ino::LINKS, false),
        (true, elsewhere, false),
    ];
    for (orphans, ino, expected) in cases {
        let resend = Resend { orphans, ..Resend::default() };
        let op = Op::Read(ReadOp::GetAttr { ino });
        assert_eq!(resend.is_astray(&namespace, &op), expected, "{orphans}, {ino}");
    }
}
