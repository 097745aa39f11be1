//! Which of the fragments and subtrees of one directory are sent: the dirfrag selectors.
//!
//! The rule, for all but `half`, `hash` and `best_fit`: add in the selector's order until the sum
//! reaches the target; the last one may cross it. Of several selectors the one with the sum closest
//! to the target wins, and of equals the one that is named first.
//!
//! Invariant: a choice names each candidate at most once.

use types::DirFragId;

use crate::{Fault, FaultKind};

/// A way to choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selector {
    /// The biggest first (`big_first`, `big`).
    BigFirst,
    /// The smallest first (`small_first`, `small`).
    SmallFirst,
    /// The biggest, the smallest, the second biggest, and so on (`big_small`).
    BigSmall,
    /// The first half of them in listed order, of any load (`half`). An odd one is sent.
    Half,
    /// The bigger half of them (`half_big`): the paper's program did this, because it sorted first.
    HalfBig,
    /// The closest sum that can be found (`best_fit`): exact up to 16 candidates, else the biggest
    /// that fit, improved by exchanging.
    BestFit,
    /// The units that belong to the target by their hash, of any load (`hash`).
    Hash,
}

/// Something that may be sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Its place in [`crate::BalancerView::units`].
    pub unit: usize,
    /// Its load.
    pub load: f64,
}

/// The choice of a selector.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// Which selector.
    pub selector: Selector,
    /// The candidates in the order in which they are sent.
    pub sent: Vec<Candidate>,
    /// Their load together.
    pub sum: f64,
    /// How far the sum is from the target.
    pub distance: f64,
}

const NAMED: [(&str, Selector); 9] = [
    ("big_first", Selector::BigFirst),
    ("small_first", Selector::SmallFirst),
    ("big_small", Selector::BigSmall),
    ("half", Selector::Half),
    ("half_big", Selector::HalfBig),
    ("best_fit", Selector::BestFit),
    ("hash", Selector::Hash),
    ("big", Selector::BigFirst),
    ("small", Selector::SmallFirst),
];

/// Up to so many candidates `best_fit` tries all sums.
const TRIED_MAX: usize = 16;
/// Beyond, at most so many exchanges are tried: each may look at all that is left.
const EXCHANGES_MAX: usize = 64;

impl Selector {
    /// The selector of this name.
    ///
    /// # Errors
    /// [`FaultKind::Result`], listing the names.
    pub fn named(name: &str) -> Result<Self, Fault> {
        let found = NAMED.iter().find(|(known, _)| *known == name).map(|(_, selector)| *selector);
        found.ok_or_else(|| {
            let names: Vec<&str> = NAMED.iter().map(|(name, _)| *name).collect();
            let message = format!("no selector is called `{name}`: there are {}", names.join(", "));
            Fault::new(FaultKind::Result, message)
        })
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        NAMED.iter().find(|(_, known)| *known == self).map_or("", |(name, _)| name)
    }

    /// Chooses among `listed`, which are in the order of their directory.
    #[must_use]
    pub fn choose(self, listed: &[Candidate], target: f64) -> Choice {
        let sent = match self {
            Self::BigFirst => until(&by_load(listed), target),
            Self::SmallFirst => {
                let mut sorted = listed.to_vec();
                sorted.sort_by(|a, b| a.load.total_cmp(&b.load));
                until(&sorted, target)
            }
            Self::BigSmall => until(&alternating(&by_load(listed)), target),
            Self::Half => half(listed),
            Self::HalfBig => half(&by_load(listed)),
            Self::BestFit => best_fit(&by_load(listed), target),
            Self::Hash => listed.to_vec(),
        };
        let sum: f64 = sent.iter().map(|candidate| candidate.load).sum();
        Choice { selector: self, sent, sum, distance: (sum - target).abs() }
    }
}

/// The closest choice of all `selectors`; none if there is no selector.
#[must_use]
pub fn closest(selectors: &[Selector], listed: &[Candidate], target: f64) -> Option<Choice> {
    let mut best: Option<Choice> = None;
    for selector in selectors {
        let choice = selector.choose(listed, target);
        if best.as_ref().is_none_or(|best| choice.distance < best.distance) {
            best = Some(choice);
        }
    }
    best
}

/// The rank among `ranks` that a fragment belongs to by its hash: the same everywhere and always.
#[must_use]
pub fn home(id: DirFragId, ranks: usize) -> usize {
    let mut bytes = [0; 13];
    let (ino, frag) = bytes.split_at_mut(8);
    ino.copy_from_slice(&id.ino.0.to_le_bytes());
    let (value, bits) = frag.split_at_mut(4);
    value.copy_from_slice(&id.frag.value.to_le_bytes());
    bits.fill(id.frag.bits);
    let hash = u64::from(types::name_hash(&bytes));
    usize::try_from(hash % (ranks.max(1) as u64)).unwrap_or(0)
}

/// Descending; those with equal loads stay as they were listed.
fn by_load(listed: &[Candidate]) -> Vec<Candidate> {
    let mut sorted = listed.to_vec();
    sorted.sort_by(|a, b| b.load.total_cmp(&a.load));
    sorted
}

fn half(listed: &[Candidate]) -> Vec<Candidate> {
    listed.iter().copied().take(listed.len().div_ceil(2)).collect()
}

fn alternating(sorted: &[Candidate]) -> Vec<Candidate> {
    let mut rest = sorted.iter().copied();
    let mut out = Vec::with_capacity(sorted.len());
    while let Some(big) = rest.next() {
        out.push(big);
        out.extend(rest.next_back());
    }
    out
}

fn until(ordered: &[Candidate], target: f64) -> Vec<Candidate> {
    let mut sum = 0.0;
    let mut sent = Vec::new();
    for candidate in ordered {
        if sum >= target {
            break;
        }
        sum += candidate.load;
        sent.push(*candidate);
    }
    sent
}

fn best_fit(sorted: &[Candidate], target: f64) -> Vec<Candidate> {
    if sorted.len() <= TRIED_MAX { exact_fit(sorted, target) } else { near_fit(sorted, target) }
}

/// All subsets, 65,536 at most. Of equally close ones the first in binary order.
fn exact_fit(sorted: &[Candidate], target: f64) -> Vec<Candidate> {
    let members = |set: u32| {
        let chosen = move |at: &usize| (set >> at) & 1 == 1;
        (0..sorted.len()).filter(chosen).filter_map(|at| sorted.get(at)).copied()
    };
    let distance = |set: u32| (members(set).map(|c| c.load).sum::<f64>() - target).abs();
    let mut best = (0, distance(0));
    for set in 1..(1u32 << sorted.len()) {
        let distance = distance(set);
        if distance < best.1 {
            best = (set, distance);
        }
    }
    members(best.0).collect()
}

/// The biggest that fit, then single exchanges as long as they come closer.
fn near_fit(sorted: &[Candidate], target: f64) -> Vec<Candidate> {
    let mut sum = 0.0;
    let mut sent = Vec::new();
    let mut left = Vec::new();
    for candidate in sorted {
        if sum + candidate.load <= target {
            sum += candidate.load;
            sent.push(*candidate);
        } else {
            left.push(*candidate);
        }
    }
    // `left` is sorted: the best exchange for each that is sent is found by search, not by trying.
    for mine in sent.iter_mut().take(EXCHANGES_MAX) {
        let wanted = mine.load + (target - sum);
        let at = left.partition_point(|other| other.load > wanted);
        let near = [at.checked_sub(1), Some(at)].into_iter().flatten();
        let closest = near
            .filter_map(|at| left.get(at).map(|other| (at, (other.load - wanted).abs())))
            .min_by(|a, b| a.1.total_cmp(&b.1));
        if let Some((at, distance)) = closest
            && distance < (target - sum).abs()
            && let Some(other) = left.get_mut(at)
        {
            sum += other.load - mine.load;
            std::mem::swap(mine, other);
            left.sort_by(|a, b| b.load.total_cmp(&a.load));
        }
    }
    sent
}

#[cfg(test)]
mod tests;
