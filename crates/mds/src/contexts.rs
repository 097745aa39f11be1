//! The contexts of all parts, in one place: the server lends a part the references that its context
//! names, and nothing else.

use crate::Mds;
use crate::apply::ApplyCx;
use crate::balance::BalanceCx;
use crate::caps::CapsCx;
use crate::checkpoint::CheckpointCx;
use crate::fetch::FetchCx;
use crate::files::FilesCx;
use crate::log::LogCx;
use crate::merge::MergeCx;
use crate::merge_request::MergeRequestCx;
use crate::op::{AskCx, ChangeCx, SubtreeCx};
use crate::purge::PurgeCx;
use crate::snapshot::SnapshotCx;

impl Mds {
    pub(crate) fn balancing(&mut self) -> BalanceCx<'_> {
        BalanceCx {
            balance: &mut self.balance,
            namespace: &mut self.namespace,
            counters: &mut self.counters,
            store: &mut self.store,
            authority: &self.authority,
            tables: &self.tables,
            map: self.map.as_ref(),
            settings: &self.settings,
            phase: self.phase,
            rank: self.rank,
            clock: self.clock,
        }
    }

    pub(crate) fn checkpointing(&mut self) -> CheckpointCx<'_> {
        CheckpointCx {
            checkpoint: &mut self.checkpoint,
            purges: &mut self.purges,
            compaction: &mut self.compaction,
            damage: &mut self.damage,
            merges: &mut self.merges,
            snapshots: &mut self.snapshots,
            changes: &mut self.changes,
            fetches: &mut self.fetches,
            sessions: &mut self.sessions,
            namespace: &mut self.namespace,
            log: &mut self.log,
            tables: &mut self.tables,
            opens: &mut self.opens,
            authority: &mut self.authority,
            store: &mut self.store,
            counters: &mut self.counters,
            caps: &self.caps,
            settings: &self.settings,
            phase: self.phase,
            rank: self.rank,
            clock: self.clock,
            is_resend_busy: self.resend.is_busy(),
        }
    }

    pub(crate) fn purging(&mut self) -> PurgeCx<'_> {
        PurgeCx {
            purges: &mut self.purges,
            opens: &mut self.opens,
            namespace: &mut self.namespace,
            checkpoint: &mut self.checkpoint,
            store: &mut self.store,
            counters: &mut self.counters,
            log: &self.log,
            tables: &self.tables,
            merges: &self.merges,
            damage: &self.damage,
            settings: &self.settings,
            is_taking_snapshot: self.snapshots.is_any(),
            phase: self.phase,
            rank: self.rank,
            now: self.clock.now,
        }
    }

    #[inline]
    pub(crate) fn asking(&mut self) -> AskCx<'_> {
        AskCx {
            namespace: &mut self.namespace,
            sessions: &mut self.sessions,
            counters: &mut self.counters,
            tables: &self.tables,
            authority: &self.authority,
            log: &self.log,
        }
    }

    #[inline]
    pub(crate) fn changing(&mut self) -> ChangeCx<'_> {
        ChangeCx {
            apply: ApplyCx {
                namespace: &mut self.namespace,
                log: &mut self.log,
                opens: &mut self.opens,
                purges: &mut self.purges,
                changes: &self.changes,
                is_private: self.settings.private.is_some(),
                now: self.clock.now,
            },
            tables: &mut self.tables,
            counters: &mut self.counters,
            sessions: &self.sessions,
            authority: &self.authority,
            rank: self.rank,
            time: self.clock.time,
        }
    }

    pub(crate) fn subtrees(&mut self) -> SubtreeCx<'_> {
        let refusing = self.refusing();
        SubtreeCx {
            namespace: &mut self.namespace,
            log: &mut self.log,
            tables: &mut self.tables,
            merges: &mut self.merges,
            sessions: &mut self.sessions,
            store: &mut self.store,
            counters: &mut self.counters,
            unrestored: &mut self.unrestored,
            authority: &self.authority,
            clock: self.clock,
            refusing,
        }
    }

    pub(crate) fn files(&mut self) -> FilesCx<'_> {
        FilesCx {
            opens: &mut self.opens,
            locks: &mut self.locks,
            caps: &mut self.caps,
            fetches: &mut self.fetches,
            namespace: &mut self.namespace,
            log: &mut self.log,
            purges: &mut self.purges,
            store: &mut self.store,
            counters: &mut self.counters,
            sessions: &self.sessions,
            settings: &self.settings,
            changes: &self.changes,
            clock: self.clock,
        }
    }

    pub(crate) fn fetching(&mut self) -> FetchCx<'_> {
        FetchCx {
            fetches: &mut self.fetches,
            sessions: &mut self.sessions,
            namespace: &mut self.namespace,
            store: &mut self.store,
            counters: &mut self.counters,
            settings: &self.settings,
            rank: self.rank,
            now: self.clock.now,
        }
    }

    pub(crate) fn capabilities(&mut self) -> CapsCx<'_> {
        let may_grant_exclusive =
            !self.snapshots.is_any() && !self.is_private() && !self.settings.read_only;
        CapsCx {
            caps: &mut self.caps,
            leases: &mut self.leases,
            fetches: &mut self.fetches,
            sessions: &mut self.sessions,
            tables: &mut self.tables,
            namespace: &mut self.namespace,
            counters: &mut self.counters,
            opens: &self.opens,
            authority: &self.authority,
            settings: &self.settings,
            now: self.clock.now,
            is_merging: self.merges.is_busy(),
            is_changing_policy: !self.changes.is_empty(),
            may_grant_exclusive,
        }
    }

    pub(crate) fn merging(&mut self) -> MergeCx<'_> {
        MergeCx {
            merges: &mut self.merges,
            namespace: &mut self.namespace,
            log: &mut self.log,
            tables: &mut self.tables,
            purges: &mut self.purges,
            opens: &mut self.opens,
            authority: &mut self.authority,
            store: &mut self.store,
            counters: &mut self.counters,
            settings: &self.settings,
            clock: self.clock,
        }
    }

    pub(crate) fn merge_requests(&mut self) -> MergeRequestCx<'_> {
        MergeRequestCx {
            merge_requests: &mut self.merge_requests,
            fetches: &mut self.fetches,
            counters: &mut self.counters,
            sessions: &self.sessions,
            tables: &self.tables,
            namespace: &self.namespace,
            settings: &self.settings,
            now: self.clock.now,
        }
    }

    pub(crate) fn snapshotting(&mut self) -> SnapshotCx<'_> {
        SnapshotCx {
            snapshots: &mut self.snapshots,
            namespace: &mut self.namespace,
            fetches: &mut self.fetches,
            store: &mut self.store,
            counters: &mut self.counters,
            checkpoint: &self.checkpoint,
            merges: &self.merges,
            authority: &self.authority,
            phase: self.phase,
            clock: self.clock,
        }
    }

    pub(crate) fn logging(&mut self) -> LogCx<'_> {
        LogCx {
            log: &mut self.log,
            sessions: &self.sessions,
            store: &mut self.store,
            counters: &mut self.counters,
            settings: &self.settings,
            rank: self.rank,
            now: self.clock.now,
        }
    }
}
