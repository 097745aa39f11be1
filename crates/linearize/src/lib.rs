//! Were the answers that several clients got those of *one* namespace, changed by one request after
//! the other?
//!
//! A history is the view of the clients: the time of each request, the time of its answer, and the
//! answer. It is *linearizable* if every request can be given one moment between the two at which
//! it took effect, so that the answers are those of a sequential namespace. [`check`] searches for
//! such moments, for any [`Specification`]; [`names`] is the specification of names in directories,
//! including the changes that the crash of a server may undo.
//!
//! This crate neither records histories nor judges the inside of a server. Only tests use it.
//!
//! Invariant: every reported violation is a violation. A search that was given up is
//! [`Verdict::Unknown`].

mod check;
pub mod names;
mod partition;

pub use check::{Next, Specification, TimedOperation, Verdict, check};
pub use partition::partition;
