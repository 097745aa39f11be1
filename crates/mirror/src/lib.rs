//! A second copy of a subtree, in a directory of this machine or in another cluster, made again by
//! copying the differences only.
//!
//! [`Mirror::whole`] compares both trees name by name. [`Mirror::take`] looks only at the names
//! that a watch has reported ([`ChangedNames`]). Both make the copy equal to the present source and
//! never repeat a change as it was, so a change that is reported late, twice or in another order
//! does no harm.
//!
//! `step` and `changed` decide and touch nothing; `place` is the only module that changes files.
//! Not here: arguments and output of the command.
//!
//! Invariant: a file of the copy has its old or its new content at any time.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "I/O edge: copies are files of this machine"
)]

mod changed;
mod mirror;
mod place;
mod report;
mod step;
mod streams;

pub use changed::ChangedNames;
pub use mirror::Mirror;
pub use place::CopyPlace;
pub use report::{MirrorCounts, MirrorDeed, MirrorObserver, MirrorOptions};
