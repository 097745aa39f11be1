//! Stopping cleanly: everything is written down, and the journal ends.

use crate::tables::JournalEnd;
use crate::{Mds, MdsEffects, Phase};

impl Mds {
    pub(crate) fn terminate(&mut self, effects: &mut MdsEffects) {
        match self.phase {
            // First apply the changes that clients know as applied: the next server would not wait
            // for them.
            Phase::Active if self.is_resend_busy() => self.stop_after_resend(),
            Phase::Active => {
                if !self.end_exclusive(effects) {
                    // `caps_tick` comes back here.
                    return;
                }
                self.phase = Phase::Stopping;
                self.stop_export(effects);
                self.stop_reshape(effects);
                self.stop_snapshots(effects);
                if !self.is_private() {
                    self.checkpoint_all();
                }
                self.beacon_tick(effects);
            }
            // Nothing was accepted yet, and the journal still holds everything, also which clients
            // the next server must wait for.
            Phase::Recovering | Phase::Reconnecting { .. } => {
                self.phase = Phase::Stopped;
                effects.stopped = true;
            }
            Phase::Stopping | Phase::Stopped => {}
        }
    }

    pub(crate) fn try_stop(&mut self, effects: &mut MdsEffects) {
        assert!(self.phase == Phase::Stopping, "a server stops after the order to stop");
        if self.is_private() {
            // The job takes the journal over then; the rest ends with the process.
            effects.stopped = self.log.is_idle();
            return;
        }
        self.queue_merged_away();
        // A clean stop leaves no journal from which a merge could be finished.
        let idle = !self.has_work()
            && !self.merges.is_halfway()
            && self.log.is_idle()
            && self.checkpoint.is_idle()
            && self.purges.is_idle()
            && !self.compaction.is_busy()
            && self.authority.is_idle()
            && self.tables.is_idle();
        if !idle || !self.checkpoint_finished() {
            return;
        }
        if self.merges.is_any_record() || self.damage.keeps_journal() {
            // Keep the journal: the next server finds in it an unfinished merge, or the changes of
            // a damaged directory.
            self.phase = Phase::Stopped;
            effects.stopped = true;
            return;
        }
        let end = self.end_of_journal();
        if self.tables.end_journal(end) {
            assert!(!self.is_resend_busy(), "the resent changes are in the journal");
            self.trim(effects);
            self.phase = Phase::Stopped;
            effects.stopped = true;
        } else {
            self.tables_tick(effects);
        }
    }

    fn end_of_journal(&self) -> JournalEnd {
        let sessions = self.sessions.left();
        JournalEnd { last: self.log.last(), next_index: self.log.next_index(), sessions }
    }

    /// Whether every event of the journal is in the metadata store, so that the whole journal may
    /// be deleted.
    pub(crate) fn is_journal_ended(&self) -> bool {
        self.phase == Phase::Stopping
            && self.tables.is_idle()
            && *self.tables.journal_end() == self.end_of_journal()
    }
}
