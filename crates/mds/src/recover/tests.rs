#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "a test names the result that it awaits, and fails at every other"
)]

use journal::{Create, Event, JournalBuffer, SegmentHeader, Writer};
use metastore::request::{Condition, segment_name};
use metastore::{CROSS_RENAMES_PREFIX, Subtrees};
use types::{ClientId, Epoch, FileType, Origin};

use super::*;
use crate::CheckpointCx;
use crate::tables::Gone;

const DIR: Ino = Ino(1 << 41);

/// A server whose recovery gets its inputs one by one.
struct Replica {
    mds: Mds,
    effects: MdsEffects,
}

impl Replica {
    fn new(rank: u16) -> Self {
        let mds = Mds::new(Rank(rank), Settings::default());
        Self { mds, effects: MdsEffects::default() }
    }

    /// A server at a step.
    fn at(rank: u16, step: Step) -> Self {
        let mut replica = Self::new(rank);
        replica.mds.recovery.step = step;
        replica
    }

    fn give(&mut self, input: RecoveryInput) -> Result<Option<RecoveryNeed>> {
        self.effects = MdsEffects::default();
        let need = RecoveryCx::of(&mut self.mds).handle(input, &mut self.effects);
        self.mds.recovery.validate();
        need
    }

    fn stored(&mut self, result: StoreResult) -> Result<Option<RecoveryNeed>> {
        self.give(RecoveryInput::Stored(Ok(result)))
    }

    fn failed(&mut self, errno: Errno, op: StoreOp) -> Result<Option<RecoveryNeed>> {
        let error = damage(errno);
        self.give(RecoveryInput::Stored(Err(Box::new(StoreFailure { error, op }))))
    }

    /// The one store operation that the last input began.
    fn op(&mut self) -> StoreOp {
        let (_, op) = self.effects.store.pop().expect("an operation began");
        assert!(self.effects.store.is_empty(), "one operation at a time");
        op
    }

    /// The object that the last input reads.
    fn reads(&mut self) -> String {
        match self.op() {
            StoreOp::Get { object } => object,
            op => panic!("{op:?} is no read of an object"),
        }
    }

    /// The prefix of the names that the last input lists.
    fn lists(&mut self) -> String {
        match self.op() {
            StoreOp::List { prefix } => prefix,
            op => panic!("{op:?} is no list of names"),
        }
    }

    /// Lets the journal of one segment be replayed.
    fn replay(&mut self, events: &[Event<'_>]) -> Result<Option<RecoveryNeed>> {
        let name = segment_name(self.mds.rank, 0);
        self.mds.recovery.step = Step::ListSegments;
        let need = self.stored(StoreResult::Names(vec![name.clone()]));
        assert!(matches!(need, Ok(None)), "the segment is read first");
        assert_eq!(self.reads(), name);
        self.stored(StoreResult::Bytes(segment_of(events), 1))
    }

    fn step(&self) -> String {
        format!("{:?}", self.mds.recovery.step)
    }
}

fn damage(errno: Errno) -> Error {
    Error::new(errno, "the object", "the test says so")
}

fn segment_of(events: &[Event<'_>]) -> Vec<u8> {
    let writer = Writer::Mds { rank: Rank(0) };
    let header = SegmentHeader { writer, epoch: Epoch(1), first_seq: Seq(1) };
    let mut buffer = JournalBuffer::new(Seq(1), true);
    for event in events {
        buffer.append(Origin::default(), event);
    }
    buffer.close_block();
    [header.encode().to_vec(), buffer.take_blocks().concat()].concat()
}

fn file(parent: Ino, name: &[u8]) -> Event<'_> {
    let mode = FileType::Regular.mode_bits() | 0o644;
    Event::Create(Create { parent, name, ino: Ino(DIR.0 + 1), mode, ..Create::default() })
}

fn unlink(parent: Ino) -> Event<'static> {
    let (ino, time) = (Ino(DIR.0 + 1), Default::default());
    Event::Unlink { parent, name: b"a", ino, time }
}

fn merged(last: bool) -> Event<'static> {
    let (subtree, client, object) = (DIR, ClientId(5), b"clients/5");
    Event::Merged { subtree, client, object, first: 0, events: 1, losses: b"", last }
}

fn directory(need: &Result<Option<RecoveryNeed>>) -> Option<Ino> {
    match need {
        Ok(Some(RecoveryNeed::Directory(dir))) => Some(*dir),
        _ => None,
    }
}

/// The last position of the journal, if the recovery ended.
fn end(need: &Result<Option<RecoveryNeed>>) -> Option<Seq> {
    match need {
        Ok(Some(RecoveryNeed::Clients { last, .. })) => Some(*last),
        _ => None,
    }
}

#[test]
fn a_recovery_begins_with_the_table_of_its_rank() {
    let mut replica = Replica::new(3);
    assert!(matches!(replica.give(RecoveryInput::Start), Ok(None)));
    assert_eq!(replica.reads(), rank_name(Rank(3)));
}

#[test]
fn a_table_is_replaced_if_it_is_as_it_was_read() {
    let table = Mds::new(Rank(0), Settings::default()).tables.take_over(None).unwrap();
    let cases = [
        (StoreResult::Missing, Condition::Absent),
        (StoreResult::Bytes(table, 7), Condition::Version(7)),
    ];
    for (read, expected) in cases {
        let mut replica = Replica::at(0, Step::ReadTable);
        assert!(matches!(replica.stored(read), Ok(None)));
        let StoreOp::Put { object, condition, .. } = replica.op() else { panic!("no put") };
        assert_eq!((object, condition), (rank_name(Rank(0)), expected));
    }
}

#[test]
fn a_damaged_table_ends_the_recovery() {
    let mut replica = Replica::at(0, Step::ReadTable);
    let error = replica.stored(StoreResult::Bytes(vec![1; 9], 7)).unwrap_err();
    assert_eq!(error.errno, Errno::BadMessage);
    assert!(replica.effects.store.is_empty(), "nothing is replaced");
}

#[test]
fn a_rank_whose_table_another_server_replaced_is_busy() {
    let mut replica = Replica::at(0, Step::TakeOver);
    let error = replica.stored(StoreResult::Conflict).unwrap_err();
    assert_eq!(error.errno, Errno::Busy);
}

#[test]
fn the_list_of_subtrees_is_read_when_the_rank_is_taken() {
    let mut replica = Replica::at(0, Step::TakeOver);
    assert!(matches!(replica.stored(StoreResult::Stored(8)), Ok(None)));
    assert_eq!(replica.reads(), SUBTREES_NAME);
}

#[test]
fn a_result_of_another_kind_is_an_error_at_each_step() {
    let name = || "a".to_owned();
    let steps = [
        Step::Idle,
        Step::ReadTable,
        Step::ReadList,
        Step::RaiseFence(Subtrees::default()),
        Step::ListCrossRenames,
        Step::FetchHidden,
        Step::FetchAbove(DIR),
        Step::FetchRoot,
        Step::StoreRoot,
        Step::ListSegments,
        Step::ReadSegment(name()),
        Step::Replay,
        Step::ReadMerged(name()),
        Step::ReadStored,
    ];
    for step in steps {
        let mut replica = Replica::at(0, step);
        let step = replica.step();
        let error = replica.stored(StoreResult::Done).expect_err(&step);
        assert_eq!(error.errno, Errno::Io, "{step}");
        assert!(error.cause.contains(&step), "{error} names {step}");
    }
}

#[test]
fn a_failure_of_the_store_ends_the_recovery() {
    let object = "a".to_owned();
    let mut replica = Replica::at(0, Step::ReadSegment(object.clone()));
    let error = replica.failed(Errno::Io, StoreOp::Get { object }).unwrap_err();
    assert_eq!(error.errno, Errno::Io);
}

#[test]
fn a_missing_list_of_subtrees_is_adopted_too() {
    let mut replica = Replica::at(0, Step::ReadList);
    let need = replica.stored(StoreResult::Missing);
    assert!(matches!(need, Ok(Some(RecoveryNeed::List(StoreResult::Missing)))));
}

#[test]
fn cross_renames_are_listed_behind_the_list_of_subtrees() {
    let mut replica = Replica::at(0, Step::ReadList);
    assert!(matches!(replica.give(RecoveryInput::Met), Ok(None)));
    assert_eq!(replica.lists(), CROSS_RENAMES_PREFIX);
}

#[test]
fn a_rename_of_an_earlier_version_ends_the_recovery_with_the_remedy() {
    let mut replica = Replica::at(1, Step::ListCrossRenames);
    let names = vec!["mds/passage/0002/0000000000000001".to_owned()];
    let error = replica.stored(StoreResult::Names(names)).unwrap_err().to_string();
    assert!(error.contains("mds/passage/0002/0000000000000001"), "{error}");
    assert!(error.contains("start the servers of that version"), "{error}");
}

fn fenced() -> Subtrees {
    let mut list = Subtrees::default();
    list.raise_fence(Rank(1));
    list
}

#[test]
fn a_rank_ends_the_reservations_of_its_earlier_terms_before_it_serves() {
    let mut replica = Replica::at(1, Step::ReadList);
    replica.mds.authority.list_is(fenced(), 4);
    assert!(matches!(replica.give(RecoveryInput::Met), Ok(None)));
    let StoreOp::Put { data, condition, .. } = replica.op() else { panic!("no replacement") };
    assert_eq!(condition, Condition::Version(4));
    assert_eq!(Subtrees::decode(&data).unwrap().fence(Rank(1)), 2);
    assert!(matches!(replica.stored(StoreResult::Stored(5)), Ok(None)));
    assert_eq!(replica.lists(), CROSS_RENAMES_PREFIX);
    assert_eq!(replica.mds.authority.list_of_term().unwrap().fence(Rank(1)), 3);
}

#[test]
fn a_rank_that_meets_another_version_of_the_list_reads_it_again() {
    let mut replica = Replica::at(1, Step::RaiseFence(fenced()));
    assert!(matches!(replica.stored(StoreResult::Conflict), Ok(None)));
    assert_eq!(replica.reads(), SUBTREES_NAME);
}

#[test]
fn rank_0_begins_with_the_root_and_another_rank_with_its_journal() {
    for (rank, expected) in [(0, Some(Ino::ANCHOR)), (1, None)] {
        let mut replica = Replica::at(rank, Step::ListCrossRenames);
        let need = replica.stored(StoreResult::Names(Vec::new()));
        assert_eq!(directory(&need), expected, "rank {rank}");
        if expected.is_none() {
            assert_eq!(replica.lists(), journal_prefix(Rank(rank)));
        }
    }
}

#[test]
fn a_new_cluster_stores_its_root_before_it_reads_the_journal() {
    let mut replica = Replica::at(0, Step::FetchRoot);
    replica.mds.namespace.handover().take_as_empty(Ino::ANCHOR);
    assert!(matches!(replica.give(RecoveryInput::Fetched), Ok(None)));
    let StoreOp::CommitDir { ino, rows, .. } = replica.op() else { panic!("no directory") };
    assert!(ino == Ino::ANCHOR && !rows.is_empty());
    let written = StoreResult::Written { compact: false, bytes: (1, 0) };
    assert!(matches!(replica.stored(written), Ok(None)));
    assert_eq!(replica.lists(), journal_prefix(Rank(0)));
}

#[test]
fn inodes_with_several_names_are_fetched_before_some_of_them_are_forgotten() {
    let mut replica = Replica::at(0, Step::FetchHidden);
    let (dirs, linked) = (vec![DIR], vec![Ino(DIR.0 + 1)]);
    let gone = Gone { root: DIR, moves: 1, last: Seq(5), dirs, linked, went: true };
    replica.mds.recovery.departed = DepartedSubtrees::new(&[gone]);
    assert_eq!(directory(&replica.give(RecoveryInput::Fetched)), Some(Ino::LINKS));
    replica.mds.namespace.handover().take_as_empty(Ino::LINKS);
    assert_eq!(directory(&replica.give(RecoveryInput::Fetched)), None);
    assert_eq!(replica.lists(), journal_prefix(Rank(0)));
}

#[test]
fn a_recovery_without_a_journal_ends_at_the_end_of_the_last_one() {
    let mut replica = Replica::at(0, Step::ListSegments);
    assert_eq!(end(&replica.stored(StoreResult::Names(Vec::new()))), Some(Seq(0)));
    assert_eq!(replica.step(), "Idle");
}

#[test]
fn a_segment_that_is_trimmed_meanwhile_is_passed_over() {
    let mut replica = Replica::at(0, Step::ReadSegment("a".to_owned()));
    assert_eq!(end(&replica.stored(StoreResult::Missing)), Some(Seq(0)));
}

#[test]
fn a_segment_without_a_whole_header_is_deleted() {
    let name = segment_name(Rank(0), 0);
    let mut replica = Replica::at(0, Step::ReadSegment(name.clone()));
    assert_eq!(end(&replica.stored(StoreResult::Bytes(vec![1; 3], 1))), Some(Seq(0)));
    assert!(matches!(replica.op(), StoreOp::Delete { objects } if objects == [name]));
}

#[test]
fn segments_that_do_not_count_are_deleted_before_any_other() {
    let mut replica = Replica::at(0, Step::ListSegments);
    let names = [0, 1].map(|index| segment_name(Rank(0), index));
    assert!(matches!(replica.stored(StoreResult::Names(names.to_vec())), Ok(None)));
    let whole = segment_of(&[file(Ino::ROOT, b"a")]);
    assert!(matches!(replica.stored(StoreResult::Bytes(whole, 1)), Ok(None)));
    assert_eq!(end(&replica.stored(StoreResult::Bytes(vec![0; 3], 1))), Some(Seq(1)));
    let delete = replica.op();
    assert!(matches!(&delete, StoreOp::Delete { objects } if *objects == names[1..]));

    let trimmed = |replica: &mut Replica, result| {
        replica.effects = MdsEffects::default();
        CheckpointCx::of(&mut replica.mds).trimmed(result, &mut replica.effects);
        replica.mds.checkpoint.is_trimming()
    };
    let failure = StoreFailure { error: damage(Errno::NoSpace), op: delete };
    assert!(trimmed(&mut replica, Err(Box::new(failure))), "it waits for the next attempt");
    assert!(replica.effects.store.is_empty(), "nothing else is deleted before");
    CheckpointCx::of(&mut replica.mds).trim(&mut replica.effects);
    assert!(replica.effects.store.is_empty(), "not later either");
    assert!(!trimmed(&mut replica, Ok(StoreResult::Done)), "now other segments may go");
}

#[test]
fn a_damaged_segment_ends_the_recovery() {
    let many: Vec<Event<'_>> = (0..40_000).map(|_| file(Ino::ROOT, b"a")).collect();
    let mut bytes = segment_of(&many);
    bytes[200] ^= 1;
    let mut replica = Replica::at(0, Step::ReadSegment(segment_name(Rank(0), 0)));
    let error = replica.stored(StoreResult::Bytes(bytes, 1)).unwrap_err();
    assert_eq!(error.errno, Errno::BadMessage);
}

#[test]
fn a_create_of_a_file_is_applied_without_its_directory() {
    let mut replica = Replica::new(0);
    assert_eq!(end(&replica.replay(&[file(DIR, b"a"), file(DIR, b"b")])), Some(Seq(2)));
    assert_eq!(replica.mds.counters.recovered_events, 2);
    assert_eq!(replica.mds.log.last(), Seq(2), "the journal continues behind them");
}

#[test]
fn a_replay_continues_with_the_event_whose_directory_came() {
    let mut replica = Replica::new(0);
    let need = replica.replay(&[file(DIR, b"b"), unlink(DIR), file(DIR, b"c")]);
    assert_eq!(directory(&need), Some(DIR));
    assert_eq!((replica.mds.recovery.applied, replica.mds.recovery.skip), (Seq(1), 1));
    replica.mds.namespace.handover().take_as_empty(DIR);
    assert_eq!(end(&replica.give(RecoveryInput::Fetched)), Some(Seq(3)));
    assert_eq!(replica.mds.counters.recovered_events, 3, "each event is applied once");
}

#[test]
fn an_event_about_a_departed_directory_needs_nothing_of_it() {
    let (parent, name, ino, time) = (DIR, b"a", Ino(0), Default::default());
    let rmdir = Event::Rmdir { parent, name, ino, time };
    for event in [file(DIR, b"a"), rmdir, Event::Stored { dir: DIR }] {
        let mut replica = Replica::new(0);
        let (dirs, linked) = (vec![DIR], Vec::new());
        let gone = Gone { root: DIR, moves: 1, last: Seq(9), dirs, linked, went: true };
        replica.mds.recovery.departed = DepartedSubtrees::new(&[gone]);
        assert_eq!(end(&replica.replay(&[event])), Some(Seq(1)), "{event:?}");
        assert!(!replica.mds.namespace.is_complete(DIR), "{event:?}: it is forgotten again");
    }
}

#[test]
fn a_merge_reads_the_journal_of_its_client_first() {
    let mut replica = Replica::new(0);
    assert!(matches!(replica.replay(&[merged(true)]), Ok(None)));
    assert_eq!(replica.reads(), "clients/5");
}

#[test]
fn a_merge_without_its_last_part_is_unfinished() {
    for (last, expected) in [(false, true), (true, false)] {
        let mut replica = Replica::new(0);
        assert!(matches!(replica.replay(&[merged(last)]), Ok(None)));
        // Its owner removed the journal when the store had its events.
        assert_eq!(end(&replica.stored(StoreResult::Missing)), Some(Seq(1)));
        assert_eq!(replica.mds.merges.is_any(), expected, "last: {last}");
    }
}

#[test]
fn a_directory_that_the_store_may_have_is_read() {
    let mut replica = Replica::new(0);
    assert!(matches!(replica.replay(&[Event::Stored { dir: DIR }]), Ok(None)));
    assert!(matches!(replica.op(), StoreOp::LoadDir { ino } if ino == DIR));
    assert_eq!(end(&replica.stored(StoreResult::Missing)), Some(Seq(1)));
}

#[test]
fn a_replay_continues_without_a_damaged_directory_that_others_do_not_need() {
    let bad = Errno::BadMessage;
    let cases = [
        (Step::Replay, bad, DIR, true),
        (Step::ReadStored, bad, DIR, true),
        (Step::Replay, bad, Ino::LINKS, true),
        (Step::Replay, Errno::Io, DIR, false),
        (Step::Replay, bad, Ino::ANCHOR, false),
        (Step::Replay, bad, Ino::mount_stub(DIR), false),
        (Step::FetchRoot, bad, DIR, false),
        (Step::FetchHidden, bad, Ino::LINKS, false),
    ];
    for (step, errno, dir, continues) in cases {
        let mut replica = Replica::at(0, step);
        let case = format!("{}, {errno:?}, {dir}", replica.step());
        let result = replica.give(RecoveryInput::Unreadable(dir, damage(errno)));
        match result {
            Ok(_) => assert!(continues, "{case}"),
            Err(error) => assert!(!continues && error.errno == errno, "{case}"),
        }
        assert_eq!(replica.mds.damage.withheld(dir).is_some(), continues, "{case}");
    }
}

#[test]
fn a_directory_is_withheld_from_the_event_that_needs_it() {
    let mut replica = Replica::new(0);
    let need = replica.replay(&[file(Ino::ROOT, b"b"), unlink(DIR)]);
    assert_eq!(directory(&need), Some(DIR));
    let need = replica.give(RecoveryInput::Unreadable(DIR, damage(Errno::BadMessage)));
    assert_eq!(end(&need), Some(Seq(2)));
    assert_eq!(replica.mds.damage.journal_retained_from(), Seq(2));
}

#[test]
fn only_a_failed_read_of_a_position_leaves_a_directory_out() {
    let bad = Errno::BadMessage;
    let object = || "a".to_owned();
    let cases = [
        (Step::ReadStored, StoreOp::LoadDir { ino: DIR }, bad, true),
        (Step::ReadStored, StoreOp::LoadDir { ino: DIR }, Errno::Io, false),
        (Step::ReadStored, StoreOp::Get { object: object() }, bad, false),
        (Step::ReadMerged(object()), StoreOp::Get { object: object() }, bad, false),
        (Step::ReadTable, StoreOp::LoadDir { ino: DIR }, bad, false),
    ];
    for (step, op, errno, continues) in cases {
        let case = format!("{step:?}, {op:?}, {errno:?}");
        let mut replica = Replica::at(0, step);
        assert_eq!(replica.failed(errno, op).is_ok(), continues, "{case}");
    }
}

#[test]
fn a_served_root_that_the_store_lacks_ends_the_recovery() {
    let mut replica = Replica::at(1, Step::FetchAbove(DIR));
    let error = replica.give(RecoveryInput::Fetched).unwrap_err();
    assert_eq!(error.errno, Errno::BadMessage);
}

#[test]
fn a_fetched_directory_is_ignored_at_a_step_that_waits_for_none() {
    for step in [Step::Idle, Step::ReadTable, Step::ListSegments, Step::ReadStored] {
        let mut replica = Replica::at(0, step);
        assert!(matches!(replica.give(RecoveryInput::Fetched), Ok(None)));
        assert!(replica.effects.store.is_empty(), "{}", replica.step());
    }
}
