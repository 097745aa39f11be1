//! Branches, with real daemons and real processes, and without daemons.
//!
//! Every test has a cluster of its own, in a directory of its own.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "I/O edge: tests start daemons and kill processes"
)]

#[allow(dead_code, reason = "the tests of the program, for which it was made, use all of it")]
#[path = "../it/cluster.rs"]
mod cluster;
mod garbage;
mod merging;
mod mounted;
mod places;
mod private;
mod snapshots;
mod working;

use crate::cluster::Cluster;

/// The address of a cluster's store.
fn store(cluster: &Cluster) -> String {
    format!("dir:{}", cluster.dir.join("store").display())
}

/// `cudele branch` given the store and nothing else.
fn branch(cluster: &Cluster, arguments: &[&str]) -> String {
    let (store, mut all) = (store(cluster), vec!["branch", "--store"]);
    all.push(&store);
    all.extend_from_slice(arguments);
    cluster.say(&all)
}

/// The same where it must fail with this code. Returns its output.
fn branch_fails(cluster: &Cluster, code: i32, arguments: &[&str]) -> String {
    let (store, mut all) = (store(cluster), vec!["branch", "--store"]);
    all.push(&store);
    all.extend_from_slice(arguments);
    cluster.fails(code, &all)
}

/// Every path in a branch, with the length of files.
fn tree(cluster: &Cluster, names: &str) -> Vec<String> {
    branch(cluster, &["find", names]).lines().map(str::to_owned).collect()
}

/// Puts text into a file of a branch.
fn put(cluster: &Cluster, name: &str, path: &str, text: &str) {
    let store = store(cluster);
    let arguments = ["branch", "--store", &store, "put", name, "-", path];
    cluster.run_with_input(&arguments, text.as_bytes());
}

/// Puts text into a file of the namespace.
fn write(cluster: &Cluster, path: &str, text: &str) {
    cluster.run_with_input(&["cp", "-", path], text.as_bytes());
}
