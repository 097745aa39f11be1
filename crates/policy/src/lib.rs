//! Policies: which consistency and durability a subtree has, and by which mechanisms.
//!
//! A [`Policy`] composes seven [`Mechanism`]s with two operators into a [`Composition`]; a [`Cell`]
//! has the guarantees of a composition; [`PolicyWarning`]s name its parts that have no useful
//! effect; [`Preset`]s are policies that ship with the system. `docs/formats/policy.md` describes
//! policy files.
//!
//! This crate decides nothing about when mechanisms run and runs none: it is pure, without I/O,
//! clock or state. It does not inherit policies along paths either; the namespace does.
//!
//! Invariant: any bytes are read either as a policy or as one error that names a place; the reader
//! never guesses.

mod composition;
mod effective;
mod file;
mod mechanism;
mod option;
mod order;
mod policy;
mod preset;
mod semantics;
mod text;
mod transition;
mod warning;

pub use composition::{
    Composition, CompositionError, EXPRESSION_BYTES_MAX, MECHANISMS_MAX, NESTING_MAX,
};
pub use file::{FILE_BYTES_MAX, Parsed, PolicyError};
pub use mechanism::{Mechanism, Performer};
pub use option::{
    Ack, Cache, Check, Checksums, InterferePolicy, Limit, MERGE_SECONDS_MAX, MERGE_UPDATES_MAX,
    MergeBy, MergeTrigger, Sharing, TRASH_SECONDS_MAX,
};
pub use policy::{ALLOCATED_INODES_DEFAULT, ALLOCATED_INODES_MAX, Policy};
pub use preset::{Preset, policy_named, policy_names};
pub use semantics::{Cell, Consistency, Durability, Guarantee, composition_of};
pub use transition::Transition;
pub use warning::{PolicyWarning, strict, warnings};
