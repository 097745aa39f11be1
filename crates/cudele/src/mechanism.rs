//! Carries out the mechanisms that a decoupled client completes its policy with: the effects of
//! [`client::CompositionRun`].
//!
//! The members of a parallel composition (`||`) run on threads of their own.

mod local_persist;

pub(crate) use local_persist::keep_part;

use std::sync::{Mutex, PoisonError};
use std::thread::ScopedJoinHandle;

pub use client::{Completion, MergedBy, Step};
use client::{
    CompositionRun, Earlier, EarlierMerge, Material, MechanismEffect, MechanismInput,
    MechanismStage, References, SentMerge,
};
use objstore::{Expect, SyncScope};
use policy::Mechanism;
use types::{Errno, Error, Ino, Result};
use wire::{Answer, Op, ReadOp};

use crate::subtree::Written;
use crate::{Fs, Stage, StateDir};

/// The places that mechanisms work on, and the journal.
#[derive(Debug)]
pub(crate) struct Workplace<'a> {
    pub(crate) fs: &'a Fs,
    pub(crate) state: &'a StateDir,
    pub(crate) material: Material<'a>,
    /// Runs that are written by now, if any are.
    pub(crate) written: Mutex<Option<Written>>,
}

impl Workplace<'_> {
    /// Carries a member of a parallel composition out.
    fn run_member(&self, mut member: CompositionRun) -> CompositionRun {
        let mut input = MechanismInput::Start;
        while let Some(effect) = member.handle_member(&self.material, crate::moment(), input) {
            input = self.execute(effect);
        }
        member
    }

    /// Carries out an effect on the journal.
    pub(crate) fn execute(&self, effect: MechanismEffect) -> MechanismInput {
        match effect {
            MechanismEffect::WriteFile { from } => {
                MechanismInput::Bytes(local_persist::write_journal(self, from))
            }
            MechanismEffect::WriteObject { from } => MechanismInput::Bytes(self.write_object(from)),
            MechanismEffect::Written(is_empty) => MechanismInput::Written(self.written(is_empty)),
            MechanismEffect::Fork(members) => MechanismInput::Joined(self.fork(members)),
            MechanismEffect::Merge(merge) => {
                let Material { subtree, header, blocks, unused, .. } = &self.material;
                let header = header.encode();
                MechanismInput::Answer(send(self.fs, &merge, *subtree, unused, &header, blocks))
            }
            effect @ (MechanismEffect::Note(..)
            | MechanismEffect::Root
            | MechanismEffect::Put(..)
            | MechanismEffect::Get(_)
            | MechanismEffect::Exists(_)
            | MechanismEffect::Delete(_)
            | MechanismEffect::Checkpoint
            | MechanismEffect::Done(_)) => execute(self.fs, self.material.subtree, effect),
        }
    }

    /// Global Persist (M-07): the journal goes into the object store, where any other machine finds
    /// it.
    fn write_object(&self, from: usize) -> Result<u64> {
        let (store, material) = (self.fs.store(), &self.material);
        let object = material.object.unwrap_or_default();
        let note = |stage| self.fs.observed().note(Mechanism::GlobalPersist, stage);
        let header = material.header.encode();
        let first = (from == 0).then_some(header.as_slice());
        let left = material.blocks[from..].iter().map(Vec::as_slice);
        let parts: Vec<&[u8]> = first.into_iter().chain(left).collect();
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let offset = if from == 0 { 0 } else { material.offset_of(from) };
        // Writing at an offset makes a second attempt harmless.
        store.write_gathered(object, offset, &parts)?;
        note(Stage::Written);
        store.sync(SyncScope::Object(object))?;
        note(Stage::Synced);
        Ok(bytes as u64)
    }

    fn written(&self, is_empty: bool) -> Result<Option<References>> {
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Material { header, blocks, .. } = &self.material;
        written.map(|written| written.finish(header, blocks, is_empty)).transpose()
    }

    fn fork(&self, members: Vec<CompositionRun>) -> Vec<CompositionRun> {
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for member in members {
                let (thread, spare) = (self.fs.cluster().thread("mechanism"), member.clone());
                match thread.and_then(|it| it.spawn_scoped(scope, || self.run_member(member))) {
                    Ok(thread) => threads.push(Ok((spare, thread))),
                    // There can be no more threads: then one runs after the other.
                    Err(_) => threads.push(Err(spare)),
                }
            }
            let finish = |(spare, thread): (CompositionRun, ScopedJoinHandle<'_, _>)| {
                let panicked =
                    |_| spare.failed(Error::new(Errno::Io, "mechanism", "its thread panicked"));
                thread.join().unwrap_or_else(panicked)
            };
            let ended = threads.into_iter();
            ended.map(|thread| thread.map_or_else(|it| self.run_member(it), finish)).collect()
        })
    }
}

/// Merges a journal of an earlier process, or a part of this one.
pub(crate) fn merge_earlier(
    fs: &Fs,
    root: Ino,
    journal: &Earlier,
    mut merge: EarlierMerge,
) -> Result<Completion> {
    let mut input = MechanismInput::Start;
    loop {
        let effect = merge.handle(journal, crate::moment(), input);
        if let MechanismEffect::Done(result) = effect {
            return result;
        }
        input = on_earlier(fs, root, journal, effect);
    }
}

/// Carries out an effect of the merge of such a journal.
pub(crate) fn on_earlier(
    fs: &Fs,
    root: Ino,
    journal: &Earlier,
    effect: MechanismEffect,
) -> MechanismInput {
    let MechanismEffect::Merge(merge) = effect else { return execute(fs, root, effect) };
    let rest: [&[u8]; 0] = [];
    MechanismInput::Answer(send(fs, &merge, root, &[], &journal.bytes, &rest))
}

/// An object, if it exists.
pub(crate) fn get(fs: &Fs, name: &str) -> Result<Option<Vec<u8>>> {
    match fs.store().get(name) {
        Ok((bytes, _)) => Ok(Some(bytes)),
        Err(error) if error.errno == Errno::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Carries out an effect that needs no journal.
fn execute(fs: &Fs, root: Ino, effect: MechanismEffect) -> MechanismInput {
    let store = fs.store();
    match effect {
        MechanismEffect::Note(mechanism, stage) => {
            let stage = match stage {
                MechanismStage::Begun => Stage::Begun,
                MechanismStage::Applied => Stage::Applied,
                MechanismStage::Ended => Stage::Ended,
            };
            fs.observed().note(mechanism, stage);
            MechanismInput::Done(Ok(()))
        }
        MechanismEffect::Root => {
            MechanismInput::Answer(fs.call(Op::Read(ReadOp::GetAttr { ino: root })))
        }
        // An existing object of this name has the same content, or is replaced.
        MechanismEffect::Put(name, bytes) => {
            MechanismInput::Done(store.put(&name, &bytes, Expect::Any).map(drop))
        }
        MechanismEffect::Get(name) => MechanismInput::Object(get(fs, &name)),
        MechanismEffect::Exists(name) => {
            MechanismInput::Exists(fs.size_of(&name).map(|size| size.is_some()))
        }
        MechanismEffect::Delete(name) => MechanismInput::Done(store.delete(&name).map(drop)),
        MechanismEffect::Checkpoint => MechanismInput::Done(fs.checkpoint()),
        MechanismEffect::Merge(_) => {
            MechanismInput::Answer(Err(Error::of(Errno::Invalid, "mechanism")))
        }
        // These need a journal in memory: only a `Workplace` has one.
        MechanismEffect::Written(_) => MechanismInput::Written(Ok(None)),
        MechanismEffect::WriteFile { .. } | MechanismEffect::WriteObject { .. } => {
            MechanismInput::Bytes(Err(Error::of(Errno::Invalid, "mechanism")))
        }
        MechanismEffect::Fork(members) => MechanismInput::Joined(members),
        MechanismEffect::Done(result) => MechanismInput::Done(result.map(drop)),
    }
}

/// Sends a merge into a subtree, with the inode numbers that go back, and the journal behind it.
fn send(
    fs: &Fs,
    merge: &SentMerge,
    subtree: Ino,
    unused: &[u8],
    header: &[u8],
    blocks: &[impl AsRef<[u8]>],
) -> Result<Answer> {
    let chunks = merge.parts(header, blocks);
    let bytes = chunks.iter().map(|chunk| chunk.len() as u64).sum();
    let op = merge.op(subtree, bytes, unused);
    if chunks.is_empty() { fs.call(op) } else { fs.call_with_chunks(op, &chunks) }
}
