mod orders;

use namespace::FreedInode;
use types::{ClientId, ConnId, Ino, Moment, Seq};
use wire::Access;

use super::{Opens, Verdict};

const FILE: Ino = Ino(1 << 41);
const A: ClientId = ClientId(1);
const B: ClientId = ClientId(2);
const C: ClientId = ClientId(3);

fn freed() -> FreedInode {
    FreedInode {
        ino: FILE,
        is_dir: false,
        size: 1,
        stripe: types::Stripe::default(),
        is_stored: true,
    }
}

#[test]
fn readers_do_not_disturb_each_other() {
    let mut opens = Opens::default();
    for client in [A, B, C] {
        assert_eq!(opens.judge(client, FILE, false), Verdict::Private);
        opens.enter(client, FILE, false);
    }
    assert_eq!(opens.judge(A, FILE, true), Verdict::Wait);
}

#[test]
fn a_late_yield_agrees_with_the_clients_view_of_the_file() {
    let mut opens = Opens::default();
    opens.enter(A, FILE, true);
    assert_eq!(opens.begin(FILE, B, Moment(10)), [A]);
    // It closes the file instead of answering, and all is over before it hears of the recall.
    assert_eq!(opens.close(A, FILE, true), None);
    assert!(opens.start_moving(FILE));
    assert!(opens.finish(FILE, None).is_some());
    assert!(!opens.yielded(A, FILE), "it is not open there");
    opens.enter(A, FILE, true);
    assert!(opens.yielded(A, FILE));
    assert_eq!(opens.begin(FILE, A, Moment(10)), []);
    assert!(opens.start_moving(FILE));
    assert!(opens.finish(FILE, Some(Seq(3))).is_some());
    assert!(!opens.yielded(A, FILE) && opens.is_shared(FILE));
}

#[test]
fn a_second_opener_of_a_written_file_waits_until_the_first_has_answered() {
    let mut opens = Opens::default();
    opens.enter(A, FILE, true);
    assert_eq!(opens.judge(A, FILE, false), Verdict::Private, "nobody is in its own way");
    assert_eq!(opens.judge(B, FILE, false), Verdict::Wait);
    assert_eq!(opens.begin(FILE, B, Moment(10)), [A]);
    assert_eq!(opens.begin(FILE, C, Moment(10)), [], "nobody is told twice");
    assert!(!opens.start_moving(FILE));
    assert_eq!(opens.silent(Moment(9)), []);
    assert_eq!(opens.silent(Moment(10)), [A]);
    assert!(!opens.yielded(A, FILE), "it is on its way to being shared");
    assert!(opens.start_moving(FILE));
    assert!(!opens.start_moving(FILE), "once");
    assert!(opens.finish(FILE, Some(Seq(7))).is_some());
    assert_eq!(opens.judge(B, FILE, false), Verdict::Shared(Seq(7)));
    opens.enter(B, FILE, false);
    // It stays shared until no client has it open.
    assert_eq!(opens.close(A, FILE, true), None);
    assert_eq!(opens.judge(C, FILE, false), Verdict::Shared(Seq(7)));
    assert_eq!(opens.close(B, FILE, false), None);
    assert_eq!(opens.judge(C, FILE, true), Verdict::Private);
    assert_eq!(opens.len(), 0);
}

#[test]
fn a_file_whose_sharing_failed_stays_private() {
    let mut opens = Opens::default();
    opens.enter(A, FILE, true);
    assert_eq!(opens.begin(FILE, B, Moment(10)), [A]);
    assert!(!opens.yielded(A, FILE));
    assert!(opens.start_moving(FILE));
    assert!(opens.finish(FILE, None).is_some(), "the store is full");
    // The client was notified, and still caches its writes: the next open must wait for it, too.
    assert_eq!(opens.begin(FILE, B, Moment(20)), [A]);
    assert!(!opens.start_moving(FILE));
}

#[test]
fn a_file_without_a_name_is_kept_until_its_last_close() {
    let mut opens = Opens::default();
    assert!(!opens.keep(freed()));
    opens.enter(A, FILE, false);
    opens.enter(A, FILE, true);
    opens.enter(B, FILE, false);
    assert!(opens.keep(freed()));
    assert_eq!(opens.close(A, FILE, false), None);
    opens.disconnect(B, ConnId(2));
    assert_eq!(opens.end_old(B).freed, []);
    assert_eq!(opens.close(A, FILE, true), Some(freed()));
    assert_eq!(opens.close(A, FILE, true), None);
}

#[test]
fn conflicting_reclaims_after_a_restart_share_the_file() {
    let mut opens = Opens::default();
    let (read, write) = (Access { read: true, ..Access::default() }, true);
    assert!(!opens.reopen(A, FILE, read));
    assert!(!opens.reopen(B, FILE, read));
    assert!(opens.reopen(C, FILE, Access { write, ..Access::default() }));
    assert_eq!(opens.begin(FILE, ClientId(0), Moment(10)), [A, B, C]);
    assert!(matches!(opens.judge(A, FILE, false), Verdict::Wait), "clients cache it still");
}

#[test]
fn a_repeated_reclaim_does_not_restart_caching() {
    let mut opens = Opens::default();
    let access = Access { write: true, ..Access::default() };
    assert!(!opens.reopen(A, FILE, access));
    assert_eq!(opens.begin(FILE, B, Moment(10)), [A]);
    assert!(!opens.yielded(A, FILE));
    assert!(!opens.reopen(A, FILE, access), "said before it was asked");
    assert!(opens.start_moving(FILE) && opens.finish(FILE, Some(Seq(3))).is_some());
    assert!(opens.is_shared(FILE));
}

#[test]
fn a_removed_file_that_was_closed_on_its_way_to_being_shared_is_handed_over() {
    let mut opens = Opens::default();
    opens.enter(A, FILE, true);
    assert_eq!(opens.begin(FILE, B, Moment(10)), [A]);
    assert!(opens.keep(freed()));
    assert_eq!(opens.close(A, FILE, true), None, "the content is being moved");
    assert!(opens.start_moving(FILE));
    assert_eq!(opens.finish(FILE, None).unwrap().freed, Some(freed()));
}
