//! Requests about a subtree, a directory or the server as a whole.

use metastore::{Branch, BranchState, MovedName};
use types::acl::DEFAULT_LIST;
use types::{Cred, Errno, Ino, InoRange, Rank};
use wire::{AdminOp, Answer, ChangeOp, JobOp, Op, RankOp, ReadOp, SessionOp};

use crate::Settings;
use crate::tests::Cluster;
use crate::tests::cluster::chmod;
use crate::tests::fixture::{NOTHING, Tree, access_list, guest, set_list};

#[test]
fn a_sync_is_answered_when_the_journal_is_durable() {
    let mut tree = Tree::new();
    let dir = tree.dir;
    tree.holds = |op| matches!(op, metastore::request::StoreOp::Append { .. });
    tree.file(dir, "new");
    let tid = tree.ask(1, Op::Session(SessionOp::Sync));
    tree.pass(50);
    assert!(!tree.is_answered(1, tid) && tree.held() == 1);
    tree.let_go();
    let last = types::Seq(tree.counted(0, "journal_last"));
    assert_eq!(tree.reply(1, tid).result, Ok(Answer::Safe(last)));
}

#[test]
fn a_sync_without_changes_is_answered_at_once() {
    let mut tree = Tree::new();
    tree.pass(100);
    let tid = tree.ask(1, Op::Session(SessionOp::Sync));
    assert!(tree.is_answered(1, tid));
}

#[test]
fn a_checkpoint_writes_each_changed_directory() {
    let mut tree = Tree::new();
    let (dir, full) = (tree.dir, tree.full);
    assert!(tree.store.names_in(dir).is_empty());
    tree.checkpoint();
    assert_eq!(tree.store.names_in(dir), ["file", "full", "link", "sub"]);
    assert_eq!(tree.store.names_in(full), ["x"]);
}

#[test]
fn a_checkpoint_without_changes_is_answered() {
    let mut tree = Tree::new();
    tree.checkpoint();
    let written = tree.counted(0, "commits");
    tree.checkpoint();
    assert_eq!(tree.counted(0, "commits"), written);
}

#[test]
fn a_checkpoint_stores_removals() {
    let mut tree = Tree::new();
    let dir = tree.dir;
    tree.checkpoint();
    tree.answer(Op::Change(ChangeOp::Unlink { parent: dir, name: b"link" })).unwrap();
    tree.checkpoint();
    assert_eq!(tree.store.names_in(dir), ["file", "full", "sub"]);
}

#[test]
fn a_directory_that_is_written_down_is_in_the_store() {
    let mut tree = Tree::new();
    let dir = tree.dir;
    let op = Op::Admin(AdminOp::WriteDown { parent: Ino::ROOT, name: b"dir" });
    let Ok(Answer::Attr(attr)) = tree.answer(op) else { panic!() };
    assert_eq!(attr.ino, dir);
    assert_eq!(tree.store.names_in(dir).len(), 4);
}

#[test]
fn a_directory_is_written_down_by_its_number() {
    let mut tree = Tree::new();
    let parent = tree.full;
    tree.answer(Op::Admin(AdminOp::WriteDown { parent, name: b"" })).unwrap();
    assert_eq!(tree.store.names_in(parent), ["x"]);
}

#[test]
fn a_file_is_not_written_down() {
    let mut tree = Tree::new();
    let op = Op::Admin(AdminOp::WriteDown { parent: tree.dir, name: b"file" });
    assert_eq!(tree.refusal(op), Some(Errno::NotDirectory));
}

#[test]
fn a_missing_directory_is_not_written_down() {
    let mut tree = Tree::new();
    let op = Op::Admin(AdminOp::WriteDown { parent: tree.dir, name: b"nothing" });
    assert_eq!(tree.refusal(op), Some(Errno::NotFound));
    assert_eq!(
        tree.refusal(Op::Admin(AdminOp::WriteDown { parent: NOTHING, name: b"" })),
        Some(Errno::Stale)
    );
}

#[test]
fn a_closed_directory_is_not_written_down() {
    let mut tree = Tree::new();
    let dir = tree.dir;
    tree.answer(Op::Change(ChangeOp::SetAttr { ino: dir, change: chmod(0o711) })).unwrap();
    let op = Op::Admin(AdminOp::WriteDown { parent: dir, name: b"" });
    assert_eq!(tree.guest_refusal(op), Some(Errno::Access));
}

#[test]
fn a_snapshot_has_a_number_and_the_store_has_the_directory() {
    let mut tree = Tree::new();
    let dir = tree.dir;
    assert_eq!(tree.answer(Op::Admin(AdminOp::Snapshot { dir, id: 7 })), Ok(Answer::Snapshot(1)));
    assert_eq!(tree.store.names_in(dir).len(), 4);
    assert_eq!(tree.counted(0, "snapshots"), 1);
}

#[test]
fn snapshots_are_taken_one_after_the_other() {
    let mut tree = Tree::new();
    let (dir, sub) = (tree.dir, tree.sub);
    tree.holds = |op| matches!(op, metastore::request::StoreOp::TakeSnapshot { .. });
    let first = tree.ask(1, Op::Admin(AdminOp::Snapshot { dir, id: 7 }));
    let second = tree.ask(1, Op::Admin(AdminOp::Snapshot { dir: sub, id: 8 }));
    tree.pass(50);
    assert_eq!(tree.held(), 1);
    tree.let_go();
    assert_eq!(tree.reply(1, first).result, Ok(Answer::Snapshot(1)));
    assert_eq!(tree.reply(1, second).result, Ok(Answer::Snapshot(2)));
}

#[test]
fn a_change_waits_while_a_snapshot_is_committed() {
    let mut tree = Tree::new();
    let dir = tree.dir;
    tree.holds = |op| matches!(op, metastore::request::StoreOp::TakeSnapshot { .. });
    tree.ask(1, Op::Admin(AdminOp::Snapshot { dir, id: 7 }));
    tree.pass(50);
    let tid = tree.ask(1, Op::Change(ChangeOp::Unlink { parent: dir, name: b"file" }));
    tree.pass(50);
    assert!(!tree.is_answered(1, tid));
    assert!(tree.lookup(dir, "file").is_ok(), "reading goes on");
    tree.let_go();
    assert_eq!(tree.reply(1, tid).result, Ok(Answer::Done));
}

#[test]
fn a_snapshot_of_a_file_is_refused() {
    let mut tree = Tree::new();
    let op = Op::Admin(AdminOp::Snapshot { dir: tree.file, id: 7 });
    assert_eq!(tree.refusal(op), Some(Errno::NotDirectory));
}

#[test]
fn a_snapshot_of_an_unknown_directory_is_stale() {
    let mut tree = Tree::new();
    assert_eq!(
        tree.refusal(Op::Admin(AdminOp::Snapshot { dir: NOTHING, id: 7 })),
        Some(Errno::Stale)
    );
}

#[test]
fn a_snapshot_of_a_closed_directory_is_refused() {
    let mut tree = Tree::new();
    let dir = tree.dir;
    tree.answer(Op::Change(ChangeOp::SetAttr { ino: dir, change: chmod(0o700) })).unwrap();
    assert_eq!(
        tree.guest_refusal(Op::Admin(AdminOp::Snapshot { dir, id: 7 })),
        Some(Errno::Access)
    );
}

#[test]
fn a_snapshot_that_the_store_refuses_fails_and_changes_go_on() {
    let mut tree = Tree::new();
    let dir = tree.dir;
    tree.fails =
        |op| matches!(op, metastore::request::StoreOp::TakeSnapshot { .. }).then_some(Errno::Io);
    assert_eq!(tree.refusal(Op::Admin(AdminOp::Snapshot { dir, id: 7 })), Some(Errno::Io));
    assert_eq!(tree.refusal(Op::Change(ChangeOp::Unlink { parent: dir, name: b"file" })), None);
}

#[test]
fn a_move_to_a_rank_that_does_not_exist_is_refused() {
    let mut tree = Tree::new();
    let op = Op::Rank(RankOp::Export { dir: tree.dir, rank: Rank(1) });
    assert_eq!(tree.refusal(op), Some(Errno::Again));
}

#[test]
fn a_user_moves_no_directory() {
    let mut tree = Tree::new();
    let op = Op::Rank(RankOp::Export { dir: tree.dir, rank: Rank(1) });
    assert_eq!(tree.guest_refusal(op), Some(Errno::NotPermitted));
}

#[test]
fn a_file_does_not_move_as_a_subtree() {
    let mut tree = Tree::new();
    let op = Op::Rank(RankOp::Export { dir: tree.file, rank: Rank(1) });
    assert_eq!(tree.refusal(op), Some(Errno::NotDirectory));
}

#[test]
fn an_unknown_directory_does_not_move() {
    let mut tree = Tree::new();
    assert_eq!(
        tree.refusal(Op::Rank(RankOp::Export { dir: NOTHING, rank: Rank(1) })),
        Some(Errno::Stale)
    );
}

#[test]
fn the_root_does_not_move() {
    let mut tree = Tree::on(Cluster::with(Settings::default(), 2));
    assert_eq!(
        tree.refusal(Op::Rank(RankOp::Export { dir: Ino::ROOT, rank: Rank(1) })),
        Some(Errno::Busy)
    );
}

#[test]
fn a_directory_in_a_moving_subtree_does_not_move() {
    let mut tree = Tree::on(Cluster::with(Settings::default(), 2));
    let (dir, sub) = (tree.dir, tree.sub);
    // The move begins with a revocation, which the client does not acknowledge.
    for _ in 0..2 {
        let tid = tree.ask_caching(1, Op::Read(ReadOp::Lookup { parent: dir, name: b"file" }));
        tree.reply(1, tid);
        tree.pass(20);
    }
    tree.ask(1, Op::Rank(RankOp::Export { dir, rank: Rank(1) }));
    assert_eq!(
        tree.refusal(Op::Rank(RankOp::Export { dir: sub, rank: Rank(1) })),
        Some(Errno::Busy)
    );
}

#[test]
fn a_pin_to_the_present_rank_is_noted_in_the_list_of_subtrees() {
    let mut tree = Tree::new();
    let dir = tree.dir;
    assert_eq!(tree.answer(Op::Rank(RankOp::Export { dir, rank: Rank(0) })), Ok(Answer::Done));
    let list = metastore::Subtrees::decode(tree.store.object(metastore::SUBTREES_NAME).unwrap());
    assert!(list.unwrap().get(dir).is_some_and(|subtree| subtree.pinned));
}

#[test]
fn a_split_directory_redirects_to_its_fragments() {
    let mut tree = Tree::new();
    let dir = tree.dir;
    assert_eq!(tree.answer(Op::Rank(RankOp::Split { dir })), Ok(Answer::Done));
    let op = Op::Read(ReadOp::Lookup { parent: dir, name: b"file" });
    assert!(matches!(tree.answer(op), Ok(Answer::Fragments(_))));
    assert_eq!(tree.counted(0, "directories_split"), 1);
}

#[test]
fn a_joined_directory_has_its_names_again() {
    let mut tree = Tree::new();
    let (dir, file) = (tree.dir, tree.file);
    tree.answer(Op::Rank(RankOp::Split { dir })).unwrap();
    assert_eq!(tree.answer(Op::Rank(RankOp::Join { dir })), Ok(Answer::Done));
    assert_eq!(tree.lookup(dir, "file"), Ok(file));
    assert_eq!(tree.names(dir).len(), 4);
}

#[test]
fn a_directory_that_is_not_split_is_joined_already() {
    let mut tree = Tree::new();
    let dir = tree.dir;
    assert_eq!(tree.answer(Op::Rank(RankOp::Join { dir })), Ok(Answer::Done));
}

#[test]
fn a_user_splits_no_directory() {
    let mut tree = Tree::new();
    let dir = tree.dir;
    assert_eq!(tree.guest_refusal(Op::Rank(RankOp::Split { dir })), Some(Errno::NotPermitted));
}

#[test]
fn a_user_joins_no_fragments_with_names() {
    let mut tree = Tree::new();
    let dir = tree.dir;
    tree.answer(Op::Rank(RankOp::Split { dir })).unwrap();
    assert_eq!(tree.guest_refusal(Op::Rank(RankOp::Join { dir })), Some(Errno::NotPermitted));
}

#[test]
fn a_directory_with_an_access_control_list_is_not_split_and_a_split_one_gets_none() {
    let mut tree = Tree::new();
    let (dir, list) = (tree.dir, access_list());
    tree.answer(set_list(dir, DEFAULT_LIST, Some(&list))).unwrap();
    assert_eq!(tree.refusal(Op::Rank(RankOp::Split { dir })), Some(Errno::Busy));
    tree.answer(set_list(dir, DEFAULT_LIST, None)).unwrap();
    tree.answer(Op::Rank(RankOp::Split { dir })).unwrap();
    assert_eq!(tree.refusal(set_list(dir, DEFAULT_LIST, Some(&list))), Some(Errno::Busy));
    tree.answer(Op::Rank(RankOp::Join { dir })).unwrap();
    tree.answer(set_list(dir, DEFAULT_LIST, Some(&list))).unwrap();
}

#[test]
fn a_file_is_not_split() {
    let mut tree = Tree::new();
    let dir = tree.file;
    assert_eq!(tree.refusal(Op::Rank(RankOp::Split { dir })), Some(Errno::NotDirectory));
}

#[test]
fn an_unknown_directory_is_neither_split_nor_joined() {
    let mut tree = Tree::new();
    assert_eq!(tree.refusal(Op::Rank(RankOp::Split { dir: NOTHING })), Some(Errno::Stale));
    assert_eq!(tree.refusal(Op::Rank(RankOp::Join { dir: NOTHING })), Some(Errno::Stale));
}

#[test]
fn a_file_is_gathered_where_it_is() {
    let mut tree = Tree::of_two_ranks();
    let op = Op::Rank(RankOp::Colocate { ino: tree.file, rank: Rank(0) });
    assert_eq!(tree.peer_answer(&Cred::root(), op), Ok(Answer::Done));
}

#[test]
fn a_directory_is_gathered_by_its_writers_only() {
    let mut tree = Tree::of_two_ranks();
    let op = Op::Rank(RankOp::Colocate { ino: tree.file, rank: Rank(0) });
    assert_eq!(tree.peer_answer(&guest(), op), Err(Errno::Access));
}

#[test]
fn an_unknown_file_is_not_gathered() {
    let mut tree = Tree::of_two_ranks();
    let op = Op::Rank(RankOp::Colocate { ino: NOTHING, rank: Rank(0) });
    assert_eq!(tree.peer_refusal(op), Some(Errno::Stale));
}

#[test]
fn the_root_is_not_gathered() {
    let mut tree = Tree::of_two_ranks();
    let op = Op::Rank(RankOp::Colocate { ino: Ino::ROOT, rank: Rank(1) });
    assert_eq!(tree.peer_refusal(op), Some(Errno::Busy));
}

#[test]
fn a_client_gathers_nothing_and_takes_no_offer() {
    let mut tree = Tree::of_two_ranks();
    let op = Op::Rank(RankOp::Colocate { ino: tree.file, rank: Rank(1) });
    assert_eq!(tree.refusal(op), Some(Errno::NotSupported));
    let op = Op::Rank(RankOp::Arrive { dir: tree.dir, moved: b"" });
    assert_eq!(tree.refusal(op), Some(Errno::NotSupported));
}

#[test]
fn a_rank_gives_away_only_its_own_names() {
    let mut tree = Tree::of_two_ranks();
    // Rank 1 asks.
    for from in [Rank(0), Rank(2)] {
        let record = MovedName { from, new_parent: tree.dir, ..MovedName::default() };
        let op = Op::Rank(RankOp::Arrive { dir: tree.dir, moved: &record.encode() });
        assert_eq!(tree.peer_refusal(op), Some(Errno::Invalid), "{from}");
    }
    let op = Op::Rank(RankOp::Arrive { dir: tree.dir, moved: b"no record" });
    assert_eq!(tree.peer_refusal(op), Some(Errno::Invalid));
}

/// Stores a branch, and asks for the subtree to merge it.
fn adopt(tree: &mut Tree, branch: Option<Branch>) -> Result<Answer, Errno> {
    if let Some(branch) = branch {
        let object = format!("{}work", metastore::BRANCH_PREFIX);
        let condition = metastore::request::Condition::Any;
        let data = branch.encode();
        tree.store.execute(metastore::request::StoreOp::Put { object, data, condition });
    }
    let subtree = tree.dir;
    tree.answer(Op::Job(JobOp::Adopt { subtree, branch: b"work", block: true }))
}

fn published(root: Ino) -> Branch {
    let start = 1 << 60;
    let ranges = vec![InoRange { start, end: start + 10 }];
    Branch { id: 1, state: BranchState::Published, root, ranges, ..Branch::default() }
}

#[test]
fn a_published_branch_is_adopted_with_its_numbers() {
    let mut tree = Tree::new();
    let branch = published(tree.dir);
    let range = branch.ranges[0];
    let Ok(Answer::Decoupled(given)) = adopt(&mut tree, Some(branch)) else { panic!() };
    assert_eq!(given.range, range);
}

#[test]
fn an_adopted_subtree_blocks_other_clients() {
    let mut tree = Tree::new();
    let branch = published(tree.dir);
    adopt(&mut tree, Some(branch)).unwrap();
    tree.connect(2);
    let tid = tree.ask(2, Op::Read(ReadOp::Lookup { parent: Ino::ROOT, name: b"dir" }));
    assert_eq!(tree.reply(2, tid).result.unwrap_err().errno, Errno::Busy);
}

#[test]
fn a_missing_branch_is_not_adopted() {
    let mut tree = Tree::new();
    assert_eq!(adopt(&mut tree, None), Err(Errno::NotFound));
}

#[test]
fn an_open_branch_is_not_adopted() {
    let mut tree = Tree::new();
    let branch = Branch { state: BranchState::Open, ..published(tree.dir) };
    assert_eq!(adopt(&mut tree, Some(branch)), Err(Errno::Invalid));
}

#[test]
fn a_branch_of_another_directory_is_not_adopted() {
    let mut tree = Tree::new();
    let branch = published(tree.sub);
    assert_eq!(adopt(&mut tree, Some(branch)), Err(Errno::NotPermitted));
}

#[test]
fn a_branch_with_numbers_of_a_rank_is_not_adopted() {
    let mut tree = Tree::new();
    let start = Ino::space_of(Rank(0)).start;
    let ranges = vec![InoRange { start, end: start + 10 }];
    let branch = Branch { ranges, ..published(tree.dir) };
    assert_eq!(adopt(&mut tree, Some(branch)), Err(Errno::NotPermitted));
}

#[test]
fn a_damaged_branch_is_not_adopted() {
    let mut tree = Tree::new();
    let object = format!("{}work", metastore::BRANCH_PREFIX);
    let condition = metastore::request::Condition::Any;
    let data = b"damaged".to_vec();
    tree.store.execute(metastore::request::StoreOp::Put { object, data, condition });
    assert_eq!(adopt(&mut tree, None), Err(Errno::BadMessage));
}

#[test]
fn a_branch_with_an_illegal_name_is_not_adopted() {
    let mut tree = Tree::new();
    let op = Op::Job(JobOp::Adopt { subtree: tree.dir, branch: b"a/b", block: true });
    assert_eq!(tree.refusal(op), Some(Errno::Invalid));
}

#[test]
fn a_branch_is_adopted_into_a_directory_only() {
    let mut tree = Tree::new();
    let op = Op::Job(JobOp::Adopt { subtree: tree.file, branch: b"work", block: true });
    assert_eq!(tree.refusal(op), Some(Errno::NotDirectory));
    let op = Op::Job(JobOp::Adopt { subtree: NOTHING, branch: b"work", block: true });
    assert_eq!(tree.refusal(op), Some(Errno::Stale));
}

#[test]
fn a_branch_is_adopted_by_users_that_may_write_only() {
    let mut tree = Tree::new();
    let op = Op::Job(JobOp::Adopt { subtree: tree.dir, branch: b"work", block: true });
    assert_eq!(tree.guest_refusal(op), Some(Errno::Access));
}
