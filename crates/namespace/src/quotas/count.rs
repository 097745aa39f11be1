//! The count of a quota root: a walk over its directories, in slices, while requests change them.
//!
//! A change of something that the walk has visited changes the count; all else is counted when the
//! walk comes there.

use std::collections::BTreeMap;

use types::quota::Usage;
use types::{Ino, Set, TrashEntry};

use crate::Namespace;
use crate::tree::InodeTree;

/// Most directories that a slice asks to fetch.
const FETCHES_MAX: usize = 64;

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Count {
    pub(super) used: Usage,
    /// Directories that are counted, and inodes with several names.
    pub(super) visited: Set<Ino>,
    /// Directories to be visited, the next one last. Some may be visited already, or gone. Their
    /// inodes stay in memory: see [`Namespace::pinned_by_quotas`].
    pub(super) queue: Vec<Ino>,
}

impl Namespace {
    /// Whether something is to be counted.
    #[inline]
    #[must_use]
    pub fn is_counting_quotas(&self) -> bool {
        let mut roots = self.tree.quotas.roots.values();
        roots.any(|quota| quota.used.is_none() || quota.count.is_some() || quota.is_doubted)
    }

    /// Counts some directories, until about so many names are counted. Returns the directories
    /// that must be in memory before the count can continue. No journal is being replayed or
    /// merged. `is_here` says which directories are this rank's.
    pub fn count_quotas(&mut self, names: usize, is_here: impl Fn(Ino) -> bool) -> Vec<Ino> {
        self.tree.quotas.new_dirs.clear();
        if !self.tree.quotas.may_count {
            return Vec::new();
        }
        self.tree.quotas.may_count = self.is_counting_quotas();

        // A removed tree counts where it was.
        if !self.tree.dirs.is_complete(Ino::TRASH) {
            return vec![Ino::TRASH];
        }
        let mut roots: Vec<Ino> = self.quota_roots().filter(|root| is_here(*root)).collect();
        roots.sort_unstable();
        let mut cold = Vec::new();
        let mut left = names;
        for root in roots {
            self.tree.count_quota(root, &is_here, &mut left, &mut cold);
            if left == 0 || cold.len() >= FETCHES_MAX {
                break;
            }
        }
        cold
    }

    /// Inodes that a count will visit: the directories that list them must stay in memory.
    pub fn pinned_by_quotas(&self) -> impl Iterator<Item = Ino> {
        let counts = self.tree.quotas.roots.values().filter_map(|quota| quota.count.as_ref());
        counts.flat_map(|count| count.queue.iter().copied())
    }
}

impl InodeTree {
    fn count_quota(
        &mut self,
        root: Ino,
        is_here: &impl Fn(Ino) -> bool,
        left: &mut usize,
        cold: &mut Vec<Ino>,
    ) {
        // It may have been evicted since its limits were read.
        if !self.inodes.knows(root) {
            return;
        }
        let Some(quota) = self.quotas.roots.get_mut(&root) else { return };
        if std::mem::take(&mut quota.is_doubted) {
            quota.count = None;
        } else if quota.used.is_some() && quota.count.is_none() {
            return;
        }
        // Taken out while the walk borrows the tree.
        let begun = quota.count.take();
        let mut count = begun.unwrap_or_else(|| self.begin_count(root));
        let trees = self.removed_trees();
        let mut postponed = Vec::new();
        while *left > 0 && postponed.len() < FETCHES_MAX {
            let Some(dir) = count.queue.pop() else { break };
            if count.visited.contains(&dir) || !self.inodes.is_dir(dir) || !is_here(dir) {
                continue;
            }
            match self.visit(&mut count, dir, &trees) {
                Ok(names) => *left = left.saturating_sub(names.max(1)),
                Err(missing) => {
                    postponed.push(dir);
                    cold.push(missing);
                }
            }
        }
        count.queue.extend(postponed.into_iter().rev());
        let Some(quota) = self.quotas.roots.get_mut(&root) else { return };
        if count.queue.is_empty() {
            quota.used = Some(count.used);
        } else {
            quota.count = Some(count);
        }
    }

    fn begin_count(&self, root: Ino) -> Count {
        let is_below = |of: &Ino| self.quota_roots(self.quota_root(*of)).any(|it| it == root);
        let trashed = self.quotas.trashed.iter().filter(|(_, of)| is_below(of));
        let mut queue: Vec<Ino> = trashed.map(|(tree, _)| *tree).collect();
        queue.sort_unstable();
        queue.push(root);
        Count { queue, ..Count::default() }
    }

    /// The roots of removed trees, by the directories that had them.
    fn removed_trees(&self) -> BTreeMap<Ino, Vec<Ino>> {
        let mut trees: BTreeMap<Ino, Vec<Ino>> = BTreeMap::new();
        for (name, ino) in self.dirs.names_in(Ino::TRASH, None, usize::MAX) {
            if let Some(entry) = TrashEntry::decode(&name) {
                trees.entry(entry.parent).or_default().push(ino);
            }
        }
        trees
    }

    /// Counts the names of a directory. Returns their number, or the directory that must be in
    /// memory before.
    fn visit(
        &mut self,
        count: &mut Count,
        dir: Ino,
        trees: &BTreeMap<Ino, Vec<Ino>>,
    ) -> Result<usize, Ino> {
        let content = self.dirs.get(dir).filter(|content| content.complete).ok_or(dir)?;
        let (mut names, mut used, mut linked) = (0, Usage::default(), Vec::new());
        let mut below = Vec::new();
        for (_, dentry) in content.list(None) {
            names += 1;
            let Some(inode) = self.inodes.get(dentry.ino) else {
                if dentry.is_remote() && !self.dirs.is_complete(Ino::LINKS) {
                    return Err(Ino::LINKS);
                }
                continue;
            };
            if dentry.is_remote() {
                linked.push((dentry.ino, inode.size));
                continue;
            }
            let is_dir = inode.is_dir();
            below.extend(is_dir.then_some(dentry.ino));
            used = used.plus(Usage { inodes: 1, bytes: if is_dir { 0 } else { inode.size } });
        }
        count.used = count.used.plus(used);
        count.visited.insert(dir);
        let root = self.quota_root(dir);
        for (ino, bytes) in linked {
            if count.visited.insert(ino) {
                count.used = count.used.plus(Usage { inodes: 1, bytes });
            }
            self.note_linked(ino, root);
        }
        for tree in trees.get(&dir).into_iter().flatten() {
            self.quotas.trashed.extend(root.map(|root| (*tree, root)));
            below.push(*tree);
        }
        count.queue.extend(below);
        Ok(names)
    }

    /// Remembers where a file with several names counts: of several quota roots that have a name
    /// of it, the innermost.
    fn note_linked(&mut self, ino: Ino, root: Option<Ino>) {
        let known = self.quotas.linked.get(&ino).copied();
        let is_above = |known| self.quota_roots(root).any(|root| root == known);
        if let Some(root) = root.filter(|_| known.is_none_or(is_above)) {
            self.quotas.linked.insert(ino, root);
        }
    }
}
