//! Merges by reference: the runs in front of a journal become directories.
//!
//! The server checks, at a cost independent of the number of names: that the directories' numbers
//! are the client's own and unused, that each run is one that the list states (its header, index
//! and footer are read, and their checksums must be right), and that there are no more names than
//! numbers. Readers check the rows themselves, against the manifest's facts about the run
//! (`metastore::Attached`).
//!
//! Directories that the journal made have no name until the rest of the journal is merged, so they
//! are attached first. The root of the subtree has one: its run is attached last, by the same
//! compare-and-swap that stores a directory, and only if the directory has no names. So no client's
//! name can lose to a run, and the run of a root is attached completely or not at all.

use metastore::request::{StoreFailure, StoreOp, StoreResult};
use metastore::{DirRun, ProofStatement, RunId, RunList};
use types::{Cred, Errno, Ino, InoRange, Set};
use wire::Failure;

use super::{JournalId, Merge, MergeCx, MergeNeed, MergeStage, Merges};
use crate::{MdsEffects, Waiting};

/// The runs of a merge.
#[derive(Debug)]
pub(super) struct Runs {
    list: RunList,
    /// The directories of the list.
    dirs: Set<Ino>,
    step: Step,
}

/// How far they are attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Nothing is.
    Begin,
    /// The directories that the journal made are.
    Root,
    /// The root's run matches the list.
    Proved,
    /// The root's manifest is being written.
    Writing,
    /// All are.
    Done,
}

/// The next step of a merge.
enum Next {
    Apply,
    /// Until the store has answered.
    Wait,
    /// Until these runs are the root's directory.
    Write(Vec<DirRun>),
    /// Until a directory is here.
    Fetch(Ino),
}

impl Runs {
    fn of_root(&self, subtree: Ino) -> Vec<DirRun> {
        self.list.dirs.iter().filter(|run| run.dir == subtree).copied().collect()
    }
}

impl Merge {
    /// Whether a directory is one of the runs in front of the journal.
    pub(super) fn is_run(&self, dir: Ino) -> bool {
        self.runs.as_ref().is_some_and(|runs| runs.dirs.contains(&dir))
    }

    /// Whether an event sets the times of a directory that was attached: it does not need the
    /// content of the directory.
    pub(super) fn sets_time_of_run(&self, event: &journal::Event<'_>) -> bool {
        matches!(*event, journal::Event::SetAttr { ino, .. } if self.is_run(ino))
    }
}

impl Merges {
    /// A directory is stored: the merge with that root continues.
    pub(crate) fn root_attached(&mut self, dir: Ino) {
        let Some(merge) = self.queue.front_mut().filter(|merge| merge.subtree == dir) else {
            return;
        };
        if let Some(runs) = merge.runs.as_mut().filter(|runs| runs.step == Step::Writing) {
            runs.step = Step::Done;
            self.resume();
        }
    }

    /// The store has done a step of attaching runs.
    pub(crate) fn attach_stored(
        &mut self,
        id: u64,
        result: Result<StoreResult, Box<StoreFailure>>,
        effects: &mut MdsEffects,
    ) {
        if self.queue.front().is_none_or(|merge| merge.id != id) {
            return;
        }
        self.resume();
        if let Err(failure) = result
            && let Some(merge) = self.queue.pop_front()
        {
            let failure = Failure { errno: failure.error.errno, text: failure.error.to_string() };
            effects.reply_error(merge.at, failure);
        }
    }
}

impl MergeCx<'_> {
    /// Takes the list off the front of a merge, and makes the checks that are possible at once.
    pub(super) fn take_runs(&self, merge: &mut Merge) -> Result<(), Failure> {
        assert!(merge.runs.is_none(), "the list of runs is taken off once");
        let (list, rest) = RunList::decode(&merge.bytes).map_err(|malformed| {
            let text = format!(
                "list of runs: at byte {}: expected {}",
                malformed.offset, malformed.expected
            );
            Failure { errno: Errno::BadMessage, text }
        })?;
        let rest = rest.to_vec();
        if merge.flags.check {
            self.check_proof(merge, &list, &rest)?;
        }
        let refuse = |text: &str| Failure { errno: Errno::NotPermitted, text: text.into() };
        let numbers = merge.ranges.iter().fold(0u64, |sum, range| sum.saturating_add(range.len()));
        let names = list.dirs.iter().fold(0u64, |sum, run| sum.saturating_add(run.run.rows));
        if names > numbers {
            return Err(refuse("the runs have more names than their client has inode numbers"));
        }
        let (mut dirs, mut runs) = (Set::<Ino>::default(), Set::<(Ino, RunId)>::default());
        for group in list.dirs.chunk_by(|one, next| one.dir == next.dir) {
            let is_new = group.iter().all(|run| runs.insert((run.dir, run.run.id)));
            if !dirs.insert(group[0].dir) || !is_new {
                return Err(refuse("a directory or a run is listed twice"));
            }
        }
        for DirRun { dir, run, .. } in &list.dirs {
            let is_own = merge.ranges.iter().any(|range| range.contains(*dir));
            if !run.id.is_clients() || !(is_own || *dir == merge.subtree) {
                return Err(refuse("a directory that is not the client's to attach is listed"));
            }
        }
        merge.bytes = rest;
        merge.runs = Some(Box::new(Runs { list, dirs, step: Step::Begin }));
        Ok(())
    }

    /// Where every event has to be judged, runs are accepted only with the proof of a verifier that
    /// has judged them. The rest of the journal is judged here, and so is whether the root still
    /// looks as it did then.
    fn check_proof(&self, merge: &Merge, list: &RunList, rest: &[u8]) -> Result<(), Failure> {
        let refuse = |text: &str| Failure { errno: Errno::NotSupported, text: text.into() };
        let (Some(key), Some(proof)) = (&self.settings.proof_key, &list.proof) else {
            return Err(refuse(
                "the policy has every event judged, and nobody proves that these were",
            ));
        };
        let owner = self.tables.decoupled.get(&merge.subtree);
        let root = self.namespace.directory_to_read(&Cred::root(), merge.subtree, b"");
        let (Some(owner), Ok(root)) = (owner, root) else {
            return Err(refuse("the subtree is nobody's any more"));
        };
        let list = RunList { proof: None, ..list.clone() }.encode();
        let (client, epoch, cred) = (merge.client, owner.epoch, &merge.cred);
        let statement = ProofStatement { root: &root, client, epoch, cred, list: &list, rest };
        if !statement.is_proved_by(proof, key) {
            return Err(refuse("the proof is not of these runs, this user and this subtree"));
        }
        if self.namespace.access(&merge.cred, merge.subtree, 2).is_err() {
            return Err(refuse("the user may not write to the directory"));
        }
        Ok(())
    }

    /// Another merge has applied the whole journal: no run is attached again, and the rest of the
    /// journal is skipped.
    pub(super) fn skip_if_whole(&self, merge: &mut Merge) {
        let Some(runs) = &merge.runs else { return };
        let (whole, last) = (JournalId(runs.list.journal), runs.list.last);
        let done = self.merges.done.get(&merge.subtree);
        if done.is_some_and(|done| done.journal == whole && done.seq >= last) {
            (merge.journal, merge.runs) = (whole, None);
        }
    }

    /// A merge by reference is applied completely: if its client misses the answer and merges the
    /// journal by value, no event is applied twice.
    pub(super) fn note_whole(&mut self, merge: &Merge) {
        let Some(runs) = &merge.runs else { return };
        let journal = JournalId(runs.list.journal);
        self.merges.note_done(merge.subtree, journal, runs.list.last, merge.is_recorded());
        self.counters.attached_rows += runs.list.dirs.iter().map(|run| run.run.rows).sum::<u64>();
    }

    /// Continues to attach runs, and keeps the merge at the head of the queue unless it is refused.
    pub(super) fn attach_step(
        &mut self,
        mut merge: Merge,
        effects: &mut MdsEffects,
    ) -> Option<MergeNeed> {
        let next = match merge.runs.take() {
            Some(mut runs) => {
                let next = self.attach_next(&merge, &mut runs, effects);
                merge.runs = Some(runs);
                next
            }
            None => Ok(Next::Apply),
        };
        let need = match next {
            Ok(Next::Apply) => {
                merge.stage = MergeStage::Applying;
                self.merges.queue.push_front(merge);
                return None;
            }
            Ok(Next::Wait) => None,
            Ok(Next::Write(root)) => {
                let ranges = guard(&merge);
                Some(MergeNeed::AttachRoot { subtree: merge.subtree, root, ranges })
            }
            Ok(Next::Fetch(dir)) => Some(MergeNeed::Directory(dir)),
            Err(failure) => {
                effects.reply_error(merge.at, failure);
                return None;
            }
        };
        self.merges.waiting = true;
        self.merges.queue.push_front(merge);
        need
    }

    fn attach_next(
        &mut self,
        merge: &Merge,
        runs: &mut Runs,
        effects: &mut MdsEffects,
    ) -> Result<Next, Failure> {
        let root = runs.of_root(merge.subtree);
        match (runs.step, root.is_empty()) {
            (Step::Begin, _) => {
                assert!(merge.applied == 0, "runs are attached before the journal is applied");
                let op = self.attach_made(merge, &runs.list)?;
                runs.step = Step::Root;
                self.store.begin(Waiting::Attach(merge.id), op, effects);
                Ok(Next::Wait)
            }
            (Step::Root, false) => {
                runs.step = Step::Proved;
                self.store.begin(
                    Waiting::Attach(merge.id),
                    StoreOp::ProveRuns { runs: root },
                    effects,
                );
                Ok(Next::Wait)
            }
            (Step::Proved, false) => {
                if !self.may_attach_root(merge.subtree)? {
                    return Ok(Next::Fetch(merge.subtree));
                }
                runs.step = Step::Writing;
                Ok(Next::Write(root))
            }
            (Step::Writing, false) => Ok(Next::Wait),
            (Step::Done, _) | (Step::Root | Step::Proved | Step::Writing, true) => {
                runs.step = Step::Done;
                Ok(Next::Apply)
            }
        }
    }

    /// Makes directories of the runs that the journal made.
    fn attach_made(&mut self, merge: &Merge, list: &RunList) -> Result<StoreOp, Failure> {
        if list.dirs.iter().any(|run| self.stands_for_something(merge, run.dir)) {
            let text = "a directory that exists is to be attached".into();
            return Err(Failure { errno: Errno::Exists, text });
        }
        let made = list.dirs.iter().filter(|run| run.dir != merge.subtree);
        let dirs: Vec<DirRun> = made.copied().collect();
        for run in &dirs {
            // A dry run may have looked for it, in vain.
            self.namespace.store().leave_to_store(run.dir);
        }
        if !dirs.is_empty() {
            // No event says how much is in them.
            self.namespace.doubt_quotas(merge.subtree);
        }
        // No event that is not safe yet concerns these directories, which no client has seen.
        let (position, ranges) = (self.log.safe(), guard(merge));
        Ok(StoreOp::AttachDirs { dirs, position, ranges })
    }

    /// Whether a directory that is to be attached is in use, so that a client may know it.
    fn stands_for_something(&self, merge: &Merge, dir: Ino) -> bool {
        let is_used =
            self.namespace.dirs().counts(dir).0 > 0 || self.namespace.dirs().unstored(dir).0;
        dir != merge.subtree && (self.namespace.knows(dir) || is_used)
    }

    /// Whether the run of a root may be attached now; if not, when the directory was fetched.
    fn may_attach_root(&self, root: Ino) -> Result<bool, Failure> {
        if !self.namespace.is_complete(root) || self.namespace.dirs().is_flushing(root) {
            return Ok(false);
        }
        if self.namespace.dirs().counts(root).0 == 0 {
            return Ok(true);
        }
        let text = "the directory has names by now; what is in it must be merged by value".into();
        Err(Failure { errno: Errno::NotEmpty, text })
    }
}

/// The numbers that rows of the runs may have. Numbers that the client gives back with this merge
/// will soon be another client's.
fn guard(merge: &Merge) -> Vec<InoRange> {
    let rest = |range: &InoRange| {
        let ends = merge.unused.iter().map(|back| back.rest_of(*range).end);
        InoRange { end: ends.min().unwrap_or(range.end), ..*range }
    };
    let ranges = merge.ranges.iter().map(rest);
    ranges.filter(|range| !range.is_empty()).collect()
}
