//! The life of a decoupled subtree, as values.
//!
//! [`CompositionRun`] carries the mechanisms of a policy out on a journal: [`Material`] is the
//! journal, and [`CompositionRun::handle`] takes the result of the last effect and returns the next
//! one: write a file, write an object, send a merge, and so on. The driver carries the effect out.
//! The members of a parallel composition (`||`) are values of their own, which the driver may run
//! at the same time.
//!
//! The mechanisms only read the journal. Its memory is given up when all are complete.

mod apply;
mod by_reference;
mod change;
mod completion;
mod composition;
mod content;
mod earlier;
mod effect;
mod part;
mod places;
mod run;
mod sync;
mod takeover;
mod work;

pub use by_reference::{References, SentJournal, SentMerge};
pub use change::ChangeStep;
pub use completion::{Completion, MergedBy, Reached, Step, sum_of_reports};
pub use composition::{CompositionRun, Material, MechanismEffect, MechanismInput, MechanismStage};
pub use earlier::{Earlier, EarlierMerge, Sealed};
pub use effect::{JobEffect, JobInput};
pub use part::{PartEffect, PartRun};
pub use places::Places;
pub use run::JobRun;
pub use sync::{JournalPart, PartSync, SyncDue, SyncWhen};
pub use takeover::LeftJournals;
pub use work::{HeldPart, OwnerNote, SubtreeJob};

#[cfg(test)]
mod tests;
