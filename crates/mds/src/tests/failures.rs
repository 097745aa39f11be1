//! A store that fails, is full or read-only, and damaged objects.

use metastore::request::StoreOp;
use types::{Errno, Ino, Rank};
use wire::{AdminOp, Answer, ChangeOp, JobOp, Message, Op, RankOp, ReadOp, SessionOp};

use super::Cluster;
use super::fixture::Tree;
use crate::health::HealthCx;
use crate::{MdsInput, Room, Settings};

fn fails_appends(errno: Errno) -> fn(&StoreOp) -> Option<Errno> {
    match errno {
        Errno::NoSpace => |op| matches!(op, StoreOp::Append { .. }).then_some(Errno::NoSpace),
        Errno::Stale => |op| matches!(op, StoreOp::Append { .. }).then_some(Errno::Stale),
        _ => |op| matches!(op, StoreOp::Append { .. }).then_some(Errno::Io),
    }
}

/// A tree whose journal cannot be written.
fn unwritten(errno: Errno) -> Tree {
    let mut tree = Tree::new();
    tree.pass(20);
    tree.fails = fails_appends(errno);
    let dir = tree.dir;
    tree.file(dir, "a");
    tree.pass(10);
    tree
}

#[test]
fn changes_are_refused_while_the_journal_cannot_be_written() {
    let mut tree = unwritten(Errno::Io);
    let op = Op::Change(ChangeOp::Unlink { parent: tree.dir, name: b"a" });
    assert_eq!(tree.refusal(op), Some(Errno::Io));
}

#[test]
fn reading_goes_on_while_the_journal_cannot_be_written() {
    let mut tree = unwritten(Errno::Io);
    let dir = tree.dir;
    assert!(tree.lookup(dir, "a").is_ok());
}

#[test]
fn a_failed_write_of_the_journal_is_repeated_in_another_segment() {
    let mut tree = unwritten(Errno::Io);
    let before = tree.store.names("journal/mds.0000/").len();
    tree.fails = |_| None;
    tree.pass(600);
    assert_eq!(tree.store.names("journal/mds.0000/").len(), before + 1);
    let op = Op::Change(ChangeOp::Unlink { parent: tree.dir, name: b"a" });
    assert_eq!(tree.refusal(op), None);
}

#[test]
fn a_sync_fails_while_the_journal_cannot_be_written() {
    let mut tree = unwritten(Errno::NoSpace);
    assert_eq!(tree.refusal(Op::Session(SessionOp::Sync)), Some(Errno::NoSpace));
}

#[test]
fn a_server_that_the_store_has_shut_out_gives_up() {
    let tree = unwritten(Errno::Stale);
    assert_eq!(tree.fatal.as_ref().map(|error| error.errno), Some(Errno::Stale));
}

#[test]
fn an_acknowledged_event_survives_a_failed_write_and_a_crash() {
    let mut tree = unwritten(Errno::Io);
    let dir = tree.dir;
    tree.fails = |_| None;
    tree.pass(600);
    tree.answer(Op::Session(SessionOp::Sync)).unwrap();
    tree.crash(0);
    tree.start(0);
    tree.connect(1);
    tree.until(|tree| tree.mds(0).is_active());
    tree.answer(Op::Read(ReadOp::Walk { base: Ino::ROOT, path: b"/dir" })).unwrap();
    assert!(tree.lookup(dir, "a").is_ok());
}

#[test]
fn a_full_store_takes_removals_only() {
    let mut tree = Tree::new();
    let room = Room { total: 100, available: 0, ..Room::default() };
    tree.input(0, MdsInput::Room(room));
    let dir = tree.dir;
    assert_eq!(tree.create_refusal(&types::Cred::root(), dir, b"a"), Some(Errno::NoSpace));
    assert_eq!(tree.refusal(Op::Change(ChangeOp::Unlink { parent: dir, name: b"file" })), None);
    assert!(tree.lookup(dir, "link").is_ok());
}

#[test]
fn a_store_with_room_again_takes_all_changes() {
    let mut tree = Tree::new();
    let full = Room { total: 100, available: 0, ..Room::default() };
    tree.input(0, MdsInput::Room(full));
    tree.input(0, MdsInput::Room(Room { available: 50, ..full }));
    let dir = tree.dir;
    assert_eq!(tree.create_refusal(&types::Cred::root(), dir, b"a"), None);
}

#[test]
fn a_read_only_server_refuses_changes() {
    let mut tree = Tree::new();
    tree.checkpoint();
    tree.stop(0);
    tree.settings.read_only = true;
    tree.start(0);
    tree.connect(1);
    tree.until(|tree| tree.mds(0).is_active());
    tree.answer(Op::Read(ReadOp::Walk { base: Ino::ROOT, path: b"/dir/file" })).unwrap();
    let (dir, ino) = (tree.dir, tree.file);
    let op = Op::Change(ChangeOp::Unlink { parent: dir, name: b"file" });
    assert_eq!(tree.refusal(op), Some(Errno::ReadOnly));
    assert_eq!(
        tree.refusal(Op::Session(SessionOp::Open { ino, write: true })),
        Some(Errno::ReadOnly)
    );
    assert_eq!(tree.refusal(Op::Session(SessionOp::Open { ino, write: false })), None);
    assert_eq!(
        tree.refusal(Op::Change(ChangeOp::Accessed { ino, at: types::Timestamp(i64::MAX) })),
        None
    );
}

#[test]
fn a_server_with_a_damaged_table_gives_up() {
    let mut cluster = Cluster::new();
    cluster.stop(0);
    let object = metastore::request::rank_name(Rank(0));
    let condition = metastore::request::Condition::Any;
    let data = b"damaged".to_vec();
    cluster.store.execute(StoreOp::Put { object, data, condition });
    cluster.start(0);
    assert_eq!(cluster.fatal.map(|error| error.errno), Some(Errno::BadMessage));
}

#[test]
fn a_server_whose_table_another_server_replaced_gives_up() {
    let mut tree = Tree::new();
    let object = metastore::request::rank_name(Rank(0));
    let mut other = crate::tables::Tables::new(Rank(0));
    let data = tree.store.object(&object).unwrap().to_vec();
    let data = other.take_over(Some((&data, 1))).unwrap();
    let condition = metastore::request::Condition::Any;
    tree.store.execute(StoreOp::Put { object, data, condition });
    tree.ask(1, Op::Job(JobOp::Extend { subtree: Ino(0), count: 10 }));
    tree.pass(10);
    assert_eq!(tree.fatal.as_ref().map(|error| error.errno), Some(Errno::Stale));
}

#[test]
fn a_directory_that_cannot_be_read_fails_its_requests() {
    let mut tree = Tree::new();
    tree.checkpoint();
    tree.stop(0);
    tree.start(0);
    tree.connect(1);
    tree.until(|tree| tree.mds(0).is_active());
    tree.fails = |op| matches!(op, StoreOp::LookUp { .. }).then_some(Errno::Io);
    let op = Op::Read(ReadOp::Walk { base: Ino::ROOT, path: b"/dir" });
    assert_eq!(tree.refusal(op), Some(Errno::Io));
    tree.fails = |_| None;
    assert_eq!(tree.refusal(op), None);
}

#[test]
fn a_damaged_directory_fails_its_requests_and_is_reported() {
    let mut tree = Tree::new();
    tree.checkpoint();
    tree.stop(0);
    tree.start(0);
    tree.connect(1);
    tree.until(|tree| tree.mds(0).is_active());
    tree.fails = |op| matches!(op, StoreOp::LookUp { .. }).then_some(Errno::BadMessage);
    let op = Op::Read(ReadOp::Walk { base: Ino::ROOT, path: b"/dir" });
    assert_eq!(tree.refusal(op), Some(Errno::Io));
    let warnings = HealthCx::of(tree.mds(0)).warnings();
    assert_eq!(warnings.first().map(|it| it.code.as_str()), Some("DIRECTORY_DAMAGED"));
}

#[test]
fn a_server_stops_although_a_damaged_directory_keeps_its_journal() {
    let settings = Settings { segments_max: 2, segment_bytes_max: 512, ..Settings::default() };
    let mut tree = Tree::on(Cluster::with(settings, 1));
    assert_eq!(tree.dir.0, 1 << 40, "the directory that is damaged below");
    tree.fails = |op| match op {
        StoreOp::CommitDir { ino: Ino(ino), .. } if *ino == 1 << 40 => Some(Errno::BadMessage),
        _ => None,
    };
    for number in 0..100 {
        tree.file(Ino::ROOT, &format!("{number}"));
        tree.pass(20);
    }
    assert!(tree.counted(0, "journal_segments") > 2, "the journal is kept");
    // The root is being written, and has changed since, when the order to stop comes.
    tree.holds = |op| matches!(op, StoreOp::CommitDir { ino: Ino::ROOT, .. });
    tree.file(Ino::ROOT, "written");
    tree.ask(1, Op::Admin(AdminOp::Checkpoint));
    tree.pass(20);
    tree.file(Ino::ROOT, "last");
    tree.input(0, MdsInput::FromMonitor(Message::Stop));
    tree.pass(20);
    tree.let_go();
    tree.stop(0);
}

#[test]
fn a_checkpoint_is_repeated_when_the_store_fails() {
    let mut tree = Tree::new();
    let dir = tree.dir;
    tree.fails = |op| matches!(op, StoreOp::CommitDir { .. }).then_some(Errno::Io);
    let tid = tree.ask(1, Op::Admin(AdminOp::Checkpoint));
    tree.pass(100);
    assert!(!tree.is_answered(1, tid));
    tree.fails = |_| None;
    assert!(matches!(tree.reply(1, tid).result, Ok(Answer::Safe(_))));
    assert_eq!(tree.store.names_in(dir).len(), 4);
}

#[test]
fn a_purge_is_repeated_when_the_store_fails() {
    let mut tree = Tree::new();
    let (dir, ino) = (tree.dir, tree.file);
    tree.answer(Op::Change(ChangeOp::SetData { ino, data: b"", size: 10 << 20 })).unwrap();
    tree.fails = |op| matches!(op, StoreOp::PurgeData { .. }).then_some(Errno::Io);
    tree.answer(Op::Change(ChangeOp::Unlink { parent: dir, name: b"file" })).unwrap();
    tree.pass(1000);
    assert_eq!((tree.counted(0, "purged"), tree.counted(0, "purges_waiting")), (0, 1));
    tree.fails = |_| None;
    tree.until(|tree| tree.counted(0, "purged") == 1);
}

#[test]
fn slow_writes_of_the_journal_are_reported() {
    let mut tree = Tree::new();
    let dir = tree.dir;
    tree.holds = |op| matches!(op, StoreOp::Append { .. });
    tree.file(dir, "a");
    tree.pass(5100);
    let warnings = HealthCx::of(tree.mds(0)).warnings();
    assert_eq!(warnings.first().map(|it| it.code.as_str()), Some("STORE_SLOW"));
    tree.let_go();
    assert!(HealthCx::of(tree.mds(0)).warnings().is_empty());
}

#[test]
fn a_private_server_refuses_what_concerns_the_namespace_around_it() {
    let private = crate::Private { numbers: types::InoRange { start: 1, end: 2 }, above: vec![] };
    let settings = Settings { private: Some(private), ..Settings::default() };
    let mut tree = Tree::on(Cluster::with(settings, 1));
    let dir = tree.dir;
    assert_eq!(
        tree.refusal(Op::Admin(AdminOp::Snapshot { dir, id: 1 })),
        Some(Errno::NotSupported)
    );
    assert_eq!(
        tree.refusal(Op::Rank(RankOp::Export { dir, rank: Rank(1) })),
        Some(Errno::NotSupported)
    );
}

#[test]
fn a_private_server_writes_no_content_that_its_job_has_not_made() {
    let private = crate::Private { numbers: types::InoRange { start: 1, end: 2 }, above: vec![] };
    let settings = Settings { private: Some(private), ..Settings::default() };
    let mut tree = Tree::on(Cluster::with(settings, 1));
    let ino = tree.file;
    assert_eq!(
        tree.refusal(Op::Session(SessionOp::Open { ino, write: true })),
        Some(Errno::ReadOnly)
    );
    assert_eq!(tree.refusal(Op::Session(SessionOp::Open { ino, write: false })), None);
    assert_eq!(tree.refusal(Op::Change(ChangeOp::Grow { ino, size: 9 })), Some(Errno::ReadOnly));
}

#[test]
fn a_private_server_changes_no_directory_above_its_branch() {
    let numbers = types::InoRange { start: 1, end: u64::MAX };
    let private = crate::Private { numbers, above: vec![Ino::ROOT] };
    let settings = Settings { private: Some(private), ..Settings::default() };
    let mut cluster = Cluster::with(settings, 1);
    cluster.connect(1);
    let new = wire::NewInode { mode: super::cluster::FILE, ..wire::NewInode::default() };
    let op = Op::Change(ChangeOp::Create { parent: Ino::ROOT, name: b"a", new });
    assert_eq!(cluster.answer(op), Err(Errno::NotPermitted));
}
