//! The merge of one part of the journal during the job: see [`super::PartSync`].

use policy::{Composition, Mechanism};
use types::{Epoch, Error, Ino, Moment, Result};
use wire::MergeFlags;

use super::sync::JournalPart;
use super::{Completion, CompositionRun, JobInput, Material, MechanismEffect, MechanismInput};

/// The next wish of the merge of a part.
#[derive(Debug)]
pub enum PartEffect {
    /// Ask for so many inode numbers, which go to the job. A failure does no harm.
    Extend(u64),
    /// Make the content of files durable: metadata never names data that is less durable.
    SyncContent,
    /// An effect of the mechanisms, on [`PartRun::material`].
    Mechanism(MechanismEffect),
    /// The term and the rank of the server.
    Term,
}

/// See the module documentation.
#[derive(Debug)]
pub struct PartRun {
    pub(super) part: JournalPart,
    subtree: Ino,
    flags: MergeFlags,
    persists: bool,
    pub(super) composition: CompositionRun,
    state: PartState,
    /// The result, and the term of the server.
    pub(super) result: Option<Result<(Completion, Epoch)>>,
}

#[derive(Debug)]
enum PartState {
    Begin,
    Extending,
    Content,
    Composing,
    Term(Completion),
    Ended,
}

impl PartRun {
    /// The merge of a part into the subtree with this root. After a failure of the part before, it
    /// fails, too.
    #[must_use]
    pub fn new(
        part: JournalPart,
        subtree: Ino,
        composition: &Composition,
        flags: MergeFlags,
        failed: Option<Error>,
    ) -> Self {
        let persists = composition.mechanisms().any(Mechanism::persists);
        let (composition, result) = (CompositionRun::new(composition), failed.map(Err));
        Self { part, subtree, flags, persists, composition, state: PartState::Begin, result }
    }

    /// The input of the mechanisms.
    #[must_use]
    pub fn material(&self) -> Material<'_> {
        self.part.material(self.subtree, self.flags)
    }

    /// The number of events.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.part.events()
    }

    /// The error that ended it.
    #[must_use]
    pub fn error(&self) -> Option<&Error> {
        self.result.as_ref()?.as_ref().err()
    }

    /// The next effect, after the result of the last one; none at the end.
    pub fn handle(&mut self, now: Moment, input: JobInput) -> Option<PartEffect> {
        let step = match std::mem::replace(&mut self.state, PartState::Ended) {
            PartState::Begin => match self.part.extend {
                Some(count) => Ok(self.wait(PartState::Extending, PartEffect::Extend(count))),
                None => Ok(self.begin(now)),
            },
            PartState::Extending => Ok(self.begin(now)),
            PartState::Content => input.done().map(|()| self.compose(now, MechanismInput::Start)),
            PartState::Composing => Ok(self.compose(now, input.mechanism())),
            PartState::Term(done) => input.term().map(|term| self.end(Ok((done, term)))),
            PartState::Ended => Ok(None),
        };
        step.unwrap_or_else(|error| self.end(Err(error)))
    }

    fn begin(&mut self, now: Moment) -> Option<PartEffect> {
        if self.result.is_some() {
            return None;
        }
        match self.persists {
            true => self.wait(PartState::Content, PartEffect::SyncContent),
            false => self.compose(now, MechanismInput::Start),
        }
    }

    fn compose(&mut self, now: Moment, input: MechanismInput) -> Option<PartEffect> {
        let material = self.part.material(self.subtree, self.flags);
        let effect = self.composition.handle(&material, now, input);
        let MechanismEffect::Done(result) = effect else {
            return self.wait(PartState::Composing, PartEffect::Mechanism(effect));
        };
        match result {
            Ok(done) => self.wait(PartState::Term(done), PartEffect::Term),
            Err(error) => self.end(Err(error)),
        }
    }

    #[allow(clippy::unnecessary_wraps, reason = "a step")]
    fn wait(&mut self, state: PartState, effect: PartEffect) -> Option<PartEffect> {
        self.state = state;
        Some(effect)
    }

    fn end(&mut self, result: Result<(Completion, Epoch)>) -> Option<PartEffect> {
        self.result = Some(result);
        None
    }
}
