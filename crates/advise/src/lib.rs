//! The promises that an application needs, and the cost of each, from a trace of its system calls
//! (F-11).
//!
//! [`Trace::read`] takes the output of `strace` and turns it into *acts* on paths below one
//! directory: made, changed, looked at, made durable, locked. [`judge`] finds the cells of Table II
//! that would have been safe for those acts, and shows for each other cell the lines that forbid
//! it. [`predict`] computes the time that the same changes take under a cell, from the cost of each
//! mechanism on a machine.
//!
//! Not here: running anything, reading files, measuring.
//!
//! Invariant: an unknown line is counted and never guessed at; so a verdict covers the understood
//! part of the trace, and names its share.

mod acts;
mod predict;
mod process;
mod strace;
mod verdict;

pub use acts::{ActKind, Acts, Trace, TraceLine, TracedAct};
pub use predict::{Costs, Curve, Job, Prediction, predict};
pub use verdict::{Advice, Evidence, Forbidden, Reason, judge};
