//! What a cluster promises, one file per promise. Each says what it promises and where the promise
//! is made.

pub mod applied_survives;
pub mod determinism;
pub mod exactly_once;
pub mod linearizable;
pub mod liveness;
pub mod merges;
pub mod no_journal;
pub mod numbers;
pub mod safe_survives;
pub mod same_tree;
