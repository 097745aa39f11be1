//! Stopping cleanly: everything is written down, and the journal ends.

use crate::log::Log;
use crate::session::Sessions;
use crate::tables::{JournalEnd, Tables};
use crate::{Mds, MdsEffects, Phase};

impl Mds {
    /// Whether the server is about to end: optional work should be left out.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        matches!(self.phase, Phase::Stopping | Phase::Stopped)
    }

    pub(crate) fn terminate(&mut self, effects: &mut MdsEffects) {
        match self.phase {
            // First apply the changes that clients know as applied: the next server would not wait
            // for them.
            Phase::Active if self.resend.is_busy() => self.resend.stop_when_done(),
            Phase::Active => {
                if !self.capabilities().end_exclusive(effects) {
                    // `caps_tick` comes back here.
                    return;
                }
                self.phase = Phase::Stopping;
                self.exporting().stop(effects);
                self.reshaping().stop(effects);
                self.tell_ended(effects);
                self.snapshot_step(effects);
                if !self.is_private() {
                    self.checkpoint.write_all();
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
        self.purging().queue_merged_away();
        // A clean stop leaves no journal from which a merge could be finished.
        let idle = !self.has_work()
            && !self.merges.is_halfway()
            && self.log.is_idle()
            && self.checkpoint.is_idle()
            && self.purges.is_idle()
            && !self.compaction.is_busy()
            && self.authority.is_idle()
            && self.tables.is_idle();
        if !idle || self.namespace.dirtiest().is_some() {
            return;
        }
        if self.merges.is_any_record() || self.damage.keeps_journal() {
            // Keep the journal: the next server finds in it an unfinished merge, or the changes of
            // a damaged directory.
            self.phase = Phase::Stopped;
            effects.stopped = true;
            return;
        }
        let end = end_of_journal(&self.sessions, &self.log);
        if self.tables.end_journal(end) {
            assert!(!self.resend.is_busy(), "the resent changes are in the journal");
            self.checkpointing().trim(effects);
            self.phase = Phase::Stopped;
            effects.stopped = true;
        } else {
            self.storing_tables().tick(effects);
        }
    }
}

fn end_of_journal(sessions: &Sessions, log: &Log) -> JournalEnd {
    JournalEnd { last: log.last(), next_index: log.next_index(), sessions: sessions.left() }
}

/// Whether every event of the journal is in the metadata store, so that the whole journal may be
/// deleted.
pub(crate) fn is_journal_ended(
    phase: Phase,
    tables: &Tables,
    sessions: &Sessions,
    log: &Log,
) -> bool {
    phase == Phase::Stopping
        && tables.is_idle()
        && *tables.journal_end() == end_of_journal(sessions, log)
}
