//! Judges the survivors of a fault: the visible tree of a subtree must be the tree of a set of
//! changes that the promise of the cell allows.
//!
//! The ledger says of each change whether it must, may or must not be visible. Changes that may be
//! are a prefix in their order, and changes of one merge from the store are all there or none.
//! Where a server died with unjournalled changes in its memory, the store has directories of
//! different moments: then each object must be as at one of them.

use std::collections::{BTreeMap, BTreeSet};

use model::Model;
use types::{Attr, Ino, Stripe, Timestamp};

use super::step::{AceStep, StepWay, apply};
use crate::cells::ledger::{Shown, Update};
use crate::oracle::Violation;
use crate::requests::Executed;
use crate::tree::{self, Item, Tree};

/// The promise for a change at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StepStatus {
    pub(super) shown: Shown,
    /// The store may have a part of the change.
    pub(super) torn: bool,
    /// The changes with which it is merged as a whole, and those with which it has an order.
    pub(super) whole: u64,
    pub(super) ordered: usize,
}

impl StepStatus {
    pub(super) fn of(update: &Update) -> Self {
        let Update { shown, torn, whole, ordered, .. } = *update;
        Self { shown, torn, whole, ordered }
    }
}

/// Everything by which survivors are judged.
#[derive(Debug)]
pub(super) struct Judge<'a> {
    /// The namespace before the workload.
    pub(super) base: &'a Model,
    pub(super) steps: &'a [AceStep],
    pub(super) statuses: &'a [StepStatus],
    /// The changes that servers executed.
    pub(super) executed: &'a [Executed],
    pub(super) root: Ino,
    pub(super) path: &'a str,
    /// Whether a server crashed.
    pub(super) crashed: bool,
}

/// The visible tree of a subtree, and the names in it that lead to nothing.
#[derive(Clone, Debug, Default)]
pub(super) struct Survivors {
    pub(super) tree: Tree,
    pub(super) dangling: BTreeSet<String>,
}

/// The changes that are visible, as far as the tree shows it.
pub(super) type Learned = BTreeMap<usize, bool>;

/// The ways in which a change may have been executed: last, first, and from the log of its client.
const WAYS: [ExecutedAs; 3] = [ExecutedAs::Last, ExecutedAs::First, ExecutedAs::Logged];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExecutedAs {
    Last,
    First,
    Logged,
}

impl Judge<'_> {
    /// Compares the survivors with every allowed set of changes.
    ///
    /// # Errors
    /// The differences from the largest allowed set.
    pub(super) fn judge(&self, seen: &Survivors) -> Result<Learned, Violation> {
        let sets = self.allowed_sets();
        let ways = if self.has_several_ways() { &WAYS[..] } else { &WAYS[..1] };
        let mut matching = Vec::new();
        let actual = blurred(&seen.tree, self.root);
        for way in ways {
            for set in &sets {
                if seen.dangling.is_empty() && self.tree_of(set, *way) == actual {
                    matching.push(set);
                }
            }
            if !matching.is_empty() {
                return Ok(self.learn(&matching));
            }
        }
        let torn = self.statuses.iter().any(|it| it.torn && it.shown == Shown::Perhaps);
        let logged = self.crashed && self.steps.iter().any(is_logged);
        if torn || logged {
            return self.judge_torn(&sets, seen).map(|()| Learned::new());
        }
        let largest = sets.last().map(|set| self.tree_of(set, ExecutedAs::Last));
        let differences = tree::differences(&largest.unwrap_or_default(), &actual, |_| false);
        let dangling = &seen.dangling;
        Err(format!("no allowed set of changes gives this tree ({dangling:?}):{differences}"))
    }

    fn has_several_ways(&self) -> bool {
        self.crashed && self.steps.iter().any(|step| !matches!(step.way, StepWay::Journal(_)))
    }

    /// The sets of changes that may be visible: which of the steps are in.
    fn allowed_sets(&self) -> Vec<Vec<bool>> {
        let open = |at: &usize| self.statuses[*at].shown == Shown::Perhaps;
        let open: Vec<usize> = (0..self.steps.len()).filter(open).collect();
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for at in open {
            let StepStatus { whole, ordered, .. } = self.statuses[at];
            let is_same = |group: &&mut Vec<usize>| {
                let other = self.statuses[group[0]];
                (other.whole, other.ordered) == (whole, ordered)
            };
            match groups.iter_mut().find(is_same) {
                Some(group) => group.push(at),
                None => groups.push(vec![at]),
            }
        }
        let must = |status: &StepStatus| matches!(status.shown, Shown::Memory | Shown::Stable);
        let mut sets = vec![self.statuses.iter().map(must).collect::<Vec<bool>>()];
        for group in groups {
            let whole = self.statuses[group[0]].whole > 0;
            let before = std::mem::take(&mut sets);
            for length in (0..=group.len()).filter(|it| !whole || *it == 0 || *it == group.len()) {
                sets.extend(before.iter().cloned().map(|mut set| {
                    group[..length].iter().for_each(|at| set[*at] = true);
                    set
                }));
            }
        }
        sets
    }

    /// The tree of a set of changes.
    fn tree_of(&self, set: &[bool], way: ExecutedAs) -> Tree {
        let mut model = self.base.clone();
        for (at, step) in self.steps.iter().enumerate() {
            if set[at] && !step.left_out {
                self.apply(&mut model, at, way);
            }
        }
        let tree = tree::of_model(&model);
        let below = |path: &str| {
            let rest = path.strip_prefix(self.path);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let tree = tree.into_iter().filter(|(path, _)| below(path)).collect();
        blurred(&tree, self.root)
    }

    fn apply(&self, model: &mut Model, at: usize, way: ExecutedAs) {
        let step = &self.steps[at];
        let StepWay::Request { client, before, logged } = &step.way else {
            return apply(model, self.root, step, None);
        };
        // Only a change that a server lost was replayed.
        if let (ExecutedAs::Logged, Some(journal), true) = (way, logged, self.statuses[at].torn) {
            let way = StepWay::Journal(journal.clone());
            return apply(model, self.root, &AceStep { way, ..step.clone() }, None);
        }
        let later = self.steps[at + 1..].iter().find_map(|next| match next.way {
            StepWay::Request { before, .. } => Some(before),
            StepWay::Journal(_) => None,
        });
        let records = &self.executed[*before..later.unwrap_or(self.executed.len())];
        let mut records = records.iter().filter(|record| record.client == *client);
        let record = if way == ExecutedAs::First { records.next() } else { records.next_back() };
        if let Some(record) = record {
            apply(model, self.root, step, Some((record.time, record.ino)));
        }
    }

    /// Which of the open changes are in all sets that give the tree, or in none.
    fn learn(&self, matching: &[&Vec<bool>]) -> Learned {
        let open = (0..self.steps.len()).filter(|at| self.statuses[*at].shown == Shown::Perhaps);
        let known = open.filter_map(|at| {
            let count = matching.iter().filter(|set| set[at]).count();
            (count == 0 || count == matching.len()).then_some((at, count > 0))
        });
        known.collect()
    }

    /// Each object is as it was after one of the allowed sets, and each absent one was absent.
    fn judge_torn(&self, sets: &[Vec<bool>], seen: &Survivors) -> Result<(), Violation> {
        let ways = WAYS.iter().flat_map(|way| sets.iter().map(move |set| (set, *way)));
        let trees: Vec<Tree> = ways.map(|(set, way)| loose(&self.tree_of(set, way))).collect();
        let actual = loose(&blurred(&seen.tree, self.root));
        let paths: BTreeSet<&String> =
            actual.keys().chain(trees.iter().flat_map(BTreeMap::keys)).collect();
        let mut wrong = String::new();
        for path in paths {
            let found = actual.get(path);
            let is_linked = |tree: &Tree| tree.get(path).is_some_and(|it| it.attr.nlink > 1);
            if seen.dangling.contains(path) && trees.iter().any(is_linked) {
                continue;
            }
            let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
            let absent_with_parent = found.is_none() && !actual.contains_key(parent);
            // The replayed log undoes a link that only the server's journal has, if an earlier
            // event of the log gave the same name: the time of the change stays.
            let same = |item: Option<&Item>| match (item, found) {
                (Some(item), Some(found)) if trees.iter().any(is_linked) => {
                    timeless(item) == timeless(found)
                }
                _ => item == found,
            };
            let is_known = trees.iter().any(|tree| same(tree.get(path)));
            if seen.dangling.contains(path) || !(is_known || absent_with_parent) {
                let known: Vec<_> = trees.iter().map(|tree| tree.get(path)).collect();
                let last = known.last();
                wrong += &format!("\n{path}\n  found:    {found:?}\n  expected: {last:?}");
            }
        }
        if wrong.is_empty() { Ok(()) } else { Err(format!("as at no moment:{wrong}")) }
    }
}

fn is_logged(step: &AceStep) -> bool {
    matches!(&step.way, StepWay::Request { logged: Some(_), .. })
}

/// Without the stripes of files, and the time at which a policy or a decoupling changed the root.
fn blurred(tree: &Tree, root: Ino) -> Tree {
    let blur = |item: &Item| {
        let Attr { ino, ctime, .. } = item.attr;
        let ctime = if ino == root { Timestamp(0) } else { ctime };
        Item { attr: Attr { stripe: Stripe::default(), ctime, ..item.attr }, ..item.clone() }
    };
    tree.iter().map(|(path, item)| (path.clone(), blur(item))).collect()
}

/// Without the time of the last change.
fn timeless(item: &Item) -> Item {
    Item { attr: Attr { ctime: Timestamp(0), ..item.attr }, ..item.clone() }
}

/// Without the counts and times of directories: their entries are of several moments.
fn loose(tree: &Tree) -> Tree {
    let blur = |item: &Item| {
        if !item.attr.is_dir() {
            return item.clone();
        }
        let zero = Timestamp(0);
        let attr = Attr { nlink: 0, size: 0, mtime: zero, ctime: zero, ..item.attr };
        Item { attr, ..item.clone() }
    };
    tree.iter().map(|(path, item)| (path.clone(), blur(item))).collect()
}
