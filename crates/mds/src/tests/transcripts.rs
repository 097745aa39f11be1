//! Transcripts: what servers do in the main cases, step by step, in words. A change of the order of
//! messages, of writes or of events shows here. `UPDATE_EXPECT=1` accepts it; then read the
//! difference.

use expect_test::{ExpectFile, expect_file};
use journal::{Create, Event};
use types::{ClientId, Cred, Epoch, Ino, InoRange, Rank, RenameFlags, Span, Tid, Timestamp};
use wire::{
    Answer, ChangeOp, JobOp, MergeFlags, Message, NewInode, Op, RankOp, ReadOp, Replay, Request,
    SessionOp, UnusedNumbers,
};

use super::Cluster;
use super::cluster::FILE;
use super::fixture::client_journal;
use crate::{MdsInput, Settings};

/// A journal of a client that makes these files in a directory.
pub(crate) fn journal_of(dir: Ino, client: u64, epoch: Epoch, files: &[(&str, u64)]) -> Vec<u8> {
    let time = Timestamp(5);
    let new =
        Create { parent: dir, mode: FILE, time, mtime: time, atime: time, ..Create::default() };
    let mut events = Vec::new();
    for (name, ino) in files {
        events.push(Event::Create(Create { name: name.as_bytes(), ino: Ino(*ino), ..new }));
    }
    client_journal(ClientId(client), dir, epoch, &events)
}

fn compare(cluster: &Cluster, file: &ExpectFile) {
    file.assert_eq(&cluster.words.as_ref().expect("the steps were noted").text());
}

#[test]
fn a_create_is_answered_and_then_journalled() {
    let mut cluster = Cluster::new();
    cluster.note("A client creates a file in a new directory.");
    cluster.connect(1);
    let dir = cluster.dir(Ino::ROOT, "dir");
    cluster.file(dir, "a");
    cluster.note("The journal follows, and then the name is taken.");
    cluster.pass(10);
    let new = NewInode { mode: FILE, ..NewInode::default() };
    cluster.answer(Op::Change(ChangeOp::Create { parent: dir, name: b"a", new })).unwrap_err();
    cluster.note("The directories go to the metadata store.");
    cluster.checkpoint();
    compare(&cluster, &expect_file!["../../tests/transcripts/create.txt"]);
}

#[test]
fn a_rename_replaces_a_file_whose_content_is_purged() {
    let mut cluster = Cluster::new();
    cluster.connect(1);
    let dir = cluster.dir(Ino::ROOT, "dir");
    let old = cluster.file(dir, "old");
    cluster.answer(Op::Change(ChangeOp::Grow { ino: old, size: 10 })).unwrap();
    cluster.file(dir, "new");
    cluster.pass(50);
    cluster.note("A file takes the name of a file that has content in the object store.");
    let (from, to) = ((dir, &b"new"[..]), (Ino::ROOT, &b"moved"[..]));
    let flags = RenameFlags::default();
    let rename = |from: (Ino, &'static [u8]), to: (Ino, &'static [u8])| {
        Op::Change(ChangeOp::Rename {
            parent: from.0,
            name: from.1,
            new_parent: to.0,
            new_name: to.1,
            flags,
        })
    };
    cluster.answer(rename(from, to)).unwrap();
    cluster.answer(rename(to, (dir, b"old"))).unwrap();
    cluster.pass(10);
    cluster.note("A rename of a name that does not exist.");
    cluster.answer(rename(from, to)).unwrap_err();
    compare(&cluster, &expect_file!["../../tests/transcripts/rename.txt"]);
}

#[test]
fn a_merge_applies_the_journal_of_a_decoupled_client() {
    let mut cluster = Cluster::new();
    cluster.connect(1);
    cluster.connect(2);
    let dir = cluster.dir(Ino::ROOT, "job");
    cluster.pass(10);
    cluster.note("A client decouples a subtree.");
    let policy = b"consistency: append_client_journal+volatile_apply\ndurability: none\n\
                   interfere_policy: block\n";
    let op = Op::Job(JobOp::Decouple { path: b"/job", client: ClientId(1), policy });
    let Ok(Answer::Decoupled(given)) = cluster.monitor(op) else {
        panic!("not decoupled: {:?}", cluster.monitor)
    };
    cluster.note("Another client is kept out.");
    let tid = cluster.ask(2, Op::Read(ReadOp::List { dir, after: None, limit: 10, attrs: false }));
    cluster.reply(2, tid);
    cluster.note("The client merges its journal, and releases the subtree.");
    let InoRange { start, .. } = given.range;
    let bytes = journal_of(dir, 1, given.epoch, &[("a", start), ("b", start + 1)]);
    let flags = MergeFlags { release: true, ..MergeFlags::default() };
    let (length, unused) = (bytes.len() as u64, UnusedNumbers::default());
    let op = Op::Job(JobOp::Merge { subtree: dir, bytes: length, object: b"", flags, unused });
    let tid = cluster.ask(1, op);
    let conn = cluster.conn(1, 0);
    cluster.input(0, MdsInput::Message(conn, Message::Chunk { tid, bytes: &bytes }));
    cluster.settle();
    cluster.reply(1, tid).result.unwrap();
    let tid = cluster.ask(2, Op::Read(ReadOp::List { dir, after: None, limit: 10, attrs: false }));
    cluster.reply(2, tid).result.unwrap();
    compare(&cluster, &expect_file!["../../tests/transcripts/merge.txt"]);
}

#[test]
fn a_subtree_migrates_to_another_rank() {
    let mut cluster = Cluster::with(Settings::default(), 2);
    cluster.connect(1);
    cluster.connect_to(1, 1, Epoch(0), 0);
    let dir = cluster.dir(Ino::ROOT, "dir");
    cluster.file(dir, "a");
    cluster.pass(10);
    cluster.note("A user moves a directory to rank 1.");
    cluster.answer(Op::Rank(RankOp::Export { dir, rank: Rank(1) })).unwrap();
    cluster.until(|cluster| cluster.mds(1).serves(dir));
    cluster.note("Rank 0 redirects, and rank 1 answers.");
    cluster.answer(Op::Read(ReadOp::Lookup { parent: dir, name: b"a" })).unwrap();
    let tid = cluster.tid();
    let op = Op::Read(ReadOp::Lookup { parent: dir, name: b"a" });
    cluster.send(1, 1, Request::new(tid, Tid(0), Cred::root(), op));
    cluster.reply(1, tid).result.unwrap();
    compare(&cluster, &expect_file!["../../tests/transcripts/migrate.txt"]);
}

#[test]
fn a_new_server_takes_a_rank_over() {
    let mut cluster = Cluster::new();
    cluster.connect(1);
    let dir = cluster.dir(Ino::ROOT, "dir");
    cluster.pass(20);
    cluster.note("A file is created, and the server dies before the journal is written.");
    cluster.holds = |op| matches!(op, metastore::request::StoreOp::Append { .. });
    let tid = cluster.tid();
    let new = NewInode { mode: FILE, ..NewInode::default() };
    let op = Op::Change(ChangeOp::Create { parent: dir, name: b"a", new });
    cluster.send(1, 0, Request::new(tid, Tid(0), Cred::root(), op));
    let reply = cluster.reply(1, tid);
    let Ok(Answer::Attr(attr)) = reply.result else { panic!("not created") };
    cluster.crash(0);
    cluster.note("The next server recovers, and waits for the client.");
    cluster.start(0);
    cluster.connect_to(1, 0, Epoch(1), 1);
    cluster.note("The client sends the create again.");
    let replay = Replay { seq: reply.seq, ino: attr.ino, time: reply.time, stripe: attr.stripe };
    let again = Request::new(tid, Tid(0), Cred::root(), op);
    cluster.replies.clear();
    cluster.send(1, 0, Request { replay: Some(replay), ..again });
    let sync = Request::new(Tid(99), Tid(0), Cred::root(), Op::Session(SessionOp::Sync));
    cluster.send(1, 0, Request { replay: Some(Replay::default()), ..sync });
    cluster.until(|cluster| cluster.mds(0).is_active());
    assert!(cluster.reply(1, tid).result.is_ok());
    assert_eq!(cluster.lookup(dir, "a"), Ok(attr.ino));
    compare(&cluster, &expect_file!["../../tests/transcripts/fail-over.txt"]);
}

#[test]
fn a_balancer_moves_warm_directories() {
    let settings = Settings { balance_interval: Span::from_millis(300), ..Settings::default() };
    let mut cluster = Cluster::with(settings, 2);
    let name = "greedy-spill".to_owned();
    cluster.balancer = wire::BalancerEntry { version: 1, name, ..Default::default() };
    cluster.connect(1);
    let dirs = ["a", "b"].map(|name| cluster.dir(Ino::ROOT, name));
    (0..2).for_each(|rank| cluster.tell_map(rank));
    cluster.until(|cluster| cluster.counted(0, "balancer_ticks") == 1);
    cluster.note("A client makes files at rank 0, and none at rank 1.");
    for dir in dirs {
        for name in ["x", "y", "z"] {
            cluster.file(dir, name);
        }
    }
    cluster.until(|cluster| cluster.counted(0, "balancer_moves") > 0);
    cluster.until(|cluster| !cluster.mds(1).is_moving());
    compare(&cluster, &expect_file!["../../tests/transcripts/balancer.txt"]);
}
