//! Histories that have nothing to do with each other are checked one by one.
//!
//! A history of several objects is linearizable if and only if the history of each object is
//! (Herlihy and Wing). The work of a search grows much faster than its history, so only the
//! partition makes long histories possible.

use std::collections::BTreeMap;

/// Groups things by their keys: two things that share a key are in one group, and so are two things
/// that a chain of such pairs connects. Things without a key are in no group. Groups come in the
/// order of their first things.
#[must_use]
pub fn partition<K: Ord>(keys: &[Vec<K>]) -> Vec<Vec<usize>> {
    let mut above: Vec<usize> = (0..keys.len()).collect();
    let mut first: BTreeMap<&K, usize> = BTreeMap::new();
    for (at, keys) in keys.iter().enumerate() {
        for key in keys {
            let other = *first.entry(key).or_insert(at);
            let (one, two) = (root(&mut above, at), root(&mut above, other));
            above[one.max(two)] = one.min(two);
        }
    }
    let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for at in (0..keys.len()).filter(|at| !keys[*at].is_empty()) {
        groups.entry(root(&mut above, at)).or_default().push(at);
    }
    groups.into_values().collect()
}

fn root(above: &mut [usize], mut at: usize) -> usize {
    while above[at] != at {
        above[at] = above[above[at]];
        at = above[at];
    }
    at
}
