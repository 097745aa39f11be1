//! Renames into a directory that another rank serves: one request, and one answer.

use metastore::request::StoreOp;
use types::{Cred, Epoch, Errno, Ino, Rank, Tid};
use wire::{Answer, Op, Request};

use crate::Settings;
use crate::tests::Cluster;

/// Two ranks: the first has the file `a`, the second one the directory.
struct Across {
    cluster: Cluster,
    file: Ino,
    dir: Ino,
}

impl Across {
    fn new() -> Self {
        let mut cluster = Cluster::with(Settings::default(), 2);
        cluster.connect(1);
        cluster.connect_to(1, 1, Epoch(0), 0);
        let dir = cluster.dir(Ino::ROOT, "dir");
        let file = cluster.file(Ino::ROOT, "a");
        cluster.answer(Op::Export { dir, rank: Rank(1) }).unwrap();
        cluster.until(|cluster| cluster.mds(1).serves(dir));
        Self { cluster, file, dir }
    }

    fn rename(&mut self, tid: Tid, no_replace: bool) {
        let (parent, name, new_parent, new_name) = (Ino::ROOT, &b"a"[..], self.dir, &b"b"[..]);
        let op = Op::RenameTo { parent, name, new_parent, new_name, no_replace, to: Rank(1) };
        self.cluster.send(1, 0, Request::new(tid, Tid(tid.0 - 1), Cred::root(), op));
    }

    fn renamed(&mut self, tid: Tid) -> Result<Answer, Errno> {
        self.cluster.reply(1, tid).result.map_err(|failure| failure.errno)
    }

    /// The inode under the new name, by the second rank.
    fn found(&mut self) -> Result<Ino, Errno> {
        let tid = self.cluster.tid();
        let op = Op::Lookup { parent: self.dir, name: b"b" };
        self.cluster.send(1, 1, Request::new(tid, Tid(0), Cred::root(), op));
        match self.cluster.reply(1, tid).result {
            Ok(Answer::Attr(attr)) => Ok(attr.ino),
            Ok(other) => panic!("{other:?} is no answer to a lookup"),
            Err(failure) => Err(failure.errno),
        }
    }

    /// The first server dies, and the client sends the request to the next one.
    fn crash_and_repeat(&mut self, tid: Tid) -> Result<Answer, Errno> {
        self.cluster.crash(0);
        self.cluster.let_go();
        self.cluster.start(0);
        self.cluster.connect_to(1, 0, Epoch(1), 0);
        self.cluster.until(|cluster| cluster.mds(0).is_active());
        self.cluster.replies.clear();
        self.rename(tid, false);
        self.renamed(tid)
    }
}

#[test]
fn a_name_goes_to_the_other_rank() {
    let mut across = Across::new();
    let tid = across.cluster.tid();
    across.rename(tid, false);
    assert_eq!(across.renamed(tid), Ok(Answer::Done));
    assert_eq!(across.found(), Ok(across.file));
    assert_eq!(across.cluster.lookup(Ino::ROOT, "a"), Err(Errno::NotFound));
}

#[test]
fn a_repeated_rename_is_executed_once() {
    let mut across = Across::new();
    let tid = across.cluster.tid();
    across.rename(tid, false);
    assert_eq!(across.renamed(tid), Ok(Answer::Done));
    across.cluster.replies.clear();
    across.rename(tid, false);
    assert_eq!(across.renamed(tid), Ok(Answer::Done));
    across.cluster.pass(500);
    assert_eq!(across.crash_and_repeat(tid), Ok(Answer::Done));
    assert_eq!(across.found(), Ok(across.file));
}

#[test]
fn a_rename_that_no_journal_has_yet_is_executed_once() {
    let mut across = Across::new();
    across.cluster.pass(100);
    across.cluster.holds = |op| matches!(op, StoreOp::Append { .. });
    let tid = across.cluster.tid();
    across.rename(tid, false);
    assert_eq!(across.renamed(tid), Ok(Answer::Done));
    assert_eq!(across.crash_and_repeat(tid), Ok(Answer::Done));
    assert_eq!(across.found(), Ok(across.file));
}

#[test]
fn a_name_that_the_other_rank_rejects_stays() {
    let mut across = Across::new();
    let first = across.cluster.tid();
    across.rename(first, false);
    across.renamed(first).unwrap();
    across.file = across.cluster.file(Ino::ROOT, "a");
    let tid = across.cluster.tid();
    across.rename(tid, true);
    assert_eq!(across.renamed(tid), Err(Errno::Exists));
    assert_eq!(across.cluster.lookup(Ino::ROOT, "a"), Ok(across.file));
}

#[test]
fn a_name_stays_if_the_other_rank_does_not_answer() {
    let mut across = Across::new();
    across.cluster.crash(1);
    let tid = across.cluster.tid();
    across.rename(tid, false);
    assert_eq!(across.renamed(tid), Err(Errno::Again));
    assert_eq!(across.cluster.lookup(Ino::ROOT, "a"), Ok(across.file));
}
