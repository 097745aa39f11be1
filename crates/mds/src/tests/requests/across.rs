//! Renames and links between directories of two ranks: one request, and one answer.

use metastore::request::StoreOp;
use types::{Cred, Epoch, Errno, Ino, Rank, RenameFlags, Tid, Timestamp};
use wire::{Answer, ChangeOp, Failure, NewInode, Op, RankOp, ReadOp, Request, SessionOp};

use crate::Settings;
use crate::tests::Cluster;
use crate::tests::cluster::{FILE, user};
use crate::tests::fixture::LONG;

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
        cluster.answer(Op::Rank(RankOp::Export { dir, rank: Rank(1) })).unwrap();
        cluster.until(|cluster| cluster.mds(1).serves(dir));
        Self { cluster, file, dir }
    }

    fn rename(&mut self, tid: Tid, no_replace: bool) {
        let (parent, name, new_parent, new_name) = (Ino::ROOT, &b"a"[..], self.dir, &b"b"[..]);
        let flags = RenameFlags { no_replace, exchange: false };
        let op = Op::Change(ChangeOp::Rename { parent, name, new_parent, new_name, flags });
        self.cluster.send(1, 0, Request::new(tid, Tid(tid.0 - 1), Cred::root(), op));
    }

    fn renamed(&mut self, tid: Tid) -> Result<Answer, Errno> {
        self.cluster.reply(1, tid).result.map_err(|failure| failure.errno)
    }

    /// The inode under the new name, by the second rank.
    fn found(&mut self) -> Result<Ino, Errno> {
        let parent = self.dir;
        match self.asked(1, &Cred::root(), Op::Read(ReadOp::Lookup { parent, name: b"b" })) {
            Ok(Answer::Attr(attr)) => Ok(attr.ino),
            Ok(other) => panic!("{other:?} is no answer to a lookup"),
            Err(failure) => Err(failure.errno),
        }
    }

    /// The answer of a rank.
    fn asked(&mut self, rank: usize, cred: &Cred, op: Op<'_>) -> Result<Answer, Failure> {
        let tid = self.cluster.tid();
        self.cluster.send(1, rank, Request::new(tid, Tid(tid.0 - 1), cred.clone(), op));
        self.cluster.reply(1, tid).result
    }

    /// The answer of a rank, or of the one that it refers to.
    fn followed(&mut self, rank: usize, op: Op<'_>) -> Result<Answer, Failure> {
        match self.asked(rank, &Cred::root(), op) {
            Ok(Answer::Redirect(to)) if to.root == Ino(0) => {
                self.asked(usize::from(to.rank.0), &Cred::root(), op)
            }
            result => result,
        }
    }

    /// A directory of the root, on this rank and without a pin.
    fn dir(&mut self, name: &str, rank: u16) -> Ino {
        let dir = self.cluster.dir(Ino::ROOT, name);
        if rank != 0 {
            self.cluster.answer(Op::Rank(RankOp::Export { dir, rank: Rank(rank) })).unwrap();
            self.cluster.until(|cluster| cluster.mds(usize::from(rank)).serves(dir));
            self.unpin(dir, usize::from(rank));
        }
        dir
    }

    fn unpin(&mut self, dir: Ino, rank: usize) {
        self.asked(rank, &Cred::root(), Op::Rank(RankOp::Export { dir, rank: Rank::NONE }))
            .unwrap();
    }

    /// A file in the directory of the second rank.
    fn there(&mut self, name: &[u8]) -> Ino {
        let new = NewInode { mode: FILE, ..NewInode::default() };
        let op = Op::Change(ChangeOp::Create { parent: self.dir, name, new });
        let Ok(Answer::Attr(attr)) = self.asked(1, &Cred::root(), op) else { panic!() };
        attr.ino
    }

    fn serves(&self, dir: Ino) -> Vec<usize> {
        (0..2).filter(|rank| self.cluster.mds(*rank).serves(dir)).collect()
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
fn the_answer_about_a_name_that_went_has_a_time() {
    // Without a time the client would keep the attributes of the file.
    let mut across = Across::new();
    let tid = across.cluster.tid();
    across.rename(tid, false);
    assert_ne!(across.cluster.reply(1, tid).time, Timestamp(0));
}

#[test]
fn of_two_renames_that_meet_none_waits_for_the_other_one() {
    let mut across = Across::new();
    let (dir, there) = (across.dir, across.there(b"c"));
    let (first, second) = (across.cluster.tid(), across.cluster.tid());
    across.rename(first, false);
    let flags = RenameFlags { no_replace: false, exchange: false };
    let (new_parent, new_name) = (Ino::ROOT, &b"d"[..]);
    let change = ChangeOp::Rename { parent: dir, name: b"c", new_parent, new_name, flags };
    let request = Request::new(second, Tid(second.0 - 1), Cred::root(), Op::Change(change));
    across.cluster.send(1, 1, request);
    let since = across.cluster.until(|it| it.is_answered(1, first) && it.is_answered(1, second));
    assert!(since < 1000, "{since} ms is a time-out");
    let answers = [first, second].map(|tid| across.renamed(tid));
    assert!(answers.contains(&Ok(Answer::Done)), "{answers:?}");
    assert!(answers.iter().all(|it| matches!(it, Ok(_) | Err(Errno::Again))), "{answers:?}");
    let found = [across.cluster.lookup(Ino::ROOT, "d"), across.found()];
    let went = |result: &Result<Answer, Errno>| result.is_ok();
    assert_eq!(found[0] == Ok(there), went(&answers[1]));
    assert_eq!(found[1] == Ok(across.file), went(&answers[0]));
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

#[test]
fn a_directory_that_the_first_rank_has_not_heard_of_is_found_by_the_servers() {
    let mut across = Across::new();
    // The second rank makes the directory, so the first one does not know its number.
    let new = NewInode { mode: crate::tests::cluster::DIR, ..NewInode::default() };
    let op = Op::Change(ChangeOp::Create { parent: across.dir, name: b"below", new });
    let Ok(Answer::Attr(below)) = across.asked(1, &Cred::root(), op) else { panic!() };
    across.dir = below.ino;
    let tid = across.cluster.tid();
    across.rename(tid, false);
    assert_eq!(across.renamed(tid), Ok(Answer::Done));
    assert_eq!(across.found(), Ok(across.file));
}

#[test]
fn a_link_brings_the_directory_of_the_new_name_to_the_file() {
    let mut across = Across::new();
    let (near, file) = (across.dir("near", 0), across.there(b"c"));
    let op = Op::Change(ChangeOp::Link { ino: file, parent: near, name: b"more" });
    assert_eq!(across.followed(0, op), Ok(Answer::Done));
    assert_eq!(across.serves(near), [1]);
    let op = Op::Read(ReadOp::GetAttr { ino: file });
    assert!(matches!(across.asked(1, &Cred::root(), op), Ok(Answer::Attr(it)) if it.nlink == 2));
}

#[test]
fn a_link_brings_the_directory_of_the_file_if_the_other_one_is_pinned() {
    let mut across = Across::new();
    let (near, far) = (across.dir("near", 0), across.dir);
    across.cluster.answer(Op::Rank(RankOp::Export { dir: near, rank: Rank(0) })).unwrap();
    let file = across.there(b"c");
    across.unpin(far, 1);
    let op = Op::Change(ChangeOp::Link { ino: file, parent: near, name: b"more" });
    assert_eq!(across.asked(0, &Cred::root(), op), Ok(Answer::Done));
    assert_eq!((across.serves(near), across.serves(far)), (vec![0], vec![0]));
}

#[test]
fn a_link_fails_with_both_reasons_if_neither_directory_moves() {
    let mut across = Across::new();
    let (near, file) = (across.dir("near", 0), across.there(b"c"));
    across.cluster.answer(Op::Rank(RankOp::Export { dir: near, rank: Rank(0) })).unwrap();
    let op = Op::Change(ChangeOp::Link { ino: file, parent: near, name: b"more" });
    let failure = across.asked(0, &Cred::root(), op).unwrap_err();
    assert_eq!(failure.errno, Errno::CrossDevice);
    assert!(failure.text.contains("/near is pinned"), "{}", failure.text);
    assert!(failure.text.contains("/dir is pinned"), "{}", failure.text);
}

#[test]
fn nothing_moves_for_a_link_that_cannot_be() {
    let mut across = Across::new();
    let (near, file, far) = (across.dir("near", 0), across.there(b"c"), across.dir);
    across.cluster.file(near, "used");
    let mut link = |ino, name, cred: &Cred| {
        let result = across.asked(0, cred, Op::Change(ChangeOp::Link { ino, parent: near, name }));
        result.map_err(|failure| failure.errno)
    };
    assert_eq!(link(file, b"used", &Cred::root()), Err(Errno::Exists));
    assert_eq!(link(far, b"free", &Cred::root()), Err(Errno::NotPermitted));
    assert_eq!(link(file, b"free", &user(7)), Err(Errno::Access));
    assert_eq!(link(file, b"a/b", &Cred::root()), Err(Errno::Invalid));
    assert_eq!((across.serves(near), across.serves(far)), (vec![0], vec![1]));
}

#[test]
fn a_file_that_clients_have_open_is_renamed_with_a_directory() {
    let mut across = Across::new();
    let (near, far) = (across.dir("near", 0), across.dir);
    across.unpin(far, 1);
    let file = across.cluster.file(near, "a");
    across.cluster.answer(Op::Session(SessionOp::Open { ino: file, write: true })).unwrap();
    let (flags, new_parent) = (RenameFlags::default(), far);
    let op = Op::Change(ChangeOp::Rename {
        parent: near,
        name: b"a",
        new_parent,
        new_name: b"b",
        flags,
    });
    assert_eq!(across.followed(0, op), Ok(Answer::Done));
    assert_eq!((across.serves(near), across.serves(far)), (vec![0], vec![0]));
}

#[test]
fn two_names_are_exchanged_when_one_rank_has_both() {
    let mut across = Across::new();
    let (near, far) = (across.dir("near", 0), across.dir);
    across.unpin(far, 1);
    let (ours, theirs) = (across.cluster.file(near, "ours"), across.there(b"theirs"));
    let flags = RenameFlags { exchange: true, no_replace: false };
    let mut exchange = |name, new_name| {
        let op =
            Op::Change(ChangeOp::Rename { parent: near, name, new_parent: far, new_name, flags });
        across.followed(0, op).map_err(|failure| failure.errno)
    };
    // Nothing moves for a name that does not exist.
    assert_eq!(exchange(b"absent", b"theirs"), Err(Errno::NotFound));
    assert_eq!(exchange(b"ours", b"absent"), Err(Errno::NotFound));
    assert_eq!(exchange(b"ours", b"theirs"), Ok(Answer::Done));
    assert_eq!(across.serves(far), [0]);
    assert_eq!(across.cluster.lookup(near, "ours"), Ok(theirs));
    assert_eq!(across.cluster.lookup(far, "theirs"), Ok(ours));
}

#[test]
fn a_directory_returns_to_the_rank_of_its_name_before_it_is_removed() {
    let mut across = Across::new();
    let away = across.dir("away", 1);
    let op = Op::Change(ChangeOp::Rmdir { parent: Ino::ROOT, name: b"away" });
    assert_eq!(across.asked(0, &Cred::root(), op), Ok(Answer::Done));
    assert_eq!(across.cluster.lookup(Ino::ROOT, "away"), Err(Errno::NotFound));
    assert!(!across.cluster.mds(0).namespace().knows(away));
}

#[test]
fn a_pinned_directory_is_not_removed_where_its_name_is() {
    let mut across = Across::new();
    let op = Op::Change(ChangeOp::Rmdir { parent: Ino::ROOT, name: b"dir" });
    let failure = across.asked(0, &Cred::root(), op).unwrap_err();
    assert_eq!(failure.errno, Errno::Busy);
    assert!(failure.text.contains("mds.1 serves /dir"), "{}", failure.text);
    assert!(failure.text.contains("/dir is pinned"), "{}", failure.text);
    assert_eq!(across.serves(across.dir), [1]);
}

#[test]
fn a_link_that_waits_for_another_rank_is_executed_once_whatever_its_client_does_meanwhile() {
    let mut across = Across::new();
    let (near, file) = (across.dir("near", 0), across.there(b"c"));
    across.cluster.holds =
        |op| matches!(op, StoreOp::Put { object, .. } if object == "mds/subtrees");
    let tid = across.cluster.tid();
    let link = Op::Change(ChangeOp::Link { ino: file, parent: near, name: b"more" });
    across.cluster.send(1, 0, Request::new(tid, Tid(tid.0 - 1), Cred::root(), link));
    // Later changes are answered first, so many that the server forgets their answers.
    for number in 0..1200 {
        across.cluster.file(Ino::ROOT, &format!("later{number}"));
    }
    assert!(!across.cluster.is_answered(1, tid));
    // The client sends the link again over a new connection.
    across.cluster.disconnect(1);
    across.cluster.connect(1);
    across.cluster.send(1, 0, Request::new(tid, Tid(tid.0 - 1), Cred::root(), link));
    across.cluster.let_go();
    let reply = across.cluster.reply(1, tid);
    assert!(matches!(&reply.result, Ok(Answer::Redirect(to)) if to.rank == Rank(1)), "{reply:?}");
    assert_eq!(across.serves(near), [1]);
}

#[test]
fn a_name_goes_to_a_legal_name_only() {
    let mut across = Across::new();
    let (flags, new_parent) = (RenameFlags::default(), across.dir);
    for (new_name, errno) in [(&b"a/b"[..], Errno::Invalid), (&LONG, Errno::NameTooLong)] {
        let op = Op::Change(ChangeOp::Rename {
            parent: Ino::ROOT,
            name: b"a",
            new_parent,
            new_name,
            flags,
        });
        assert_eq!(across.asked(0, &Cred::root(), op).unwrap_err().errno, errno);
    }
}
