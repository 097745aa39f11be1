//! Which promises an application needs, and what each would cost it: from what it was seen to do (F-11).
//!
//! [`Trace::read`] takes what `strace` wrote and turns it into *acts* on paths below one directory: made, changed,
//! looked at, made durable, locked. [`judge`] says which of the nine cells of Table II would have been safe for
//! those acts, and shows for each of the others the lines that forbid it. [`predict`] says how long the same
//! changes take under a cell, from what each mechanism costs on a machine.
//!
//! Not here: running anything, reading files, measuring.
//!
//! Invariant: a line that is not understood is counted and never guessed at; so a verdict is about what the
//! trace shows, and says how much of it that was.

mod acts;
mod predict;
mod process;
mod strace;
mod verdict;

pub use acts::{Act, Acts, Kind, Trace};
pub use predict::{Costs, Curve, Job, Prediction, predict};
pub use verdict::{Advice, Evidence, Forbidden, Reason, judge};
