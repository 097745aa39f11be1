//! A directory that is renamed from a directory of one rank to one of another. Only its name moves:
//! the rank that had it still serves the directory, which becomes a subtree of its own there, and
//! the other rank has the name (`authority::nested`). So the rename neither writes nor reads the
//! content, however large it is.
//!
//! The rank that takes the name first enters it in the list of subtrees, because this rank knows
//! which policy the directory inherits there. The rank that serves the directory waits for that
//! entry, and then puts the root into the hidden directory. Neither serves the directory before; a
//! recovery of either does the rest, by the record of the name in the list.
//!
//! No other rank serves anything in the directory. So it cannot come below itself: the path there
//! would lead through a subtree of another rank. And during the cross-rank rename nothing in it can
//! leave, nor arrive.

use metastore::{MovedName, MovedSubtree, SUBTREES_MAX, Subtrees};
use namespace::Namespace;
use types::{Errno, Error, Ino, Moment, Rank, Span};

use super::super::place::{InodeAuthority, busy};
use super::super::{READ_LATELY, is_in_hidden};
use super::arrive::Arrival;
use super::offer::cross;
use super::{NameNeed, NamesCx};
use crate::MdsEffects;
use crate::authority::{Authority, Places, UnderWay};
use crate::op::Refused;

/// Why nothing is done with the name of a subtree that another rank serves.
pub(super) const MOUNT_POINT: &str = "another rank serves the directory that has the new name; bring it back first with `cudele mds pin`";

const SPLIT: &str = "it is, or is in, a directory that is split, or has one in it; `cudele mds join` puts it together";

/// Directories that were renamed between ranks stay in the list of subtrees. They leave room for
/// the subtrees that users pin.
const RENAMED_MAX: usize = SUBTREES_MAX / 2;

/// How long to wait between two attempts to have a subtree follow its name.
const FOLLOW_INTERVAL: Span = Span::from_millis(100);

impl Places<'_> {
    /// Whether another rank serves a directory.
    pub(super) fn is_elsewhere(&self, dir: Ino) -> bool {
        matches!(self.place(dir), InodeAuthority::Other(_)) || self.namespace.is_split(dir)
    }

    /// Whether the name of a directory of this rank may go to another one now.
    pub(super) fn may_go(&self, dir: Ino, under_way: UnderWay) -> Result<(), Refused> {
        let authority = &self.authority;
        let within = |root| self.namespace.is_within(root, dir);
        let lost = |root: &Ino| !self.namespace.is_anchored(*root);
        let moving = authority.exporting().any(within)
            || authority.imports.iter().any(|import| lost(&import.root) || within(import.root))
            || authority.reshape.is_some();
        // A directory that arrives in it may be the target of its own rename.
        let others = authority.cross_renames.leaving().filter(|it| *it != dir);
        let mut ends = authority.cross_renames.ends();
        let passing = ends.any(|end| lost(&end) || within(end)) || others.into_iter().any(within);
        if moving || passing || authority.other_roots().any(|root| lost(&root)) {
            return Err(Errno::Again.into());
        }
        if let Some(root) = authority.other_roots().find(|root| within(*root)) {
            return Err(authority.busy_with(authority.rank, root));
        }
        self.check_whole(dir)?;
        if self.tables.decoupled.keys().any(lost) {
            return Err(Errno::Again.into());
        }
        let mut decoupled = self.tables.decoupled.iter().filter(|(_, known)| !known.released);
        if decoupled.any(|(root, _)| within(*root)) {
            return Err(cross("a client has decoupled a directory in it"));
        }
        self.check_policies(dir, under_way)
    }

    /// Fragments are served where their names say, and nothing in them is a subtree of its own.
    fn check_whole(&self, dir: Ino) -> Result<(), Refused> {
        let authority = &self.authority;
        let is_part = |dir: Ino| authority.list.get(dir).is_some_and(|it| it.part.is_some());
        let mut splits = authority.splits.keys();
        let split = splits.any(|split| self.namespace.is_within(*split, dir));
        if split || self.namespace.ancestors(dir).any(is_part) {
            return Err(cross(SPLIT));
        }
        Ok(())
    }

    /// Whether a directory may come as it is offered.
    pub(super) fn may_come(&self, record: &MovedName, now: Moment) -> Result<Arrival, Refused> {
        let dir = record.new_parent;
        if !self.namespace.is_anchored(dir) {
            return Ok(Arrival::Later(Some(NameNeed::Find(dir))));
        }
        self.check_whole(dir)?;
        let list = &self.authority.list;
        if list.len() >= RENAMED_MAX && list.get(record.ino).is_none() {
            return Err(cross("too many directories were renamed between metadata servers"));
        }
        if self.is_below(dir, &[record.ino]) {
            // It may have been renamed out of there since the list was read.
            if self.authority.has_read_lately(now) {
                return Err(Errno::Invalid.into());
            }
            return Ok(Arrival::Later(Some(NameNeed::Read)));
        }
        let Ok(Some(target)) = self.namespace.peek(dir, &record.new_name) else {
            return Ok(Arrival::Now);
        };
        if self.authority.is_of_other(target) {
            return Err(busy(MOUNT_POINT));
        }
        if self.tables.decoupled.get(&target).is_some_and(|known| !known.released) {
            return Err(cross("a client has decoupled the directory that has the new name"));
        }
        if let InodeAuthority::Moving(_) = self.place(target) {
            return Ok(Arrival::Later(None));
        }
        if self.authority.exporting().any(|root| self.namespace.is_within(root, target)) {
            return Ok(Arrival::Later(None));
        }
        Ok(Arrival::Replaces(target))
    }

    /// Whether a directory is in one of the given ones, by the list of subtrees: the path to it
    /// leads through subtrees of other ranks.
    fn is_below(&self, dir: Ino, others: &[Ino]) -> bool {
        let list = &self.authority.list;
        let mut at = self.authority.nearest_root(self.namespace, dir);
        for _ in 0..=list.len() {
            if at == Ino(0) {
                return false;
            }
            if others.contains(&at) {
                return true;
            }
            at = list.unjoined_at(at).map_or(Ino(0), |subtree| subtree.outer);
        }
        // Only a damaged list has rings.
        true
    }
}

impl NamesCx<'_> {
    /// The list of subtrees in which this rank has the name of a directory that it took.
    pub(super) fn list_with_name(
        &mut self,
        list: &Subtrees,
        record: &MovedName,
    ) -> Option<Subtrees> {
        let MovedName { from, ino: root, new_parent, ref new_name, .. } = *record;
        let path = self.namespace.path_of(new_parent)?.join(new_name).to_bytes();
        let (source, in_force) = self.namespace.effective_policy(new_parent);
        let policy = source.map(|_| in_force.policy.to_yaml()).unwrap_or_default();
        let outer = self.authority.nearest_root(self.namespace, new_parent);
        let before = list.get(root).cloned();
        // How often it was moved stays: it was not.
        let before = before.unwrap_or_else(|| MovedSubtree { root, ..MovedSubtree::default() });
        let mut list = list.clone();
        let (rank, follows, joined) = (from, !before.pinned, false);
        list.put(MovedSubtree { rank, follows, joined, path, policy, outer, ..before });
        Some(list)
    }

    /// Whether the list names a directory that left as a subtree whose name is another rank's. If
    /// not, the list is read again.
    pub(super) fn is_listed_as_own(&mut self, root: Ino) -> bool {
        if self.authority.is_own_root(root)
            && let Some(subtree) = self.authority.list.get(root).cloned()
        {
            self.authority.set_above_stub(self.namespace, &subtree);
            return true;
        }
        let lately = |at| self.clock.now.since(at) < READ_LATELY;
        if !self.authority.read_at.is_some_and(lately) {
            self.needs.push(NameNeed::Read);
        }
        false
    }

    /// Whether a directory that left before a crash is in memory, in its hidden directory. If not,
    /// that is fetched.
    pub(super) fn is_root_here(&mut self, root: Ino, effects: &mut MdsEffects) -> bool {
        if is_in_hidden(self.namespace, root) {
            return true;
        }
        let above = Ino::mount_stub(root);
        if self.namespace.is_complete(above) {
            let cause = "the store has not got its root, which this rank serves";
            let error = Error::new(Errno::BadMessage, root.to_string(), cause);
            effects.fatal = Some(error.remedy("run `cudele fsck`"));
        } else {
            self.needs.push(NameNeed::Fetch(above));
        }
        false
    }
}

impl Authority {
    /// The next subtree of this rank that was renamed away and follows its name to another rank, if
    /// nothing else is going on.
    pub(in crate::authority) fn next_to_follow(&mut self, now: Moment) -> Option<(Ino, Rank)> {
        let busy = self.is_exporting()
            || !self.imports.is_empty()
            || !self.cross_renames.is_empty()
            || self.is_busy();
        if busy || self.follow_at.is_some_and(|at| now < at) {
            return None;
        }
        let list = &self.list;
        let follows = |it: &&MovedSubtree| {
            let to = list.named_by(it);
            it.follows && it.rank == self.rank && to != self.rank && it.inode.is_empty()
        };
        // One after the other, those that cannot go at the end.
        let next = list.unjoined().filter(follows).find(|it| it.root > self.followed);
        let next = next.map(|it| (it.root, list.named_by(it)));
        self.followed = next.map_or(Ino(0), |(root, _)| root);
        if next.is_some() {
            self.follow_at = Some(now + FOLLOW_INTERVAL);
        }
        next
    }

    /// The root of the subtree that a directory of this rank is in; 0 for none.
    fn nearest_root(&self, namespace: &Namespace, dir: Ino) -> Ino {
        let is_root = |above: &Ino| self.list.unjoined_at(*above).is_some();
        namespace.ancestors(dir).find(is_root).unwrap_or_default()
    }

    /// `EBUSY`, because of a subtree of another rank.
    pub(in crate::authority) fn busy_with(&self, here: Rank, root: Ino) -> Refused {
        let Some(subtree) = self.list.get(root) else { return Errno::Busy.into() };
        let path = String::from_utf8_lossy(&subtree.path);
        let (rank, here) = (subtree.rank, here.0);
        busy(format!(
            "{rank} serves {path}, whose name is in it; bring it back first with `cudele mds pin {path} {here}`"
        ))
    }
}
