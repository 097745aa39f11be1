//! Recovery: what a next server has after a crash, and after a clean stop.

use metastore::request::StoreOp;
use types::{ClientId, ConnId, Epoch, Errno, Ino, Rank};
use wire::{
    Access, Answer, ChangeOp, JobOp, MdsState, Message, NewInode, Op, PeerBody, PeerMessage,
    RankOp, ReadOp, Replay, Request, SessionOp, TransferStep, UnusedNumbers,
};

use super::cluster::{Cluster, Notice};
use super::fixture::Tree;
use crate::{MdsInput, Settings};
use types::{Cred, Lock, LockKind, LockMode, Tid, Timestamp};

/// The next server serves requests of client 1.
fn restarted(tree: &mut Tree) {
    tree.start(0);
    tree.connect(1);
    tree.until(|tree| tree.mds(0).is_active());
}

fn make(name: &[u8]) -> Op<'_> {
    let new = NewInode { mode: super::cluster::FILE, ..NewInode::default() };
    Op::Change(ChangeOp::Create { parent: Ino::ROOT, name, new })
}

fn walk(tree: &mut Tree, path: &[u8]) -> Option<Errno> {
    match tree.answer(Op::Read(ReadOp::Walk { base: Ino::ROOT, path })) {
        Ok(wire::Answer::Walked { attr: Some(_), .. }) => None,
        Ok(_) => Some(Errno::NotFound),
        Err(errno) => Some(errno),
    }
}

#[test]
fn a_durable_change_survives_a_crash() {
    let mut tree = Tree::new();
    tree.answer(Op::Session(SessionOp::Sync)).unwrap();
    tree.crash(0);
    restarted(&mut tree);
    assert_eq!(walk(&mut tree, b"/dir/full/x"), None);
}

#[test]
fn an_unanswered_change_does_not_survive_a_crash() {
    let mut tree = Tree::new();
    tree.answer(Op::Session(SessionOp::Sync)).unwrap();
    let dir = tree.dir;
    tree.holds = |op| matches!(op, StoreOp::Append { .. });
    tree.file(dir, "lost");
    tree.crash(0);
    restarted(&mut tree);
    assert_eq!(walk(&mut tree, b"/dir/lost"), Some(Errno::NotFound));
}

#[test]
fn a_checkpointed_change_survives_a_crash_without_a_journal() {
    let mut tree = Tree::new();
    tree.checkpoint();
    tree.crash(0);
    restarted(&mut tree);
    assert_eq!(walk(&mut tree, b"/dir/full/x"), None);
}

#[test]
fn a_removal_survives_a_crash() {
    let mut tree = Tree::new();
    tree.checkpoint();
    let op = Op::Change(ChangeOp::Unlink { parent: tree.dir, name: b"link" });
    tree.answer(op).unwrap();
    tree.answer(Op::Session(SessionOp::Sync)).unwrap();
    tree.crash(0);
    restarted(&mut tree);
    assert_eq!(walk(&mut tree, b"/dir/link"), Some(Errno::NotFound));
    assert_eq!(walk(&mut tree, b"/dir/file"), None);
}

#[test]
fn a_rename_survives_a_crash() {
    let mut tree = Tree::new();
    tree.checkpoint();
    let (parent, new_parent, flags) = (tree.dir, tree.open, Default::default());
    tree.answer(Op::Change(ChangeOp::Rename {
        parent,
        name: b"file",
        new_parent,
        new_name: b"new",
        flags,
    }))
    .unwrap();
    tree.answer(Op::Session(SessionOp::Sync)).unwrap();
    tree.crash(0);
    restarted(&mut tree);
    assert_eq!(walk(&mut tree, b"/open/new"), None);
    assert_eq!(walk(&mut tree, b"/dir/file"), Some(Errno::NotFound));
}

#[test]
fn a_clean_stop_leaves_no_journal() {
    let mut tree = Tree::new();
    tree.stop(0);
    assert!(tree.store.names("journal/").is_empty());
    restarted(&mut tree);
    assert_eq!(walk(&mut tree, b"/dir/full/x"), None);
}

#[test]
fn a_term_grows_with_each_server() {
    let mut tree = Tree::new();
    tree.stop(0);
    restarted(&mut tree);
    tree.crash(0);
    restarted(&mut tree);
    assert_eq!(tree.mds(0).tables.epoch(), Epoch(3));
}

#[test]
fn a_server_notes_the_term_that_crashed() {
    let mut tree = Tree::new();
    tree.stop(0);
    restarted(&mut tree);
    assert_eq!(tree.mds(0).tables.crashed(), Epoch(0), "the first term was stopped");
    tree.crash(0);
    restarted(&mut tree);
    assert_eq!(tree.mds(0).tables.crashed(), Epoch(2));
}

#[test]
fn inode_numbers_are_not_given_twice_after_a_crash() {
    let mut tree = Tree::new();
    let dir = tree.dir;
    let before = tree.file(dir, "a");
    tree.crash(0);
    restarted(&mut tree);
    walk(&mut tree, b"/dir");
    let after = tree.file(Ino::ROOT, "b");
    assert!(after.0 > before.0);
}

#[test]
fn a_server_waits_for_the_clients_of_the_term_before() {
    let mut tree = Tree::new();
    tree.answer(Op::Session(SessionOp::Sync)).unwrap();
    tree.crash(0);
    tree.start(0);
    tree.pass(100);
    assert!(!tree.mds(0).is_active());
    tree.connect(1);
    let waited = tree.until(|tree| tree.mds(0).is_active());
    assert!(waited <= 1, "each client is back");
}

#[test]
fn a_server_waits_for_a_missing_client_for_a_limited_time() {
    let mut tree = Tree::new();
    tree.answer(Op::Session(SessionOp::Sync)).unwrap();
    tree.crash(0);
    tree.start(0);
    let waited = tree.until(|tree| tree.mds(0).is_active());
    assert_eq!(waited, 2000);
}

#[test]
fn a_server_does_not_wait_for_a_client_that_left_before_the_crash() {
    let mut tree = Tree::new();
    tree.disconnect(1);
    tree.pass(50);
    tree.crash(0);
    tree.start(0);
    let waited = tree.until(|tree| tree.mds(0).is_active());
    assert!(waited <= 1, "no client is missing, and the server waited {waited} ms");
}

#[test]
fn a_request_during_the_recovery_is_answered_afterwards() {
    let mut tree = Tree::new();
    tree.answer(Op::Session(SessionOp::Sync)).unwrap();
    tree.connect(2);
    tree.file(Ino::ROOT, "a");
    tree.answer(Op::Session(SessionOp::Sync)).unwrap();
    tree.crash(0);
    tree.start(0);
    tree.connect(2);
    let tid = tree.ask(2, Op::Read(ReadOp::Lookup { parent: Ino::ROOT, name: b"dir" }));
    tree.pass(100);
    assert!(!tree.is_answered(2, tid), "client 1 may resend a change");
    tree.connect(1);
    assert!(tree.reply(2, tid).result.is_ok());
}

#[test]
fn a_resent_create_has_its_first_number_and_time() {
    let mut tree = Tree::new();
    tree.answer(Op::Session(SessionOp::Sync)).unwrap();
    let dir = tree.dir;
    tree.holds = |op| matches!(op, StoreOp::Append { .. });
    let new = wire::NewInode { mode: super::cluster::FILE, ..wire::NewInode::default() };
    let op = Op::Change(ChangeOp::Create { parent: dir, name: b"again", new });
    let tid = tree.ask(1, op);
    let first = tree.reply(1, tid);
    let Ok(wire::Answer::Attr(attr)) = first.result else { panic!() };
    tree.crash(0);
    tree.start(0);
    tree.connect_to(1, 0, Epoch(1), 1);
    let replay = Replay { seq: first.seq, ino: attr.ino, time: first.time, stripe: attr.stripe };
    tree.replies.clear();
    let request = Request::new(tid, Tid(0), Cred::root(), op);
    tree.send(1, 0, Request { replay: Some(replay), ..request });
    let sync = Request::new(Tid(999), Tid(0), Cred::root(), Op::Session(SessionOp::Sync));
    tree.send(1, 0, Request { replay: Some(Replay::default()), ..sync });
    assert_eq!(tree.reply(1, tid).result, Ok(wire::Answer::Attr(attr)));
    assert_eq!(tree.counted(0, "replayed"), 1);
}

#[test]
fn no_client_sees_the_time_before_a_resent_change_that_needs_another_request() {
    let mut tree = Tree::new();
    let dir = tree.dir;
    (2..=3).for_each(|client| tree.connect(client));
    for client in 1..=3 {
        tree.ask(client, Op::Change(ChangeOp::Accessed { ino: dir, at: Timestamp(i64::MAX) }));
    }
    tree.answer(Op::Session(SessionOp::Sync)).unwrap();
    tree.holds = |op| matches!(op, StoreOp::Append { .. });
    let new = wire::NewInode { mode: super::cluster::FILE, ..wire::NewInode::default() };
    let create = Op::Change(ChangeOp::Create { parent: dir, name: b"a", new });
    let (parent, new_parent, flags) = (dir, dir, Default::default());
    let rename = ChangeOp::Rename { parent, name: b"a", new_parent, new_name: b"b", flags };
    // The answer to the create is lost; the rename is answered.
    let created = tree.ask(2, create);
    let renamed = tree.ask(1, Op::Change(rename));
    let first = tree.reply(1, renamed);
    tree.crash(0);
    tree.start(0);
    tree.replies.clear();
    let request = |tid, op| Request::new(tid, Tid(0), Cred::root(), op);
    (2..=3).for_each(|client| tree.connect_to(client, 0, Epoch(1), 0));
    tree.send(2, 0, request(created, create));
    let looked = ["a", "b"].map(|name| {
        let name = name.as_bytes();
        tree.ask(3, Op::Read(ReadOp::Lookup { parent: dir, name }))
    });
    tree.connect_to(1, 0, Epoch(1), 1);
    let replay = Some(Replay { seq: first.seq, time: first.time, ..Replay::default() });
    tree.send(1, 0, Request { replay, ..request(renamed, Op::Change(rename)) });
    let sync = request(Tid(999), Op::Session(SessionOp::Sync));
    tree.send(1, 0, Request { replay: Some(Replay::default()), ..sync });
    assert_eq!(tree.reply(1, renamed).result, Ok(wire::Answer::Done));
    let Ok(wire::Answer::Attr(file)) = tree.reply(2, created).result else { panic!() };
    let found = looked.map(|tid| match tree.reply(3, tid).result {
        Ok(wire::Answer::Attr(attr)) => Ok(attr.ino),
        other => Err(other.map(drop).unwrap_err().errno),
    });
    assert_eq!(found, [Err(Errno::NotFound), Ok(file.ino)]);
}

#[test]
fn a_resent_change_that_needs_a_lost_one_takes_no_new_inode_instead() {
    let mut tree = Tree::new();
    let dir = tree.dir;
    (2..=4).for_each(|client| tree.connect(client));
    let new = wire::NewInode { mode: super::cluster::FILE, ..wire::NewInode::default() };
    let create = |name| Op::Change(ChangeOp::Create { parent: dir, name, new });
    let rename = |name, new_name, exchange| {
        let flags = wire::RenameFlags { exchange, no_replace: false };
        Op::Change(ChangeOp::Rename { parent: dir, name, new_parent: dir, new_name, flags })
    };
    let old = tree.file(dir, "b");
    // The journal knows client 4, so the next server waits for it.
    tree.ask(4, create(b"known"));
    tree.answer(Op::Session(SessionOp::Sync)).unwrap();
    tree.holds = |op| matches!(op, StoreOp::Append { .. });
    tree.ask(4, create(b"a"));
    let exchanged = tree.ask(1, rename(b"a", b"b", true));
    let first = tree.reply(1, exchanged);
    assert_eq!(first.result, Ok(wire::Answer::Done));
    tree.crash(0);
    tree.start(0);
    tree.replies.clear();
    // Client 4 does not return, so its create is lost. The rename of client 2 makes the same name.
    (2..=3).for_each(|client| tree.connect_to(client, 0, Epoch(1), 0));
    let renamed = tree.ask(2, rename(b"b", b"a", false));
    let created = tree.ask(3, create(b"b"));
    tree.connect_to(1, 0, Epoch(1), 1);
    let replay = Some(Replay { seq: first.seq, time: first.time, ..Replay::default() });
    let request = |tid, op| Request::new(tid, Tid(0), Cred::root(), op);
    tree.send(1, 0, Request { replay, ..request(exchanged, rename(b"a", b"b", true)) });
    let sync = request(Tid(999), Op::Session(SessionOp::Sync));
    tree.send(1, 0, Request { replay: Some(Replay::default()), ..sync });
    tree.pass(3000);
    assert_eq!(tree.reply(2, renamed).result, Ok(wire::Answer::Done));
    let Ok(wire::Answer::Attr(file)) = tree.reply(3, created).result else { panic!() };
    let lost = tree.reply(1, exchanged).result.map_err(|failure| failure.errno);
    assert_eq!(lost, Err(Errno::NotFound), "client 1 learns that its change is lost");
    for (name, ino) in [(b"a", old), (b"b", file.ino)] {
        let found = tree.answer(Op::Read(ReadOp::Lookup { parent: dir, name })).unwrap();
        assert!(matches!(found, wire::Answer::Attr(attr) if attr.ino == ino), "{found:?}");
    }
}

#[test]
fn a_removed_file_is_purged_after_a_crash() {
    let mut tree = Tree::new();
    let (dir, ino) = (tree.dir, tree.file);
    tree.answer(Op::Change(ChangeOp::SetData { ino, data: b"", size: 10 << 20 })).unwrap();
    tree.checkpoint();
    tree.holds = |op| matches!(op, StoreOp::PurgeData { .. });
    tree.answer(Op::Change(ChangeOp::Unlink { parent: dir, name: b"file" })).unwrap();
    tree.answer(Op::Session(SessionOp::Sync)).unwrap();
    tree.crash(0);
    restarted(&mut tree);
    tree.until(|tree| tree.counted(0, "purged") == 1);
}

/// A crash interrupts a change of policy by the client that has `/open`: the journal has the next
/// policy, and the rank's table has not. The next server is asked to release the subtree, perhaps
/// after a look at the policy, and dies while its journal cannot be written. Returns the policy
/// that is then in force.
fn policy_after_release(looks: bool, answers: bool) -> String {
    const FIRST: &str = "consistency: append_client_journal\ndurability: none\n";
    let then = format!("{FIRST}interfere_policy: block\n");
    let mut tree = Tree::new();
    tree.checkpoint();
    let (path, client, subtree) = (&b"/open"[..], ClientId(1), tree.open);
    let policy = FIRST.as_bytes();
    tree.monitor(Op::Job(JobOp::Decouple { path, client, policy })).unwrap();
    tree.holds = |op| matches!(op, StoreOp::Put { .. });
    let policy = then.as_bytes();
    tree.ask_monitor(Op::Change(ChangeOp::SetPolicy { path, policy, client }));
    tree.answer(Op::Session(SessionOp::Sync)).unwrap();
    tree.crash(0);
    restarted(&mut tree);
    let ask = |tree: &mut Tree| match tree.answer(Op::Read(ReadOp::GetPolicy { dir: subtree })) {
        Ok(Answer::Policy(policy)) => policy.policy,
        other => panic!("{other:?} is no policy"),
    };
    let is_first = |policy: &str| policy.contains("interfere_policy: allow");
    assert!(!looks || is_first(&ask(&mut tree)));
    tree.holds = |op| matches!(op, StoreOp::Append { .. });
    let release = Op::Job(JobOp::Release { subtree, unused: UnusedNumbers::default() });
    let tid = tree.ask(1, release);
    tree.pass(100);
    assert!(!tree.is_answered(1, tid), "the journal lacks the policy in force");
    if answers {
        tree.let_go();
        assert_eq!(tree.reply(1, tid).result, Ok(Answer::Done));
    }
    tree.crash(0);
    restarted(&mut tree);
    assert_eq!(walk(&mut tree, path), None);
    ask(&mut tree)
}

#[test]
fn a_released_subtree_stays_under_its_policy_after_a_change_that_a_crash_interrupted() {
    for (looks, answers) in [(false, false), (false, true), (true, false), (true, true)] {
        let policy = policy_after_release(looks, answers);
        assert!(policy.contains("interfere_policy: allow"), "{looks} {answers}: {policy}");
    }
}

#[test]
fn a_server_serves_requests_while_it_writes_before_it_stops() {
    let mut tree = Tree::new();
    tree.answer(make(b"before")).unwrap();
    tree.holds = |op| matches!(op, StoreOp::CommitDir { .. });
    tree.input(0, MdsInput::FromMonitor(Message::Stop));
    assert_eq!(tree.states[&0], MdsState::Stopping, "the monitor gives up a server that stays");
    tree.pass(1000);
    let making = tree.ask(1, make(b"meanwhile"));
    tree.until(|tree| tree.is_answered(1, making));
    tree.holds = |_| false;
    tree.let_go();
    tree.until(|tree| tree.stopped == [0]);
    tree.stopped.clear();
    restarted(&mut tree);
    for name in ["before", "meanwhile"] {
        assert_eq!(walk(&mut tree, name.as_bytes()), None, "{name}");
    }
}

#[test]
fn a_server_leaves_its_journal_to_the_next_one() {
    let mut tree = Tree::new();
    tree.answer(make(b"before")).unwrap();
    tree.holds = |op| matches!(op, StoreOp::CommitDir { .. });
    tree.input(0, MdsInput::Terminate);
    tree.until(|tree| tree.stopped == [0]);
    assert_eq!(tree.held(), 0, "no directory is written");
    tree.stopped.clear();
    restarted(&mut tree);
    assert_eq!(walk(&mut tree, b"before"), None);
}

/// An idle client notices the end of its connection with its next request.
#[test]
fn the_next_server_waits_for_no_client_that_has_nothing_to_report() {
    for (opens, waits) in [(false, false), (true, true)] {
        let mut tree = Tree::new();
        let file = tree.file;
        if opens {
            tree.answer(Op::Session(SessionOp::Open { ino: file, write: false })).unwrap();
        }
        let tid = tree.ask_caching(1, Op::Read(ReadOp::GetAttr { ino: Ino::ROOT }));
        tree.until(|tree| tree.is_answered(1, tid));
        tree.pass(2000);
        tree.input(0, MdsInput::Terminate);
        tree.until(|tree| tree.stopped == [0]);
        tree.stopped.clear();
        tree.start(0);
        tree.pass(100);
        assert_eq!(tree.mds(0).is_active(), !waits, "opens: {opens}");
    }
}

#[test]
fn a_server_writes_what_its_journal_lacks_before_the_next_one_starts() {
    let mut tree = Tree::new();
    let (path, client) = (&b"/open"[..], ClientId(0));
    let policy = &b"consistency: rpcs\ndurability: none\n"[..];
    tree.monitor(Op::Change(ChangeOp::SetPolicy { path, policy, client })).unwrap();
    let new = NewInode { mode: super::cluster::FILE, ..NewInode::default() };
    let create = ChangeOp::Create { parent: tree.open, name: b"volatile", new };
    tree.answer(Op::Change(create)).unwrap();
    tree.input(0, MdsInput::Terminate);
    tree.until(|tree| tree.stopped == [0]);
    tree.stopped.clear();
    restarted(&mut tree);
    assert_eq!(walk(&mut tree, b"open/volatile"), None);
}

#[test]
fn a_stopping_server_leaves_new_requests_to_the_next_server() {
    let mut tree = Tree::new();
    tree.checkpoint();
    // The end of the journal is written last.
    tree.holds = |op| matches!(op, StoreOp::Put { .. });
    tree.input(0, MdsInput::FromMonitor(Message::Stop));
    assert_eq!(tree.mds(0).phase, crate::Phase::Stopping);
    let look = tree.ask(1, Op::Read(ReadOp::GetAttr { ino: Ino::ROOT }));
    let new = NewInode { mode: super::cluster::FILE, ..NewInode::default() };
    let make = tree.ask(1, Op::Change(ChangeOp::Create { parent: Ino::ROOT, name: b"late", new }));
    tree.pass(1000);
    assert!(!tree.is_answered(1, look) && !tree.is_answered(1, make));
    // The monitor has no session in which it would send its request again.
    let list = Op::Read(ReadOp::GetAttr { ino: Ino::ROOT });
    assert_eq!(tree.monitor(list).unwrap_err(), Errno::Again);
    assert!(tree.mds(0).namespace.peek(Ino::ROOT, b"late").unwrap().is_none());
}

#[test]
fn a_change_that_waits_when_the_server_stops_is_left_to_the_next_server() {
    let mut tree = Tree::new();
    tree.checkpoint();
    tree.stop(0);
    tree.start(0);
    tree.connect(1);
    tree.until(|tree| tree.mds(0).is_active());
    // The directory is not in memory.
    tree.holds = |op| matches!(op, StoreOp::LookUp { .. } | StoreOp::LoadDir { .. });
    let new = NewInode { mode: super::cluster::FILE, ..NewInode::default() };
    let parent = Ino::ROOT;
    let make = tree.ask(1, Op::Change(ChangeOp::Create { parent, name: b"late", new }));
    assert!(tree.held() > 0 && !tree.is_answered(1, make));
    tree.input(0, MdsInput::Terminate);
    tree.holds = |op| matches!(op, StoreOp::CommitDir { .. });
    tree.let_go();
    tree.pass(1000);
    assert!(!tree.is_answered(1, make));
}

#[test]
fn a_server_that_recovers_stops_at_once() {
    let mut tree = Tree::new();
    tree.answer(Op::Session(SessionOp::Sync)).unwrap();
    tree.crash(0);
    tree.start(0);
    tree.input(0, crate::MdsInput::Terminate);
    assert_eq!(tree.stopped, [0]);
}

#[test]
fn a_server_that_recovers_takes_no_part_in_transfers() {
    let mut cluster = Cluster::with(Settings::default(), 2);
    cluster.crash(1);
    cluster.holds = |_| true;
    cluster.start(1);
    let asked = cluster.held();
    assert!(asked > 0, "the recovery waits for the store");
    // The list that the message announces is newer than the one that the recovery reads.
    let transfer = |step| PeerBody::Transfer { giver: Rank(0), number: 7, step };
    for step in [TransferStep::Committed, TransferStep::AskSubtree { root: Ino(77) }] {
        let message =
            PeerMessage { from: Rank(0), term: Epoch(9), to: Rank(1), body: transfer(step) };
        let message = Message::Peer(Box::new(message));
        cluster.input(1, MdsInput::Message(ConnId(99), message));
        cluster.settle();
        assert_eq!(cluster.held(), asked, "nothing else is asked of the store");
    }
    cluster.holds = |_| false;
    cluster.let_go();
    cluster.until(|cluster| cluster.mds(1).is_active());
}

#[test]
fn an_evicted_directory_is_fetched_again() {
    let mut tree = Tree::new();
    tree.checkpoint();
    tree.stop(0);
    restarted(&mut tree);
    assert_eq!(tree.counted(0, "inodes"), 1, "the root");
    assert_eq!(walk(&mut tree, b"/dir/file"), None);
    let fetched = tree.counted(0, "cold_lookups") + tree.counted(0, "fetches");
    assert!(fetched >= 2, "the root and /dir");
}

#[test]
fn memory_is_bounded_by_eviction() {
    let settings = crate::Settings { inodes_max: 20, ..crate::Settings::default() };
    let mut tree = Tree::on(super::Cluster::with(settings, 1));
    for number in 0..10 {
        let dir = tree.dir(Ino::ROOT, &format!("d{number}"));
        for file in 0..5 {
            tree.file(dir, &format!("f{file}"));
        }
    }
    tree.pass(2000);
    assert!(tree.counted(0, "evicted") > 0);
    assert!(tree.counted(0, "inodes") <= 20);
    assert_eq!(walk(&mut tree, b"/d3/f4"), None);
}

/// The lock that client 2 takes in the following tests, in which it changes nothing.
fn lock() -> Lock {
    let (start, end) = (0, u64::MAX);
    Lock { kind: LockKind::Posix, mode: LockMode::Write, owner: 1, pid: 10, start, end }
}

/// Client 2 reports its lock on a file to a rank.
fn report_lock(tree: &mut Tree, rank: usize, ino: Ino) {
    for op in [SessionOp::Lock { ino, lock: lock(), wait: false }, SessionOp::Sync] {
        let request = Request::new(tree.tid(), Tid(0), Cred::root(), Op::Session(op));
        tree.send(2, rank, Request { replay: Some(Replay::default()), ..request });
    }
}

/// Whether the next server of a rank gives client 1 the lock of client 2 on a file.
fn is_given_away(tree: &mut Tree, rank: usize, epoch: Epoch, ino: Ino) -> bool {
    tree.start(rank);
    tree.connect_to(1, rank, Epoch(0), 0);
    tree.pass(100);
    let tid = tree.tid();
    let op = Op::Session(SessionOp::Lock { ino, lock: lock(), wait: false });
    tree.send(1, rank, Request::new(tid, Tid(0), Cred::root(), op));
    tree.pass(100);
    assert!(!tree.is_answered(1, tid), "the server waits for client 2");
    tree.connect_to(2, rank, epoch, 1);
    report_lock(tree, rank, ino);
    let mut answer = tree.reply(1, tid).result;
    if matches!(&answer, Err(failure) if failure.errno == Errno::Stale) {
        // The file is in the store only, and the client looks for it.
        for op in [Op::Read(ReadOp::Lookup { parent: tree.full, name: b"y" }), op] {
            let tid = tree.tid();
            tree.send(1, rank, Request::new(tid, Tid(0), Cred::root(), op));
            answer = tree.reply(1, tid).result;
        }
    }
    match answer {
        Ok(_) => true,
        Err(failure) => {
            assert_eq!(failure.errno, Errno::Again);
            false
        }
    }
}

#[test]
fn the_next_server_waits_for_a_client_that_has_only_a_lock() {
    let mut tree = Tree::new();
    tree.connect(2);
    let ino = tree.file;
    tree.answer_to(2, Op::Session(SessionOp::Lock { ino, lock: lock(), wait: false })).unwrap();
    tree.crash(0);
    assert!(!is_given_away(&mut tree, 0, Epoch(1), ino));
    // And the one after it, also when the journal is empty.
    tree.checkpoint();
    tree.crash(0);
    assert!(!is_given_away(&mut tree, 0, Epoch(2), ino));
    tree.stop(0);
    assert!(!is_given_away(&mut tree, 0, Epoch(3), ino));
}

#[test]
fn the_next_server_of_another_rank_waits_for_a_client_whose_lock_came_there() {
    let mut tree = Tree::of_two_ranks();
    tree.connect(2);
    tree.connect_to(2, 1, Epoch(0), 0);
    let full = tree.full;
    let ino = tree.file(full, "y");
    let op = Op::Session(SessionOp::Lock { ino, lock: lock(), wait: false });
    tree.answer_to(2, op).unwrap();
    let export = Op::Rank(RankOp::Export { dir: full, rank: Rank(1) });
    let tid = tree.ask(1, export);
    tree.until(|tree| tree.notices.contains(&(2, Notice::Moved(Rank(1), vec![ino]))));
    report_lock(&mut tree, 1, ino);
    tree.reply(1, tid).result.unwrap();
    tree.until(|tree| tree.counted(1, "imports") == 1);
    tree.crash(1);
    assert!(!is_given_away(&mut tree, 1, Epoch(1), ino));
}

/// A tree of two ranks, in which client 2 has a lock on a file in `full`, and `full` moves to rank
/// 1: the list of subtrees is about to be replaced. Returns the file, too, and the request.
fn moving() -> (Tree, Ino, Tid) {
    let mut tree = Tree::of_two_ranks();
    for client in [2, 3] {
        tree.connect(client);
        tree.connect_to(client, 1, Epoch(0), 0);
    }
    let full = tree.full;
    let ino = tree.file(full, "y");
    tree.answer_to(2, Op::Session(SessionOp::Lock { ino, lock: lock(), wait: false })).unwrap();
    tree.holds =
        |op| matches!(op, StoreOp::Put { object, .. } if object == metastore::SUBTREES_NAME);
    let tid = tree.ask(1, Op::Rank(RankOp::Export { dir: full, rank: Rank(1) }));
    tree.until(|tree| tree.held() == 1);
    (tree, ino, tid)
}

/// The end of the lock of client 2, which reports the lock to another rank.
fn give_up(tree: &mut Tree, ino: Ino) -> Tid {
    let lock = Lock { mode: LockMode::Unlock, ..lock() };
    let op = Op::Session(SessionOp::Lock { ino, lock, wait: false });
    let request = Request::new(tree.tid(), Tid(0), Cred::root(), op);
    let tid = request.tid;
    tree.send(2, 0, Request { replay: Some(Replay::default()), ..request });
    tid
}

#[test]
fn a_lock_that_moves_to_another_rank_is_given_to_no_client_that_waits_here() {
    let (mut tree, ino, export) = moving();
    let op = Op::Session(SessionOp::Lock { ino, lock: lock(), wait: true });
    let waiting = tree.ask(3, op);
    let given_up = give_up(&mut tree, ino);
    tree.pass(10);
    assert!(!tree.is_answered(3, waiting) && !tree.is_answered(2, given_up));
    tree.let_go();
    report_lock(&mut tree, 1, ino);
    tree.reply(1, export).result.unwrap();
    let Ok(Answer::Redirect(to)) = tree.reply(3, waiting).result else { panic!("it has moved") };
    assert_eq!((to.rank, tree.reply(2, given_up).result), (Rank(1), Ok(Answer::Done)));
}

#[test]
fn a_client_that_the_list_does_not_name_reports_its_lock_behind_those_that_it_names() {
    let (mut tree, ino, export) = moving();
    tree.let_go();
    tree.until(|tree| tree.notices.contains(&(2, Notice::Moved(Rank(1), vec![ino]))));
    let op = Op::Session(SessionOp::Lock { ino, lock: lock(), wait: false });
    let request = Request::new(tree.tid(), Tid(0), Cred::root(), op);
    let late = request.tid;
    tree.send(3, 1, Request { replay: Some(Replay::default()), ..request });
    tree.pass(10);
    assert!(!tree.is_answered(3, late));
    report_lock(&mut tree, 1, ino);
    tree.reply(1, export).result.unwrap();
    assert_eq!(tree.reply(3, late).result.map_err(|failure| failure.errno), Err(Errno::Again));
}

#[test]
fn a_client_that_the_list_does_not_name_keeps_no_lock_from_those_that_it_names() {
    let (mut tree, ino, export) = moving();
    // From a report after a restart, when the file was rank 0's.
    let stale = &mut tree.servers[1].as_mut().expect("the server runs").locks;
    stale.set(ino, ClientId(3), lock(), None, &mut Vec::new());
    tree.holds = |op| matches!(op, StoreOp::Get { object } if object == metastore::SUBTREES_NAME);
    tree.let_those_go();
    let op = Op::Session(SessionOp::Lock { ino, lock: lock(), wait: false });
    let request = Request::new(tree.tid(), Tid(0), Cred::root(), op);
    let reported = request.tid;
    tree.send(2, 1, Request { replay: Some(Replay::default()), ..request });
    assert!(!tree.is_answered(2, reported), "the rank reads the list first");
    tree.let_go();
    assert_eq!(tree.reply(2, reported).result, Ok(Answer::Done));
    report_lock(&mut tree, 1, ino);
    tree.reply(1, export).result.unwrap();
}

#[test]
fn a_client_that_reports_a_lock_to_the_old_rank_is_sent_to_the_new_one() {
    let (mut tree, ino, export) = moving();
    tree.let_go();
    report_lock(&mut tree, 1, ino);
    tree.reply(1, export).result.unwrap();
    tree.notices.clear();
    report_lock(&mut tree, 0, ino);
    tree.until(|tree| tree.notices == [(2, Notice::Moved(Rank(1), vec![ino]))]);
    assert_eq!(tree.counted(0, "locked_files"), 0);
}

#[test]
fn a_client_gets_a_lock_although_the_store_takes_no_table() {
    let mut tree = Tree::new();
    tree.connect(2);
    let ino = tree.file;
    tree.fails = |op| match op {
        StoreOp::Put { object, .. } if object.starts_with("rank/") => Some(Errno::NoSpace),
        _ => None,
    };
    tree.answer_to(2, Op::Session(SessionOp::Lock { ino, lock: lock(), wait: false })).unwrap();
}

fn is_table(op: &StoreOp) -> bool {
    matches!(op, StoreOp::Put { object, .. } if object.starts_with("rank/"))
}

/// A client tries to take the lock on a file of rank 0 at once.
fn takes(tree: &mut Tree, client: u64, ino: Ino) -> Tid {
    tree.ask(client, Op::Session(SessionOp::Lock { ino, lock: lock(), wait: false }))
}

/// A client says over a new connection that it comes back.
fn comes_back(tree: &mut Tree, client: u64, epoch: u64) {
    tree.connect_to(client, 0, Epoch(epoch), 1);
}

/// A request that a client sends again, or a report.
fn again(tree: &mut Tree, client: u64, op: SessionOp) -> Tid {
    let request = Request::new(tree.tid(), Tid(0), Cred::root(), Op::Session(op));
    let tid = request.tid;
    tree.send(client, 0, Request { replay: Some(Replay::default()), ..request });
    tid
}

/// A tree in which client 2 has a lock on the file, and then no connection; client 1 waits for the
/// lock. The table of the rank is not stored.
fn unstored_end() -> (Tree, Tid) {
    let mut tree = Tree::new();
    tree.connect(2);
    let ino = tree.file;
    let tid = takes(&mut tree, 2, ino);
    tree.reply(2, tid).result.unwrap();
    tree.pass(10);
    let waiting = tree.ask(1, Op::Session(SessionOp::Lock { ino, lock: lock(), wait: true }));
    tree.holds = is_table;
    tree.disconnect(2);
    (tree, waiting)
}

#[test]
fn a_lock_ends_with_its_connection_when_the_store_knows_it() {
    let (mut tree, waiting) = unstored_end();
    tree.pass(10);
    assert!(!tree.is_answered(1, waiting) && tree.held() > 0);
    tree.let_go();
    assert_eq!(tree.reply(1, waiting).result, Ok(Answer::Done));
}

#[test]
fn a_client_that_is_back_before_its_lock_ends_keeps_the_lock() {
    let (mut tree, waiting) = unstored_end();
    let ino = tree.file;
    comes_back(&mut tree, 2, 1);
    let report = again(&mut tree, 2, SessionOp::Lock { ino, lock: lock(), wait: false });
    again(&mut tree, 2, SessionOp::Sync);
    assert_eq!(tree.reply(2, report).result, Ok(Answer::Done));
    tree.let_go();
    tree.pass(100);
    assert!(!tree.is_answered(1, waiting));
}

#[test]
fn a_lock_that_a_client_does_not_report_ends_behind_its_reports() {
    let (mut tree, waiting) = unstored_end();
    comes_back(&mut tree, 2, 1);
    tree.let_go();
    assert!(!tree.is_answered(1, waiting), "the client is about to report the lock");
    again(&mut tree, 2, SessionOp::Sync);
    assert_eq!(tree.reply(1, waiting).result, Ok(Answer::Done));
}

#[test]
fn the_next_server_does_not_believe_a_client_whose_lock_ended() {
    let (mut tree, waiting) = unstored_end();
    let ino = tree.file;
    tree.let_go();
    tree.reply(1, waiting).result.unwrap();
    tree.crash(0);
    tree.start(0);
    // The former holder is the first one to report.
    comes_back(&mut tree, 2, 1);
    let former = again(&mut tree, 2, SessionOp::Lock { ino, lock: lock(), wait: false });
    again(&mut tree, 2, SessionOp::Sync);
    comes_back(&mut tree, 1, 1);
    let holder = again(&mut tree, 1, SessionOp::Lock { ino, lock: lock(), wait: false });
    again(&mut tree, 1, SessionOp::Sync);
    assert_eq!(tree.reply(1, holder).result, Ok(Answer::Done));
    let lost = tree.reply(2, former).result.map_err(|failure| failure.errno);
    assert_eq!(lost, Err(Errno::Again));
}

#[test]
fn a_client_gets_no_lock_before_it_knows_which_one_it_lost() {
    let (mut tree, waiting) = unstored_end();
    let (ino, link) = (tree.file, tree.link);
    tree.let_go();
    tree.reply(1, waiting).result.unwrap();
    comes_back(&mut tree, 2, 1);
    let report = again(&mut tree, 2, SessionOp::Lock { ino, lock: lock(), wait: false });
    again(&mut tree, 2, SessionOp::Sync);
    tree.reply(2, report).result.unwrap_err();
    let next = takes(&mut tree, 2, link);
    tree.pass(100);
    assert!(!tree.is_answered(2, next), "a next server would not believe its report");
    again(&mut tree, 2, SessionOp::Sync);
    assert_eq!(tree.reply(2, next).result, Ok(Answer::Done));
}

#[test]
fn a_server_gives_no_lock_before_the_store_knows_which_clients_are_missing() {
    let mut tree = Tree::new();
    tree.connect(2);
    let ino = tree.file;
    let tid = takes(&mut tree, 2, ino);
    tree.reply(2, tid).result.unwrap();
    tree.crash(0);
    tree.start(0);
    tree.holds = is_table;
    tree.connect(1);
    tree.until(|tree| tree.mds(0).is_active());
    let taken = takes(&mut tree, 1, ino);
    tree.pass(10);
    assert!(!tree.is_answered(1, taken));
    tree.let_go();
    assert_eq!(tree.reply(1, taken).result, Ok(Answer::Done));
    // The missing client comes to the server after this one.
    tree.crash(0);
    assert!(is_given_first(&mut tree, ino));
}

/// Whether client 1 keeps its lock in the next server, to which client 2 reports the lock first.
fn is_given_first(tree: &mut Tree, ino: Ino) -> bool {
    tree.start(0);
    let reports = [(2, 1), (1, 2)].map(|(client, epoch)| {
        comes_back(tree, client, epoch);
        let report = again(tree, client, SessionOp::Lock { ino, lock: lock(), wait: false });
        again(tree, client, SessionOp::Sync);
        (client, report)
    });
    let [lost, kept] = reports.map(|(client, report)| tree.reply(client, report).result.is_ok());
    kept && !lost
}

#[test]
fn a_client_that_lost_its_connection_cannot_report_a_file_that_its_server_does_not_know() {
    let mut tree = Tree::of_two_ranks();
    tree.connect(2);
    let access = Access { read: true, write: false, shared: false };
    let unknown = SessionOp::Reopen { ino: super::fixture::NOTHING, access };
    let export = Op::Rank(RankOp::Export { dir: tree.full, rank: Rank(1) });
    tree.answer(export).unwrap();
    tree.disconnect(2);
    comes_back(&mut tree, 2, 1);
    let report = again(&mut tree, 2, unknown);
    again(&mut tree, 2, SessionOp::Sync);
    let refused = tree.reply(2, report).result.map_err(|failure| failure.errno);
    assert_eq!(refused, Err(Errno::Stale));
    assert_eq!(tree.counted(0, "open_files"), 0);
}
