//! Stopping cleanly: everything is written down, and the journal ends.

use crate::checkpoint::CheckpointCx;
use crate::log::Log;
use crate::session::Sessions;
use crate::tables::{JournalEnd, Tables};
use crate::{MdsEffects, Phase};

impl CheckpointCx<'_> {
    /// Ends the journal if everything is written down. Returns whether the server has stopped.
    pub(crate) fn try_stop(&mut self, has_work: bool, effects: &mut MdsEffects) -> bool {
        assert!(self.phase == Phase::Stopping, "a server stops after the order to stop");
        if self.settings.private.is_some() {
            // The job takes the journal over then; the rest ends with the process.
            effects.stopped = self.log.is_idle();
            return false;
        }
        self.purging().queue_merged_away();
        // A clean stop leaves no journal from which a merge could be finished.
        let idle = !has_work
            && !self.merges.is_halfway()
            && self.log.is_idle()
            && self.checkpoint.is_idle()
            && self.purges.is_idle()
            && !self.compaction.is_busy()
            && self.authority.is_idle()
            && self.tables.is_idle();
        if !idle || self.namespace.dirtiest().is_some() {
            return false;
        }
        if self.merges.is_any_record() || self.damage.keeps_journal() {
            // Keep the journal: the next server finds in it an unfinished merge, or the changes of
            // a damaged directory.
            effects.stopped = true;
            return true;
        }
        let end = end_of_journal(self.sessions, self.log);
        let is_ended = self.tables.end_journal(end);
        if is_ended {
            assert!(!self.is_resend_busy, "the resent changes are in the journal");
            self.trim(effects);
            effects.stopped = true;
        } else {
            self.storing_tables().tick(effects);
        }
        is_ended
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
