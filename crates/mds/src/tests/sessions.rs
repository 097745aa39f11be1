//! Sessions through connections: who is welcome, and which requests are executed once.

use types::{ClientId, ConnId, Cred, Epoch, Ino, Seq, Tid};
use wire::{Answer, ChangeOp, Hello, Message, NewInode, Op, Request, SessionOp, Welcome};

use super::Cluster;
use super::cluster::{FILE, Notice};
use super::fixture::Tree;
use crate::MdsInput;

fn create(name: &[u8]) -> Op<'_> {
    let new = NewInode { mode: FILE, ..NewInode::default() };
    Op::Change(ChangeOp::Create { parent: Ino::ROOT, name, new })
}

fn welcomes(cluster: &Cluster) -> Vec<Welcome> {
    let all = cluster.notices.iter().filter_map(|(_, notice)| match notice {
        Notice::Welcome(welcome) => Some(*welcome),
        Notice::Recall(_) | Notice::Revoke(_) | Notice::Moved(..) => None,
    });
    all.collect()
}

#[test]
fn a_client_is_welcomed_with_the_term_of_the_server() {
    let mut cluster = Cluster::new();
    cluster.connect(1);
    let expected = Welcome { epoch: Epoch(1), ..Welcome::default() };
    assert_eq!(welcomes(&cluster), [expected]);
}

#[test]
fn a_client_without_a_number_is_not_welcome() {
    let mut cluster = Cluster::new();
    cluster.connect(0);
    assert!(welcomes(&cluster).is_empty());
    assert_eq!(cluster.closed, [0]);
}

#[test]
fn a_connection_is_of_one_client() {
    let mut cluster = Cluster::new();
    cluster.connect(1);
    let conn = cluster.conn(1, 0);
    let hello = Hello { client: ClientId(2), ..Hello::default() };
    cluster.input(0, MdsInput::Message(conn, Message::Hello(hello)));
    assert_eq!((welcomes(&cluster).len(), cluster.closed.as_slice()), (1, &[1][..]));
}

#[test]
fn a_request_before_a_hello_closes_the_connection() {
    let mut cluster = Cluster::new();
    let request = Request::new(Tid(1), Tid(0), Cred::root(), create(b"a"));
    cluster.input(0, MdsInput::Message(ConnId(9), Message::Request(request)));
    assert_eq!(cluster.closed.len(), 1);
    assert_eq!(cluster.mds(0).namespace().inodes(), 1, "the root");
}

#[test]
fn a_message_that_clients_do_not_send_closes_the_connection() {
    let mut cluster = Cluster::new();
    cluster.connect(1);
    let conn = cluster.conn(1, 0);
    cluster.input(0, MdsInput::Message(conn, Message::Stop));
    assert_eq!(cluster.closed, [1]);
}

#[test]
fn a_second_connection_of_a_client_closes_the_first() {
    let mut cluster = Cluster::new();
    cluster.connect(1);
    let first = cluster.conn(1, 0);
    cluster.connect(1);
    assert_ne!(cluster.conn(1, 0), first);
    assert_eq!(cluster.closed.len(), 1);
    assert_eq!(cluster.counted(0, "sessions"), 1);
}

#[test]
fn a_welcome_names_the_newest_request_that_is_done() {
    let mut cluster = Cluster::new();
    cluster.connect(1);
    let tid = cluster.ask(1, create(b"a"));
    cluster.reply(1, tid);
    cluster.disconnect(1);
    cluster.connect(1);
    assert_eq!(welcomes(&cluster)[1].completed, tid);
}

#[test]
fn a_repeated_create_returns_the_first_inode() {
    let mut cluster = Cluster::new();
    cluster.connect(1);
    let tid = cluster.ask(1, create(b"a"));
    let first = cluster.reply(1, tid);
    cluster.replies.clear();
    cluster.send(1, 0, Request::new(tid, Tid(0), Cred::root(), create(b"a")));
    let again = cluster.reply(1, tid);
    assert_eq!((again.result, again.seq, again.time), (first.result, first.seq, first.time));
    assert_eq!(cluster.names(Ino::ROOT), ["a"]);
}

#[test]
fn a_repeated_create_returns_its_inode_after_a_removal() {
    let mut cluster = Cluster::new();
    cluster.connect(1);
    let tid = cluster.ask(1, create(b"a"));
    let Ok(Answer::Attr(attr)) = cluster.reply(1, tid).result else { panic!() };
    cluster.answer(Op::Change(ChangeOp::Unlink { parent: Ino::ROOT, name: b"a" })).unwrap();
    cluster.replies.clear();
    cluster.send(1, 0, Request::new(tid, Tid(0), Cred::root(), create(b"a")));
    assert_eq!(cluster.reply(1, tid).result, Ok(Answer::Attr(attr)));
    assert!(cluster.names(Ino::ROOT).is_empty(), "the file is not created again");
}

#[test]
fn a_repeated_removal_is_done() {
    let mut tree = Tree::new();
    let op = Op::Change(ChangeOp::Unlink { parent: tree.dir, name: b"file" });
    let tid = tree.ask(1, op);
    assert_eq!(tree.reply(1, tid).result, Ok(Answer::Done));
    let dir = tree.dir;
    tree.file(dir, "file");
    tree.replies.clear();
    tree.send(1, 0, Request::new(tid, Tid(0), Cred::root(), op));
    assert_eq!(tree.reply(1, tid).result, Ok(Answer::Done));
    assert!(tree.lookup(dir, "file").is_ok(), "the new file stays");
}

#[test]
fn a_refused_request_is_executed_when_it_comes_again() {
    let mut cluster = Cluster::new();
    cluster.connect(1);
    let op = Op::Change(ChangeOp::Unlink { parent: Ino::ROOT, name: b"a" });
    let tid = cluster.ask(1, op);
    assert!(cluster.reply(1, tid).result.is_err());
    cluster.file(Ino::ROOT, "a");
    cluster.replies.clear();
    cluster.send(1, 0, Request::new(tid, Tid(0), Cred::root(), op));
    assert_eq!(cluster.reply(1, tid).result, Ok(Answer::Done));
}

#[test]
fn a_client_that_is_gone_has_no_session() {
    let mut cluster = Cluster::new();
    cluster.connect(1);
    cluster.connect(2);
    cluster.disconnect(1);
    assert_eq!(cluster.counted(0, "sessions"), 1);
}

#[test]
fn the_first_change_of_a_client_is_answered_when_it_is_durable() {
    let mut cluster = Cluster::new();
    cluster.connect(1);
    cluster.holds = |op| matches!(op, metastore::request::StoreOp::Append { .. });
    let tid = cluster.ask(1, create(b"a"));
    cluster.pass(20);
    assert!(!cluster.is_answered(1, tid), "a crash would leave no trace of the client");
    cluster.let_go();
    assert!(cluster.reply(1, tid).result.is_ok());
}

#[test]
fn a_later_change_of_a_client_is_answered_when_it_is_applied() {
    let mut cluster = Cluster::new();
    cluster.connect(1);
    cluster.file(Ino::ROOT, "a");
    cluster.holds = |op| matches!(op, metastore::request::StoreOp::Append { .. });
    let tid = cluster.ask(1, create(b"b"));
    let reply = cluster.reply(1, tid);
    assert!(reply.seq > reply.safe);
}

#[test]
fn a_fenced_client_is_not_welcome() {
    let mut cluster = Cluster::new();
    cluster.mds_mut().tables.fenced.insert(ClientId(3));
    cluster.connect(3);
    assert!(welcomes(&cluster)[0].fenced);
    assert_eq!(cluster.closed, [3]);
}

#[test]
fn a_settled_client_knows_the_position_of_its_newest_asynchronous_change() {
    let mut cluster = Cluster::new();
    cluster.connect(1);
    let tid = cluster.ask(1, Op::Session(SessionOp::AwaitAsync));
    let reply = cluster.reply(1, tid);
    assert_eq!((reply.result, reply.seq), (Ok(Answer::Done), Seq(0)));
}
