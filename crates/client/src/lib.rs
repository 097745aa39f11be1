//! A client as a value.
//!
//! [`Session`] speaks to one metadata server: it numbers requests, keeps those that are applied but
//! not yet safe, and sends them again when the server comes back from a crash. [`ClientSubtree`] is
//! a client's own subtree: it appends events to a journal in memory without any request (Append
//! Client Journal, M-03) and computes its own view of the subtree from that journal when a caller
//! looks. Between the two are directories with an exclusive capability: they are the server's, and
//! the client is ahead of it for a moment.
//!
//! Neither does I/O, reads a clock or knows a socket; the crate `cudele` and the simulator execute
//! the effects that they return.

mod branch;
mod cache;
mod decoupled;
mod exclusive;
mod fragments;
mod held;
mod job;
mod leases;
mod left;
mod lent;
mod reach;
mod removal;
mod router;
mod runs;
mod session;
mod sweep;
mod verify;
mod watch;

pub use branch::{
    BranchConflicts, BranchView, Composed, ConflictingName, LayerError, MadeDirs, Sides, conflicts,
    joined, journal_of,
};
pub use cache::VALID;
pub use decoupled::{ClientSubtree, Grant, SubtreeView};
pub use fragments::FragmentMap;
pub use held::FileState;
pub use job::{
    ChangeStep, Completion, CompositionRun, Earlier, EarlierMerge, HeldPart, JobEffect, JobInput,
    JobRun, JournalPart, LeftJournals, Material, MechanismEffect, MechanismInput, MechanismStage,
    MergedBy, OwnerNote, PartEffect, PartRun, PartSync, Places, Reached, References, Sealed,
    SentJournal, SentMerge, Step, SubtreeJob, SyncDue, SyncWhen, sum_of_reports,
};
pub use left::{IntactJournal, LogNeed, LogState, LogStep, in_order};
pub use reach::{Attempts, Delivery, MonitorAttempts, fenced, refusal, server_of, unreached};
pub use removal::RankRemoval;
pub use router::{
    Route, RouteEffect, RouteInput, Router, Sessions, WALKS_MAX, WalkStep, Walks, awaits_report,
    follow, holder, is_direct, is_elsewhere, is_final, leads_to, named, reclaim, second,
};
pub use runs::{
    ByReference, ByValue, Piece, RunCollector, RunThreshold, StoredRun, may_go_by_value,
};
pub use session::{AsyncDue, LocalAnswer, RequestStep, Session, SessionEffects, SessionInput};
pub use sweep::{FragmentObjects, lone_proofs};
pub use verify::{ProvedJournal, Verifier, VerifyError, of_last_decoupling};
pub use watch::{WatchLoss, WatchMerge, WatchPosition};

#[cfg(test)]
mod tests;
