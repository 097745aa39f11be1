//! Quotas: limits of a directory with everything below it, and the use of these limits.
//!
//! The use is counted once, by a walk over the directories ([`count`]), and then changed by each
//! event that is applied ([`charge`]). Only memory has it: after a restart it is counted again.
//! A replay changes nothing here, because the count begins after it.
//!
//! An inode counts for the innermost directory with limits above it, its *quota root*, and for all
//! quota roots above that one. Only the walk can tell where an inode with several names belongs;
//! from then on it is remembered.
//!
//! Invariant: the use of a counted quota root is the number of inodes below it, each once, and the
//! sum of their lengths.

mod charge;
mod count;
mod validate;

use types::quota::{LIMITS, QuotaLimits, QuotaReport, Usage};
use types::{Errno, Ino, Map, Set};

use crate::tree::InodeTree;
use crate::{Namespace, Refusal};
use count::Count;

/// More quota roots above one another than this do not count.
const NESTED_MAX: usize = 64;

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Quotas {
    /// Limits are taken from inodes. Views and trials of a namespace have no quotas.
    is_enforced: bool,
    roots: Map<Ino, QuotaRoot>,
    /// Something may have to be counted: looking at all roots in each tick would take long.
    may_count: bool,
    /// The quota roots of inodes with several names.
    pub(crate) linked: Map<Ino, Ino>,
    /// The quota roots of removed trees that are still in the trash.
    pub(crate) trashed: Map<Ino, Ino>,
    /// Directories that merges made since the last count: the store has no further names of them.
    new_dirs: Set<Ino>,
    /// Inodes that decoupled subtrees may bring.
    reserved: Vec<(Ino, u64)>,
}

#[derive(Debug)]
struct QuotaRoot {
    limits: QuotaLimits,
    /// As of the last complete count, with all changes since.
    used: Option<Usage>,
    /// The count under way.
    count: Option<Count>,
    /// Something changed of which the use is not known: it must be counted again.
    is_doubted: bool,
    /// The limits were near at the last look.
    is_near: bool,
}

impl QuotaRoot {
    /// The use that the limits are compared with. During the first count it is the count so far.
    fn used(&self) -> Usage {
        let counting = self.count.as_ref().map(|count| count.used);
        self.used.or(counting).unwrap_or_default()
    }
}

/// Where an inode counts.
#[derive(Clone, Copy, Debug)]
struct Charged {
    root: Ino,
    /// The directory that lists it, or an inode with several names itself: a count under way has
    /// counted the inode if it has visited that.
    by: Ino,
}

impl Quotas {
    pub(crate) fn is_enforced(&self) -> bool {
        self.is_enforced
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.roots.is_empty()
    }

    /// Takes the limits that a directory inode stores.
    fn note(&mut self, dir: Ino, limits: Option<QuotaLimits>) {
        match (limits, self.roots.get_mut(&dir)) {
            (None, None) => {}
            (None, Some(_)) => self.forget(dir),
            (Some(limits), Some(root)) => root.limits = limits,
            (Some(limits), None) => {
                let root = QuotaRoot {
                    limits,
                    used: None,
                    count: None,
                    is_doubted: false,
                    is_near: false,
                };
                self.roots.insert(dir, root);
                self.may_count = true;
            }
        }
    }

    /// Whether the use of a quota root is not known yet.
    fn is_counting(&self, root: Ino) -> bool {
        let quota = self.roots.get(&root);
        quota.is_some_and(|it| it.used.is_none() || it.count.is_some() || it.is_doubted)
    }

    /// The directories that a count under way has visited.
    #[cfg(test)]
    pub(crate) fn visited(&self, root: Ino) -> Option<&Set<Ino>> {
        Some(&self.roots.get(&root)?.count.as_ref()?.visited)
    }

    /// All counts begin again.
    #[cfg(test)]
    pub(crate) fn doubt_all(&mut self) {
        self.roots.values_mut().for_each(|root| root.is_doubted = true);
        self.may_count = true;
    }

    /// A directory is gone, or has no limits any more.
    pub(crate) fn forget(&mut self, dir: Ino) {
        self.roots.remove(&dir);
        self.trashed.remove(&dir);
    }
}

impl InodeTree {
    /// Takes the limits that a directory inode in memory stores.
    pub(crate) fn note_quota(&mut self, dir: Ino) {
        if !self.quotas.is_enforced {
            return;
        }
        let extra = self.inodes.extra_of(dir).filter(|_| self.inodes.is_dir(dir));
        let limits = extra.and_then(|extra| QuotaLimits::parse(extra.xattr(LIMITS)?).ok());
        self.quotas.note(dir, limits);
    }

    /// The innermost quota root above the names of a directory.
    #[inline]
    pub(crate) fn quota_root(&self, dir: Ino) -> Option<Ino> {
        if self.quotas.is_empty() { None } else { self.climb_to_quota_root(dir) }
    }

    #[cold]
    fn climb_to_quota_root(&self, dir: Ino) -> Option<Ino> {
        for ino in self.ancestors(dir) {
            if self.quotas.roots.contains_key(&ino) {
                return Some(ino);
            }
            if let Some(root) = self.quotas.trashed.get(&ino) {
                return Some(*root).filter(|root| self.quotas.roots.contains_key(root));
            }
        }
        None
    }

    /// The innermost quota root above another one.
    fn quota_root_above(&self, root: Ino) -> Option<Ino> {
        match self.inodes.home_of(root)? {
            // It was removed with limits of its own, and counts where it was.
            Ino::TRASH => self.quotas.trashed.get(&root).copied(),
            home => self.quota_root(home),
        }
        .filter(|above| self.quotas.roots.contains_key(above))
    }

    /// A quota root and those above it.
    fn quota_roots(&self, innermost: Option<Ino>) -> impl Iterator<Item = Ino> {
        std::iter::successors(innermost, |root| self.quota_root_above(*root)).take(NESTED_MAX)
    }

    /// Where an inode counts.
    fn charged(&self, ino: Ino) -> Option<Charged> {
        match self.inodes.home_of(ino)? {
            Ino::LINKS => {
                let root = *self.quotas.linked.get(&ino)?;
                // The limits of that directory may have been removed since.
                Some(Charged { root: self.quota_root(root)?, by: ino })
            }
            home => Some(Charged { root: self.quota_root(home)?, by: home }),
        }
    }

    /// Whether there is room for this in a directory.
    ///
    /// # Errors
    /// `EDQUOT`.
    #[inline]
    pub(crate) fn room(&self, dir: Ino, more: Usage) -> Result<(), Refusal> {
        if self.quotas.is_empty() {
            return Ok(());
        }
        self.room_below(self.quota_root(dir), None, dir, more)
    }

    /// The same for something that comes from another directory, which may have the same limits.
    pub(crate) fn room_to_move(&self, from: Ino, to: Ino, more: Usage) -> Result<(), Refusal> {
        self.room_below(self.quota_root(to), self.quota_root(from), to, more)
    }

    /// Whether an inode counts where one in a directory counts.
    pub(crate) fn has_same_quota(&self, ino: Ino, dir: Ino) -> bool {
        if self.quotas.is_empty() {
            return true;
        }
        let (of_inode, of_dir) = (self.charged(ino), self.quota_root(dir));
        // Where a file with several names counts is known only after the count.
        let may_be_there = self.quotas.linked.get(&ino).is_none()
            && self.inodes.home_of(ino) == Some(Ino::LINKS)
            && self.quota_roots(of_dir).any(|root| self.quotas.is_counting(root));
        may_be_there || of_inode.map(|charged| charged.root) == of_dir
    }

    /// The same for an inode that grows.
    pub(crate) fn room_to_grow(&self, ino: Ino, bytes: u64) -> Result<(), Refusal> {
        if self.quotas.is_empty() {
            return Ok(());
        }
        let Some(Charged { root, .. }) = self.charged(ino) else { return Ok(()) };
        let dir = self.inodes.home_of(ino).unwrap_or(root);
        self.room_below(Some(root), None, dir, Usage { inodes: 0, bytes })
    }

    #[cold]
    fn room_below(
        &self,
        root: Option<Ino>,
        shared: Option<Ino>,
        dir: Ino,
        more: Usage,
    ) -> Result<(), Refusal> {
        let already = |root: &Ino| self.quota_roots(shared).any(|shared| shared == *root);
        for root in self.quota_roots(root).take_while(|root| !already(root)) {
            let Some(quota) = self.quotas.roots.get(&root) else { continue };
            let mut wanted = quota.used().plus(more);
            if more.inodes > 0 {
                wanted.inodes = wanted.inodes.saturating_add(self.reserved_below(root, Some(dir)));
            }
            // A change that adds nothing of a kind is not refused for that kind.
            let limits = QuotaLimits {
                inodes: quota.limits.inodes.filter(|_| more.inodes > 0),
                bytes: quota.limits.bytes.filter(|_| more.bytes > 0),
            };
            if !limits.admit(wanted) {
                return Err(Errno::Quota.into());
            }
        }
        Ok(())
    }

    /// Inodes that decoupled subtrees below a directory may bring, without the subtree that has
    /// `but`: the creates of a subtree use its own reservation.
    fn reserved_below(&self, root: Ino, but: Option<Ino>) -> u64 {
        let counts = |subtree: Ino| {
            self.is_within(subtree, root) && !but.is_some_and(|dir| self.is_within(dir, subtree))
        };
        let reserved = self.quotas.reserved.iter().filter(|(subtree, _)| counts(*subtree));
        reserved.map(|(_, inodes)| inodes).sum()
    }
}

impl Namespace {
    /// From now on directories with limits are quota roots. For a server that has the directories
    /// themselves, not a view of them.
    pub fn enforce_quotas(&mut self) {
        self.tree.quotas.is_enforced = true;
    }

    /// Whether a directory known here has limits.
    #[inline]
    #[must_use]
    pub fn has_quotas(&self) -> bool {
        !self.tree.quotas.is_empty()
    }

    /// The innermost directory with limits above the names of a directory.
    #[must_use]
    pub fn quota_root(&self, dir: Ino) -> Option<Ino> {
        self.tree.quota_root(dir)
    }

    /// The directories that have limits.
    pub fn quota_roots(&self) -> impl Iterator<Item = Ino> {
        self.tree.quotas.roots.keys().copied()
    }

    /// Whether a directory has room for so much more.
    #[must_use]
    pub fn has_room(&self, dir: Ino, more: Usage) -> bool {
        self.tree.room(dir, more).is_ok()
    }

    /// Notes which limits are nearer than this. Returns whether one of them has come near since the
    /// last look.
    pub fn note_near_quotas(&mut self, margin: Usage) -> bool {
        let roots: Vec<Ino> = self.quota_roots().collect();
        let mut is_any_new = false;
        for root in roots {
            let reserved = self.tree.reserved_below(root, None);
            let Some(quota) = self.tree.quotas.roots.get_mut(&root) else { continue };
            let mut wanted = quota.used().plus(margin);
            wanted.inodes = wanted.inodes.saturating_add(reserved);
            let is_near = !quota.limits.admit(wanted);
            is_any_new |= is_near && !quota.is_near;
            quota.is_near = is_near;
        }
        is_any_new
    }

    /// The use of a directory's quotas must be counted again: it got names without events.
    pub fn doubt_quotas(&mut self, dir: Ino) {
        self.tree.doubt_quotas(dir);
    }

    /// The first quota in which so many inodes cannot be reserved for a directory.
    #[must_use]
    pub fn quota_without_room(&self, dir: Ino, inodes: u64) -> Option<QuotaReport> {
        self.quotas_of(dir).into_iter().find(|quota| {
            let wanted = quota.used.inodes.saturating_add(quota.reserved).saturating_add(inodes);
            quota.limits.inodes.is_some_and(|most| wanted > most)
        })
    }

    /// Sets how many inodes decoupled subtrees may bring.
    pub fn reserve(&mut self, subtrees: impl Iterator<Item = (Ino, u64)>) {
        self.tree.quotas.reserved.clear();
        self.tree.quotas.reserved.extend(subtrees);
    }

    /// The quotas that hold in a directory, or in the directory of a file, the innermost first.
    #[must_use]
    pub fn quotas_of(&self, ino: Ino) -> Vec<QuotaReport> {
        let tree = &self.tree;
        let innermost = if tree.inodes.is_dir(ino) {
            tree.quota_root(ino)
        } else {
            tree.charged(ino).map(|charged| charged.root)
        };
        let report = |root: Ino| {
            let quota = tree.quotas.roots.get(&root)?;
            Some(QuotaReport {
                path: tree.path_of(root)?.to_bytes(),
                limits: quota.limits,
                used: quota.used(),
                reserved: tree.reserved_below(root, None),
                is_counted: quota.used.is_some() && !quota.is_doubted && quota.count.is_none(),
            })
        };
        tree.quota_roots(innermost).filter_map(report).collect()
    }
}
