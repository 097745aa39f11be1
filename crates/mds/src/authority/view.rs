//! A view of the places of inodes, and of the work around them.

use metastore::MovedSubtree;
use namespace::Namespace;
use types::{Ino, Path, Rank};
use wire::{ChangeOp, ClusterMap, Op};

use super::Authority;
use super::place::InodeAuthority;
use crate::locks::Locks;
use crate::op::touched;
use crate::opens::Opens;
use crate::tables::Tables;
use crate::{Phase, ReplyTo};

/// All that decides where an inode is. Nothing changes through it.
#[derive(Clone, Copy)]
pub(crate) struct Places<'a> {
    pub(crate) authority: &'a Authority,
    pub(crate) namespace: &'a Namespace,
    pub(crate) tables: &'a Tables,
    pub(crate) opens: &'a Opens,
    pub(crate) locks: &'a Locks<ReplyTo>,
    pub(crate) map: Option<&'a ClusterMap>,
}

impl Places<'_> {
    pub(super) fn place(&self, ino: Ino) -> InodeAuthority {
        self.authority.place(self.namespace, ino)
    }

    /// Whether there is more than one rank, as far as this one knows.
    pub(super) fn has_ranks(&self) -> bool {
        self.authority.has_ranks(self.map)
    }

    /// Whether this rank is the authority of the subtree with this root.
    pub(crate) fn serves(&self, root: Ino) -> bool {
        let known = self.authority.list.get(root);
        if let Some(joined) = known.filter(|subtree| subtree.joined) {
            return match self.place(root) {
                InodeAuthority::Here => true,
                InodeAuthority::Unknown => joined.rank == self.authority.rank,
                InodeAuthority::Moving(_) | InodeAuthority::Other(_) => false,
            };
        }
        let rank = known.map_or(Rank(0), |subtree| subtree.rank);
        rank == self.authority.rank && !self.authority.is_importing(root)
    }

    pub(super) fn overlap(&self, one: Ino, other: Ino) -> bool {
        self.namespace.is_within(one, other) || self.namespace.is_within(other, one)
    }

    /// The subtrees that clients have decoupled in a subtree, or at its root.
    pub(super) fn decoupled_below(&self, root: Ino) -> Vec<Ino> {
        self.tables.decoupled_below(self.namespace, root)
    }

    /// The directory that a request would remove, move or replace, if a name is moving into it, or
    /// it moves itself.
    pub(super) fn held_by_name(&self, op: &Op<'_>, phase: Phase) -> Option<Ino> {
        let authority = self.authority;
        let moves = authority.is_exporting() || !authority.imports.is_empty();
        if (authority.cross_renames.is_empty() && !moves) || !op.is_change() {
            return None;
        }
        let names = touched(op).names();
        let mut named = names.filter_map(|at| self.namespace.peek(at.dir, at.name).ok()?);
        // A recovery that searches a directory would miss it if a rename moved the directories
        // around it to a place that the search has already visited.
        let is_lost = |dir: &Ino| !self.namespace.is_anchored(*dir);
        let moves = matches!(*op, Op::Change(ChangeOp::Rename { parent, new_parent, .. }) if parent != new_parent);
        let lost = if moves && phase == Phase::Active {
            authority.cross_renames.ends().find(is_lost)
        } else {
            None
        };
        named.find_map(|ino| {
            if lost.is_some() && self.namespace.is_dir(ino) {
                return lost;
            }
            let on_its_way = authority.frozen.roots().find(|root| *root == ino);
            // A directory to or from which a name moves stays at its place until the decision, and
            // so does one with a moving subtree in it: the list names the subtree that has its
            // name.
            let mut passing = authority.cross_renames.ends().chain(authority.frozen.roots());
            let around = || passing.find(|dir| self.namespace.is_within(*dir, ino));
            authority.frozen.apart(ino).or(on_its_way).or_else(around)
        })
    }

    /// The root of a moving subtree through which a path leads.
    pub(super) fn moving_on_way(&self, base: Ino, path: &[u8]) -> Option<Ino> {
        let path = Path::parse(path).ok()?;
        let mut at = base;
        for name in path.components() {
            at = self.namespace.peek(at, name).ok()??;
            if let InodeAuthority::Moving(root) = self.place(at) {
                return Some(root);
            }
        }
        None
    }

    /// For a path that leads through a directory: the directory that has its name, and the rest of
    /// the path.
    pub(super) fn rest_of_walk(
        &self,
        base: Ino,
        path: &[u8],
        through: Ino,
    ) -> Option<(Ino, Vec<u8>)> {
        let path = Path::parse(path).ok()?;
        let mut at = base;
        let mut names = path.components();
        while let Some(name) = names.next() {
            let parent = at;
            at = self.namespace.peek(at, name).ok()??;
            if at == through {
                let rest: Vec<&[u8]> = names.collect();
                return Some((parent, rest.join(&b'/')));
            }
        }
        None
    }
}

impl Authority {
    /// Whether there is more than one rank, as far as this one knows.
    pub(crate) fn has_ranks(&self, map: Option<&ClusterMap>) -> bool {
        self.rank != Rank(0) || !self.list.is_empty() || map.is_some_and(|map| map.mds.len() > 1)
    }

    /// Whether the name of a subtree that comes is this rank's.
    pub(super) fn is_named_here(&self, subtree: &MovedSubtree) -> bool {
        self.list.named_by(subtree) == self.rank
    }

    /// Whether a subtree with this root is on its way to this rank.
    pub(super) fn is_importing(&self, root: Ino) -> bool {
        self.imports.iter().any(|import| import.root == root)
    }
}
