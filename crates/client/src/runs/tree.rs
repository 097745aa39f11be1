//! The directories that a journal made, and which of them become runs.
//!
//! Invariant: below a directory that becomes a run everything does, so that no event of the rest is
//! about something that only a run shows.

use metastore::ATTACHED_DIRS_MAX;
use types::{Ino, Map, Set};

use super::RunThreshold;

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Tree {
    /// Directories that the journal made, and where each is, or was last.
    parents: Map<Ino, Ino>,
    /// The root of the subtree, if it counts as one of them.
    root: Option<Ino>,
    chosen: Set<Ino>,
    tops: Set<Ino>,
}

impl Tree {
    pub(super) fn new(root: Option<Ino>) -> Self {
        let (parents, chosen, tops) = (Map::default(), Set::default(), Set::default());
        Self { parents, root, chosen, tops }
    }

    pub(super) fn make(&mut self, dir: Ino, parent: Ino) {
        self.parents.insert(dir, parent);
    }

    pub(super) fn move_to(&mut self, ino: Ino, parent: Ino) {
        if let Some(known) = self.parents.get_mut(&ino) {
            *known = parent;
        }
    }

    /// The directory above one that the journal made.
    pub(super) fn parent(&self, dir: Ino) -> Option<Ino> {
        self.parents.get(&dir).copied()
    }

    /// Whether the content of a directory is in runs; a removed directory counts at its last place.
    pub(super) fn has(&self, dir: Ino) -> bool {
        let mut at = Some(dir);
        for _ in 0..=self.parents.len() {
            match at {
                Some(dir) if self.chosen.contains(&dir) => return true,
                Some(dir) => at = self.parent(dir),
                None => return false,
            }
        }
        false
    }

    /// Whether a directory becomes a run, or was chosen to.
    pub(super) fn is_chosen(&self, dir: Ino) -> bool {
        self.chosen.contains(&dir)
    }

    pub(super) fn is_top(&self, dir: Ino) -> bool {
        self.tops.contains(&dir)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tops.is_empty()
    }

    /// The directories that become runs, in order of their numbers.
    pub(super) fn chosen(&self) -> Vec<Ino> {
        let mut all: Vec<Ino> = self.chosen.iter().copied().collect();
        all.sort_unstable();
        all
    }

    /// Chooses the largest trees that are worth it. `names` says how many names a directory has, or
    /// nothing if it is gone.
    pub(super) fn choose(&mut self, worth: RunThreshold, names: impl Fn(Ino) -> Option<u64>) {
        let own = self.parents.keys().copied().chain(self.root);
        let mut own: Vec<(Ino, u64)> = own.filter_map(|dir| Some((dir, names(dir)?))).collect();
        own.sort_unstable();
        let mut children: Map<Ino, Vec<Ino>> = Map::default();
        let mut tops = Vec::new();
        for (dir, _) in &own {
            match self.parent(*dir) {
                Some(parent) if self.parents.contains_key(&parent) || self.root == Some(parent) => {
                    children.entry(parent).or_default().push(*dir);
                }
                Some(_) | None => tops.push(*dir),
            }
        }
        let names: Map<Ino, u64> = own.into_iter().collect();
        let below = |top: Ino| {
            let (mut all, mut todo) = (Vec::new(), vec![top]);
            while let Some(dir) = todo.pop() {
                all.push(dir);
                todo.extend(children.get(&dir).into_iter().flatten());
            }
            all
        };
        // Parents before children, so that sums are made from the end.
        let order: Vec<Ino> = tops.iter().flat_map(|top| below(*top)).collect();
        assert!(order.len() <= names.len(), "a directory is in one tree");
        let mut sums: Map<Ino, (u64, u64)> = Map::default();
        for dir in order.iter().rev() {
            let own = names.get(dir).copied().unwrap_or(0);
            let mut sum = (own, u64::from(own > 0));
            for child in children.get(dir).into_iter().flatten() {
                let (names, dirs) = sums.get(child).copied().unwrap_or_default();
                sum = (sum.0 + names, sum.1 + dirs);
            }
            sums.insert(*dir, sum);
        }
        let (mut todo, mut runs) = (tops, 0);
        while let Some(dir) = todo.pop() {
            let (names, dirs) = sums.get(&dir).copied().unwrap_or_default();
            let is_worth = names >= worth.names_min
                && names >= worth.names_per_directory_min.saturating_mul(dirs)
                && names > 0;
            if is_worth && runs + dirs <= ATTACHED_DIRS_MAX as u64 {
                assert!(!self.chosen.contains(&dir), "{dir}: the tree is chosen once");
                runs += dirs;
                self.tops.insert(dir);
                self.chosen.extend(below(dir));
            } else {
                todo.extend(children.get(&dir).into_iter().flatten());
            }
        }
    }
}
