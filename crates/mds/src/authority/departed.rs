//! The events in this rank's journal about a subtree that moved to another rank.
//!
//! A recovery must not replay these events on directories that another rank has changed since. It
//! can skip them if it knows which directories left (`tables::gone`), and this rank knows them all
//! if no directory outside of memory was changed since the journal began. Then the export writes
//! only the changes of the subtree. Otherwise it writes the changes of the whole rank, until the
//! journal can begin behind the subtree's last event.

use types::{Ino, Seq, Span};

use super::Authority;
use super::export::ExportStage;
use crate::MdsEffects;
use crate::checkpoint::CheckpointCx;
use crate::tables::{GONE_MAX, Gone};

/// Names, and directories, that are written while requests wait: a few milliseconds, mostly of
/// waiting for a disk, and that takes as long however few they are.
const LITTLE: u64 = 1024;
const LITTLE_DIRS: usize = 2;

impl Authority {
    /// Directories that the journal names up to here may not be in memory any more, or it may say
    /// something of them that it does not name them for.
    pub(crate) fn journal_is_unclear(&mut self, last: Seq) {
        self.unclear = Some(last);
    }
}

impl CheckpointCx<'_> {
    /// Whether a subtree can leave while the journal still has events about it.
    fn may_leave_events(&self, root: Ino) -> bool {
        let first = self.checkpoint.first_in_journal(self.log);
        self.authority.unclear.is_none_or(|last| last < first)
            && self.tables.gone_dirs(first) < GONE_MAX
            && self.tables.decoupled_below(self.namespace, root).is_empty()
    }

    /// The directories that a recovery must skip, if the subtree leaves in its present state.
    pub(super) fn leaves_events(&self, root: Ino) -> Option<Gone> {
        if !self.may_leave_events(root) {
            return None;
        }
        let dirs = self.namespace.dirs().below(root);
        // The search for changes follows the home directories of inodes.
        if dirs.iter().any(|dir| !self.namespace.is_within(*dir, root)) {
            return None;
        }
        if self.tables.gone_dirs(self.checkpoint.first_in_journal(self.log)) + dirs.len() > GONE_MAX
        {
            return None;
        }
        Some(self.gone(root, dirs))
    }

    /// The part of a subtree that a recovery must forget if the subtree leaves when the journal
    /// begins behind it: the inodes with several names, which the store may list as this rank's for
    /// a while.
    pub(super) fn leaves_linked(&self, root: Ino) -> Option<Gone> {
        let gone = self.gone(root, Vec::new());
        (!gone.linked.is_empty()).then_some(gone)
    }

    fn gone(&self, root: Ino, dirs: Vec<Ino>) -> Gone {
        let moves = self.authority.list.get(root).map_or(0, |before| before.moves) + 1;
        let linked = self.authority.export_of(root).map(|export| export.linked.clone());
        let linked = linked.unwrap_or_default();
        Gone { root, moves, last: self.log.last(), dirs, linked, went: false }
    }

    /// Whether the journal has events of the frozen subtree behind `seq`, or behind the events that
    /// a recovery must skip: the root of a subtree in it came back.
    pub(super) fn journal_says_more(&self, root: Ino, seq: Seq) -> bool {
        let export = self.authority.export_of(root).filter(|export| export.is_skipped);
        let gone = export.and_then(|export| export.gone.as_ref());
        let is_later = |dir: Ino, last| self.namespace.dirs().journalled_up_to(dir) > last;
        match gone {
            Some(gone) => gone.dirs.iter().any(|dir| is_later(*dir, gone.last)),
            None => self.namespace.dirs().below(root).into_iter().any(|dir| is_later(dir, seq)),
        }
    }

    /// Begins to write the changes, unless they are so few that they may be written while requests
    /// wait.
    pub(super) fn copy(
        &mut self,
        root: Ino,
        round: u32,
        before: Span,
        effects: &mut MdsEffects,
    ) -> ExportStage {
        let mut seq = self.log.last();
        if !self.may_leave_events(root) {
            self.checkpoint.write_all();
        } else if self.is_little_to_write(root) {
            seq = Seq(0);
        } else {
            self.flush_for_export(root, effects);
        }
        ExportStage::Copy { seq, round, since: self.clock.now, before }
    }

    fn is_little_to_write(&self, root: Ino) -> bool {
        let dirs = self.namespace.dirs().unstored_directories().into_iter();
        let dirs: Vec<Ino> = dirs.filter(|dir| self.namespace.is_within(*dir, root)).collect();
        let changed: u64 = dirs.iter().map(|dir| self.namespace.dirs().dirty_entries(*dir)).sum();
        dirs.len() <= LITTLE_DIRS && changed <= LITTLE
    }

    /// Whether the changes up to `seq` are written.
    pub(super) fn is_copied(&mut self, root: Ino, seq: Seq, effects: &mut MdsEffects) -> bool {
        if self.may_leave_events(root) {
            let written = self.is_written_below(root, seq);
            if !written {
                self.flush_for_export(root, effects);
            }
            return written;
        }
        let written = self.oldest_needed() > seq;
        if !written {
            self.more(effects);
        }
        written
    }

    /// Whether the store has the frozen subtree in its present state, and the journal no event of
    /// it that a recovery would replay.
    pub(super) fn is_written_out(&mut self, root: Ino, seq: Seq, effects: &mut MdsEffects) -> bool {
        let is_skipped = self.authority.export_of(root).is_some_and(|export| export.is_skipped);
        // Runs that are being merged here must not be replaced when another rank serves them.
        if is_skipped {
            if !self.is_written_below(root, Seq(u64::MAX)) {
                self.flush_for_export(root, effects);
                return false;
            }
            return self
                .compaction
                .running()
                .is_none_or(|dir| !self.namespace.is_within(dir, root));
        }
        let dirty = self
            .namespace
            .dirs()
            .below(root)
            .into_iter()
            .any(|dir| !self.checkpoint.is_stored(self.namespace, dir));
        let trimmed = self.log.first_retained() > seq && !self.checkpoint.is_trimming();
        if dirty || !trimmed {
            self.more(effects);
            return false;
        }
        !self.compaction.is_busy()
    }
}
