//! Were the answers that several clients got those of *one* namespace, changed by one request after
//! the other?
//!
//! A history is what clients saw: when each asked for something, when it had the answer, and which.
//! It is *linearizable* if every request can be given one moment between the two at which it took
//! effect, so that the answers are those of a sequential namespace. [`check`] searches for such
//! moments, for any [`Specification`]; [`names`] is the specification of names in directories, with
//! what the crash of a server may undo.
//!
//! What this crate is not: a recorder of histories, or a judge of what a server did inside. It is
//! used in tests only.
//!
//! Invariant: what is called a violation is one. A search that was given up is [`Verdict::Unknown`].

mod check;
pub mod names;
mod partition;

pub use check::{Entry, Next, Specification, Verdict, check};
pub use partition::partition;
