//! Trees that are removed at once, and what becomes of them.

use metastore::request::StoreOp;
use types::{Epoch, Errno, Ino, Rank, Seq, TrashEntry};
use wire::{Answer, ChangeOp, JobOp, Op, RankOp, ReadOp, Replay, Request, SessionOp};

use crate::tests::cluster::{Cluster, Notice, chmod};
use crate::tests::fixture::{LONG, Tree, guest};
use crate::{MdsInput, Settings};

/// Removed trees are kept for an hour.
const KEPT: &str = "consistency: rpcs\ndurability: stream\ntrash: 1h\n";
const HOUR: u64 = 3600 * 1000;

/// A tree whose removed directories are kept.
fn keeping() -> Tree {
    let mut tree = Tree::new();
    tree.set_policy("/", KEPT).unwrap();
    tree
}

fn discard(parent: Ino, name: &'static str) -> Op<'static> {
    Op::Change(ChangeOp::Discard { parent, name: name.as_bytes() })
}

fn restore(ino: Ino, parent: Ino, name: &'static str) -> Op<'static> {
    Op::Change(ChangeOp::Restore { ino, parent, name: name.as_bytes() })
}

fn listed(tree: &mut Tree) -> Vec<TrashEntry> {
    let op = Op::Read(ReadOp::ListTrash { after: None, limit: 100 });
    let Ok(Answer::Entries { entries, more: false }) = tree.answer(op) else { panic!() };
    entries.iter().map(|(name, _)| TrashEntry::decode(name).expect("a name of the trash")).collect()
}

/// The next server serves requests of client 1.
fn restarted(tree: &mut Tree) {
    tree.crash(0);
    tree.start(0);
    tree.connect(1);
    tree.until(|tree| tree.mds(0).is_active());
}

fn sync(tree: &mut Tree) {
    tree.answer(Op::Session(SessionOp::Sync)).unwrap();
}

/// Every name of the removed trees is gone.
fn reaped(tree: &mut Tree) {
    tree.until(|tree| tree.mds(0).trash.is_empty());
}

#[test]
fn a_tree_is_removed_with_one_event() {
    let mut tree = keeping();
    tree.pass(100);
    let before = tree.counted(0, "journal_last");
    tree.answer(discard(Ino::ROOT, "dir")).unwrap();
    assert_eq!(tree.counted(0, "journal_last"), before + 1);
    assert_eq!(tree.lookup(Ino::ROOT, "dir"), Err(Errno::NotFound));
    assert_eq!(tree.names(Ino::ROOT), ["open"]);
}

#[test]
fn no_inode_of_a_removed_tree_is_reached_by_its_number() {
    let mut tree = keeping();
    let (dir, file, full) = (tree.dir, tree.file, tree.full);
    tree.answer(discard(Ino::ROOT, "dir")).unwrap();
    let (name, size) = (&b"x"[..], 1);
    let new = wire::NewInode { mode: 0o100_644, ..wire::NewInode::default() };
    for op in [
        Op::Read(ReadOp::GetAttr { ino: file }),
        Op::Read(ReadOp::Lookup { parent: dir, name: b"file" }),
        Op::Read(ReadOp::Walk { base: full, path: b"x" }),
        Op::Read(ReadOp::List { dir: full, after: None, limit: 9, attrs: false }),
        Op::Change(ChangeOp::Create { parent: full, name: b"new", new }),
        Op::Change(ChangeOp::Unlink { parent: full, name }),
        Op::Change(ChangeOp::Rmdir { parent: dir, name: b"sub" }),
        Op::Change(ChangeOp::Link { ino: file, parent: Ino::ROOT, name }),
        Op::Change(ChangeOp::SetAttr { ino: file, change: chmod(0o600) }),
        Op::Change(ChangeOp::SetData { ino: file, data: name, size }),
        Op::Change(ChangeOp::Rename {
            parent: full,
            name,
            new_parent: Ino::ROOT,
            new_name: name,
            flags: wire::RenameFlags::default(),
        }),
        discard(dir, "full"),
        restore(dir, full, "again"),
        Op::Session(SessionOp::Open { ino: file, write: true }),
        Op::Rank(RankOp::Export { dir: full, rank: Rank(1) }),
        Op::Admin(wire::AdminOp::Snapshot { dir: full, id: 7 }),
    ] {
        assert_eq!(tree.refusal(op), Some(Errno::NotFound), "{op:?}");
    }
}

#[test]
fn the_trash_itself_is_no_directory_of_clients() {
    let mut tree = keeping();
    let dir = tree.dir;
    tree.answer(discard(Ino::ROOT, "dir")).unwrap();
    let name = &b"x"[..];
    for op in [
        Op::Read(ReadOp::GetAttr { ino: Ino::TRASH }),
        Op::Read(ReadOp::List { dir: Ino::TRASH, after: None, limit: 9, attrs: false }),
        Op::Change(ChangeOp::Unlink { parent: Ino::TRASH, name }),
        Op::Change(ChangeOp::Rename {
            parent: Ino::ROOT,
            name: b"open",
            new_parent: Ino::TRASH,
            new_name: name,
            flags: wire::RenameFlags::default(),
        }),
        discard(Ino::TRASH, "x"),
        restore(dir, Ino::TRASH, "x"),
    ] {
        let errno = tree.refusal(op);
        assert!(matches!(errno, Some(Errno::NotFound | Errno::Stale)), "{op:?}: {errno:?}");
    }
    assert_eq!(tree.names(Ino::ROOT), ["open"]);
}

#[test]
fn a_removed_tree_is_restored_with_one_event() {
    let mut tree = keeping();
    let open = tree.open;
    let (dir, file) = (tree.dir, tree.file);
    let before = tree.attr(file);
    tree.answer(discard(Ino::ROOT, "dir")).unwrap();
    let events = tree.counted(0, "journal_last");
    tree.answer(restore(dir, open, "back")).unwrap();
    assert_eq!(tree.counted(0, "journal_last"), events + 1);
    assert_eq!(tree.lookup(open, "back"), Ok(dir));
    assert_eq!(tree.names(dir), ["file", "full", "link", "sub"]);
    assert_eq!(tree.attr(file), before);
    assert!(listed(&mut tree).is_empty());
    assert_eq!(tree.refusal(restore(dir, open, "twice")), Some(Errno::NotFound));
    tree.file(dir, "new");
}

#[test]
fn a_restored_tree_survives_a_crash_and_so_does_one_in_the_trash() {
    let mut tree = keeping();
    let (dir, full) = (tree.dir, tree.full);
    tree.answer(discard(Ino::ROOT, "dir")).unwrap();
    sync(&mut tree);
    restarted(&mut tree);
    assert_eq!(tree.lookup(Ino::ROOT, "dir"), Err(Errno::NotFound));
    tree.answer(restore(dir, Ino::ROOT, "dir")).unwrap();
    sync(&mut tree);
    restarted(&mut tree);
    assert_eq!(tree.lookup(Ino::ROOT, "dir"), Ok(dir));
    assert_eq!(tree.names(dir), ["file", "full", "link", "sub"]);
    assert_eq!(tree.names(full), ["x"]);
    assert!(listed(&mut tree).is_empty());
}

#[test]
fn a_tree_in_the_trash_is_stored_and_found_again_without_a_journal() {
    let mut tree = keeping();
    let dir = tree.dir;
    tree.answer(discard(Ino::ROOT, "dir")).unwrap();
    tree.checkpoint();
    assert_eq!(tree.store.names_in(Ino::TRASH).len(), 1);
    tree.stop(0);
    tree.start(0);
    tree.connect(1);
    tree.until(|tree| tree.mds(0).is_active());
    let [entry] = &listed(&mut tree)[..] else { panic!("one tree is in the trash") };
    assert_eq!((entry.ino, entry.parent, entry.path.as_slice()), (dir, Ino::ROOT, &b"/dir"[..]));
    tree.answer(restore(dir, Ino::ROOT, "dir")).unwrap();
    assert_eq!(tree.names(dir), ["file", "full", "link", "sub"]);
    assert!(tree.lookup(Ino::ROOT, "open").is_ok());
}

#[test]
fn without_the_policy_every_name_is_removed_at_once() {
    let mut tree = Tree::new();
    let dir = tree.dir;
    let before = tree.counted(0, "inodes");
    tree.answer(discard(Ino::ROOT, "dir")).unwrap();
    assert_eq!(tree.refusal(restore(dir, Ino::ROOT, "dir")), Some(Errno::NotFound));
    reaped(&mut tree);
    // The directory, two others in it, two files and a link.
    assert_eq!(tree.counted(0, "reaped"), 6);
    assert_eq!(tree.counted(0, "inodes"), before - 6);
    tree.checkpoint();
    assert!(tree.store.names_in(Ino::TRASH).is_empty());
}

#[test]
fn a_kept_tree_is_removed_when_its_time_is_over() {
    let mut tree = keeping();
    let dir = tree.dir;
    tree.answer(discard(Ino::ROOT, "dir")).unwrap();
    tree.pass(100);
    assert_eq!(tree.counted(0, "removed_trees"), 1);
    tree.now += HOUR;
    reaped(&mut tree);
    assert_eq!(tree.refusal(restore(dir, Ino::ROOT, "dir")), Some(Errno::NotFound));
    assert!(listed(&mut tree).is_empty());
}

#[test]
fn an_emptied_tree_is_removed_before_its_time() {
    let mut tree = keeping();
    let dir = tree.dir;
    tree.answer(discard(Ino::ROOT, "dir")).unwrap();
    tree.answer(Op::Change(ChangeOp::EmptyTrash { ino: dir })).unwrap();
    reaped(&mut tree);
    assert_eq!(tree.refusal(Op::Change(ChangeOp::EmptyTrash { ino: dir })), Some(Errno::Stale));
}

#[test]
fn reaping_continues_after_a_crash_in_the_middle() {
    let mut tree = Tree::new();
    let full = tree.full;
    for number in 0..300 {
        tree.file(full, &format!("f{number}"));
    }
    tree.checkpoint();
    tree.answer(discard(Ino::ROOT, "dir")).unwrap();
    sync(&mut tree);
    // Requests come, so slices are small.
    while tree.counted(0, "reaped") < 100 {
        let tid = tree.tid();
        let request = Request::new(tid, tid, types::Cred::root(), Op::Session(SessionOp::Sync));
        let conn = tree.conn(1, 0);
        tree.input(0, MdsInput::Message(conn, wire::Message::Request(request)));
        tree.pass(1);
    }
    assert!(tree.counted(0, "removed_trees") == 1, "some names are left");
    restarted(&mut tree);
    assert_eq!(tree.lookup(Ino::ROOT, "dir"), Err(Errno::NotFound));
    reaped(&mut tree);
    tree.checkpoint();
    assert!(tree.store.names_in(Ino::TRASH).is_empty());
    assert_eq!(tree.names(Ino::ROOT), ["open"]);
}

#[test]
fn a_tree_that_only_the_store_has_is_reaped() {
    let mut tree = keeping();
    let full = tree.full;
    tree.answer(discard(Ino::ROOT, "dir")).unwrap();
    tree.stop(0);
    tree.now += HOUR;
    tree.start(0);
    reaped(&mut tree);
    assert_eq!(tree.counted(0, "reaped"), 6);
    tree.connect(1);
    tree.checkpoint();
    tree.pass(10_000);
    assert!(tree.store.names_in(full).is_empty());
}

#[test]
fn a_directory_that_cannot_be_read_is_reaped_later() {
    let mut tree = keeping();
    tree.answer(discard(Ino::ROOT, "dir")).unwrap();
    tree.stop(0);
    tree.now += HOUR;
    tree.start(0);
    tree.fails = |op| match op {
        StoreOp::LoadDir { ino } if ino.0 >= Ino::FIRST_FREE => Some(Errno::TimedOut),
        _ => None,
    };
    tree.pass(1000);
    assert_eq!((tree.counted(0, "removed_trees"), tree.counted(0, "reaped")), (1, 0));
    tree.fails = |_| None;
    reaped(&mut tree);
}

#[test]
fn a_file_with_another_name_survives_its_removed_tree() {
    let mut tree = Tree::new();
    let (file, open) = (tree.file, tree.open);
    tree.answer(Op::Change(ChangeOp::Link { ino: file, parent: open, name: b"other" })).unwrap();
    assert_eq!(tree.attr(file).nlink, 2);
    tree.answer(discard(Ino::ROOT, "dir")).unwrap();
    assert_eq!(tree.lookup(open, "other"), Ok(file));
    reaped(&mut tree);
    assert_eq!((tree.lookup(open, "other"), tree.attr(file).nlink), (Ok(file), 1));
    sync(&mut tree);
    restarted(&mut tree);
    assert_eq!(tree.lookup(Ino::ROOT, "open"), Ok(open));
    assert_eq!((tree.lookup(open, "other"), tree.attr(file).nlink), (Ok(file), 1));
}

#[test]
fn the_content_of_an_open_file_stays_until_it_is_closed() {
    let mut tree = Tree::new();
    let ino = tree.file;
    let full_size = Op::Change(ChangeOp::Grow { ino, size: 1 << 20 });
    tree.answer(Op::Session(SessionOp::Open { ino, write: true })).unwrap();
    tree.answer(full_size).unwrap();
    tree.answer(discard(Ino::ROOT, "dir")).unwrap();
    assert_eq!(tree.refusal(full_size), Some(Errno::NotFound));
    reaped(&mut tree);
    let waiting = |tree: &Tree| tree.counted(0, "open_files");
    assert_eq!(waiting(&tree), 1);
    let purged = tree.counted(0, "purged");
    tree.answer(Op::Session(SessionOp::Close { ino, write: true })).unwrap();
    tree.until(|tree| tree.counted(0, "purged") > purged);
    assert_eq!(waiting(&tree), 0);
}

#[test]
fn a_discard_waits_until_no_client_caches_anything_of_the_tree() {
    let mut tree = Tree::new();
    let full = tree.full;
    tree.connect(2);
    let look = Op::Read(ReadOp::Lookup { parent: full, name: b"x" });
    let tid = tree.ask_caching(2, look);
    tree.reply(2, tid);
    tree.pass(20);
    let tid = tree.ask_caching(2, look);
    assert!(tree.reply(2, tid).grants.is_some());
    let tid = tree.ask(1, discard(Ino::ROOT, "dir"));
    assert!(!tree.is_answered(1, tid));
    assert!(tree.notices.contains(&(2, Notice::Revoke(full))));
    tree.ask(2, Op::Session(SessionOp::Return { dir: full }));
    assert_eq!(tree.reply(1, tid).result, Ok(Answer::Done));
    let tid = tree.ask(2, look);
    assert_eq!(tree.reply(2, tid).result.unwrap_err().errno, Errno::NotFound);
}

#[test]
fn a_discard_under_leases_waits_for_their_end() {
    let mut tree = Tree::new();
    let full = tree.full;
    let leased = "consistency: rpcs\ndurability: stream\ncache: lease\n";
    tree.set_policy("/dir", leased).unwrap();
    let look = Op::Read(ReadOp::Lookup { parent: full, name: b"x" });
    let tid = tree.ask_caching(1, look);
    tree.reply(1, tid);
    tree.pass(20);
    let tid = tree.ask_caching(1, look);
    assert!(tree.reply(1, tid).grants.is_some_and(|grants| grants.lease.is_some()));
    let tid = tree.ask(1, discard(Ino::ROOT, "dir"));
    assert!(!tree.is_answered(1, tid));
    assert_eq!(tree.reply(1, tid).result, Ok(Answer::Done));
}

#[test]
fn only_root_removes_a_tree_at_once() {
    let mut tree = Tree::new();
    let dir = tree.dir;
    let open = tree.open;
    let op = Op::Change(ChangeOp::Create {
        parent: open,
        name: b"own",
        new: wire::NewInode { mode: 0o040_755, ..wire::NewInode::default() },
    });
    assert_eq!(tree.guest_refusal(op), None);
    assert_eq!(tree.guest_refusal(discard(open, "own")), Some(Errno::NotPermitted));
    assert_eq!(tree.guest_refusal(discard(dir, "sub")), Some(Errno::Access));
    assert!(tree.lookup(open, "own").is_ok());
}

#[test]
fn another_user_does_not_see_a_removed_tree_nor_restore_it() {
    let mut tree = keeping();
    let (dir, open) = (tree.dir, tree.open);
    tree.answer(discard(Ino::ROOT, "dir")).unwrap();
    let list = Op::Read(ReadOp::ListTrash { after: None, limit: 100 });
    let listed = tree.answer_as(&guest(), list);
    assert_eq!(listed, Ok(Answer::Entries { entries: Vec::new(), more: false }));
    assert_eq!(tree.guest_refusal(restore(dir, open, "mine")), Some(Errno::NotPermitted));
    let empty = Op::Change(ChangeOp::EmptyTrash { ino: dir });
    assert_eq!(tree.guest_refusal(empty), Some(Errno::NotPermitted));
}

#[test]
fn a_listing_of_the_trash_continues_behind_a_name() {
    let mut tree = keeping();
    let (dir, full, sub) = (tree.dir, tree.full, tree.sub);
    for name in ["full", "sub"] {
        let op = Op::Change(ChangeOp::Discard { parent: dir, name: name.as_bytes() });
        tree.answer(op).unwrap();
    }
    let (mut after, mut all) = (None, Vec::new());
    for is_last in [false, true] {
        let op = ReadOp::ListTrash { after: after.as_deref(), limit: 1 };
        let Ok(Answer::Entries { entries, more }) = tree.answer(Op::Read(op)) else { panic!() };
        assert_eq!((entries.len(), more), (1, !is_last));
        all.push(TrashEntry::decode(&entries[0].0).unwrap().ino);
        after = Some(entries[0].0.clone());
    }
    all.sort_unstable();
    let mut expected = [full, sub];
    expected.sort_unstable();
    assert_eq!(all, expected);
}

#[test]
fn what_is_no_directory_or_has_no_name_is_not_discarded() {
    let mut tree = Tree::new();
    let dir = tree.dir;
    assert_eq!(tree.refusal(discard(dir, "file")), Some(Errno::NotDirectory));
    assert_eq!(tree.refusal(discard(dir, "nothing")), Some(Errno::NotFound));
    assert_eq!(tree.refusal(discard(dir, "..")), Some(Errno::Invalid));
    let op = Op::Change(ChangeOp::Discard { parent: dir, name: &LONG });
    assert_eq!(tree.refusal(op), Some(Errno::NameTooLong));
}

#[test]
fn a_name_that_does_not_fit_into_the_trash_is_not_discarded() {
    let mut tree = Tree::new();
    let dir = tree.dir;
    let long = "n".repeat(250);
    let sub = tree.dir(dir, &long);
    let op = Op::Change(ChangeOp::Discard { parent: dir, name: long.as_bytes() });
    assert_eq!(tree.refusal(op), Some(Errno::NameTooLong));
    assert_eq!(tree.lookup(dir, &long), Ok(sub));
}

#[test]
fn an_existing_name_is_not_restored_over() {
    let mut tree = keeping();
    let file = tree.file;
    let (dir, full) = (tree.dir, tree.full);
    tree.answer(discard(dir, "full")).unwrap();
    assert_eq!(tree.refusal(restore(full, dir, "file")), Some(Errno::Exists));
    assert_eq!(tree.refusal(restore(full, file, "x")), Some(Errno::NotDirectory));
    assert_eq!(listed(&mut tree).len(), 1);
}

#[test]
fn a_decoupled_subtree_is_not_removed_from_outside_nor_from_inside() {
    let mut tree = Tree::new();
    let dir = tree.dir;
    let policy = b"consistency: append_client_journal+volatile_apply\n";
    let client = types::ClientId(2);
    tree.connect(2);
    tree.monitor(Op::Job(JobOp::Decouple { path: b"/dir/full", client, policy })).unwrap();
    assert_eq!(tree.refusal(discard(Ino::ROOT, "dir")), Some(Errno::Busy));
    assert_eq!(tree.refusal(discard(dir, "full")), Some(Errno::Busy));
    assert_eq!(tree.refusal(discard(dir, "sub")), None);
}

#[test]
fn a_tree_without_a_journal_is_removed_name_by_name() {
    let mut tree = Tree::new();
    let dir = tree.dir;
    tree.set_policy("/dir/full", "consistency: rpcs\ndurability: none\n").unwrap();
    assert_eq!(tree.refusal(discard(Ino::ROOT, "dir")), Some(Errno::Busy));
    assert_eq!(tree.refusal(discard(dir, "sub")), None);
    tree.set_policy("/open", "consistency: rpcs+local_persist\n").unwrap();
    let inner = tree.open;
    tree.dir(inner, "inner");
    assert_eq!(tree.refusal(discard(inner, "inner")), Some(Errno::Busy));
    // The journal of a job is on its client's disk until it is merged, and then in no one's way.
    let job = "consistency: append_client_journal\ndurability: local_persist\n";
    tree.set_policy("/open", job).unwrap();
    assert_eq!(tree.refusal(discard(inner, "inner")), None);
}

#[test]
fn a_directory_with_a_subtree_of_another_rank_is_not_removed_at_once() {
    let mut tree = Tree::of_two_ranks();
    let dir = tree.dir;
    tree.connect_to(1, 1, Epoch(0), 0);
    let full = tree.full;
    tree.answer(Op::Rank(RankOp::Export { dir: full, rank: Rank(1) })).unwrap();
    assert_eq!(tree.refusal(discard(Ino::ROOT, "dir")), Some(Errno::Busy));
    assert_eq!(tree.refusal(discard(dir, "full")), Some(Errno::Busy));
}

#[test]
fn a_pinned_directory_is_not_removed_at_once() {
    let mut tree = Tree::new();
    let dir = tree.dir;
    let full = tree.full;
    tree.answer(Op::Rank(RankOp::Export { dir: full, rank: Rank(0) })).unwrap();
    assert_eq!(tree.refusal(discard(Ino::ROOT, "dir")), Some(Errno::Busy));
    assert_eq!(tree.refusal(discard(dir, "sub")), None);
}

#[test]
fn a_split_directory_is_not_removed_at_once() {
    let mut tree = Tree::new();
    let (dir, full) = (tree.dir, tree.full);
    tree.answer(Op::Rank(RankOp::Split { dir: full })).unwrap();
    assert_eq!(tree.refusal(discard(dir, "full")), Some(Errno::Busy));
    assert_eq!(tree.refusal(discard(Ino::ROOT, "dir")), Some(Errno::Busy));
}

#[test]
fn each_rank_has_a_trash_of_its_own() {
    let mut tree = Tree::of_two_ranks();
    tree.connect_to(1, 1, Epoch(0), 0);
    let full = tree.full;
    let inner = tree.dir(full, "inner");
    tree.answer(Op::Rank(RankOp::Export { dir: full, rank: Rank(1) })).unwrap();
    let tid = tree.tid();
    let op = Op::Change(ChangeOp::Discard { parent: full, name: b"inner" });
    tree.holds = |op| matches!(op, StoreOp::PurgeDir { .. });
    tree.send(1, 1, Request::new(tid, tid, types::Cred::root(), op));
    assert_eq!(tree.reply(1, tid).result, Ok(Answer::Done));
    tree.until(|tree| tree.mds(1).trash.is_empty() && tree.mds(1).trash.is_known());
    assert_eq!((tree.counted(0, "discards"), tree.counted(1, "discards")), (0, 1));
    assert!(!tree.mds(1).namespace().knows(inner));
}

#[test]
fn a_discard_that_was_answered_is_executed_once_after_a_crash() {
    let mut tree = keeping();
    sync(&mut tree);
    tree.holds = |op| matches!(op, StoreOp::Append { .. });
    let tid = tree.tid();
    let request = Request::new(tid, tid, types::Cred::root(), discard(Ino::ROOT, "dir"));
    tree.send(1, 0, request.clone());
    let reply = tree.reply(1, tid);
    assert_eq!(reply.result, Ok(Answer::Done));
    tree.crash(0);
    tree.start(0);
    tree.replies.clear();
    tree.connect_to(1, 0, Epoch(1), 1);
    let replay = Replay { seq: reply.seq, time: reply.time, ..Replay::default() };
    tree.send(1, 0, Request { replay: Some(replay), ..request });
    assert_eq!(tree.reply(1, tid).result, Ok(Answer::Done));
    assert!(reply.seq > Seq(0));
    assert_eq!(tree.lookup(Ino::ROOT, "dir"), Err(Errno::NotFound));
    assert_eq!(listed(&mut tree).len(), 1);
}

#[test]
fn a_server_of_a_branch_removes_no_tree_at_once() {
    let numbers = types::InoRange { start: 1 << 50, end: 1 << 51 };
    let private = Some(crate::Private { numbers, above: Vec::new() });
    let settings = Settings { private, ..Settings::default() };
    let mut cluster = Cluster::with(settings, 1);
    cluster.connect(1);
    let op = Op::Change(ChangeOp::Discard { parent: Ino::ROOT, name: b"dir" });
    assert_eq!(cluster.answer(op), Err(Errno::NotSupported));
    assert!(cluster.mds(0).trash.is_empty());
}

#[test]
fn a_removed_name_can_be_made_again_and_removed_again() {
    let mut tree = keeping();
    let (dir, old) = (tree.dir, tree.full);
    tree.answer(discard(dir, "full")).unwrap();
    let new = tree.dir(dir, "full");
    tree.file(new, "y");
    tree.answer(discard(dir, "full")).unwrap();
    let mut kept: Vec<Ino> = listed(&mut tree).iter().map(|entry| entry.ino).collect();
    kept.sort_unstable();
    assert_eq!(kept, [old, new]);
    tree.answer(restore(old, dir, "full")).unwrap();
    assert_eq!(tree.names(old), ["x"]);
}
