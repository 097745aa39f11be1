//! Decoupled subtrees that move to another rank together with the subtree around them (F-13).
//! Requests of their clients block during the move, and are then redirected to the new rank.
//!
//! `tables::leave` moves their entries of the rank's table, and `merge::moving` handles their
//! merges.

use metastore::{MovedSubtree, SUBTREES_NAME};
use namespace::Namespace;
use types::{Errno, Error, Ino, Rank};
use wire::{JobOp, Op};

use super::Authority;
use super::place::{InodeAuthority, busy};
use crate::op::Refused;
use crate::tables::{Gone, Moved, Tables};
use crate::{Mds, MdsEffects};

/// The decoupled subtree that a request is about as a whole.
pub(super) fn decoupled_of(op: &Op<'_>) -> Option<Ino> {
    if let Op::Job(JobOp::Merge { subtree, flags, .. }) = *op {
        (!flags.strong_log).then_some(subtree)
    } else if let Op::Job(
        JobOp::Extend { subtree, .. }
        | JobOp::Release { subtree, .. }
        | JobOp::TakeOver { subtree },
    ) = *op
    {
        (subtree != Ino(0)).then_some(subtree)
    } else {
        None
    }
}

impl Mds {
    /// The subtrees that clients have decoupled in a subtree, or at its root.
    pub(super) fn decoupled_below(&self, root: Ino) -> Vec<Ino> {
        let all = self.tables.decoupled.keys().copied();
        all.filter(|it| self.namespace.is_within(*it, root)).collect()
    }

    /// A decoupled subtree moves as a whole.
    pub(super) fn check_decoupled(&self, root: Ino) -> Result<(), Refused> {
        for (other, known) in &self.tables.decoupled {
            if *other != root && self.namespace.is_within(root, *other) {
                let client = known.client;
                let text = format!(
                    "{client} has decoupled a directory above it; move that one, or merge it first"
                );
                return Err(busy(text));
            }
            if !self.namespace.is_anchored(*other) {
                return Err(Errno::Again.into());
            }
        }
        Ok(())
    }

    /// Whether merges that began in a subtree are finished, and answered.
    pub(super) fn is_merged_below(&self, root: Ino) -> bool {
        !self.merges.keeps(|subtree| self.namespace.is_within(subtree, root))
            && !self.checkpoint.is_flushing_below(&self.namespace, root)
    }

    /// Notes in the table which entries leave with a subtree. Returns whether the note is stored.
    pub(super) fn note_leaving(&mut self, root: Ino, effects: &mut MdsEffects) -> bool {
        let moves = self.authority.list.get(root).map_or(0, |before| before.moves) + 1;
        let roots = self.decoupled_below(root);
        if let Some(gone) = self.authority.export_of(root).and_then(|export| export.gone.as_ref()) {
            let first = self.checkpoint.first_in_journal(&self.log);
            let unstored = self.checkpoint.unstored_since(&self.namespace, Ino::LINKS);
            self.tables.note_gone(gone, first, unstored);
        }
        let stored = self.tables.leave(root, moves, &roots);
        if !stored {
            self.storing_tables().tick(effects);
        }
        stored
    }

    /// The bytes about them in the list.
    pub(super) fn moving_decoupled(&self, root: Ino) -> Vec<u8> {
        let moved = |subtree: Ino| {
            let known = self.tables.to_move(subtree)?;
            let above = self.namespace.ancestors(subtree).skip(1);
            let mut way: Vec<Ino> = above.collect();
            let end = way.iter().position(|dir| *dir == root).map_or(0, |at| at + 1);
            way.truncate(if subtree == root { 0 } else { end });
            way.reverse();
            let done = self.merges.last_of(subtree);
            Some(Moved { root: subtree, known, way, done })
        };
        let all: Vec<Moved> = self.decoupled_below(root).into_iter().filter_map(moved).collect();
        Moved::encode(&all)
    }

    /// Forgets the decoupled subtrees that left, by the list of subtrees.
    pub(crate) fn drop_left(&mut self) {
        let list = &self.authority.list;
        let moves = |root: Ino| list.get(root).map_or(0, |subtree| subtree.moves);
        for subtree in self.tables.drop_left(moves) {
            self.merges.forget(subtree);
        }
    }

    /// Takes in the subtrees that clients have decoupled in an arriving subtree.
    pub(super) fn take_decoupled(&mut self, subtree: &MovedSubtree) -> Result<(), Error> {
        let moved = Moved::decode(&subtree.decoupled).map_err(|malformed| {
            Error::new(Errno::BadMessage, SUBTREES_NAME, malformed.to_string())
        })?;
        for Moved { root, known, way, done } in moved {
            self.tables.take_moved(root, known);
            self.merges.set_last_of(root, done);
            if !way.is_empty() {
                // The permissions in a decoupled subtree depend on the directories above it.
                self.preload_on_way(root, way);
            }
        }
        Ok(())
    }
}

impl Authority {
    /// The subtrees that left while the journal still names them, by the list of subtrees.
    pub(crate) fn recover_gone<'a>(&self, tables: &'a mut Tables) -> &'a [Gone] {
        tables.recover_gone(|root| self.list.get(root).map_or(0, |subtree| subtree.moves))
    }

    /// Whether it is undecided which rank has a decoupled subtree.
    pub(crate) fn is_moving_decoupled(&self, namespace: &Namespace, subtree: Ino) -> bool {
        self.exporting().any(|root| namespace.is_within(subtree, root))
            || matches!(self.place(namespace, subtree), InodeAuthority::Moving(_))
    }

    /// The other rank that has a subtree, if that is known.
    pub(crate) fn rank_of_decoupled(&self, namespace: &Namespace, subtree: Ino) -> Option<Rank> {
        match self.place(namespace, subtree) {
            InodeAuthority::Other(rank) => Some(rank),
            InodeAuthority::Here | InodeAuthority::Moving(_) | InodeAuthority::Unknown => None,
        }
    }
}
