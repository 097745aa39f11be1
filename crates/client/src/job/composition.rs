//! The mechanisms that a decoupled client completes its policy with, and their composition.
//!
//! Each mechanism works on the same *material*: the client's journal, as a header and closed
//! blocks. Invariant: a composition may run again after any failure; nothing is applied twice.

use journal::SegmentHeader;
use policy::{Cell, Composition, Mechanism};
use types::{Errno, Error, Ino, Moment, Result, Seq};
use wire::{Answer, MergeFlags};

use super::apply::{Apply, ApplyKind};
use super::by_reference::{References, SentMerge};
use super::{Completion, Reached, Step};
use crate::RunThreshold;

/// The input of the mechanisms.
#[derive(Clone, Copy, Debug)]
pub struct Material<'a> {
    /// The root of the subtree.
    pub subtree: Ino,
    /// The header of the journal.
    pub header: SegmentHeader,
    /// Its closed blocks.
    pub blocks: &'a [Vec<u8>],
    /// How many of the blocks Local Persist has dealt with before.
    pub persisted_locally: usize,
    /// The same of Global Persist.
    pub persisted_globally: usize,
    /// How to merge.
    pub merge: MergeFlags,
    /// Whether the policy asks for merging by reference, and nothing is against it.
    pub by_reference: bool,
    /// The directories that are worth a run.
    pub worth: RunThreshold,
    /// Inode numbers that go back, if the merge gives the subtree back.
    pub unused: &'a [u8],
    /// The journal object, if a mechanism puts the journal into the store.
    pub object: Option<&'a str>,
}

impl Material<'_> {
    /// The position of the last event.
    pub(super) fn last_seq(&self) -> Option<Seq> {
        let (block, _) = journal::Block::read(self.blocks.last()?, 0).ok()?;
        Some(Seq(block.first_seq.0 + u64::from(block.count) - 1))
    }

    /// The journal's bytes: header and blocks.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let blocks: usize = self.blocks.iter().map(Vec::len).sum();
        (journal::segment::HEADER_BYTES + blocks) as u64
    }

    /// The offset of a block in the file or the object of the journal.
    #[must_use]
    pub fn offset_of(&self, block: usize) -> u64 {
        let before: usize = self.blocks[..block].iter().map(Vec::len).sum();
        (journal::segment::HEADER_BYTES + before) as u64
    }
}

/// A stage of a mechanism that no effect shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MechanismStage {
    /// The mechanism is about to begin.
    Begun,
    /// The server said that the journal is applied.
    Applied,
    /// The mechanism is complete.
    Ended,
}

/// The next wish of a composition.
#[derive(Debug)]
pub enum MechanismEffect {
    /// A mechanism reached a stage.
    Note(Mechanism, MechanismStage),
    /// Write the journal to its file on this disk, durably, from this block on; from 0 a new file
    /// with the header, which replaces an older one when it is complete.
    WriteFile {
        /// The first block.
        from: usize,
    },
    /// Write the journal to the object of the material, durably, from this block on; from 0 with
    /// the header.
    WriteObject {
        /// The first block.
        from: usize,
    },
    /// Read the attributes of the root of the subtree.
    Root,
    /// Return the runs that were written during the job, if there are any. The flag says whether
    /// the server has no names in the root.
    Written(bool),
    /// Put an object. An existing object of the name may be replaced.
    Put(String, Vec<u8>),
    /// Read an object.
    Get(String),
    /// Whether an object exists.
    Exists(String),
    /// Delete an object.
    Delete(String),
    /// Wait until the metadata store has everything, and the server's journal is trimmed.
    Checkpoint,
    /// Send a merge.
    Merge(SentMerge),
    /// Run these compositions to their ends, at the same time if possible.
    Fork(Vec<CompositionRun>),
    /// The end.
    Done(Result<Completion>),
}

/// The result of the last effect.
#[derive(Debug)]
pub enum MechanismInput {
    /// The beginning.
    Start,
    /// Of [`MechanismEffect::Note`], [`MechanismEffect::Put`], [`MechanismEffect::Delete`] and
    /// [`MechanismEffect::Checkpoint`].
    Done(Result<()>),
    /// The bytes of [`MechanismEffect::WriteFile`] or [`MechanismEffect::WriteObject`].
    Bytes(Result<u64>),
    /// Of [`MechanismEffect::Root`] and [`MechanismEffect::Merge`].
    Answer(Result<Answer>),
    /// Of [`MechanismEffect::Get`]; nothing if there is no such object.
    Object(Result<Option<Vec<u8>>>),
    /// Of [`MechanismEffect::Exists`].
    Exists(Result<bool>),
    /// Of [`MechanismEffect::Written`].
    Written(Result<Option<References>>),
    /// The members of [`MechanismEffect::Fork`], each at its end.
    Joined(Vec<CompositionRun>),
}

impl MechanismInput {
    pub(super) fn done(self) -> Result<()> {
        if let Self::Done(result) = self { result } else { Err(out_of_order()) }
    }

    pub(super) fn bytes(self) -> Result<u64> {
        if let Self::Bytes(result) = self { result } else { Err(out_of_order()) }
    }

    pub(super) fn answer(self) -> Result<Answer> {
        if let Self::Answer(result) = self { result } else { Err(out_of_order()) }
    }

    pub(super) fn object(self) -> Result<Option<Vec<u8>>> {
        if let Self::Object(result) = self { result } else { Err(out_of_order()) }
    }

    pub(super) fn exists(self) -> Result<bool> {
        if let Self::Exists(result) = self { result } else { Err(out_of_order()) }
    }

    pub(super) fn written(self) -> Result<Option<References>> {
        if let Self::Written(result) = self { result } else { Err(out_of_order()) }
    }
}

#[track_caller]
fn out_of_order() -> Error {
    debug_assert!(false, "the driver gave the result of another effect");
    Error::new(Errno::Io, "mechanism", "the result of another effect")
}

/// A composition that is carried out. See the module documentation.
#[derive(Clone, Debug)]
pub struct CompositionRun {
    part: Part,
    reached: Reached,
    /// Mechanisms that are complete.
    completed: Vec<Mechanism>,
    start: Option<Moment>,
    result: Option<Result<Completion>>,
}

#[derive(Clone, Debug)]
enum Part {
    Nothing,
    One(One),
    /// The next member is last.
    Serial(Vec<Composition>, Option<Box<CompositionRun>>, Completion),
    Parallel(Vec<Composition>),
}

impl CompositionRun {
    /// A composition that has not begun.
    #[must_use]
    pub fn new(composition: &Composition) -> Self {
        Self::after(composition, Reached::default(), Vec::new())
    }

    fn after(composition: &Composition, reached: Reached, completed: Vec<Mechanism>) -> Self {
        let reversed = |members: &[Composition]| members.iter().rev().cloned().collect();
        let part = match composition {
            Composition::Nothing => Part::Nothing,
            Composition::One(mechanism) => Part::One(One::new(*mechanism)),
            Composition::Serial(members) => {
                Part::Serial(reversed(members), None, Completion::default())
            }
            Composition::Parallel(members) => Part::Parallel(members.clone()),
        };
        Self { part, reached, completed, start: None, result: None }
    }

    /// How far the mechanisms came.
    #[must_use]
    pub fn reached(&self) -> Reached {
        Reached { on_disk: self.completed.contains(&Mechanism::LocalPersist), ..self.reached }
    }

    /// The next effect, after the result of the last one. The material is the same each time.
    pub fn handle(
        &mut self,
        material: &Material<'_>,
        now: Moment,
        input: MechanismInput,
    ) -> MechanismEffect {
        let start = *self.start.get_or_insert(now);
        let effect = self.advance(material, now, input);
        let MechanismEffect::Done(result) = effect else { return effect };
        let result = result.map_err(|error| self.incomplete(error)).map(|mut done| {
            (done.seconds, done.bytes) = (seconds(start, now), material.bytes());
            done
        });
        MechanismEffect::Done(result)
    }

    /// The same for a member of a fork. The driver keeps the member when it is done.
    pub fn handle_member(
        &mut self,
        material: &Material<'_>,
        now: Moment,
        input: MechanismInput,
    ) -> Option<MechanismEffect> {
        let effect = self.advance(material, now, input);
        let MechanismEffect::Done(result) = effect else { return Some(effect) };
        self.result = Some(result);
        None
    }

    /// The member of a fork, if it ended without a result: the server may have been asked to apply
    /// the journal.
    #[must_use]
    pub fn failed(self, error: Error) -> Self {
        let reached = Reached { asked: true, ..self.reached };
        Self { reached, result: Some(Err(error)), ..self }
    }

    fn advance(
        &mut self,
        material: &Material<'_>,
        now: Moment,
        mut input: MechanismInput,
    ) -> MechanismEffect {
        match &mut self.part {
            Part::Nothing => MechanismEffect::Done(Ok(Completion::default())),
            Part::One(one) => {
                one.step(&mut self.reached, &mut self.completed, material, now, input)
            }
            Part::Serial(left, current, done) => loop {
                let Some(member) = current else {
                    let Some(next) = left.pop() else {
                        return MechanismEffect::Done(Ok(std::mem::take(done)));
                    };
                    let completed = self.completed.clone();
                    *current = Some(Box::new(Self::after(&next, self.reached, completed)));
                    input = MechanismInput::Start;
                    continue;
                };
                let effect = member.advance(material, now, input);
                (self.reached, self.completed) = (member.reached, member.completed.clone());
                let MechanismEffect::Done(Ok(completion)) = effect else { return effect };
                done.absorb(completion);
                *current = None;
                input = MechanismInput::Start;
            },
            Part::Parallel(members) => {
                let MechanismInput::Joined(joined) = input else {
                    let (reached, completed) = (self.reached, &self.completed);
                    let member = |it: &Composition| Self::after(it, reached, completed.clone());
                    return MechanismEffect::Fork(members.iter().map(member).collect());
                };
                let mut all = Ok(Completion::default());
                for member in joined {
                    self.reached.asked |= member.reached.asked;
                    self.reached.stored |= member.reached.stored;
                    let new = member.completed.iter().filter(|it| !self.completed.contains(it));
                    let new: Vec<_> = new.copied().collect();
                    self.completed.extend(new);
                    let result = member.result.unwrap_or_else(|| Err(out_of_order()));
                    all = all.and_then(|mut all| {
                        all.absorb(result?);
                        Ok(all)
                    });
                }
                MechanismEffect::Done(all)
            }
        }
    }

    /// The error of a member, with the guarantees of the complete members (P-08).
    fn incomplete(&self, error: Error) -> Error {
        let completed = self.completed.iter().copied();
        let executed = std::iter::once(Mechanism::AppendClientJournal).chain(completed);
        let holds = Cell::of(&Composition::serial(executed.map(Composition::One)));
        let holds = holds.map_or_else(|| "nothing".to_owned(), |cell| cell.to_string());
        let cause = format!("{}; what holds until it is completed again: {holds}", error.cause);
        if error.remedy.is_empty() {
            return Error { cause, ..error }.remedy("complete it again, which is harmless");
        }
        Error { cause, ..error }
    }
}

/// One mechanism.
#[derive(Clone, Debug)]
struct One {
    mechanism: Mechanism,
    start: Moment,
    state: OneState,
}

#[derive(Clone, Debug)]
enum OneState {
    New,
    /// The observer knows that it begins.
    Begun,
    Persisting,
    Applying(Box<Apply>),
    /// The observer knows that it is complete.
    Ended(Completion),
}

impl One {
    fn new(mechanism: Mechanism) -> Self {
        Self { mechanism, start: Moment(0), state: OneState::New }
    }

    fn step(
        &mut self,
        reached: &mut Reached,
        completed: &mut Vec<Mechanism>,
        material: &Material<'_>,
        now: Moment,
        mut input: MechanismInput,
    ) -> MechanismEffect {
        loop {
            match std::mem::replace(&mut self.state, OneState::New) {
                OneState::New => {
                    (self.start, self.state) = (now, OneState::Begun);
                    return MechanismEffect::Note(self.mechanism, MechanismStage::Begun);
                }
                OneState::Begun => match self.begin(material) {
                    Begun::Effect(effect) => return effect,
                    Begun::Apply => input = MechanismInput::Start,
                    Begun::Nothing => return self.end(completed, Completion::default()),
                },
                OneState::Persisting => match input.bytes() {
                    Ok(bytes) => {
                        reached.stored |=
                            self.mechanism == Mechanism::GlobalPersist && material.object.is_some();
                        let steps = vec![self.timed(now, bytes)];
                        return self.end(completed, Completion { steps, ..Completion::default() });
                    }
                    Err(error) => return self.fail(error),
                },
                OneState::Applying(mut apply) => {
                    let effect = apply.step(reached, material, now, input);
                    let MechanismEffect::Done(result) = effect else {
                        self.state = OneState::Applying(apply);
                        return effect;
                    };
                    let mut done = match result {
                        Ok(done) => done,
                        Err(error) => return self.fail(error),
                    };
                    let bytes = std::mem::take(&mut done.bytes);
                    done.steps = vec![self.timed(now, bytes)];
                    return self.end(completed, done);
                }
                OneState::Ended(done) => return MechanismEffect::Done(Ok(done)),
            }
        }
    }

    fn begin(&mut self, material: &Material<'_>) -> Begun {
        let mut apply = |kind| {
            self.state = OneState::Applying(Box::new(Apply::new(kind)));
            Begun::Apply
        };
        match self.mechanism {
            // The job has appended already.
            Mechanism::AppendClientJournal => Begun::Nothing,
            Mechanism::LocalPersist => {
                self.state = OneState::Persisting;
                Begun::Effect(MechanismEffect::WriteFile { from: material.persisted_locally })
            }
            Mechanism::GlobalPersist => {
                if material.object.is_none() {
                    // An empty journal is no object.
                    return Begun::Nothing;
                }
                self.state = OneState::Persisting;
                let from = material.persisted_globally;
                Begun::Effect(MechanismEffect::WriteObject { from })
            }
            Mechanism::VolatileApply => apply(ApplyKind::Volatile),
            Mechanism::NonvolatileApply => apply(ApplyKind::Nonvolatile),
            Mechanism::Rpcs | Mechanism::Stream => {
                let cause =
                    "it says how requests are served and cannot be carried out on a journal";
                let error = Error::new(Errno::Invalid, self.mechanism.name(), cause);
                Begun::Effect(self.fail(error))
            }
        }
    }

    fn timed(&self, now: Moment, bytes: u64) -> Step {
        Step { mechanism: self.mechanism, seconds: seconds(self.start, now), bytes }
    }

    fn end(&mut self, completed: &mut Vec<Mechanism>, done: Completion) -> MechanismEffect {
        completed.push(self.mechanism);
        self.state = OneState::Ended(done);
        MechanismEffect::Note(self.mechanism, MechanismStage::Ended)
    }

    fn fail(&self, error: Error) -> MechanismEffect {
        let cause = format!("{} did not complete: {}", self.mechanism.name(), error.cause);
        MechanismEffect::Done(Err(Error { cause, ..error }))
    }
}

enum Begun {
    Effect(MechanismEffect),
    Apply,
    Nothing,
}

/// A length of time in seconds.
#[allow(clippy::cast_precision_loss, reason = "a length of time for people")]
pub(super) fn seconds(start: Moment, end: Moment) -> f64 {
    end.since(start).0 as f64 / 1e9
}
