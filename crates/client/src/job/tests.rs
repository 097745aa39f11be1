//! Compositions and merges on a disk and a store that are maps, with a server that is a function.

#![allow(clippy::wildcard_enum_match_arm, reason = "a test answers few effects")]

use std::collections::BTreeMap;

use journal::{Event, JournalBuffer, SegmentHeader, Writer};
use policy::{Composition, Mechanism};
use types::{Attr, ClientId, Epoch, Errno, Error, FileType, Ino, Moment, Origin, Result, Seq};
use wire::{Answer, MergeFlags, MergeReport};

use super::*;
use crate::RunThreshold;

const ROOT: Ino = Ino((1 << 40) + 1);
const OBJECT: &str = "journal/client/1";

fn header() -> SegmentHeader {
    let writer = Writer::Client { client: ClientId(7), subtree: ROOT };
    SegmentHeader { writer, epoch: Epoch(1), first_seq: Seq(1) }
}

/// A journal of so many creates, in blocks.
fn blocks(count: u64) -> Vec<Vec<u8>> {
    let mut buffer = JournalBuffer::new(Seq(1), false);
    for number in 0..count {
        let name = format!("f{number}").into_bytes();
        let ino = Ino((1 << 40) + 100 + number);
        let create = journal::Create {
            parent: ROOT,
            name: &name,
            ino,
            mode: FileType::Regular.mode_bits() | 0o644,
            ..create()
        };
        buffer.append(Origin::default(), &Event::Create(create));
    }
    buffer.close_block();
    buffer.take_blocks()
}

fn create() -> journal::Create<'static> {
    journal::Create {
        parent: ROOT,
        name: b"",
        ino: Ino(0),
        mode: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        stripe: types::Stripe::default(),
        size: 0,
        time: types::Timestamp(1),
        mtime: types::Timestamp(1),
        atime: types::Timestamp(1),
        data: b"",
        extra: b"",
    }
}

fn material<'a>(blocks: &'a [Vec<u8>], object: Option<&'a str>) -> Material<'a> {
    Material {
        subtree: ROOT,
        header: header(),
        blocks,
        persisted_locally: 0,
        persisted_globally: 0,
        merge: MergeFlags::default(),
        by_reference: false,
        worth: RunThreshold { names_min: 1, names_per_directory_min: 0 },
        unused: &[],
        object,
    }
}

fn composition(text: &str) -> Composition {
    Composition::parse(text).expect("a composition")
}

/// The surroundings of a composition.
#[derive(Default)]
struct Place {
    log: Vec<String>,
    objects: BTreeMap<String, Vec<u8>>,
    /// The answers of the server to merges; then it merges everything.
    answers: Vec<Result<Answer>>,
    /// The effect that fails, by its word in the log.
    fails: Option<&'static str>,
    /// A merge deletes the objects.
    loses_objects: bool,
    names_in_root: u64,
}

impl Place {
    fn run(&mut self, text: &str, material: &Material<'_>) -> (Result<Completion>, Reached) {
        let mut run = CompositionRun::new(&composition(text));
        let mut input = MechanismInput::Start;
        for moment in 1.. {
            let effect = run.handle(material, Moment(moment), input);
            if let MechanismEffect::Done(result) = effect {
                return (result, run.reached());
            }
            input = self.effect(material, effect);
        }
        unreachable!("it ends")
    }

    fn merge(&mut self, earlier: &Earlier, mut merge: EarlierMerge) -> Result<Completion> {
        let blocks = blocks(1);
        let mut input = MechanismInput::Start;
        loop {
            let effect = merge.handle(earlier, Moment(1), input);
            if let MechanismEffect::Done(result) = effect {
                return result;
            }
            input = self.effect(&material(&blocks, None), effect);
        }
    }

    fn note(&mut self, what: impl Into<String>) -> Result<()> {
        let what = what.into();
        let fails = self.fails.is_some_and(|fails| what.starts_with(fails));
        self.log.push(what);
        if fails { Err(Error::of(Errno::Io, "test")) } else { Ok(()) }
    }

    fn effect(&mut self, material: &Material<'_>, effect: MechanismEffect) -> MechanismInput {
        match effect {
            MechanismEffect::Note(mechanism, stage) => {
                let noted = self.note(format!("{stage:?} {}", mechanism.name()));
                MechanismInput::Done(noted)
            }
            MechanismEffect::WriteFile { from } => {
                MechanismInput::Bytes(self.note(format!("file from {from}")).map(|()| 10))
            }
            MechanismEffect::WriteObject { from } => {
                let object = material.object.expect("a name").to_owned();
                self.objects.insert(object, Vec::new());
                MechanismInput::Bytes(self.note(format!("object from {from}")).map(|()| 20))
            }
            MechanismEffect::Root => {
                let attr = Attr { ino: ROOT, size: self.names_in_root, ..Attr::default() };
                let mode = FileType::Directory.mode_bits() | 0o755;
                let answer = Answer::Attr(Attr { mode, nlink: 2, ..attr });
                MechanismInput::Answer(self.note("root").map(|()| answer))
            }
            MechanismEffect::Written(_) => MechanismInput::Written(Ok(None)),
            MechanismEffect::Put(name, bytes) => {
                let noted = self.note("put");
                self.objects.insert(name, bytes);
                MechanismInput::Done(noted)
            }
            MechanismEffect::Get(name) => {
                MechanismInput::Object(Ok(self.objects.get(&name).cloned()))
            }
            MechanismEffect::Exists(name) => {
                MechanismInput::Exists(Ok(self.objects.contains_key(&name)))
            }
            MechanismEffect::Delete(name) => {
                self.objects.remove(&name);
                MechanismInput::Done(self.note("delete"))
            }
            MechanismEffect::Checkpoint => MechanismInput::Done(self.note("checkpoint")),
            MechanismEffect::Merge(merge) => {
                let parts = merge.parts(b"header", material.blocks);
                let follows = if parts.is_empty() { "stored" } else { "sent" };
                let way = if merge.flags.by_reference { " by reference" } else { "" };
                let noted = self.note(format!("merge {follows}{way}"));
                let report = MergeReport { events: 1, ..MergeReport::default() };
                let merged = || Ok(Answer::Merged(Box::new(report)));
                let answer =
                    if self.answers.is_empty() { merged() } else { self.answers.remove(0) };
                if self.loses_objects {
                    self.objects.clear();
                }
                MechanismInput::Answer(noted.and(answer))
            }
            MechanismEffect::Fork(members) => {
                let members = members.into_iter().map(|mut member| {
                    let mut input = MechanismInput::Start;
                    while let Some(effect) = member.handle_member(material, Moment(1), input) {
                        input = self.effect(material, effect);
                    }
                    member
                });
                MechanismInput::Joined(members.collect())
            }
            MechanismEffect::Done(_) => unreachable!("it is the end"),
        }
    }
}

fn steps(done: &Completion) -> Vec<Mechanism> {
    done.steps.iter().map(|step| step.mechanism).collect()
}

#[test]
fn mechanisms_run_one_after_the_other_and_are_timed() {
    let (mut place, blocks) = (Place::default(), blocks(3));
    let text = "append_client_journal+local_persist+volatile_apply";
    let (done, reached) = place.run(text, &material(&blocks, None));
    let done = done.expect("nothing fails");
    assert_eq!(steps(&done), [Mechanism::LocalPersist, Mechanism::VolatileApply]);
    assert!(done.merge.is_some() && done.seconds > 0.0);
    assert_eq!(reached, Reached { asked: true, on_disk: true, stored: false });
    let expected = [
        "Begun append_client_journal",
        "Ended append_client_journal",
        "Begun local_persist",
        "file from 0",
        "Ended local_persist",
        "Begun volatile_apply",
        "merge sent",
        "Applied volatile_apply",
        "Ended volatile_apply",
    ];
    assert_eq!(place.log, expected);
}

#[test]
fn a_failed_member_names_the_promise_that_holds_all_the_same() {
    let mut place = Place { fails: Some("merge"), ..Place::default() };
    let blocks = blocks(3);
    let (done, reached) = place.run("local_persist+volatile_apply", &material(&blocks, None));
    let error = done.expect_err("the merge fails");
    assert!(error.cause.contains("volatile_apply did not complete"), "{error}");
    assert!(error.cause.contains("invisible"), "the journal is on the disk: {error}");
    assert_eq!(reached, Reached { asked: true, on_disk: true, stored: false });
}

#[test]
fn members_after_a_failed_one_do_not_run() {
    let mut place = Place { fails: Some("file"), ..Place::default() };
    let blocks = blocks(3);
    let (done, reached) = place.run("local_persist+volatile_apply", &material(&blocks, None));
    assert_eq!(done.expect_err("the disk fails").errno, Errno::Io);
    assert!(!reached.asked && !place.log.iter().any(|line| line.starts_with("merge")));
}

#[test]
fn parallel_members_all_run_although_one_fails() {
    let mut place = Place { fails: Some("file"), ..Place::default() };
    let blocks = blocks(3);
    let given = material(&blocks, Some(OBJECT));
    let (done, reached) = place.run("local_persist||global_persist", &given);
    assert_eq!(done.expect_err("the disk fails").errno, Errno::Io);
    assert_eq!(reached, Reached { asked: false, on_disk: false, stored: true });
}

#[test]
fn a_persist_continues_after_the_blocks_that_it_has_written() {
    let (mut place, blocks) = (Place::default(), [blocks(3), blocks(2)].concat());
    let given = Material { persisted_locally: 1, ..material(&blocks, None) };
    assert!(place.run("local_persist", &given).0.is_ok());
    assert!(place.log.contains(&"file from 1".to_owned()));
}

#[test]
fn an_empty_journal_is_no_object() {
    let mut place = Place::default();
    let (done, reached) = place.run("global_persist", &material(&[], None));
    assert!(done.is_ok() && !reached.stored && place.objects.is_empty());
}

#[test]
fn nonvolatile_apply_stores_the_journal_once_and_merges_it_from_there() {
    let blocks = blocks(3);
    let given = material(&blocks, Some(OBJECT));
    for (text, written) in [("nonvolatile_apply", 1), ("global_persist+nonvolatile_apply", 1)] {
        let mut place = Place::default();
        let (done, reached) = place.run(text, &given);
        assert!(done.is_ok(), "{text}: {done:?}");
        assert_eq!(reached, Reached { asked: true, on_disk: false, stored: true });
        let objects = place.log.iter().filter(|line| line.starts_with("object")).count();
        assert_eq!(objects, written, "{text}");
        assert!(place.log.contains(&"merge stored".to_owned()), "{text}");
    }
}

#[test]
fn a_merge_by_reference_stores_runs_before_it_is_sent() {
    let blocks = blocks(3);
    let given = Material { by_reference: true, ..material(&blocks, None) };
    let mut place = Place::default();
    let (done, _) = place.run("volatile_apply", &given);
    let done = done.expect("it is merged");
    assert_eq!((done.merged_by.runs, done.merged_by.because), (1, None));
    let log: Vec<_> = place.log.iter().map(String::as_str).collect();
    assert_eq!(log[1..4], ["root", "put", "merge sent by reference"]);
}

#[test]
fn a_journal_goes_by_value_if_the_server_rejects_its_runs() {
    let blocks = blocks(3);
    let given = Material { by_reference: true, ..material(&blocks, None) };
    let mut place = Place { answers: vec![Err(Errno::NotSupported.into())], ..Place::default() };
    let (done, _) = place.run("volatile_apply", &given);
    let because = done.expect("it is merged by value").merged_by.because;
    assert_eq!(because, Some(crate::ByValue::Refused.reason()));
    assert!(place.log.contains(&"merge sent".to_owned()));
}

#[test]
fn a_merge_by_reference_deletes_the_object_of_the_whole_journal() {
    let blocks = blocks(3);
    let given = Material { by_reference: true, ..material(&blocks, Some(OBJECT)) };
    let mut place = Place::default();
    let (done, _) = place.run("global_persist+volatile_apply", &given);
    assert!(done.is_ok());
    assert!(!place.objects.contains_key(OBJECT), "the server needs the runs and the rest only");
    assert_eq!(place.objects.len(), 2);
}

/// Runs a composition at a server that is restarted during the first merge. Returns the log
/// without the notes of mechanisms.
fn run_over_a_restart(job: &mut SubtreeJob, text: &str) -> Vec<String> {
    run_at(job, text, MergeFlags::default(), Place::default())
}

/// The same at a place that answers in its way.
fn run_at(job: &mut SubtreeJob, text: &str, flags: MergeFlags, mut place: Place) -> Vec<String> {
    let mut run = JobRun::new(&composition(text), flags, None);
    let mut input = JobInput::Start;
    for moment in 1.. {
        let is_merge = |line: &String| line.starts_with("merge");
        input = match run.handle(job, Moment(moment), input) {
            JobEffect::Done(result) => {
                assert!(result.is_ok(), "{text}: {result:?}");
                break;
            }
            JobEffect::Term if place.log.iter().any(is_merge) => JobInput::Term(Epoch(2)),
            JobEffect::Term => JobInput::Term(Epoch(1)),
            JobEffect::LocalJournals => JobInput::Journals(Ok(vec![earlier(None, None)])),
            JobEffect::Mechanism(effect) => {
                JobInput::Mechanism(place.effect(&run.material(job), effect))
            }
            JobEffect::Earlier(_, effect) => {
                JobInput::Mechanism(place.effect(&run.material(job), effect))
            }
            _ => JobInput::Done(Ok(())),
        };
    }
    let is_note = |line: &String| line.contains("Begun") || line.contains("Applied");
    place.log.retain(|line| !is_note(line) && !line.contains("Ended"));
    place.log
}

#[test]
fn a_volatile_merge_is_repeated_at_a_restarted_server() {
    let log = run_over_a_restart(&mut sync::tests::job("weak-none", 2), "volatile_apply");
    assert_eq!(log, ["merge sent", "merge sent"]);
}

#[test]
fn a_nonvolatile_merge_is_not_repeated_at_a_restarted_server() {
    let log = run_over_a_restart(&mut sync::tests::job("weak-global", 2), "nonvolatile_apply");
    assert_eq!(log, ["object from 0", "merge stored"]);
}

#[test]
fn events_of_an_earlier_volatile_merge_are_repeated_after_a_nonvolatile_merge() {
    let mut job = sync::tests::job("weak-local", 2);
    // Of an earlier run, and durable by Local Persist only.
    job.merged_in = Some(Epoch(1));
    let log = run_over_a_restart(&mut job, "nonvolatile_apply");
    assert_eq!(log.iter().filter(|line| line.starts_with("merge")).count(), 2);
    assert_eq!(job.merged_in, Some(Epoch(2)));
}

#[test]
fn a_run_begins_again_if_a_restarted_server_keeps_the_subtree() {
    let mut job = sync::tests::job("weak-local", 2);
    job.merged_in = Some(Epoch(1));
    let flags = MergeFlags { release: true, ..MergeFlags::default() };
    let answers = vec![Err(Errno::Canceled.into())];
    let place = Place { answers, ..Place::default() };
    let log = run_at(&mut job, "volatile_apply", flags, place);
    // The refused one, and the one that gives the subtree back.
    assert_eq!(log, ["merge sent", "merge sent"]);
    assert_eq!(job.merged_in, Some(Epoch(2)));
}

#[test]
fn a_repeated_persist_writes_the_whole_object() {
    let mut job = sync::tests::job("weak-global", 2);
    job.inner.blocks();
    job.persisted_globally = job.inner.closed_blocks().len();
    let log = run_over_a_restart(&mut job, "global_persist+volatile_apply");
    assert_eq!(log, ["object from 1", "merge sent", "object from 0", "merge sent"]);
}

fn earlier(object: Option<&str>, sealed: Option<Sealed>) -> Earlier {
    let mut bytes = header().encode().to_vec();
    blocks(3).iter().for_each(|block| bytes.extend_from_slice(block));
    let read = Earlier::read("journal".to_owned(), bytes, object.map(str::to_owned));
    Earlier { sealed, ..read.expect("it is intact") }
}

fn by_value() -> EarlierMerge {
    EarlierMerge::new(ROOT, MergeFlags::default(), None)
}

#[test]
fn an_earlier_journal_is_sent_or_read_from_its_object() {
    let mut place = Place::default();
    assert!(place.merge(&earlier(None, None), by_value()).is_ok());
    assert!(place.merge(&earlier(Some(OBJECT), None), by_value()).is_ok());
    assert_eq!(place.log, ["merge sent", "merge stored"]);
}

#[test]
fn an_object_that_is_gone_was_merged() {
    let gone = || vec![Err(Errno::NotFound.into())];
    let mut place = Place { answers: gone(), ..Place::default() };
    assert!(place.merge(&earlier(Some(OBJECT), None), by_value()).is_ok());
    // An object that exists shows that the error has another reason.
    let objects = [(OBJECT.to_owned(), Vec::new())].into();
    let mut place = Place { answers: gone(), objects, ..Place::default() };
    let result = place.merge(&earlier(Some(OBJECT), None), by_value());
    assert_eq!(result.expect_err("it is not merged").errno, Errno::NotFound);
}

#[test]
fn a_stored_journal_that_is_gone_before_the_answer_was_merged() {
    let blocks = blocks(3);
    let run = |is_gone: bool| {
        let answers = vec![Err(Errno::NotFound.into())];
        let mut place = Place { answers, loses_objects: is_gone, ..Place::default() };
        let (done, reached) = place.run("nonvolatile_apply", &material(&blocks, Some(OBJECT)));
        assert!(reached.asked && reached.stored);
        done
    };
    assert!(run(true).expect("the server deleted what it stored").merge.is_some());
    assert_eq!(run(false).expect_err("the object is there").errno, Errno::NotFound);
}

#[test]
fn a_part_that_was_longer_than_its_object_is_sent_again() {
    let sealed = Some(Sealed { on_disk: false, asked: true, whole: false });
    let mut place = Place { answers: vec![Err(Errno::NotFound.into())], ..Place::default() };
    assert!(place.merge(&earlier(Some(OBJECT), sealed), by_value()).is_ok());
    assert_eq!(place.log, ["merge stored", "merge sent"]);
}

#[test]
fn a_server_that_rejects_the_copy_of_a_missing_object_ends_the_merge() {
    let sealed = Some(Sealed { on_disk: false, asked: true, whole: false });
    let answers = vec![Err(Errno::NotFound.into()), Err(Errno::NotFound.into())];
    let mut place = Place { answers, ..Place::default() };
    let result = place.merge(&earlier(Some(OBJECT), sealed), by_value());
    assert_eq!(result.expect_err("the subtree is gone").errno, Errno::NotFound);
    assert_eq!(place.log, ["merge stored", "merge sent"]);
}

#[test]
fn a_member_that_panicked_may_have_asked_the_server() {
    let blocks = blocks(3);
    let given = material(&blocks, None);
    let mut run = CompositionRun::new(&composition("local_persist||volatile_apply"));
    let effect = run.handle(&given, Moment(1), MechanismInput::Start);
    let MechanismEffect::Fork(members) = effect else { panic!("no members: {effect:?}") };
    let failed = |member: CompositionRun| member.failed(Error::of(Errno::Io, "test"));
    let joined = MechanismInput::Joined(members.into_iter().map(failed).collect());
    let effect = run.handle(&given, Moment(2), joined);
    assert!(matches!(effect, MechanismEffect::Done(Err(_))));
    assert!(run.reached().asked);
}

#[test]
fn a_torn_object_is_replaced_before_the_server_reads_it() {
    let torn = Earlier { torn: true, ..earlier(Some(OBJECT), None) };
    let mut place = Place::default();
    assert!(place.merge(&torn, by_value()).is_ok());
    assert_eq!(place.log, ["put", "merge stored"]);
}

#[test]
fn a_dry_run_changes_nothing_in_the_store() {
    let torn = Earlier { torn: true, ..earlier(Some(OBJECT), None) };
    let flags = MergeFlags { dry_run: true, ..MergeFlags::default() };
    let mut place = Place::default();
    assert!(place.merge(&torn, EarlierMerge::new(ROOT, flags, None)).is_ok());
    assert_eq!(place.log, ["merge sent"]);
    let empty = Earlier::unfinished(OBJECT.to_owned(), Seq(1));
    assert!(place.merge(&empty, EarlierMerge::new(ROOT, flags, None)).is_ok());
    assert_eq!(place.log.len(), 1);
}

#[test]
fn a_part_that_the_server_was_asked_to_merge_never_goes_by_reference() {
    let worth = Some(RunThreshold { names_min: 1, names_per_directory_min: 0 });
    let by_reference = || EarlierMerge::new(ROOT, MergeFlags::default(), worth);
    let mut place = Place::default();
    assert!(place.merge(&earlier(None, None), by_reference()).is_ok());
    assert!(place.log.contains(&"merge sent by reference".to_owned()));
    let sealed = Some(Sealed { on_disk: true, asked: true, whole: false });
    let mut place = Place::default();
    assert!(place.merge(&earlier(None, sealed), by_reference()).is_ok());
    assert_eq!(place.log, ["merge sent"]);
}

#[test]
fn the_object_of_an_earlier_process_is_deleted_after_a_checkpoint() {
    // The server may have merged the object by value, and needs it after a crash until then.
    let worth = Some(RunThreshold { names_min: 1, names_per_directory_min: 0 });
    let mut place = Place::default();
    let merge = EarlierMerge::new(ROOT, MergeFlags::default(), worth);
    assert!(place.merge(&earlier(Some(OBJECT), None), merge).is_ok());
    let log: Vec<_> = place.log.iter().map(String::as_str).collect();
    assert_eq!(log[log.len() - 3..], ["merge sent by reference", "checkpoint", "delete"]);
}

#[test]
fn a_journal_on_this_disk_replaces_an_object_that_has_less() {
    let journal = earlier(None, None);
    assert!(journal.replaces(None) && journal.replaces(Some(b"torn".to_vec())));
    assert!(!journal.replaces(Some(journal.bytes.clone())));
}

#[test]
fn a_used_up_contract_grows_in_proportion_and_ends_at_a_hard_limit() {
    let mut job = sync::tests::job("weak-none", 0);
    assert_eq!(job.extension().unwrap(), 1000);
    job.take_range(types::InoRange { start: 1 << 41, end: (1 << 41) + 2000 });
    assert_eq!((job.granted(), job.extension().unwrap()), (3000, 3000));
    assert!(job.is_own(Ino(1 << 41)) && !job.is_own(ROOT));
    (job.policy.hard_limit, job.policy.allocated_inodes) = (true, 3000);
    assert_eq!(job.extension().unwrap_err().errno, Errno::Quota);
    job.note.unused.push(types::InoRange { start: 1 << 41, end: (1 << 41) + 10 });
    assert_eq!(job.extension().unwrap(), 10);
}

#[test]
fn the_policy_says_what_a_sync_and_a_persist_do() {
    let job = sync::tests::job("invisible-local", 2);
    assert_eq!(job.visible(), composition("append_client_journal+local_persist+volatile_apply"));
    assert_eq!(job.persisting(), Some(composition("local_persist")));
    assert_eq!(sync::tests::job("invisible-local", 0).persisting(), None);
    assert_eq!(sync::tests::job("weak-none", 2).persisting(), None);
}
