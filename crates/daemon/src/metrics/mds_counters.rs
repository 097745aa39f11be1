//! The counters of the metadata server, with their names and meanings as metrics.

use exporter::MetricDescription;

const fn counter(name: &'static str, help: &'static str, worry: &'static str) -> MetricDescription {
    MetricDescription::counter(name, help, worry)
}

const fn gauge(name: &'static str, help: &'static str, worry: &'static str) -> MetricDescription {
    MetricDescription::gauge(name, help, worry)
}

/// The names that the state machine uses, each with its metric. A name that ends with `micros`
/// becomes seconds.
pub(crate) static COUNTERS: [(&str, MetricDescription); 81] = [
    ("requests", counter("cudele_mds_requests", "Requests of clients and other ranks.", "")),
    ("lookups", counter("cudele_mds_lookups", "Look-ups of a name.", "")),
    ("creates", counter("cudele_mds_creates", "Files and directories that requests made.", "")),
    ("mutations", counter("cudele_mds_changes", "Changes of the namespace by requests.", "")),
    (
        "busy",
        counter(
            "cudele_mds_busy_refusals",
            "Requests that were refused because another client has the subtree for itself.",
            "it grows and the jobs of users fail with EBUSY",
        ),
    ),
    (
        "replayed",
        counter(
            "cudele_mds_resent_requests",
            "Requests that clients sent again after a start, and that were executed then.",
            "",
        ),
    ),
    (
        "recovered_events",
        counter(
            "cudele_mds_recovered_events",
            "Events of the journal that were replayed at the start.",
            "more than some millions: starts take long; see `segments_max`",
        ),
    ),
    (
        "journal_events",
        counter("cudele_mds_journal_events", "Events that were written to the journal.", ""),
    ),
    (
        "journal_bytes",
        counter("cudele_mds_journal_bytes", "Bytes that were written to the journal.", ""),
    ),
    (
        "journal_writes",
        counter(
            "cudele_mds_journal_writes",
            "Appends to the journal; each has the events of a few milliseconds.",
            "",
        ),
    ),
    (
        "journal_segments",
        gauge(
            "cudele_mds_journal_segments",
            "Segments that the journal has.",
            "far above `segments_max` (16) for minutes: checkpoints do not keep up",
        ),
    ),
    (
        "journal_last",
        gauge(
            "cudele_mds_journal_last_position",
            "The position of the last event of the journal.",
            "",
        ),
    ),
    (
        "journal_safe",
        gauge(
            "cudele_mds_journal_safe_position",
            "The position up to which the journal is durable.",
            "the last position grows and this one does not: the store hangs",
        ),
    ),
    ("merges", counter("cudele_mds_merges", "Journals of decoupled clients that were merged.", "")),
    ("merged_events", counter("cudele_mds_merged_events", "Events that merges applied.", "")),
    (
        "attached_rows",
        counter("cudele_mds_merged_rows", "Names that merges by reference brought.", ""),
    ),
    (
        "merge_bytes",
        counter("cudele_mds_merge_bytes", "Bytes of journals that merges transferred.", ""),
    ),
    (
        "fetches",
        counter(
            "cudele_mds_fetches",
            "Directories, or parts of them, that were fetched from the store.",
            "it grows as fast as the requests: `inodes_max` is too small for the work",
        ),
    ),
    (
        "cold_lookups",
        counter(
            "cudele_mds_cold_lookups",
            "Look-ups in directories that are in the store only.",
            "",
        ),
    ),
    ("commits", counter("cudele_mds_commits", "Directories that checkpoints wrote.", "")),
    (
        "committed_rows",
        counter("cudele_mds_committed_rows", "Names and inodes that checkpoints wrote.", ""),
    ),
    ("run_bytes", counter("cudele_mds_run_bytes", "Bytes of runs that were written.", "")),
    (
        "rewritten_bytes",
        counter(
            "cudele_mds_rewritten_bytes",
            "Bytes of runs that were written again by compaction.",
            "more than some times `cudele_mds_run_bytes_total`",
        ),
    ),
    ("compactions", counter("cudele_mds_compactions", "Compactions of a directory.", "")),
    (
        "compactions_waiting",
        gauge(
            "cudele_mds_compactions_waiting",
            "Directories that wait for their compaction.",
            "it grows for an hour: the store is too slow for the changes",
        ),
    ),
    (
        "trimmed_segments",
        counter(
            "cudele_mds_trimmed_segments",
            "Segments of the journal that were removed after a checkpoint.",
            "",
        ),
    ),
    ("evicted", counter("cudele_mds_evicted_inodes", "Inodes that were evicted from memory.", "")),
    ("opens", counter("cudele_mds_opens", "Opens of files.", "")),
    ("recalls", counter("cudele_mds_recalls", "Recalls of a file that another client opened.", "")),
    (
        "demands",
        counter(
            "cudele_mds_merge_requests",
            "Requests to clients to merge, because another client wants to see their work.",
            "",
        ),
    ),
    (
        "caps",
        gauge("cudele_mds_capabilities", "Capabilities of directories that clients hold.", ""),
    ),
    ("leases", gauge("cudele_mds_leases", "Leases of directories.", "")),
    (
        "lease_waits",
        counter("cudele_mds_lease_waits", "Changes that waited for the end of a lease.", ""),
    ),
    (
        "caps_revoked",
        counter(
            "cudele_mds_revokes",
            "Capabilities that were revoked.",
            "as many as changes: clients take directories from each other",
        ),
    ),
    (
        "caps_expired",
        counter(
            "cudele_mds_expired_capabilities",
            "Capabilities of clients that did not answer a revoke in time.",
            "it grows: a client hangs, or its network does",
        ),
    ),
    (
        "decoupled_subtrees",
        gauge(
            "cudele_mds_decoupled_subtrees",
            "Subtrees of this rank that clients have for themselves.",
            "",
        ),
    ),
    (
        "caps_alone",
        gauge("cudele_mds_exclusive_directories", "Directories that a client has alone.", ""),
    ),
    (
        "ahead",
        counter(
            "cudele_mds_async_operations",
            "Operations that clients executed before the server did.",
            "",
        ),
    ),
    (
        "ahead_refused",
        counter(
            "cudele_mds_async_refusals",
            "Operations that clients executed, and the server refused.",
            "it grows: programs get errors later than they expect",
        ),
    ),
    (
        "store_failures",
        counter(
            "cudele_mds_store_failures",
            "Operations of the store that failed.",
            "it grows: see the log of the daemon, and the disk or Ceph",
        ),
    ),
    ("hits", counter("cudele_mds_served_requests", "Requests that this rank executed itself.", "")),
    (
        "forwards",
        counter(
            "cudele_mds_redirects",
            "Requests for inodes of other ranks.",
            "more than a tenth of the requests for minutes: subtrees move too often",
        ),
    ),
    ("snapshots", counter("cudele_mds_snapshots", "Snapshots that were taken.", "")),
    (
        "snapshot_freeze_micros",
        gauge(
            "cudele_mds_snapshot_freeze_seconds",
            "How long the last snapshot stopped changes.",
            "above 1 s",
        ),
    ),
    ("splits", counter("cudele_mds_splits", "Directories that were split into fragments.", "")),
    ("joins", counter("cudele_mds_joins", "Directories whose fragments were joined.", "")),
    ("directories_split", gauge("cudele_mds_split_directories", "Directories that are split.", "")),
    (
        "sessions_flushed",
        counter("cudele_mds_flushed_sessions", "Sessions that returned something for a move.", ""),
    ),
    (
        "subtrees_taken_in",
        gauge(
            "cudele_mds_subtrees_here",
            "Subtrees that this rank serves apart from its share of the namespace.",
            "",
        ),
    ),
    (
        "subtrees_elsewhere",
        gauge(
            "cudele_mds_subtrees_elsewhere",
            "Subtrees of this rank that have moved to other ranks.",
            "",
        ),
    ),
    ("open_files", gauge("cudele_mds_open_files", "Files that clients have open.", "")),
    ("locked_files", gauge("cudele_mds_locked_files", "Files with locks.", "")),
    ("sessions", gauge("cudele_mds_sessions", "Sessions of clients.", "")),
    (
        "inodes",
        gauge(
            "cudele_mds_inodes",
            "Inodes in memory.",
            "near `inodes_max` while requests fetch much",
        ),
    ),
    (
        "absent_names",
        gauge(
            "cudele_mds_absent_names",
            "Names in memory that are known not to exist, at most.",
            "",
        ),
    ),
    ("directories", gauge("cudele_mds_directories", "Directories in memory.", "")),
    (
        "purged",
        counter(
            "cudele_mds_purged_inodes",
            "Removed inodes of which the store has nothing any more.",
            "",
        ),
    ),
    (
        "purges_waiting",
        gauge(
            "cudele_mds_purges_waiting",
            "Removed inodes that wait for their purge.",
            "it grows for hours: the room of removed files is not given back",
        ),
    ),
    ("discards", counter("cudele_mds_removed_trees", "Trees that were removed at once.", "")),
    (
        "restores",
        counter("cudele_mds_restored_trees", "Trees that were restored from the trash.", ""),
    ),
    (
        "reaped",
        counter("cudele_mds_reaped_names", "Names of removed trees that were removed since.", ""),
    ),
    ("removed_trees", gauge("cudele_mds_trash_trees", "Trees in the trash.", "")),
    ("exports", counter("cudele_mds_exports", "Subtrees that went to another rank.", "")),
    (
        "exports_aborted",
        counter(
            "cudele_mds_aborted_exports",
            "Moves of subtrees that were given up.",
            "it grows with every tick of the balancer: see `cudele balancer log`",
        ),
    ),
    (
        "exported_linked",
        counter(
            "cudele_mds_exported_links",
            "Inodes with several names that moved with a subtree.",
            "",
        ),
    ),
    (
        "exported_open",
        counter(
            "cudele_mds_exported_open_files",
            "Files that were open or locked when they moved.",
            "",
        ),
    ),
    (
        "export_freeze_micros",
        gauge(
            "cudele_mds_export_freeze_seconds",
            "How long the last export stopped requests for its subtree.",
            "above 1 s",
        ),
    ),
    (
        "export_freezes_micros",
        counter(
            "cudele_mds_export_freezes_seconds",
            "How long all exports together stopped requests for their subtrees.",
            "",
        ),
    ),
    ("imports", counter("cudele_mds_imports", "Subtrees that came from another rank.", "")),
    (
        "colocated",
        counter(
            "cudele_mds_colocated",
            "Directories that moved because one rank must serve both ends of a link or rename.",
            "",
        ),
    ),
    (
        "renamed_away",
        counter("cudele_mds_renamed_away", "Names of files that went to another rank.", ""),
    ),
    (
        "dirs_renamed_away",
        counter(
            "cudele_mds_directories_renamed_away",
            "Names of directories that went to another rank.",
            "",
        ),
    ),
    (
        "unheard_open",
        counter(
            "cudele_mds_missing_reclaims",
            "Open files of a moved subtree that their clients did not report in time.",
            "it grows: clients lose locks and opens in moves",
        ),
    ),
    ("watchers", gauge("cudele_mds_watchers", "Clients that watch a directory.", "")),
    (
        "watched_bytes",
        gauge(
            "cudele_mds_watched_bytes",
            "Memory of changes that watchers have not read, or may read again.",
            "",
        ),
    ),
    (
        "balancer_version",
        gauge(
            "cudele_mds_balancer_version",
            "The version of the balancer policy that this rank uses.",
            "ranks have different versions for minutes",
        ),
    ),
    (
        "balancer_ticks",
        counter("cudele_mds_balancer_ticks", "Decisions that the balancer was asked for.", ""),
    ),
    (
        "balancer_faults",
        counter(
            "cudele_mds_balancer_faults",
            "Decisions in which the balancer policy failed.",
            "it grows: `cudele health` has the reason",
        ),
    ),
    (
        "balancer_moves",
        counter(
            "cudele_mds_balancer_moves",
            "Subtrees that the balancer moved.",
            "dozens an hour under a steady load: the policy moves to and fro",
        ),
    ),
    (
        "balancer_moves_refused",
        counter(
            "cudele_mds_refused_balancer_moves",
            "Moves that the balancer wanted and that were refused.",
            "",
        ),
    ),
    (
        "heartbeats_sent",
        counter(
            "cudele_mds_heartbeats_sent",
            "Reports of load to the other ranks.",
            "it does not grow although there are several ranks",
        ),
    ),
];
