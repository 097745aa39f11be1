//! Subtrees in subtrees: which of them has the name of which, and the consequences when one moves
//! (B-02).
//!
//! The rank that serves the directory above a subtree's root has its name (`MovedSubtree::outer`).
//! If that rank also serves the subtree, the root's inode is where its name is, and the subtree is
//! a part of the subtree around it and moves with it. If not, the root's inode is in a hidden
//! directory on the rank that serves it, and stays there when the subtree around it moves.
//!
//! Invariant: a root that its rank serves in a hidden directory does not have its name on the same
//! rank. So a subtree does not move to the rank of a subtree inside it before that one has come
//! back.

use metastore::{MovedSubtree, Subtrees};
use types::{Ino, Rank, Timestamp};
use wire::{Answer, Redirect};

use super::export::ExportCx;
use super::view::Places;

impl Places<'_> {
    /// The nearest subtree around a directory whose name is here; `also` counts as the root of one.
    fn outer_of(&self, root: Ino, also: Ino) -> Ino {
        let mut above = self.namespace.ancestors(root).skip(1);
        let is_root = |dir: &Ino| *dir == also || self.authority.list.unjoined_at(*dir).is_some();
        above.find(is_root).unwrap_or_default()
    }

    /// The subtrees whose names are in a subtree of this rank's.
    fn inner_of(&self, root: Ino) -> Vec<Ino> {
        let list = &self.authority.list;
        let named = list
            .unjoined()
            .filter(|it| it.root != root && list.named_by(it) == self.authority.rank);
        named.map(|it| it.root).filter(|it| self.namespace.is_within(*it, root)).collect()
    }

    /// A subtree inside `root` that rank `to` serves: it must be brought here first.
    pub(super) fn first_elsewhere(&self, root: Ino, to: Rank) -> Option<Answer> {
        let is_there = |it: &Ino| {
            self.authority
                .list
                .unjoined_at(*it)
                .is_some_and(|it| it.rank == to && to != self.authority.rank)
        };
        let root = self.inner_of(root).into_iter().find(is_there)?;
        let elsewhere = Redirect { rank: to, root, ..Redirect::default() };
        Some(Answer::Redirect(Box::new(elsewhere)))
    }

    /// Whether a subtree that is being taken in belongs to one that is to go.
    pub(super) fn is_importing_below(&self, root: Ino) -> bool {
        let mut imports = self.authority.imports.iter().map(|import| import.root);
        let list = &self.authority.list;
        let is_named =
            |it| list.get(it).is_some_and(|subtree| self.authority.is_named_here(subtree));
        // Where its name is may have to be looked for.
        let is_lost = |it| !self.namespace.is_anchored(it) && is_named(it);
        imports.any(|it| it == root || self.namespace.is_within(it, root) || is_lost(it))
    }
}

impl ExportCx<'_> {
    /// A list in which a subtree is another rank's, and all else is as in the one that is given.
    pub(super) fn list_with(&mut self, mut list: Subtrees, root: Ino) -> Option<Subtrees> {
        let export = self.base.authority.export_of(root)?;
        let (to, pinned) = (export.to, export.pinned);
        let stays = to == self.base.rank;
        // A subtree that stays is not taken in by any rank.
        let inode =
            if stays { Vec::new() } else { self.places().hand_over(root, &export.linked)? };
        let before = self.base.authority.list.get(root);
        let part = before.and_then(|before| before.part);
        let moves = before.map_or(0, |before| before.moves) + u64::from(!stays);
        let named_here = |it: &&MovedSubtree| {
            it.joined || self.base.authority.list.named_by(it) == self.base.rank
        };
        let elsewhere = before.filter(|before| !named_here(before));
        let joined = stays && elsewhere.is_none() && part.is_none();
        let before_this = before.map_or(Timestamp(0), |before| before.moved);
        let moved = if stays { before_this } else { self.base.clock.time };
        let (path, policy, outer) = match elsewhere {
            // The name, and the inherited policy, are not here.
            Some(before) => (before.path.clone(), before.policy.clone(), before.outer),
            None => {
                let outer = self.places().outer_of(root, Ino(0));
                let path = self.base.namespace.path_of(root)?.to_bytes();
                let (source, in_force) = self.base.namespace.effective_policy(root);
                let inherits = source.is_some_and(|source| source != root);
                let policy = if inherits { in_force.policy.to_yaml() } else { self.above(root) };
                (path, policy, outer)
            }
        };
        let decoupled =
            if stays { Vec::new() } else { self.places().moving_decoupled(self.base.merges, root) };
        // A joined subtree moves with it anyway.
        let is_in = |it: &&MovedSubtree| it.joined && self.base.namespace.is_within(it.root, root);
        let inside: Vec<MovedSubtree> =
            self.base.authority.list.iter().filter(is_in).cloned().collect();
        inside.into_iter().for_each(|subtree| list.put(MovedSubtree { rank: to, ..subtree }));
        for inner in self.places().inner_of(root) {
            let Some(subtree) = list.get(inner).cloned() else { continue };
            // A subtree in it that this rank serves is a part of it, and moves with it.
            let rank = if subtree.rank == self.base.rank { to } else { subtree.rank };
            let also = if joined { Ino(0) } else { root };
            list.put(MovedSubtree { outer: self.places().outer_of(inner, also), rank, ..subtree });
        }
        list.put(MovedSubtree {
            root,
            rank: to,
            moves,
            pinned,
            follows: false,
            joined,
            path,
            policy,
            inode,
            part,
            outer,
            decoupled,
            moved,
        });
        Some(list)
    }
}
