//! Capabilities and leases through requests.

use types::acl::{ACCESS_LIST, DEFAULT_LIST};
use types::{ClientId, Ino, Tid};
use wire::{
    Answer, ChangeOp, Grants, JobOp, MdsState, Op, ReadOp, Request, SessionOp, WantsExclusive,
};

use super::cluster::{Notice, user};
use super::fixture::{Tree, access_list, set_list};

const LEASED: &str = "consistency: rpcs\ndurability: stream\ncache: lease\n";

/// The grants of an answer to client 1. The table of the rank names the client first.
fn granted(tree: &mut Tree, op: Op<'_>) -> Option<Grants> {
    let tid = tree.ask_caching(1, op);
    tree.reply(1, tid);
    tree.pass(20);
    let tid = tree.ask_caching(1, op);
    tree.reply(1, tid).grants
}

fn look(parent: Ino) -> Op<'static> {
    Op::Read(ReadOp::Lookup { parent, name: b"file" })
}

#[test]
fn a_client_that_does_not_cache_gets_no_capability() {
    let mut tree = Tree::new();
    let op = look(tree.dir);
    tree.answer(op).unwrap();
    tree.pass(20);
    let tid = tree.ask(1, op);
    assert_eq!(tree.reply(1, tid).grants, None);
}

#[test]
fn a_client_gets_no_capability_before_the_table_names_it() {
    let mut tree = Tree::new();
    let op = look(tree.dir);
    let tid = tree.ask_caching(1, op);
    assert_eq!(tree.reply(1, tid).grants, None);
}

#[test]
fn a_lookup_grants_the_capability_of_the_directory() {
    let mut tree = Tree::new();
    let dir = tree.dir;
    let grants = granted(&mut tree, look(dir)).unwrap();
    assert_eq!((grants.dir.ino, grants.inode), (dir, true));
    assert_eq!(tree.counted(0, "caps"), 1);
}

#[test]
fn a_failed_lookup_grants_the_capability_of_the_directory() {
    let mut tree = Tree::new();
    let dir = tree.dir;
    let grants =
        granted(&mut tree, Op::Read(ReadOp::Lookup { parent: dir, name: b"nothing" })).unwrap();
    assert_eq!((grants.dir.ino, grants.inode), (dir, false));
}

#[test]
fn a_listing_with_attributes_grants_the_attributes_of_its_files() {
    let mut tree = Tree::new();
    let dir = tree.full;
    let op = Op::Read(ReadOp::List { dir, after: None, limit: 9, attrs: true });
    assert!(granted(&mut tree, op).unwrap().inode);
    let op = Op::Read(ReadOp::List { dir, after: None, limit: 9, attrs: false });
    assert!(!granted(&mut tree, op).unwrap().inode);
}

#[test]
fn an_inode_with_an_access_control_list_is_granted_to_no_client() {
    let mut tree = Tree::new();
    let (dir, file, list) = (tree.dir, tree.file, access_list());
    assert!(granted(&mut tree, look(dir)).is_some_and(|grants| grants.inode));
    tree.answer(set_list(file, ACCESS_LIST, Some(&list))).unwrap();
    assert!(granted(&mut tree, look(dir)).is_some_and(|grants| !grants.inode), "of the file");
    tree.answer(set_list(file, ACCESS_LIST, None)).unwrap();
    for name in [ACCESS_LIST, DEFAULT_LIST] {
        tree.answer(set_list(dir, name, Some(&list))).unwrap();
        assert_eq!(granted(&mut tree, look(dir)), None, "of the directory");
        let above = Op::Read(ReadOp::Lookup { parent: Ino::ROOT, name: b"dir" });
        assert!(granted(&mut tree, above).is_none_or(|grants| !grants.inode), "of its attributes");
        tree.answer(set_list(dir, name, None)).unwrap();
        assert!(granted(&mut tree, look(dir)).is_some_and(|grants| grants.inode));
    }
}

#[test]
fn the_attributes_of_a_file_with_two_names_are_not_granted() {
    let mut tree = Tree::new();
    let (dir, ino, open) = (tree.dir, tree.file, tree.open);
    tree.answer(Op::Change(ChangeOp::Link { ino, parent: open, name: b"second" })).unwrap();
    assert!(!granted(&mut tree, look(dir)).unwrap().inode);
}

#[test]
fn a_change_of_another_client_revokes_the_capability_and_waits() {
    let mut tree = Tree::new();
    let dir = tree.dir;
    granted(&mut tree, look(dir)).unwrap();
    tree.connect(2);
    let tid = tree.ask(2, Op::Change(ChangeOp::Unlink { parent: dir, name: b"file" }));
    assert!(!tree.is_answered(2, tid));
    assert!(tree.notices.contains(&(1, Notice::Revoke(dir))));
    tree.answer(Op::Session(SessionOp::Return { dir })).unwrap();
    assert_eq!(tree.reply(2, tid).result, Ok(Answer::Done));
}

#[test]
fn a_change_of_the_holder_itself_does_not_wait() {
    let mut tree = Tree::new();
    let dir = tree.dir;
    granted(&mut tree, look(dir)).unwrap();
    let tid = tree.ask_caching(1, Op::Change(ChangeOp::Unlink { parent: dir, name: b"file" }));
    assert!(tree.is_answered(1, tid));
}

#[test]
fn a_look_of_another_client_does_not_wait() {
    let mut tree = Tree::new();
    let dir = tree.dir;
    granted(&mut tree, look(dir)).unwrap();
    tree.connect(2);
    let tid = tree.ask(2, look(dir));
    assert!(tree.is_answered(2, tid));
}

#[test]
fn a_change_waits_for_a_silent_holder_no_longer_than_its_cache_is_valid() {
    let mut tree = Tree::new();
    let dir = tree.dir;
    granted(&mut tree, look(dir)).unwrap();
    tree.connect(2);
    let tid = tree.ask(2, Op::Change(ChangeOp::Unlink { parent: dir, name: b"file" }));
    let waited = tree.until(|tree| tree.is_answered(2, tid));
    assert_eq!((waited, tree.counted(0, "caps_expired")), (1500, 1));
}

#[test]
fn a_contested_directory_is_granted_to_no_client_for_a_moment() {
    let mut tree = Tree::new();
    let dir = tree.dir;
    granted(&mut tree, look(dir)).unwrap();
    tree.connect(2);
    tree.ask(2, Op::Change(ChangeOp::Rmdir { parent: dir, name: b"sub" }));
    tree.answer(Op::Session(SessionOp::Return { dir })).unwrap();
    let tid = tree.ask_caching(1, look(dir));
    assert_eq!(tree.reply(1, tid).grants, None);
    tree.pass(501);
    let tid = tree.ask_caching(1, look(dir));
    assert!(tree.reply(1, tid).grants.is_some());
}

#[test]
fn a_policy_revokes_each_capability_below() {
    let mut tree = Tree::new();
    let dir = tree.dir;
    granted(&mut tree, look(dir)).unwrap();
    let (path, policy) = (&b"/"[..], LEASED.as_bytes());
    let client = ClientId(0);
    let tid = tree.ask_monitor(Op::Change(ChangeOp::SetPolicy { path, policy, client }));
    assert!(!tree.monitor.contains_key(&tid));
    assert!(tree.notices.contains(&(1, Notice::Revoke(dir))));
    tree.answer(Op::Session(SessionOp::Return { dir })).unwrap();
    tree.until(|tree| tree.monitor.contains_key(&tid));
}

#[test]
fn a_directory_under_leases_is_leased() {
    let mut tree = Tree::new();
    let dir = tree.dir;
    tree.set_policy("/dir", LEASED).unwrap();
    let grants = granted(&mut tree, look(dir)).unwrap();
    assert_eq!(grants.lease, Some(types::Span::from_millis(1000)));
    assert_eq!(tree.counted(0, "leases"), 1);
}

#[test]
fn a_change_waits_for_the_end_of_a_lease() {
    let mut tree = Tree::new();
    let dir = tree.dir;
    tree.set_policy("/dir", LEASED).unwrap();
    granted(&mut tree, look(dir)).unwrap();
    let tid = tree.ask_caching(1, Op::Change(ChangeOp::Unlink { parent: dir, name: b"file" }));
    let waited = tree.until(|tree| tree.is_answered(1, tid));
    assert_eq!(waited, 1010, "a span, and an allowance for the clocks");
    assert!(tree.counted(0, "lease_waits") > 0);
}

/// A create of client 1, which wants directories alone.
fn create_alone(tree: &mut Tree, name: &[u8]) -> Option<Grants> {
    let new = wire::NewInode { mode: super::cluster::FILE, ..wire::NewInode::default() };
    let op = Op::Change(ChangeOp::Create { parent: tree.full, name, new });
    let tid = tree.tid();
    let request = Request::new(tid, Tid(tid.0 - 1), types::Cred::root(), op);
    let wants_exclusive = WantsExclusive::Always;
    tree.send(1, 0, Request { remembers: true, wants_exclusive, ..request });
    tree.reply(1, tid).grants
}

/// Client 1 has the directory alone.
fn alone() -> Tree {
    let mut tree = Tree::new();
    create_alone(&mut tree, b"a");
    tree.pass(20);
    let grants = create_alone(&mut tree, b"b").unwrap();
    assert!(grants.exclusive.is_some(), "{grants:?}");
    tree
}

#[test]
fn a_client_that_changes_a_directory_gets_it_alone() {
    let tree = alone();
    assert_eq!(tree.counted(0, "caps_alone"), 1);
}

#[test]
fn a_look_into_an_exclusive_directory_waits_until_its_owner_returns_the_directory() {
    let mut tree = alone();
    tree.connect(2);
    let dir = tree.full;
    let tid = tree.ask(2, Op::Read(ReadOp::List { dir, after: None, limit: 9, attrs: false }));
    tree.pass(2000);
    assert!(!tree.is_answered(2, tid), "the owner may have changes there");
    tree.answer(Op::Session(SessionOp::Return { dir })).unwrap();
    assert!(tree.is_answered(2, tid));
}

#[test]
fn a_path_of_the_monitor_waits_for_the_owner_of_a_directory_on_it() {
    let (path, policy, client) = (&b"/dir/full/new"[..], &b"posix"[..], ClientId(0));
    for op in [
        Op::Change(ChangeOp::SetPolicy { path, policy, client }),
        Op::Job(JobOp::Decouple { path, policy: b"batchfs", client: ClientId(2) }),
    ] {
        let mut tree = alone();
        let dir = tree.full;
        let tid = tree.ask_monitor(op);
        tree.pass(2000);
        assert!(!tree.monitor.contains_key(&tid), "the owner may have made the directory");
        tree.answer(Op::Session(SessionOp::Return { dir })).unwrap();
        assert!(tree.monitor.contains_key(&tid));
    }
}

#[test]
fn an_exclusive_directory_is_taken_from_a_silent_owner() {
    let mut tree = alone();
    tree.connect(2);
    let dir = tree.full;
    let tid = tree.ask(2, Op::Read(ReadOp::List { dir, after: None, limit: 9, attrs: false }));
    let waited = tree.until(|tree| tree.is_answered(2, tid));
    assert_eq!((waited, tree.counted(0, "caps_alone")), (10_000, 0));
    let lost: Vec<_> = tree.log.iter().filter(|event| event.name == "client.expired").collect();
    assert_eq!(lost.len(), 1, "{:?}", tree.log);
}

#[test]
fn a_server_collects_exclusive_directories_before_it_stops() {
    let mut tree = alone();
    let dir = tree.full;
    tree.input(0, crate::MdsInput::Terminate);
    assert_eq!(tree.states[&0], MdsState::Stopping, "the monitor gives up a server that stays");
    tree.pass(100);
    assert!(tree.stopped.is_empty() && tree.notices.contains(&(1, Notice::Revoke(dir))));
    tree.answer(Op::Session(SessionOp::Return { dir })).unwrap();
    tree.until(|tree| !tree.stopped.is_empty());
}

/// A client that makes directories without end kept the server from stopping.
#[test]
fn a_server_that_stops_asks_for_directories_that_are_made_meanwhile() {
    let mut tree = alone();
    let (dir, numbers) = (tree.full, numbers(&mut tree));
    tree.input(0, crate::MdsInput::Terminate);
    let own = Ino(numbers.start);
    make_ahead(&mut tree, dir, own);
    tree.pass(10);
    assert!(tree.notices.contains(&(1, Notice::Revoke(own))), "{:?}", tree.notices);
    for dir in [dir, own] {
        tree.answer(Op::Session(SessionOp::Return { dir })).unwrap();
    }
    tree.until(|tree| !tree.stopped.is_empty());
}

/// A hostile client returns nothing, and makes each directory in the one before.
#[test]
fn no_client_keeps_a_server_from_stopping() {
    let mut tree = alone();
    let (mut dir, numbers) = (tree.full, numbers(&mut tree));
    tree.input(0, crate::MdsInput::Terminate);
    let evict = crate::Settings::default().evict.0 / 1_000_000;
    for number in numbers.start..numbers.start + 8 {
        tree.pass(evict / 6);
        make_ahead(&mut tree, dir, Ino(number));
        dir = Ino(number);
    }
    assert_eq!(tree.stopped, [0]);
}

fn numbers(tree: &mut Tree) -> types::InoRange {
    match tree.answer(Op::Job(JobOp::Extend { subtree: Ino(0), count: 9 })) {
        Ok(Answer::Range(numbers)) => numbers,
        other => panic!("{other:?} are no numbers"),
    }
}

/// Client 1 makes a directory ahead of the server.
fn make_ahead(tree: &mut Tree, parent: Ino, ino: Ino) {
    let new = wire::NewInode { mode: 0o040_755, ..wire::NewInode::default() };
    let (tid, create) = (tree.tid(), ChangeOp::Create { parent, name: b"made", new });
    let replay = Some(wire::Replay { ino, time: tree.clock().time, ..Default::default() });
    let request = Request::new(tid, Tid(tid.0 - 1), types::Cred::root(), Op::Change(create));
    tree.send(1, 0, Request { is_async: true, replay, ..request });
}

/// Sends a change of client 1 ahead, and says whether the server has executed it.
fn is_executed_ahead(tree: &mut Tree, cred: types::Cred, op: Op<'_>) -> bool {
    let (tid, before) = (tree.tid(), tree.counted(0, "ahead"));
    let replay = wire::Replay { time: tree.clock().time, ..wire::Replay::default() };
    let request = Request::new(tid, Tid(tid.0 - 1), cred, op);
    tree.send(1, 0, Request { is_async: true, replay: Some(replay), ..request });
    tree.counted(0, "ahead") > before
}

#[test]
fn a_client_links_ahead_only_what_it_has_alone() {
    let link = |ino, parent| Op::Change(ChangeOp::Link { ino, parent, name: b"further" });
    let root = types::Cred::root;
    let mut tree = alone();
    let (foreign, full, dir) = (tree.file, tree.full, tree.dir);
    let own = tree.lookup(full, "a").unwrap();
    assert!(is_executed_ahead(&mut tree, root(), link(own, full)));
    for (why, ino, parent) in [
        ("its directory has the name", own, full),
        ("the directory of the file is everybody's", foreign, full),
        ("the directory of the new name is everybody's", own, dir),
        ("a directory has one name", full, full),
        ("no inode has the number", Ino(1 << 50), full),
    ] {
        let mut tree = alone();
        let ino = if ino == own { tree.lookup(full, "a").unwrap() } else { ino };
        if ino == own && parent == full {
            assert!(is_executed_ahead(&mut tree, root(), link(ino, parent)));
        }
        assert!(!is_executed_ahead(&mut tree, root(), link(ino, parent)), "{why}");
    }
    let mut tree = alone();
    let ino = tree.lookup(full, "a").unwrap();
    assert!(!is_executed_ahead(&mut tree, user(1000), link(ino, full)), "root's directory");
}
