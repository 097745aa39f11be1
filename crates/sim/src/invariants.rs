//! The promises of a cluster, one file each. Each file states the promise and its source.

pub mod applied_survives;
pub mod determinism;
pub mod exactly_once;
pub mod linearizable;
pub mod liveness;
pub mod merges;
pub mod numbers;
pub mod removed;
pub mod safe_survives;
pub mod same_tree;
