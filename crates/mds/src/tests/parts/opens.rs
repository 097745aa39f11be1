use namespace::FreedInode;
use types::{ClientId, ConnId, Ino, Moment, Seq, Stripe, Tid};
use wire::Access;

use crate::ReplyTo;
use crate::opens::{Opens, Verdict};

const FILE: Ino = Ino(1 << 41);
const A: ClientId = ClientId(1);
const B: ClientId = ClientId(2);

/// Client A has the file open for writing.
fn written() -> Opens {
    let mut opens = Opens::default();
    opens.enter(A, FILE, true);
    opens
}

/// Both clients have the file open, and share it.
fn shared() -> Opens {
    let mut opens = written();
    assert_eq!(opens.begin(FILE, B, Moment(10)), [A]);
    opens.yielded(A, FILE);
    assert!(opens.start_moving(FILE) && opens.finish(FILE, Some(Seq(3))).is_some());
    opens.enter(B, FILE, false);
    opens.validate();
    opens
}

fn freed() -> FreedInode {
    let stripe = Stripe::default();
    FreedInode { ino: FILE, is_dir: false, size: 1, stripe, is_stored: true }
}

#[test]
fn a_file_that_no_client_has_open_is_private() {
    let opens = Opens::default();
    assert_eq!(opens.judge(A, FILE, true), Verdict::Private);
    assert!(!opens.is_open(FILE) && !opens.is_any_shared());
}

#[test]
fn a_file_is_contested_by_a_writer_and_a_reader() {
    let opens = written();
    assert_eq!(opens.judge(B, FILE, false), Verdict::Wait);
    assert_eq!(opens.judge(A, FILE, false), Verdict::Private);
}

#[test]
fn a_client_writes_a_file_that_it_opened_for_writing() {
    let mut opens = written();
    opens.enter(B, Ino(9), false);
    assert!(opens.writes(A, FILE) && !opens.writes(B, FILE) && !opens.writes(B, Ino(9)));
}

#[test]
fn a_shared_file_names_the_event_that_moved_its_content() {
    let opens = shared();
    assert_eq!(opens.judge(ClientId(3), FILE, true), Verdict::Shared(Seq(3)));
}

#[test]
fn a_shared_file_is_shared_until_its_last_close() {
    let mut opens = shared();
    opens.close(A, FILE, true);
    assert!(opens.is_shared(FILE) && opens.is_any_shared());
    opens.close(B, FILE, false);
    assert!(!opens.is_shared(FILE) && !opens.is_any_shared());
    opens.validate();
}

#[test]
fn a_file_that_is_shared_again_keeps_its_newest_event() {
    let mut opens = shared();
    assert!(opens.begin(FILE, A, Moment(20)).is_empty(), "no client caches the file");
    assert!(opens.start_moving(FILE) && opens.finish(FILE, Some(Seq(2))).is_some());
    assert_eq!(opens.judge(A, FILE, true), Verdict::Shared(Seq(3)));
}

#[test]
fn a_file_that_no_client_has_open_is_not_shared() {
    let mut opens = Opens::default();
    assert!(opens.begin(FILE, A, Moment(10)).is_empty() && !opens.is_becoming_shared(FILE));
    assert!(!opens.start_moving(FILE) && opens.finish(FILE, None).is_none());
}

#[test]
fn sharing_waits_for_each_client_that_caches_the_file() {
    let mut opens = Opens::default();
    opens.enter(A, FILE, false);
    opens.enter(B, FILE, false);
    assert_eq!(opens.begin(FILE, ClientId(3), Moment(10)), [A, B]);
    opens.yielded(A, FILE);
    assert!(!opens.start_moving(FILE));
    opens.yielded(B, FILE);
    assert!(opens.start_moving(FILE));
    opens.validate();
}

#[test]
fn the_client_that_wants_a_file_shared_caches_it_no_more() {
    let mut opens = Opens::default();
    opens.enter(A, FILE, false);
    opens.enter(B, FILE, false);
    assert_eq!(opens.begin(FILE, A, Moment(10)), [B]);
}

#[test]
fn a_client_that_leaves_answers_for_its_files() {
    let mut opens = written();
    opens.begin(FILE, B, Moment(10));
    assert_eq!(opens.disconnect(A, ConnId(1)), [FILE]);
    assert!(!opens.start_moving(FILE), "the client may report the file");
    assert_eq!(opens.end_old(A).sharing, [FILE]);
    assert!(opens.start_moving(FILE));
    opens.validate();
}

#[test]
fn a_connection_that_ends_drops_its_waiting_requests() {
    let mut opens = written();
    opens.begin(FILE, B, Moment(10));
    let sharing = opens.sharing(FILE).unwrap();
    sharing.waiting.push((ConnId(2), vec![1]));
    sharing.yields.push(ReplyTo { conn: ConnId(2), tid: Tid(1) });
    opens.disconnect(B, ConnId(2));
    let sharing = opens.sharing(FILE).unwrap();
    assert!(sharing.waiting.is_empty() && sharing.yields.is_empty());
}

#[test]
fn a_client_is_silent_when_its_time_is_over() {
    let mut opens = written();
    opens.begin(FILE, B, Moment(10));
    assert_eq!((opens.silent(Moment(9)), opens.silent(Moment(10))), (vec![], vec![A]));
    opens.yielded(A, FILE);
    assert!(opens.silent(Moment(99)).is_empty());
}

#[test]
fn a_removed_file_that_no_client_has_open_is_not_kept() {
    let mut opens = Opens::default();
    assert!(!opens.keep(freed()) && !opens.is_nameless(FILE));
}

#[test]
fn a_removed_file_that_is_named_again_is_not_purged() {
    let mut opens = written();
    assert!(opens.keep(freed()) && opens.is_nameless(FILE));
    opens.named_again(FILE);
    assert!(!opens.is_nameless(FILE));
    assert_eq!(opens.close(A, FILE, true), None);
}

#[test]
fn a_client_that_leaves_hands_over_the_removed_files_that_only_it_had_open() {
    let mut opens = written();
    opens.keep(freed());
    opens.disconnect(A, ConnId(1));
    assert_eq!(opens.end_old(A).freed, [freed()]);
    assert_eq!(opens.len(), 0);
}

#[test]
fn a_file_that_moves_to_another_rank_hands_over_its_yields() {
    let mut opens = written();
    opens.begin(FILE, B, Moment(10));
    opens.sharing(FILE).unwrap().yields.push(ReplyTo { conn: ConnId(1), tid: Tid(4) });
    assert_eq!(opens.remove(FILE), [ReplyTo { conn: ConnId(1), tid: Tid(4) }]);
    opens.validate();
    assert_eq!((opens.len(), opens.remove(FILE).len()), (0, 0));
}

#[test]
fn the_files_of_other_clients_are_those_that_they_have_open() {
    let mut opens = written();
    opens.enter(B, Ino(9), false);
    assert_eq!(opens.of_others(A).collect::<Vec<_>>(), [Ino(9)]);
    assert_eq!(opens.clients(FILE).collect::<Vec<_>>(), [A]);
}

#[test]
fn a_report_of_a_shared_file_makes_it_shared() {
    let mut opens = Opens::default();
    let access = Access { read: true, write: false, shared: true };
    assert!(!opens.reopen(A, FILE, access));
    assert!(opens.is_shared(FILE));
    opens.validate();
}

#[test]
fn a_report_that_a_file_is_shared_ends_its_cache() {
    let mut opens = written();
    opens.begin(FILE, B, Moment(10));
    let access = Access { read: false, write: true, shared: true };
    assert!(!opens.reopen(A, FILE, access));
    assert!(opens.start_moving(FILE), "client A caches nothing");
}

#[test]
fn a_client_has_the_files_open_that_it_reports_over_a_new_connection() {
    let mut opens = written();
    opens.enter(A, Ino(78), true);
    opens.disconnect(A, ConnId(1));
    let access = Access { read: false, write: true, shared: false };
    assert!(!opens.reopen(A, FILE, access));
    assert_eq!(opens.end_old(A).freed, []);
    assert!(opens.has(A, FILE) && !opens.has(A, Ino(78)));
    opens.validate();
}

#[test]
fn a_recall_is_repeated_for_a_client_that_reports_the_file_anew() {
    let mut opens = written();
    assert_eq!(opens.begin(FILE, B, Moment(10)), [A]);
    opens.disconnect(A, ConnId(1));
    let access = Access { read: false, write: true, shared: false };
    assert!(!opens.reopen(A, FILE, access), "sharing is under way");
    assert!(opens.must_give_up(A, FILE));
    opens.yielded(A, FILE);
    assert!(!opens.must_give_up(A, FILE) && opens.start_moving(FILE));
}
