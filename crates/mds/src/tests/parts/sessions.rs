use types::{ClientId, ConnId, Ino, InoRange, Moment, Seq, Span, Tid, Timestamp};

use crate::session::{AsyncOps, Fate, GONE, Remembered, Session, Sessions};

const CLIENT: ClientId = ClientId(3);

fn change(tid: u64) -> Remembered {
    Remembered { tid: Tid(tid), seq: Seq(tid), ino: Ino(0), time: Timestamp(0) }
}

fn is_new(session: &Session, tid: u64) -> bool {
    matches!(session.fate(Tid(tid)), Fate::New)
}

fn answer(session: &Session, tid: u64) -> Option<Remembered> {
    match session.fate(Tid(tid)) {
        Fate::Done(answer) => answer,
        Fate::New => panic!("request {tid} is not done"),
    }
}

/// What the next server recovers of the sessions.
fn recovered(sessions: &Sessions) -> Sessions {
    let mut next = Sessions::default();
    for (client, tids) in sessions.summaries() {
        tids.into_iter().for_each(|tid| next.recovered(client, tid));
    }
    next.validate();
    next
}

#[test]
fn a_request_beyond_the_newest_is_new() {
    let mut session = Session::default();
    session.finish(change(5));
    assert!(is_new(&session, 6));
}

#[test]
fn a_done_request_has_its_answer() {
    let mut session = Session::default();
    session.finish(change(5));
    assert_eq!(answer(&session, 5), Some(change(5)));
}

#[test]
fn an_older_request_that_was_not_done_is_new() {
    let mut session = Session::default();
    session.finish(change(5));
    assert!(is_new(&session, 4), "it overtook the other one");
}

#[test]
fn a_refused_request_is_tried_again() {
    let mut session = Session::default();
    session.finish(change(5));
    session.refuse(Tid(6));
    session.finish(change(7));
    assert!(is_new(&session, 6));
}

#[test]
fn the_oldest_answers_are_forgotten_and_their_requests_stay_done() {
    let mut session = Session::default();
    (1..=1500).for_each(|tid| session.finish(change(tid)));
    assert_eq!(answer(&session, 1), None);
    assert_eq!(answer(&session, 1500), Some(change(1500)));
    assert_eq!(answer(&session, 477), Some(change(477)), "1,024 answers are kept");
    assert_eq!(answer(&session, 476), None);
}

#[test]
fn the_event_that_introduces_a_client_is_its_first() {
    let mut session = Session::default();
    assert_eq!(session.known_since(Seq(8)), Seq(8));
    assert_eq!(session.known_since(Seq(9)), Seq(8));
}

#[test]
fn a_client_was_given_the_numbers_of_its_ranges() {
    let mut ops = AsyncOps::default();
    ops.may_use(InoRange { start: 10, end: 20 });
    assert!(ops.has(Ino(10)) && ops.has(Ino(19)) && !ops.has(Ino(20)) && !ops.has(Ino(9)));
}

#[test]
fn the_oldest_range_of_a_client_makes_room() {
    let mut ops = AsyncOps::default();
    for start in 0..65 {
        ops.may_use(InoRange { start: start * 10, end: start * 10 + 10 });
    }
    assert!(!ops.has(Ino(5)) && ops.has(Ino(15)) && ops.has(Ino(645)));
}

#[test]
fn the_monitor_is_client_0() {
    let sessions = Sessions::default();
    assert_eq!(sessions.client(ConnId::MONITOR), Some(ClientId(0)));
    assert_eq!(sessions.conn_of(ClientId(0)), Some(ConnId::MONITOR));
}

#[test]
fn an_unknown_connection_has_no_client() {
    let sessions = Sessions::default();
    assert_eq!(sessions.client(ConnId(7)), None);
    assert_eq!(sessions.conn_of(CLIENT), None);
}

#[test]
fn requests_of_no_connection_are_those_of_the_absent_client() {
    let mut sessions = Sessions::default();
    assert_eq!(sessions.client(ConnId::NOBODY), None);
    assert_eq!(sessions.act_for(Some(CLIENT)), None);
    assert_eq!(sessions.client(ConnId::NOBODY), Some(CLIENT));
    assert_eq!(sessions.act_for(None), Some(CLIENT));
    sessions.validate();
}

#[test]
fn a_client_without_changes_is_in_no_summary() {
    let mut sessions = Sessions::default();
    sessions.get_mut(CLIENT);
    assert!(sessions.summaries().is_empty());
}

#[test]
fn the_summary_of_an_absent_client_ends_with_its_end() {
    let mut sessions = Sessions::default();
    sessions.get_mut(CLIENT).finish(change(5));
    assert_eq!(
        sessions.summaries(),
        [(CLIENT, vec![Tid(5), Tid(4 | 1 << 63), GONE])].map(|(client, mut tids)| {
            tids.insert(1, Tid(1 | 1 << 63));
            tids.insert(2, Tid(2 | 1 << 63));
            tids.insert(3, Tid(3 | 1 << 63));
            (client, tids)
        }),
        "requests 1 to 4 were not done"
    );
}

#[test]
fn a_recovered_summary_keeps_requests_done() {
    let mut sessions = Sessions::default();
    let session = sessions.get_mut(CLIENT);
    session.finish(change(5));
    session.note_acknowledged(Tid(4), Moment(0));
    let mut next = recovered(&sessions);
    let session = next.get_mut(CLIENT);
    assert!(!is_new(session, 5) && !is_new(session, 3) && is_new(session, 6));
}

#[test]
fn a_recovered_create_has_its_answer() {
    let mut sessions = Sessions::default();
    let create = Remembered { ino: Ino(77), time: Timestamp(9), ..change(5) };
    sessions.get_mut(CLIENT).finish(create);
    let mut next = recovered(&sessions);
    let known = answer(next.get_mut(CLIENT), 5).unwrap();
    assert_eq!((known.ino, known.time), (Ino(77), Timestamp(9)));
}

#[test]
fn a_server_awaits_the_clients_that_the_journal_knows_as_connected() {
    let mut sessions = Sessions::default();
    sessions.recovered(CLIENT, Tid(5));
    assert!(!sessions.all_returned());
    sessions.recovered(CLIENT, GONE);
    assert!(sessions.all_returned());
}

#[test]
fn a_server_stops_waiting_when_clients_had_their_time() {
    let mut sessions = Sessions::default();
    sessions.await_return(CLIENT);
    assert!(!sessions.all_returned());
    sessions.stop_waiting(Moment(5));
    assert!(sessions.all_returned());
}

#[test]
fn a_client_that_left_is_forgotten_after_a_minute() {
    let mut sessions = Sessions::default();
    sessions.get_mut(CLIENT).finish(change(5));
    sessions.forget_gone(Moment(0) + Span::from_millis(59_999));
    assert!(sessions.get(CLIENT).is_some());
    sessions.forget_gone(Moment(0) + Span::from_millis(60_000));
    assert!(sessions.get(CLIENT).is_none());
}

#[test]
fn a_client_that_is_awaited_is_not_forgotten() {
    let mut sessions = Sessions::default();
    sessions.await_return(CLIENT);
    sessions.forget_gone(Moment(u64::MAX));
    assert!(sessions.get(CLIENT).is_some());
}

#[test]
fn a_clean_stop_leaves_the_newest_answers() {
    let mut sessions = Sessions::default();
    (1..=40).for_each(|tid| sessions.get_mut(CLIENT).finish(change(tid)));
    let left = sessions.left();
    let kept: Vec<u64> = left[0].remembered.iter().map(|known| known.tid.0).collect();
    assert_eq!(kept, (25..=40).rev().collect::<Vec<_>>(), "16, the newest first");
    let mut next = Sessions::default();
    next.restore(&left);
    next.validate();
    assert_eq!(answer(next.get_mut(CLIENT), 40), Some(change(40)));
    assert!(next.all_returned(), "each change was safe");
}

#[test]
fn a_blocked_change_is_the_first_of_its_client() {
    let mut sessions = Sessions::default();
    assert!(!sessions.is_any_blocked() && sessions.first_blocked(CLIENT).is_none());
    sessions.get_mut(CLIENT).blocked.extend([vec![1], vec![2]]);
    assert_eq!(sessions.first_blocked(CLIENT), Some(&[1][..]));
    sessions.get_mut(CLIENT).blocked.clear();
    sessions.get_mut(CLIENT).async_ops.waiting.push_back(vec![3]);
    assert_eq!(sessions.first_async(CLIENT), Some(&[3][..]));
    assert!(sessions.is_any_blocked());
}

#[test]
fn changes_of_the_recovered_journal_are_done() {
    let mut sessions = Sessions::default();
    let mut changes = vec![change(5), change(6)];
    sessions.recovered_changes(CLIENT, &mut changes);
    assert!(changes.is_empty() && !is_new(sessions.get_mut(CLIENT), 6));
    assert!(!sessions.all_returned(), "the client may come back");
}

#[test]
fn changes_of_the_monitor_are_no_changes_of_a_client() {
    let mut sessions = Sessions::default();
    let mut changes = vec![change(5)];
    sessions.recovered_changes(ClientId(0), &mut changes);
    sessions.recovered(ClientId(0), Tid(9));
    assert!(changes.is_empty() && sessions.get(ClientId(0)).is_none());
}
