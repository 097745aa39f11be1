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
use super::export::ExportCx;
use super::import::ImportCx;
use super::place::{InodeAuthority, busy};
use super::view::Places;
use crate::MdsEffects;
use crate::checkpoint::Checkpoint;
use crate::merge::Merges;
use crate::op::Refused;
use crate::tables::{Gone, Moved, Tables};

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

impl Places<'_> {
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

    /// The bytes about them in the list.
    pub(super) fn moving_decoupled(&self, merges: &Merges, root: Ino) -> Vec<u8> {
        let moved = |subtree: Ino| {
            let known = self.tables.to_move(subtree)?;
            let above = self.namespace.ancestors(subtree).skip(1);
            let mut way: Vec<Ino> = above.collect();
            let end = way.iter().position(|dir| *dir == root).map_or(0, |at| at + 1);
            way.truncate(if subtree == root { 0 } else { end });
            way.reverse();
            let done = merges.last_of(subtree);
            Some(Moved { root: subtree, known, way, done })
        };
        let all: Vec<Moved> = self.decoupled_below(root).into_iter().filter_map(moved).collect();
        Moved::encode(&all)
    }
}

/// Whether merges that began in a subtree are finished, and answered.
pub(super) fn is_merged_below(
    merges: &Merges,
    checkpoint: &Checkpoint,
    namespace: &Namespace,
    root: Ino,
) -> bool {
    !merges.keeps(|subtree| namespace.is_within(subtree, root))
        && !checkpoint.is_flushing_below(namespace, root)
}

impl ExportCx<'_> {
    /// Notes in the table which entries leave with a subtree. Returns whether the note is stored.
    pub(super) fn note_leaving(&mut self, root: Ino, effects: &mut MdsEffects) -> bool {
        let moves = self.base.authority.list.get(root).map_or(0, |before| before.moves) + 1;
        let roots = self.base.tables.decoupled_below(self.base.namespace, root);
        if let Some(gone) =
            self.base.authority.export_of(root).and_then(|export| export.gone.as_ref())
        {
            let first = self.base.checkpoint.first_in_journal(self.base.log);
            let unstored = self.base.checkpoint.unstored_since(self.base.namespace, Ino::LINKS);
            self.base.tables.note_gone(gone, first, unstored);
        }
        let stored = self.base.tables.leave(root, moves, &roots);
        if !stored {
            self.base.storing_tables().tick(effects);
        }
        stored
    }
}

impl ImportCx<'_> {
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
                self.authority.preload_on_way(root, way);
            }
        }
        Ok(())
    }
}

impl Authority {
    /// Forgets the decoupled subtrees that left, by the list of subtrees.
    pub(crate) fn drop_left(&self, tables: &mut Tables, merges: &mut Merges) {
        let moves = |root: Ino| self.list.get(root).map_or(0, |subtree| subtree.moves);
        for subtree in tables.drop_left(moves) {
            merges.forget(subtree);
        }
    }

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
