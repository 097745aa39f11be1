//! The balancer: from the ranks' reports of their load to the exports.
//!
//! Policies decide; this crate runs them and carries their wishes out on paper. It moves nothing:
//! a rank builds a [`BalancerView`], calls [`decide_until`], stores [`Decision::state`], and starts
//! [`Decision::exports`]. That is the whole seam:
//!
//! ```
//! use balancer::{DecisionKind, BalancerView, Counts, Metrics, State, decide, preset};
//! use types::Rank;
//!
//! let busy = Metrics { auth: 100.0, all: 100.0, ..Metrics::default() };
//! let view = BalancerView {
//!     whoami: Rank(0),
//!     ranks: vec![busy, Metrics::default()],
//!     all: Counts { inode_writes: 100.0, ..Counts::default() },
//!     ..BalancerView::default()
//! };
//! let policy = preset("greedy-spill").expect("it is shipped");
//! let decision = decide(&policy, &view, &State::Nothing);
//! assert_eq!(decision.outcome, DecisionKind::Migrate);
//! ```
//!
//! Every rank, at every tick (10 seconds unless set otherwise):
//!
//! 1. asks its [`LoadTable`], which counts every request, for the [`Counts`] of its subtrees, and
//!    [`heartbeat::loads`] for the loads of its own [`Heartbeat`], which goes to all ranks;
//! 2. builds a [`BalancerView`] of the newest heartbeats it has (their age in `age_seconds`) and of
//!    its subtrees and fragments, each [`Unit`] after the one it stands in;
//! 3. calls [`decide_until`] with the [`BalancerPolicy`] and [`State`] in force and a look at its
//!    clock;
//! 4. shows the decision to [`Versions::observe`], which goes back to an earlier policy after
//!    repeated failure, and keeps the decision for `balancer log`;
//! 5. stores the state, then begins the exports. Nothing else of a decision has an effect.
//!
//! [`LoadTable`], [`BalancerView`], [`decide`] and the rest are values and functions: no clock, no
//! thread, no I/O; equal arguments give equal results. The script engine is a library in C++ and
//! lives in one module (`script`), for one decision at a time.
//!
//! Invariant: every policy, however hostile, leads to a decision; a policy that failed moves
//! nothing.

mod ceph;
pub mod check;
mod counter;
mod decide;
mod fault;
pub mod heartbeat;
mod mantle;
mod policy;
mod presets;
mod question;
mod record;
mod saved;
mod script;
mod selector;
mod settings;
pub mod simulate;
mod source;
mod traverse;
mod versions;
mod view;

pub use counter::{Counts, DecayingCounts, HitKind, LoadTable, share_left};
pub use decide::{Decision, DecisionKind, decide, decide_until};
pub use fault::{Fault, FaultKind};
pub use heartbeat::Heartbeat;
pub use policy::{BalancerPolicy, Hooks};
pub use presets::{BalancerPreset, DEFAULT_POLICY, NO_POLICY, PRESETS, default_policy, preset};
pub use question::{BalancerAnswer, Question};
pub use record::{
    DecisionRecord, MoveRecord, RECORDED_UNITS_MAX, RecordedDirectory, RecordedEvent, TickRecord,
    TickResult, WantedMove,
};
pub use saved::{BYTES_MAX as STATE_BYTES_MAX, Scalar, State};
pub use script::{Expired, LogLine, ScriptLimits};
pub use selector::{Candidate, Choice, Selector, closest, home};
pub use settings::BalancerSettings;
pub use source::{Dialect, SOURCE_BYTES_MAX};
pub use traverse::Export;
pub use versions::{FAILURES_MAX, PROOF_TICKS, VersionVerdict, Versions};
pub use view::{BalancerView, Metrics, RANKS_MAX, UNITS_MAX, Unit, is_settled};
