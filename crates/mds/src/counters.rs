//! Counters for status output and benchmarks.

use crate::Mds;
use crate::settings::CHOSEN;

/// Counters since the start of the server.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs, reason = "the names say it, and they appear in status output as they are")]
pub struct Counters {
    pub requests: u64,
    pub lookups: u64,
    pub creates: u64,
    pub mutations: u64,
    pub busy: u64,
    pub replayed: u64,
    pub recovered_events: u64,
    pub journal_events: u64,
    pub journal_bytes: u64,
    pub journal_writes: u64,
    pub merges: u64,
    pub merged_events: u64,
    /// Names that merges by reference brought, in runs.
    pub attached_rows: u64,
    pub merge_bytes: u64,
    pub fetches: u64,
    /// Look-ups in directories that are in the store only.
    pub cold_lookups: u64,
    pub commits: u64,
    pub committed_rows: u64,
    /// Bytes of runs that were written.
    pub run_bytes: u64,
    /// How many of them had been written before (I-08).
    pub rewritten_bytes: u64,
    pub compactions: u64,
    pub trimmed_segments: u64,
    pub evicted: u64,
    /// Removed inodes of which the store holds nothing any more.
    pub purged: u64,
    pub opens: u64,
    pub recalls: u64,
    /// Merge requests to clients, because other clients want to see their work (`merge:
    /// on_demand`).
    pub merge_requests: u64,
    pub revokes: u64,
    pub lease_waits: u64,
    pub expired: u64,
    pub async_ops: u64,
    pub async_refused: u64,
    pub store_failures: u64,
    pub forwards: u64,
    pub exports: u64,
    pub exports_aborted: u64,
    /// Inodes with several names that went along.
    pub exported_linked: u64,
    /// Open files that came with a subtree, of which their clients did not tell in time.
    pub missing_reclaims: u64,
    /// Files that were open, or locked, when they moved to another rank with a subtree.
    pub exported_open: u64,
    /// Of the last export.
    pub export_freeze_micros: u64,
    /// Sessions that had to give something back for the last one.
    pub export_flushed: u64,
    /// Of all exports together.
    pub export_freezes_micros: u64,
    pub snapshots: u64,
    pub snapshot_freeze_micros: u64,
    pub imports: u64,
    /// Directories that moved because one rank must serve both ends of a link or rename.
    pub colocated: u64,
    /// Files, and directories, whose names went to another rank.
    pub renamed_away: u64,
    /// See `renamed_away`.
    pub dirs_renamed_away: u64,
    pub splits: u64,
    pub joins: u64,
    /// Trees that were removed at once, and that came back.
    pub discards: u64,
    pub restores: u64,
    /// Names of removed trees that were removed since.
    pub reaped: u64,
    pub sessions_flushed: u64,
}

impl Counters {
    pub(crate) fn list(&self, mds: &Mds) -> Vec<(String, u64)> {
        assert!(self.forwards <= self.requests, "a forward answers a request");
        let namespace = &mds.namespace;
        let (taken_in, elsewhere) = mds.authority.counts();
        [
            ("requests", self.requests),
            ("lookups", self.lookups),
            ("creates", self.creates),
            ("mutations", self.mutations),
            ("busy", self.busy),
            ("replayed", self.replayed),
            ("recovered_events", self.recovered_events),
            ("journal_events", self.journal_events),
            ("journal_bytes", self.journal_bytes),
            ("journal_writes", self.journal_writes),
            ("journal_segments", mds.log.segment_count() as u64),
            ("journal_last", mds.log.last().0),
            ("journal_safe", mds.log.safe().0),
            ("merges", self.merges),
            ("merged_events", self.merged_events),
            ("attached_rows", self.attached_rows),
            ("merge_bytes", self.merge_bytes),
            ("fetches", self.fetches),
            ("cold_lookups", self.cold_lookups),
            ("commits", self.commits),
            ("committed_rows", self.committed_rows),
            ("run_bytes", self.run_bytes),
            ("rewritten_bytes", self.rewritten_bytes),
            ("compactions", self.compactions),
            ("compactions_waiting", mds.compaction.waiting() as u64),
            ("trimmed_segments", self.trimmed_segments),
            ("evicted", self.evicted),
            ("opens", self.opens),
            ("recalls", self.recalls),
            ("demands", self.merge_requests),
            ("caps", mds.caps.len() as u64),
            ("leases", mds.leases.len() as u64),
            ("lease_waits", self.lease_waits),
            ("caps_revoked", self.revokes),
            ("caps_expired", self.expired),
            ("caps_alone", mds.caps.exclusive().count() as u64),
            ("ahead", self.async_ops),
            ("ahead_refused", self.async_refused),
            ("store_failures", self.store_failures),
            ("hits", self.requests - self.forwards),
            ("forwards", self.forwards),
            ("snapshots", self.snapshots),
            ("snapshot_freeze_micros", self.snapshot_freeze_micros),
            ("splits", self.splits),
            ("joins", self.joins),
            ("directories_split", mds.authority.splits_here(mds.rank)),
            ("sessions_flushed", self.sessions_flushed),
            ("subtrees_taken_in", taken_in),
            ("subtrees_elsewhere", elsewhere),
            ("decoupled_subtrees", mds.tables.decoupled_count() as u64),
            ("open_files", mds.opens.len() as u64),
            ("locked_files", mds.locks.len() as u64),
            ("sessions", mds.sessions.len() as u64),
            ("inodes", namespace.inodes()),
            ("absent_names", namespace.dirs().absent_at_most()),
            ("directories", namespace.dirs().directories() as u64),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into_iter()
        .chain(self.of_removals(mds))
        .chain(self.of_moves())
        .chain(mds.watches.counters())
        .chain(mds.balance.counters())
        .chain(chosen(mds))
        .collect()
    }

    /// Inodes that the server removes in the background, and those that wait.
    fn of_removals(&self, mds: &Mds) -> [(String, u64); 6] {
        [
            ("purged", self.purged),
            ("purges_waiting", mds.purges.len() as u64),
            ("discards", self.discards),
            ("restores", self.restores),
            ("reaped", self.reaped),
            ("removed_trees", mds.trash.len() as u64),
        ]
        .map(|(name, value)| (name.to_owned(), value))
    }

    /// Results of moves of subtrees to other ranks, or from them.
    fn of_moves(&self) -> impl Iterator<Item = (String, u64)> {
        [
            ("exports", self.exports),
            ("exports_aborted", self.exports_aborted),
            ("exported_linked", self.exported_linked),
            ("exported_open", self.exported_open),
            ("export_freeze_micros", self.export_freeze_micros),
            ("export_freezes_micros", self.export_freezes_micros),
            ("imports", self.imports),
            ("colocated", self.colocated),
            ("renamed_away", self.renamed_away),
            ("dirs_renamed_away", self.dirs_renamed_away),
            ("unheard_open", self.missing_reclaims),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into_iter()
    }
}

/// The settings that the command line names.
fn chosen(mds: &Mds) -> impl Iterator<Item = (String, u64)> {
    mds.settings.chosen.iter().map(|(name, value)| (format!("{CHOSEN}{name}"), *value))
}
