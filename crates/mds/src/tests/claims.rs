//! Numbers of inodes that a client says it was given.

use journal::{Create, Event, InodeSnapshot};
use metastore::request::StoreOp;
use types::{Attr, ClientId, Cred, Epoch, Errno, Ino, Tid, Timestamp};
use wire::{Answer, SessionOp, UnusedNumbers};
use wire::{ChangeOp, JobOp, MergeFlags, Message, NewInode, Op, ReadOp, Replay, Request};

use super::cluster::{DIR, FILE};
use super::fixture::{Tree, guest, log_of};
use crate::MdsInput;

/// Two clients of the guest.
const FIRST: ClientId = ClientId::of_user(7, 3);
const SECOND: ClientId = ClientId::of_user(7, 4);

/// The next server, which knows that all clients before have left.
fn restart(tree: &mut Tree) {
    tree.start(0);
    tree.connect(1);
    tree.pass(10_000);
    assert!(tree.mds(0).is_active());
}

fn create(parent: Ino, name: &str, mode: u32) -> Op<'_> {
    let new = NewInode { mode, ..NewInode::default() };
    Op::Change(ChangeOp::Create { parent, name: name.as_bytes(), new })
}

/// A client of the guest creates something, and says so if it was answered before.
fn ask(
    tree: &mut Tree,
    client: ClientId,
    replay: Option<Replay>,
    op: Op<'_>,
) -> Result<Attr, Errno> {
    let tid = tree.tid();
    let request = Request::new(tid, Tid(0), guest(), op);
    tree.send(client.0, 0, Request { replay, ..request });
    match tree.reply(client.0, tid).result {
        Ok(Answer::Attr(attr)) => Ok(attr),
        Ok(other) => panic!("{other:?} is no inode"),
        Err(failure) => Err(failure.errno),
    }
}

fn claim(ino: Ino) -> Option<Replay> {
    Some(Replay { ino, ..Replay::default() })
}

#[test]
fn a_user_does_not_claim_the_number_of_an_inode_that_only_the_store_has() {
    for mode in [DIR | 0o777, FILE | 0o666] {
        let mut tree = Tree::new();
        let ino = if mode & DIR == DIR { tree.full } else { tree.file };
        tree.stop(0);
        restart(&mut tree);
        tree.connect_user(FIRST, Epoch(0), 0);
        let got = tree.answer(Op::Read(ReadOp::GetAttr { ino }));
        assert_eq!(got, Err(Errno::Stale), "it is found by name only");
        tree.answer(Op::Read(ReadOp::Walk { base: Ino::ROOT, path: b"/open" })).unwrap();
        let op = create(tree.open, "stolen", mode);
        assert_eq!(ask(&mut tree, FIRST, claim(ino), op), Err(Errno::Stale));
        let open = tree.open;
        assert_eq!(tree.names(open), [""; 0]);
    }
}

#[test]
fn a_user_claims_the_number_that_an_answer_had_before_a_crash() {
    let mut tree = Tree::new();
    let open = tree.open;
    tree.connect_user(FIRST, Epoch(0), 0);
    // From now on the journal knows the client.
    ask(&mut tree, FIRST, None, create(open, "first", FILE)).unwrap();
    tree.answer(Op::Session(SessionOp::Sync)).unwrap();
    tree.holds = |op| matches!(op, StoreOp::Append { .. });
    let lost = ask(&mut tree, FIRST, None, create(open, "a", FILE)).unwrap();
    tree.crash(0);
    restart(&mut tree);
    tree.connect_user(FIRST, Epoch(1), 1);
    tree.answer(Op::Read(ReadOp::Walk { base: Ino::ROOT, path: b"/open" })).unwrap();
    let again = ask(&mut tree, FIRST, claim(lost.ino), create(open, "a", FILE)).unwrap();
    assert_eq!(again.ino, lost.ino);
    // The numbers that wait to be used are nobody's.
    let next = ask(&mut tree, FIRST, None, create(open, "b", FILE)).unwrap();
    let unused = claim(Ino(next.ino.0 + 1));
    assert_eq!(ask(&mut tree, FIRST, unused, create(open, "c", FILE)), Err(Errno::Stale));
}

/// The first create of a user needs a put of the rank's table.
#[test]
fn the_first_create_of_a_user_waits_for_a_store_that_fails() {
    let mut tree = Tree::new();
    let open = tree.open;
    tree.connect_user(FIRST, Epoch(0), 0);
    tree.fails = |op| matches!(op, StoreOp::Put { .. }).then_some(Errno::Io);
    let tid = tree.tid();
    tree.send(FIRST.0, 0, Request::new(tid, Tid(0), guest(), create(open, "a", FILE)));
    tree.pass(3_000);
    assert!(!tree.is_answered(FIRST.0, tid));
    // A client that speaks for every user does not wait for that.
    let op = create(open, "b", FILE);
    tree.answer(op).unwrap();
    tree.fails = |_| None;
    let answer = tree.reply(FIRST.0, tid).result;
    assert!(matches!(answer, Ok(Answer::Attr(_))), "{answer:?}");
    assert_eq!(tree.names(open), ["a", "b"]);
}

/// A user may claim a number again that the user has given to a file which is in the store by now.
/// It harms the user alone.
#[test]
fn a_server_survives_a_user_that_gives_a_number_twice() {
    let mut tree = Tree::new();
    let open = tree.open;
    tree.connect_user(FIRST, Epoch(0), 0);
    let dir = ask(&mut tree, FIRST, None, create(open, "dir", DIR)).unwrap().ino;
    let file = ask(&mut tree, FIRST, None, create(dir, "file", FILE)).unwrap().ino;
    tree.answer(Op::Session(SessionOp::Sync)).unwrap();
    tree.crash(0);
    restart(&mut tree);
    tree.stop(0);
    restart(&mut tree);
    tree.connect_user(SECOND, Epoch(1), 1);
    attr_of(&mut tree, b"/open");
    let again = ask(&mut tree, SECOND, claim(file), create(open, "again", FILE));
    assert_eq!(again.unwrap().ino, file, "the directory is not in memory");
    let paths: [&[u8]; 3] = [b"/open/again", b"/open/dir", b"/open/dir/file"];
    for path in paths {
        let _ = tree.answer(Op::Read(ReadOp::Walk { base: Ino::ROOT, path }));
    }
    tree.names(open);
    for (parent, name) in [(dir, &b"file"[..]), (open, b"again"), (open, b"dir")] {
        let remove = ChangeOp::Unlink { parent, name };
        let _ = tree.answer(Op::Change(remove));
        let _ = tree.answer(Op::Change(ChangeOp::Rmdir { parent, name }));
    }
    tree.checkpoint();
    tree.stop(0);
    restart(&mut tree);
    assert_eq!(attr_of(&mut tree, b"/dir/full").ino, tree.full, "others are as before");
}

/// The log of a client, which another client of the same user merges.
fn merge(tree: &mut Tree, client: ClientId, events: &[Event<'_>]) -> wire::MergeReport {
    let subtree = tree.open;
    let bytes = log_of(client, subtree, events);
    let (length, unused) = (bytes.len() as u64, UnusedNumbers::default());
    let flags = MergeFlags { strong_log: true, ..MergeFlags::default() };
    let op = Op::Job(JobOp::Merge { subtree, bytes: length, object: b"", flags, unused });
    let tid = tree.tid();
    tree.send(client.0, 0, Request::new(tid, Tid(0), guest(), op));
    let conn = tree.conn(client.0, 0);
    tree.input(0, MdsInput::Message(conn, Message::Chunk { tid, bytes: &bytes }));
    tree.settle();
    match tree.reply(client.0, tid).result {
        Ok(Answer::Merged(report)) => *report,
        other => panic!("{other:?} is no merge"),
    }
}

fn logged<'a>(parent: Ino, name: &'a str, ino: Ino, mode: u32) -> Event<'a> {
    let Cred { uid, gid, .. } = guest();
    let times = Create { time: Timestamp(5), ..Create::default() };
    Event::Create(Create { parent, name: name.as_bytes(), ino, mode, uid, gid, ..times })
}

#[test]
fn a_log_has_the_numbers_of_its_user_only() {
    let mut tree = Tree::new();
    let (open, full, file) = (tree.open, tree.full, tree.file);
    tree.set_policy("/open", "consistency: rpcs+local_persist\n").unwrap();
    let stolen = attr_of(&mut tree, b"/dir/file");
    // The journal has no trace of the inodes any more.
    tree.stop(0);
    restart(&mut tree);
    attr_of(&mut tree, b"/open");
    tree.connect_user(FIRST, Epoch(0), 0);
    let lost = ask(&mut tree, FIRST, None, create(open, "mine", FILE)).unwrap();
    tree.crash(0);
    restart(&mut tree);
    tree.connect_user(SECOND, Epoch(0), 0);
    let moved = InodeSnapshot { attr: Attr { uid: 7, ..stolen }, data: b"", extra: b"" };
    let (exchanged, replaced, time) = (None, Ino(0), Timestamp(6));
    let (parent, new_parent) = (open, open);
    let (name, new_name) = (b"a file".as_slice(), b"moved".as_slice());
    let report = merge(
        &mut tree,
        SECOND,
        &[
            logged(open, "mine", lost.ino, FILE),
            logged(open, "a tree", full, DIR | 0o777),
            logged(open, "a file", file, FILE),
            Event::Rename { parent, name, new_parent, new_name, moved, exchanged, replaced, time },
        ],
    );
    assert_eq!(report.created, 1, "{report:?}");
    assert_eq!(tree.names(open), ["mine"]);
    assert_eq!(attr_of(&mut tree, b"/dir/file"), stolen);
}

fn attr_of(tree: &mut Tree, path: &[u8]) -> Attr {
    match tree.answer(Op::Read(ReadOp::Walk { base: Ino::ROOT, path })) {
        Ok(Answer::Walked { attr: Some(attr), .. }) => attr,
        other => panic!("{other:?} is no inode"),
    }
}
