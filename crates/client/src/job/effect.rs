//! The wishes of a run of a subtree's job, and their results.

use types::{Epoch, Errno, Error, Result};

use super::{Completion, Earlier, MechanismEffect, MechanismInput};

/// The next wish of a run.
#[derive(Debug)]
pub enum JobEffect {
    /// Make the content of files durable: metadata never names data that is less durable.
    SyncContent,
    /// Read an object.
    Get(String),
    /// Put this earlier journal under a name into the store.
    PutEarlier(usize, String),
    /// Write this earlier journal to a file of its own, durably.
    WriteEarlier(usize),
    /// Give up the inode numbers that are left, if no other process can have used them.
    GiveUp,
    /// The pending events are about to be merged: note the numbers in use, if this machine keeps a
    /// note and no journal on its disk has them.
    NoteUsed,
    /// The term and the rank of the server.
    Term,
    /// Read all journals on this disk.
    LocalJournals,
    /// An effect of the composition, on [`JobRun::material`](super::JobRun::material).
    Mechanism(MechanismEffect),
    /// An effect of the merge of this earlier journal.
    Earlier(usize, MechanismEffect),
    /// This earlier journal is merged.
    EarlierMerged(usize),
    /// Delete an object.
    Delete(String),
    /// Write the note of this machine; if the flag is not set, only if there is one.
    Remember(bool),
    /// The end.
    Done(Result<Completion>),
}

/// The result of the last effect.
#[derive(Debug)]
pub enum JobInput {
    /// The beginning.
    Start,
    /// An effect without a result.
    Done(Result<()>),
    /// Of [`JobEffect::Get`]; nothing if there is no such object.
    Object(Result<Option<Vec<u8>>>),
    /// Of [`JobEffect::Term`].
    Term(Epoch),
    /// Of [`JobEffect::LocalJournals`].
    Journals(Result<Vec<Earlier>>),
    /// Of an effect of a mechanism.
    Mechanism(MechanismInput),
}

impl JobInput {
    pub(super) fn done(self) -> Result<()> {
        if let Self::Done(result) = self { result } else { Err(out_of_order()) }
    }

    pub(super) fn object(self) -> Result<Option<Vec<u8>>> {
        if let Self::Object(result) = self { result } else { Err(out_of_order()) }
    }

    pub(super) fn term(self) -> Result<Epoch> {
        if let Self::Term(term) = self { Ok(term) } else { Err(out_of_order()) }
    }

    pub(super) fn journals(self) -> Result<Vec<Earlier>> {
        if let Self::Journals(result) = self { result } else { Err(out_of_order()) }
    }

    pub(super) fn mechanism(self) -> MechanismInput {
        if let Self::Mechanism(input) = self { input } else { MechanismInput::Start }
    }
}

#[track_caller]
fn out_of_order() -> Error {
    debug_assert!(false, "the driver gave the result of another effect");
    Error::new(Errno::Io, "job", "the result of another effect")
}
