//! Quotas: setting limits, refusals, and the count, also after a restart.

use metastore::request::StoreOp;
use types::quota::{LIMITS, QuotaReport, REPORT};
use types::{AttrChange, ClientId, Errno, Ino, Rank, Tid, XattrFlags};
use wire::{
    Answer, ChangeOp, JobOp, NewInode, Op, RankOp, ReadOp, Request, SessionOp, WantsExclusive,
};

use crate::tests::cluster::{FILE, Notice};
use crate::tests::fixture::{Tree, guest};

const DECOUPLES: &str = "consistency: append_client_journal+volatile_apply\ndurability: none\n";

fn limit(ino: Ino, limits: &str) -> Op<'_> {
    let value = (!limits.is_empty()).then_some(limits.as_bytes());
    Op::Change(ChangeOp::SetXattr { ino, name: LIMITS, value, flags: XattrFlags::default() })
}

fn create(parent: Ino, name: &str) -> Op<'_> {
    let new = NewInode { mode: FILE, ..NewInode::default() };
    Op::Change(ChangeOp::Create { parent, name: name.as_bytes(), new })
}

fn quotas(tree: &mut Tree, ino: Ino) -> Vec<QuotaReport> {
    match tree.answer(Op::Read(ReadOp::GetXattr { ino, name: REPORT })) {
        Ok(Answer::Data(text)) => QuotaReport::parse_all(&text).unwrap(),
        Err(Errno::NoData) => Vec::new(),
        other => panic!("{other:?} is no report"),
    }
}

/// The use of the innermost quota, when it is counted.
fn used(tree: &mut Tree, ino: Ino) -> (u64, u64) {
    for _ in 0..1000 {
        let QuotaReport { used, is_counted, .. } = quotas(tree, ino).swap_remove(0);
        if is_counted {
            return (used.inodes, used.bytes);
        }
        tree.pass(5);
    }
    panic!("the count ends");
}

/// `/dir` may have 7 inodes, two more than it has.
fn limited() -> Tree {
    let mut tree = Tree::new();
    let dir = tree.dir;
    tree.answer(limit(dir, "inodes=7 bytes=10")).unwrap();
    assert_eq!(used(&mut tree, dir), (5, 7), "the link has the length of its text");
    tree
}

fn restarted(tree: &mut Tree) {
    tree.crash(0);
    tree.start(0);
    tree.connect(1);
    tree.until(|tree| tree.mds(0).is_active());
}

#[test]
fn requests_over_a_limit_are_refused_and_change_nothing() {
    let mut tree = limited();
    let (sub, file) = (tree.sub, tree.file);
    for name in ["a", "b"] {
        tree.answer(create(sub, name)).unwrap();
    }
    assert_eq!(tree.refusal(create(sub, "c")), Some(Errno::Quota));
    assert_eq!(tree.lookup(sub, "c"), Err(Errno::NotFound));
    let size = |size| AttrChange { size: Some(size), ..AttrChange::default() };
    let resize = |change| Op::Change(ChangeOp::SetAttr { ino: file, change });
    assert_eq!(tree.refusal(resize(size(7))), Some(Errno::Quota));
    assert_eq!(tree.refusal(Op::Change(ChangeOp::Grow { ino: file, size: 7 })), Some(Errno::Quota));
    let append = Op::Change(ChangeOp::Append { ino: file, length: 4 });
    assert_eq!(tree.refusal(append), Some(Errno::Quota));
    assert_eq!(tree.refusal(resize(size(6))), None);
    // Room that is given back can be used again.
    tree.answer(Op::Change(ChangeOp::Unlink { parent: sub, name: b"a" })).unwrap();
    tree.answer(create(sub, "c")).unwrap();
    assert_eq!(used(&mut tree, sub), (7, 10));
}

#[test]
fn only_root_sets_limits_and_everybody_sees_them() {
    let mut tree = limited();
    let (dir, open) = (tree.dir, tree.open);
    assert_eq!(tree.guest_refusal(limit(dir, "inodes=1000")), Some(Errno::NotPermitted));
    let report = Op::Read(ReadOp::GetXattr { ino: dir, name: REPORT });
    assert_eq!(tree.guest_refusal(report), None);
    assert_eq!(tree.guest_refusal(create(open, "of a guest")), None, "no quota holds there");
    assert!(quotas(&mut tree, open).is_empty());
    tree.answer(limit(dir, "")).unwrap();
    assert!(quotas(&mut tree, dir).is_empty());
    assert!(guest().uid != 0);
}

#[test]
fn a_restarted_server_counts_again() {
    let mut tree = limited();
    let (dir, sub) = (tree.dir, tree.sub);
    tree.answer(create(sub, "a")).unwrap();
    tree.answer(Op::Session(SessionOp::Sync)).unwrap();
    restarted(&mut tree);
    tree.answer(Op::Read(ReadOp::Walk { base: Ino::ROOT, path: b"dir/sub" })).unwrap();
    assert_eq!(used(&mut tree, dir), (6, 7));
    tree.answer(create(sub, "b")).unwrap();
    assert_eq!(tree.refusal(create(sub, "c")), Some(Errno::Quota));
    // A clean end stores everything, and the next server reads it.
    tree.stop(0);
    restarted(&mut tree);
    tree.answer(Op::Read(ReadOp::Walk { base: Ino::ROOT, path: b"dir/sub" })).unwrap();
    assert_eq!(used(&mut tree, dir), (7, 7));
    assert_eq!(tree.refusal(create(sub, "c")), Some(Errno::Quota));
}

#[test]
fn a_directory_that_cannot_be_read_is_tried_again_until_it_can_be_counted() {
    const FULL: Ino = Ino((1 << 40) + 4);
    let mut tree = limited();
    let (dir, sub) = (tree.dir, tree.sub);
    assert_eq!(tree.full, FULL);
    tree.checkpoint();
    tree.stop(0);
    tree.fails = |op| matches!(op, StoreOp::LoadDir { ino: FULL }).then_some(Errno::Io);
    tree.start(0);
    tree.connect(1);
    tree.until(|tree| tree.mds(0).is_active());
    tree.answer(Op::Read(ReadOp::Walk { base: Ino::ROOT, path: b"dir/sub" })).unwrap();
    tree.pass(100);
    let report = quotas(&mut tree, dir).swap_remove(0);
    assert!(!report.is_counted, "{report:?}");
    let fetches = tree.counted(0, "fetches");
    tree.pass(30_000);
    let tried = tree.counted(0, "fetches") - fetches;
    assert!((1..=4).contains(&tried), "{tried} times in 30 s");
    // Requests go on meanwhile, and the limit holds for what is counted.
    tree.answer(create(sub, "a")).unwrap();
    tree.fails = |_| None;
    tree.pass(11_000);
    assert_eq!(used(&mut tree, dir), (6, 7));
    tree.answer(create(sub, "b")).unwrap();
    assert_eq!(tree.refusal(create(sub, "c")), Some(Errno::Quota));
}

#[test]
fn a_removed_tree_counts_until_its_room_is_given_back() {
    let mut tree = Tree::new();
    tree.set_policy("/", "consistency: rpcs\ndurability: stream\ntrash: 1h\n").unwrap();
    let (dir, full) = (tree.dir, tree.full);
    tree.answer(limit(dir, "inodes=9")).unwrap();
    assert_eq!(used(&mut tree, dir), (5, 7));
    tree.answer(Op::Change(ChangeOp::Discard { parent: dir, name: b"full" })).unwrap();
    assert_eq!(used(&mut tree, dir), (4, 7), "the file in it, not the tree itself");
    tree.pass(100);
    restarted(&mut tree);
    tree.answer(Op::Read(ReadOp::Walk { base: Ino::ROOT, path: b"dir" })).unwrap();
    assert_eq!(used(&mut tree, dir), (4, 7));
    tree.answer(Op::Change(ChangeOp::EmptyTrash { ino: full })).unwrap();
    tree.until(|tree| tree.mds(0).trash.is_empty());
    assert_eq!(used(&mut tree, dir), (3, 7));
}

#[test]
fn numbers_for_a_decoupled_subtree_are_paid_in_advance() {
    let mut tree = Tree::new();
    let (dir, sub) = (tree.dir, tree.sub);
    tree.answer(limit(dir, "inodes=100")).unwrap();
    used(&mut tree, dir);
    let decouple = |tree: &mut Tree, policy: &str| {
        let (path, policy) = (b"/dir/sub".as_slice(), policy.as_bytes());
        tree.monitor(Op::Job(JobOp::Decouple { path, client: ClientId(1), policy }))
    };
    let policy = format!("{DECOUPLES}allocated_inodes: 96\n");
    assert_eq!(decouple(&mut tree, &policy).map(drop), Err(Errno::Quota));
    let policy = format!("{DECOUPLES}allocated_inodes: 90\n");
    decouple(&mut tree, &policy).unwrap();
    assert_eq!(quotas(&mut tree, dir)[0].reserved, 90);
    for name in ["1", "2", "3", "4", "5"] {
        tree.answer(create(dir, name)).unwrap();
    }
    assert_eq!(tree.refusal(create(dir, "6")), Some(Errno::Quota));
    let more = Op::Job(JobOp::Extend { subtree: sub, count: 1 });
    assert_eq!(tree.refusal(more), Some(Errno::Quota));
    let unused = wire::UnusedNumbers::default();
    tree.answer(Op::Job(JobOp::Release { subtree: sub, unused })).unwrap();
    tree.pass(20);
    assert_eq!(quotas(&mut tree, dir)[0].reserved, 0);
    tree.answer(create(dir, "6")).unwrap();
}

/// A create of a client that would like to have the directory alone.
fn create_alone(tree: &mut Tree, parent: Ino, name: &'static str) -> bool {
    let tid = tree.tid();
    let request = Request::new(tid, Tid(tid.0 - 1), types::Cred::root(), create(parent, name));
    let wants_exclusive = WantsExclusive::Always;
    tree.send(1, 0, Request { remembers: true, wants_exclusive, ..request });
    let grants = tree.reply(1, tid).grants;
    tree.pass(20);
    grants.is_some_and(|grants| grants.exclusive.is_some())
}

#[test]
fn no_client_creates_ahead_of_the_server_where_a_limit_is_near() {
    let mut tree = Tree::new();
    let (dir, full, open) = (tree.dir, tree.full, tree.open);
    tree.connect(2);
    create_alone(&mut tree, full, "a");
    assert!(create_alone(&mut tree, full, "b"));
    // The directory is taken back before limits are set around it.
    let tid = tree.ask(2, limit(dir, "inodes=50000"));
    assert!(tree.notices.contains(&(1, Notice::Revoke(full))));
    assert!(!tree.is_answered(2, tid));
    tree.answer(Op::Session(SessionOp::Return { dir: full })).unwrap();
    tree.reply(2, tid).result.unwrap();
    used(&mut tree, dir);
    // A directory that was taken back is shared for a while.
    tree.pass(20_000);
    assert!(create_alone(&mut tree, full, "c"), "the limit is far");
    create_alone(&mut tree, open, "a");
    assert!(!create_alone(&mut tree, open, "b"), "other quotas hold than in /dir/full");
    tree.notices.clear();
    let policy = format!("{DECOUPLES}allocated_inodes: 40000\n");
    let (path, policy) = (b"/dir/sub".as_slice(), policy.as_bytes());
    tree.monitor(Op::Job(JobOp::Decouple { path, client: ClientId(2), policy })).unwrap();
    tree.pass(20);
    assert!(tree.notices.contains(&(1, Notice::Revoke(full))), "now it is near");
    tree.answer(Op::Session(SessionOp::Return { dir: full })).unwrap();
    assert!(!create_alone(&mut tree, full, "d"));
}

#[test]
fn what_a_quota_counts_stays_with_one_rank() {
    let mut tree = Tree::of_two_ranks();
    let (dir, full) = (tree.dir, tree.full);
    tree.answer(limit(dir, "inodes=100")).unwrap();
    let export = |dir| Op::Rank(RankOp::Export { dir, rank: Rank(1) });
    assert_eq!(tree.refusal(export(full)), Some(Errno::Busy));
    assert_eq!(tree.refusal(Op::Rank(RankOp::Split { dir: full })), Some(Errno::Busy));
    tree.answer(limit(dir, "")).unwrap();
    tree.answer(export(full)).unwrap();
    assert_eq!(tree.refusal(limit(dir, "inodes=100")), Some(Errno::Busy));
}

#[test]
fn a_quota_moves_with_its_directory() {
    let mut tree = Tree::of_two_ranks();
    tree.connect_to(1, 1, types::Epoch(0), 0);
    let full = tree.full;
    tree.answer(limit(full, "inodes=3")).unwrap();
    assert_eq!(used(&mut tree, full), (1, 0));
    tree.answer(Op::Rank(RankOp::Export { dir: full, rank: Rank(1) })).unwrap();
    let at_rank = |tree: &mut Tree, op| {
        let tid = tree.tid();
        tree.send(1, 1, Request::new(tid, tid, types::Cred::root(), op));
        tree.reply(1, tid).result
    };
    let ask = Op::Read(ReadOp::GetXattr { ino: full, name: REPORT });
    for _ in 0..100 {
        tree.pass(5);
        let Ok(Answer::Data(text)) = at_rank(&mut tree, ask) else { continue };
        if QuotaReport::parse_all(&text).unwrap()[0].is_counted {
            break;
        }
    }
    for name in ["a", "b"] {
        at_rank(&mut tree, create(full, name)).unwrap();
    }
    let refused = at_rank(&mut tree, create(full, "c")).unwrap_err();
    assert_eq!(refused.errno, Errno::Quota);
    // The next server of the rank that has the name reads no directory of the other rank.
    restarted(&mut tree);
    tree.answer(Op::Read(ReadOp::Walk { base: Ino::ROOT, path: b"dir/sub" })).unwrap();
    tree.pass(100);
    let fetches = tree.counted(0, "fetches");
    tree.pass(1000);
    assert_eq!(tree.counted(0, "fetches"), fetches);
}
