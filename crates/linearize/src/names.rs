//! Names in directories, as several clients of one server see them, and the changes that crashes
//! may undo.
//!
//! # What is checked
//!
//! A *place* is a name in a directory; it holds a thing, which has a number and is a directory or
//! is not. A look-up, listing, creation, removal, move, exchange or link is judged by its claims
//! about places: that a place was free or taken, by which number, that a directory was empty.
//! Attributes and permissions are ignored: a rejection for such a reason claims nothing about
//! places. Directories are identified by their numbers, so a moved directory changes one place.
//!
//! # What a crash of the server may undo
//!
//! The promise of a strong subtree (`rpcs+stream`) is that an applied change survives the crash of
//! either side: the server's journal has it, or the client that received the reply sends it again
//! before any other request. So a crash may undo a change only if both fail:
//!
//! 1. No client knew by then that the journal has the change ([`RecordedCall::safe`]), and
//! 2. its client had not received the reply, or did not live to send the request again, or came
//!    back later than the server waits, or learnt later that the change is lost
//!    ([`RecordedCall::doubt`]).
//!
//! Any subset of such changes may be gone after a crash; the server replays the rest in order, and
//! each must be possible in the resulting state: a change that rests on a lost change is lost only
//! if its client learns of it. An answer that another client got before a change was undone was
//! true at that time. Clients see the namespace without the change after the crash, not before. (A
//! client that waits for `sync`, or a policy with `ack: safe`, never learns of such a loss of its
//! own changes.)
//!
//! A client that waits for an answer retries after a crash. So a change without an answer may take
//! effect, be undone, and take effect again, once between any two crashes, and its answer is that
//! of the last time; the resulting state never has its effect twice. The same holds for changes of
//! clients that come back late. If an answered change builds on it, such as the removal of a new
//! file, the server does both again in their order, and the first may make another thing.
//!
//! The check is weaker than the truth in one respect: it decides for each group of places
//! separately which changes a crash takes, and these need not be the end of the journal. A change
//! that survived one crash may be lost in the next.

mod compile;
mod place;
mod state;
#[cfg(test)]
mod tests;

use types::{Errno, Ino};

use crate::{Verdict, check};

pub use place::Place;

/// The content of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PlaceContent {
    /// Its number.
    pub ino: Ino,
    /// Whether it is a directory.
    pub dir: bool,
}

/// The request of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// What is there?
    Look(Place),
    /// Lists a directory. The answer has all of it, or some ([`Seen::Some`]).
    List(Ino),
    /// Creates a directory or something else.
    Make {
        /// Where.
        at: Place,
        /// A directory.
        dir: bool,
    },
    /// Gives a thing that is not a directory one more place.
    Link {
        /// The thing.
        ino: Ino,
        /// Where.
        at: Place,
    },
    /// Removes an empty directory, or anything else.
    Remove {
        /// Where.
        at: Place,
        /// A directory.
        dir: bool,
    },
    /// Moves the content of a place to another place.
    Move {
        /// From here.
        from: Place,
        /// To here.
        to: Place,
        /// The two places exchange their content.
        exchange: bool,
        /// The second place must be free.
        no_replace: bool,
    },
}

impl Act {
    /// The places that it names.
    #[must_use]
    pub fn places(&self) -> Vec<Place> {
        match self {
            Act::Look(at)
            | Act::Make { at, .. }
            | Act::Link { at, .. }
            | Act::Remove { at, .. } => vec![at.clone()],
            Act::Move { from, to, .. } => vec![from.clone(), to.clone()],
            Act::List(_) => Vec::new(),
        }
    }
}

/// The answer to a successful request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// That it is done.
    Done,
    /// The thing in the place, or the created thing.
    PlaceContent(PlaceContent),
    /// All names of a directory.
    All(Vec<(Vec<u8>, PlaceContent)>),
    /// Some names of a directory.
    Some(Vec<(Vec<u8>, PlaceContent)>),
}

/// The end of a request as its client saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallOutcome {
    /// It succeeded.
    Did(Seen),
    /// It was refused, and had no effect.
    Refused(Errno),
    /// Something ended it that does not say whether it had its effect.
    Unknown,
}

/// How a change may have been carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PossibleEffect {
    /// When, in the measure of [`RecordedCall::hint`].
    pub hint: u64,
    /// The created thing, or 0.
    pub made: Ino,
    /// The next crash undid it.
    pub undone: bool,
}

/// A request of a client, from beginning to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedCall {
    /// What was asked.
    pub act: Act,
    /// When.
    pub start: u64,
    /// When the client saw its end, and how it ended. None if it never did.
    pub end: Option<(u64, CallOutcome)>,
    /// When the change may have happened, as far as that is known; a guess makes the search
    /// faster, and nothing else.
    pub hint: u64,
    /// Further times at which the call may have taken effect: also without any answer, and again
    /// after a crash. In order of likelihood; guesses like the hint.
    pub guesses: Vec<PossibleEffect>,
    /// The time from which some client knew that the change survives every crash.
    pub safe: u64,
    /// A crash before this time may undo the change although its client heard of it.
    pub doubt: u64,
}

impl RecordedCall {
    /// A request without an end yet, of a client that lives on.
    #[must_use]
    pub fn new(act: Act, start: u64) -> Self {
        Self { act, start, end: None, hint: start, guesses: Vec::new(), safe: u64::MAX, doubt: 0 }
    }

    /// The same with its end.
    #[must_use]
    pub fn ended(self, at: u64, outcome: CallOutcome) -> Self {
        Self { end: Some((at, outcome)), hint: at, ..self }
    }

    /// Whether it may change something.
    #[must_use]
    pub fn is_change(&self) -> bool {
        !matches!(self.act, Act::Look(_) | Act::List(_))
    }
}

/// A crash of the server: it happened between two times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crash {
    /// Not before this.
    pub start: u64,
    /// Not after this.
    pub end: u64,
    /// In the measure of [`RecordedCall::hint`].
    pub hint: u64,
}

/// Everything that happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The initial content of places. All remaining places were free.
    pub initial: Vec<(Place, PlaceContent)>,
    /// What clients asked.
    pub calls: Vec<RecordedCall>,
    /// In order; no two overlap.
    pub crashes: Vec<Crash>,
}

/// The verdict on a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// Some order of the requests explains every answer.
    Linearizable,
    /// None does; this is how far the best one gets.
    Violation(String),
    /// The search was given up.
    Unknown(String),
}

impl History {
    /// Judges the history. `steps_max` limits the work for each group of places that have to do
    /// with each other.
    #[must_use]
    pub fn judge(&self, steps_max: u64) -> Judgement {
        for group in compile::groups(self) {
            match check(&group.names, &group.initial, &group.entries, steps_max) {
                Verdict::Linearizable(_) => {}
                Verdict::Violation { order, stuck } => {
                    return Judgement::Violation(group.explain(self, &order, &stuck));
                }
                Verdict::Unknown { order, stuck } => {
                    return Judgement::Unknown(group.explain(self, &order, &stuck));
                }
            }
        }
        Judgement::Linearizable
    }
}
