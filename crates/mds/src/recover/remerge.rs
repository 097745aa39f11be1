//! Merges that are repeated in a recovery, slice by slice, and directories that the store has as
//! they were at some position of the journal or later.

use std::ops::Range;

use journal::{Loss, segment};
use metastore::request::{LoadedDir, StoreOp};
use namespace::Mode;
use types::{Ino, Seq, Set};

use super::replay::Pause;
use super::{RecoveryCx, Step};
use crate::fetch::seen_by;
use crate::merge::JournalId;
use crate::{MdsEffects, Waiting};

/// A client's journal that is applied again, and how far.
#[derive(Debug)]
pub(super) struct Merged {
    pub(super) object: String,
    id: JournalId,
    bytes: Vec<u8>,
    /// Where the next block starts, and how many of its events are done.
    offset: usize,
    skip: u64,
    /// How many events of the journal are done.
    done: u64,
    /// The position of the part that is being applied.
    part: Seq,
}

impl Merged {
    pub(super) fn new(object: String, bytes: Vec<u8>) -> Self {
        let offset = segment::HEADER_BYTES;
        let (id, part) = (JournalId::of(&bytes), Seq(0));
        Self { object, id, bytes, offset, skip: 0, done: 0, part }
    }
}

impl RecoveryCx<'_> {
    /// Applies a part of a client's journal again that was merged before the restart (weak
    /// consistency with global durability). Returns a directory that must be fetched first.
    pub(super) fn merge_again(
        &mut self,
        seq: Seq,
        subtree: Ino,
        part: Range<u64>,
        losses: &[u8],
        merged: &mut Merged,
    ) -> Option<Ino> {
        if merged.part != seq && merged.done > part.start {
            // A second merge applied it again from the start.
            (merged.offset, merged.skip, merged.done) = (segment::HEADER_BYTES, 0, 0);
        }
        merged.part = seq;
        let Merged { id, bytes, offset, skip, done, .. } = merged;
        let refused: Set<Ino> = Loss::all(losses).filter_map(|loss| loss.create()).collect();
        // The merge verified it; blocks that cannot be read now are not applied.
        while *done < part.end
            && let Ok((block, next)) = journal::Block::read(bytes, *offset)
        {
            let mut events = block.events();
            for _ in 0..*skip {
                events.next_event().ok()?;
            }
            while *done < part.end
                && let Ok(Some(record)) = events.next_event()
            {
                let is_refused = |ino: Ino| refused.contains(&ino);
                if *done >= part.start && !record.event.inode().is_some_and(is_refused) {
                    if let Some(dir) = self.namespace.needs().again(seq, &record.event) {
                        return Some(dir);
                    }
                    self.namespace.apply(seq, Mode::Remerge, &record.event);
                    self.merges.note_done(subtree, *id, record.seq, true);
                    self.counters.recovered_events += 1;
                }
                *skip += 1;
                *done += 1;
            }
            if *skip >= u64::from(block.count) {
                (*offset, *skip) = (next, 0);
            } else if *done < part.end {
                // The block has fewer events than it states: it is not the verified one.
                return None;
            }
        }
        None
    }

    /// Repeats the losses that a part of a merge caused.
    pub(super) fn lose_again(
        &mut self,
        seq: Seq,
        losses: &[u8],
        effects: &mut MdsEffects,
    ) -> Result<(), Pause> {
        for loss in Loss::all(losses).skip(self.recovery.losses) {
            if loss.winner.0 != 0 && self.replace_if_stored(loss.winner, seq, effects)? {
                self.namespace.drop_loser(loss.loser);
                self.recovery.losses += 1;
                continue;
            }
            if let Some(dir) = self.namespace.needs().to_lose(&loss) {
                // Whether the winner is stored is checked again afterwards.
                return Err(Pause::Directory(dir));
            }
            self.namespace.lose_again(seq, &loss);
            self.recovery.losses += 1;
        }
        self.recovery.losses = 0;
        Ok(())
    }

    /// Takes a directory as it is stored if that is how it was at this position or later. Returns
    /// whether it did.
    ///
    /// # Errors
    /// The directory is being read.
    pub(super) fn replace_if_stored(
        &mut self,
        dir: Ino,
        seq: Seq,
        effects: &mut MdsEffects,
    ) -> Result<bool, Pause> {
        let Some(stored) = self.recovery.stored.take() else {
            self.recovery.step = Step::ReadStored;
            self.store.begin(Waiting::Recovery, StoreOp::LoadDir { ino: dir }, effects);
            return Err(Pause::Read);
        };
        let position = |loaded: &LoadedDir| loaded.manifest.position.seen_by(self.rank);
        let Some(loaded) = stored.filter(|loaded| position(loaded) >= seq) else {
            return Ok(false);
        };
        let LoadedDir { manifest, rows } = *loaded;
        let rank = self.rank;
        let rows = rows.iter().map(|row| seen_by(rank, row));
        let mut touched = manifest.touched;
        touched.seq = touched.seq.seen_by(rank);
        self.namespace.store().replace(dir, rows, manifest.position, touched);
        Ok(true)
    }
}
