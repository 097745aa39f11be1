//! The job of a client in a decoupled subtree, for workloads whose clients do not wait: a run of
//! crate `client` goes on until it has a question for the server.

use client::{
    Completion, JobEffect, JobInput, JobRun, MechanismEffect, MechanismInput, OwnerNote, SentMerge,
    SubtreeJob,
};
use journal::segment::HEADER_BYTES;
use objstore::{Expect, Memory, ObjectStore};
use policy::{Composition, Policy};
use types::{ClientId, Epoch, Ino, Moment, Result};
use wire::{Answer, MergeFlags, UnusedNumbers};

use crate::call::CallKind;

/// The next step of a run.
#[derive(Debug)]
pub(crate) enum JobStep {
    /// Ask the server to merge the journal at the end, and send the other bytes behind the request.
    Ask(CallKind, Option<Vec<u8>>, Vec<u8>),
    Done(Result<Completion>),
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct RunningJob {
    pub(crate) job: SubtreeJob,
    run: Option<JobRun>,
    /// Unused inode numbers go back with the subtree.
    gives_up: bool,
}

impl RunningJob {
    pub(crate) fn new(
        client: ClientId,
        granted: &wire::Decoupled,
        policy: Policy,
        gives_up: bool,
    ) -> Self {
        let job = SubtreeJob::new(OwnerNote::granted(client, granted), granted.root, policy);
        Self { job, run: None, gives_up }
    }

    pub(crate) fn begin(&mut self, composition: &Composition, flags: MergeFlags) {
        self.run = Some(JobRun::new(composition, flags, None));
    }

    /// Carries the effects of the run out, after the answer to its last question.
    pub(crate) fn pursue(
        &mut self,
        store: &Memory,
        now: Moment,
        term: Epoch,
        answer: Option<Result<Answer>>,
    ) -> JobStep {
        let done = JobStep::Done(Ok(Completion::default()));
        let Self { job, run: Some(run), gives_up } = self else { return done };
        let start = JobInput::Start;
        let mut input = answer.map_or(start, |it| JobInput::Mechanism(MechanismInput::Answer(it)));
        loop {
            input = match run.handle(job, now, input) {
                JobEffect::Done(result) => {
                    self.run = None;
                    return JobStep::Done(result);
                }
                JobEffect::Term => JobInput::Term(term),
                JobEffect::LocalJournals => JobInput::Journals(Ok(Vec::new())),
                JobEffect::Get(name) => JobInput::Object(Ok(get(store, &name))),
                JobEffect::PutEarlier(at, name) => {
                    let put = store.put(&name, &job.earlier[at].bytes, Expect::Any);
                    JobInput::Done(put.map(drop))
                }
                JobEffect::Delete(name) => JobInput::Done(store.delete(&name).map(drop)),
                JobEffect::GiveUp => {
                    if *gives_up {
                        job.note.unused.extend(job.inner.give_up());
                    }
                    JobInput::Done(Ok(()))
                }
                // There is no content, and no disk.
                JobEffect::SyncContent
                | JobEffect::NoteUsed
                | JobEffect::WriteEarlier(_)
                | JobEffect::EarlierMerged(_)
                | JobEffect::Remember(_) => JobInput::Done(Ok(())),
                JobEffect::Mechanism(effect) => {
                    let material = run.material(job);
                    let object = material.object.unwrap_or_default().to_owned();
                    let mut journal = material.header.encode().to_vec();
                    journal.extend(material.blocks.concat());
                    match carry_out(store, &object, &journal, effect) {
                        Ok(input) => JobInput::Mechanism(input),
                        Err(merge) => return ask(&merge, (job.root(), &job.note), &journal),
                    }
                }
                JobEffect::Earlier(at, effect) => {
                    let journal = job.earlier[at].bytes.clone();
                    match carry_out(store, "", &journal, effect) {
                        Ok(input) => JobInput::Mechanism(input),
                        Err(merge) => return ask(&merge, (job.root(), &job.note), &journal),
                    }
                }
            };
        }
    }
}

fn ask(merge: &SentMerge, (root, note): (Ino, &OwnerNote), journal: &[u8]) -> JobStep {
    let unused = if merge.flags.release { UnusedNumbers::encode(&note.unused) } else { Vec::new() };
    let (what, sent) = merge_of(merge, root, journal, unused);
    JobStep::Ask(what, sent, journal.to_vec())
}

/// The request for a merge, and the bytes that follow it.
pub(crate) fn merge_of(
    merge: &SentMerge,
    subtree: Ino,
    journal: &[u8],
    unused: Vec<u8>,
) -> (CallKind, Option<Vec<u8>>) {
    let (header, blocks) = journal.split_at(HEADER_BYTES);
    let blocks = [blocks];
    let parts = merge.parts(header, &blocks);
    let (sent, follows) = (parts.concat(), !parts.is_empty());
    let (object, flags, bytes) = (merge.object.clone(), merge.flags, sent.len() as u64);
    (CallKind::Merge { subtree, bytes, object, flags, unused }, follows.then_some(sent))
}

pub(crate) fn get(store: &Memory, name: &str) -> Option<Vec<u8>> {
    store.get(name).ok().map(|(bytes, _)| bytes)
}

/// Carries out an effect on the store; or returns the merge that it is.
pub(crate) fn carry_out(
    store: &Memory,
    object: &str,
    journal: &[u8],
    effect: MechanismEffect,
) -> std::result::Result<MechanismInput, SentMerge> {
    let put = |name: &str, bytes: &[u8]| store.put(name, bytes, Expect::Any).map(drop);
    Ok(match effect {
        MechanismEffect::Merge(merge) => return Err(merge),
        MechanismEffect::WriteObject { .. } => {
            MechanismInput::Bytes(put(object, journal).map(|()| journal.len() as u64))
        }
        MechanismEffect::Written(_) => MechanismInput::Written(Ok(None)),
        MechanismEffect::Put(name, bytes) => MechanismInput::Done(put(&name, &bytes)),
        MechanismEffect::Get(name) => MechanismInput::Object(Ok(get(store, &name))),
        MechanismEffect::Exists(name) => MechanismInput::Exists(Ok(get(store, &name).is_some())),
        MechanismEffect::Delete(name) => MechanismInput::Done(store.delete(&name).map(drop)),
        _ => MechanismInput::Done(Ok(())),
    })
}
