//! Purges and checkpoints: a list of removed inodes lets captured directories be written, and
//! removals ask for a checkpoint that gives their room back.

use journal::Event;
use metastore::request::{StoreFailure, StoreResult};
use types::Origin;

use super::CheckpointCx;
use crate::purge::{RoomWork, Task};
use crate::{MdsEffects, Phase};

impl CheckpointCx<'_> {
    /// A store operation of the purge queue ended.
    pub(crate) fn purge_stored(
        &mut self,
        task: Task,
        result: Result<StoreResult, Box<StoreFailure>>,
        effects: &mut MdsEffects,
    ) {
        match task {
            Task::Delete(ino) => self.purging().purged(ino, &result, effects),
            Task::List(number) => {
                self.purging().removals_listed(number, &result, effects);
                self.commit_captured(effects);
                if self.purges.are_merges_unlisted() {
                    self.trim(effects);
                }
            }
            Task::ReadNames => {
                self.purging().removals_found(result);
                self.purging().read_next_removals(effects);
            }
            Task::Read(name) => {
                self.purging().removals_read(name, result);
                self.purging().read_next_removals(effects);
            }
        }
    }

    /// Continues the purge queue, and gives the room of removed files back.
    pub(crate) fn purge_tick(&mut self, effects: &mut MdsEffects) {
        self.purges.retry(self.clock.now);
        self.room_tick(effects);
        self.purging().step(effects);
    }

    /// Starts a checkpoint if one is due because of removals.
    pub(crate) fn room_tick(&mut self, effects: &mut MdsEffects) {
        let (now, last) = (self.clock.now, self.log.last());
        if self.phase != Phase::Active || self.settings.private.is_some() {
            return;
        }
        let first = self.log.first_retained();
        match self.purges.room_work(first, last, self.checkpoint.is_writing(), now) {
            RoomWork::Nothing => {}
            RoomWork::Trim => self.trim(effects),
            RoomWork::Checkpoint => {
                if self.log.has_segments() {
                    // A new segment allows the trim of the one that is written to.
                    self.log.end_segment();
                    self.log.append(now, Origin::default(), &Event::NOTHING);
                }
                self.checkpoint.write_up_to(Some(last));
            }
        }
    }
}
