//! The contexts of all parts, in one place: the server lends a part the references that its context
//! names, and nothing else.

use crate::apply::ApplyCx;
use crate::authority::{
    BetweenCx, ExportCx, ImportCx, ListCx, NamesCx, PlaceCx, Places, PreloadCx, ReserveCx,
    ReshapeCx, UnderWay,
};
use crate::balance::BalanceCx;
use crate::caps::CapsCx;
use crate::checkpoint::CheckpointCx;
use crate::fetch::FetchCx;
use crate::files::FilesCx;
use crate::log::LogCx;
use crate::merge::MergeCx;
use crate::merge_request::MergeRequestCx;
use crate::op::{AskCx, ChangeCx, SubtreeCx};
use crate::peers::PeerLine;
use crate::purge::PurgeCx;
use crate::recover::RecoveryCx;
use crate::resend::ResendCx;
use crate::snapshot::SnapshotCx;
use crate::tables::TablesCx;
use crate::{Mds, Phase};

/// A context: its fields borrow the fields with the same names, or copy them.
macro_rules! lend {
    ($from:ident => $context:ident {
        mut: $($changed:ident),*;
        ref: $($read:ident),*;
        copy: $($copied:ident),*;
        $($field:ident: $value:expr),* $(,)?
    }) => {
        $context {
            $($changed: &mut $from.$changed,)*
            $($read: &$from.$read,)*
            $($copied: $from.$copied,)*
            $($field: $value,)*
        }
    };
}
pub(crate) use lend;

impl Mds {
    pub(crate) fn balancing(&mut self) -> BalanceCx<'_> {
        lend!(self => BalanceCx {
            mut: balance, namespace, counters, store;
            ref: authority, tables, settings;
            copy: phase, rank, clock;
            map: self.map.as_ref(),
        })
    }

    pub(crate) fn checkpointing(&mut self) -> CheckpointCx<'_> {
        self.exporting().base
    }

    pub(crate) fn exporting(&mut self) -> ExportCx<'_> {
        let base = lend!(self => CheckpointCx {
            mut: checkpoint, purges, compaction, damage, merges, snapshots, changes, fetches,
                sessions, namespace, log, tables, opens, authority, store, counters;
            ref: caps, settings;
            copy: phase, rank, clock;
            is_resend_busy: self.resend.is_busy(),
        });
        ExportCx { base, locks: &mut self.locks, map: self.map.as_ref() }
    }

    pub(crate) fn preloading(&mut self) -> PreloadCx<'_> {
        let fetching = lend!(self => FetchCx {
            mut: fetches, sessions, namespace, store, counters, damage;
            ref: settings;
            copy: rank;
            now: self.clock.now,
            is_resend_busy: self.resend.is_busy(),
        });
        PreloadCx { authority: &mut self.authority, fetching }
    }

    pub(crate) fn purging(&mut self) -> PurgeCx<'_> {
        lend!(self => PurgeCx {
            mut: purges, opens, namespace, checkpoint, store, counters;
            ref: log, tables, merges, damage, settings;
            copy: phase, rank;
            is_taking_snapshot: self.snapshots.is_any(),
            now: self.clock.now,
        })
    }

    #[inline]
    pub(crate) fn asking(&mut self) -> AskCx<'_> {
        lend!(self => AskCx {
            mut: namespace, sessions, counters;
            ref: tables, authority, log;
            copy:;
        })
    }

    #[inline]
    pub(crate) fn changing(&mut self) -> ChangeCx<'_> {
        lend!(self => ChangeCx {
            mut: tables, counters;
            ref: sessions, authority;
            copy: rank;
            apply: lend!(self => ApplyCx {
                mut: namespace, log, opens, purges;
                ref: changes;
                copy:;
                is_private: self.settings.private.is_some(),
                now: self.clock.now,
            }),
            time: self.clock.time,
        })
    }

    pub(crate) fn subtrees(&mut self) -> SubtreeCx<'_> {
        let refusing = self.refusing();
        lend!(self => SubtreeCx {
            mut: namespace, log, tables, merges, sessions, store, counters, unrestored;
            ref: authority;
            copy: clock;
            refusing: refusing,
        })
    }

    pub(crate) fn places(&self) -> Places<'_> {
        lend!(self => Places {
            mut:;
            ref: authority, namespace, tables, opens, locks;
            copy:;
            map: self.map.as_ref(),
        })
    }

    pub(crate) fn placing(&mut self) -> PlaceCx<'_> {
        lend!(self => PlaceCx {
            mut: authority, fetches, sessions, store, counters;
            ref: namespace, tables, opens, locks;
            copy: phase;
            map: self.map.as_ref(),
            now: self.clock.now,
        })
    }

    pub(crate) fn listing(&mut self) -> ListCx<'_> {
        lend!(self => ListCx {
            mut: authority, namespace, fetches, store;
            ref: opens;
            copy:;
            now: self.clock.now,
        })
    }

    pub(crate) fn importing(&mut self) -> ImportCx<'_> {
        lend!(self => ImportCx {
            mut: authority, namespace, log, tables, merges, fetches, store, counters;
            ref: sessions, settings;
            copy: clock;
            is_active: self.phase == Phase::Active,
        })
    }

    pub(crate) fn under_way(&self) -> UnderWay {
        UnderWay {
            is_taking_snapshot: self.snapshots.is_any(),
            is_changing_policy: !self.changes.is_empty(),
        }
    }

    pub(crate) fn reshaping(&mut self) -> ReshapeCx<'_> {
        let (under_way, refusing) = (self.under_way(), self.refusing());
        lend!(self => ReshapeCx {
            mut: authority, tables, fetches, balance, store, counters;
            ref: locks, settings;
            copy: phase;
            apply: lend!(self => ApplyCx {
                mut: namespace, log, opens, purges;
                ref: changes;
                copy:;
                is_private: self.settings.private.is_some(),
                now: self.clock.now,
            }),
            map: self.map.as_ref(),
            under_way: under_way,
            refusing: refusing,
            time: self.clock.time,
            is_resend_busy: self.resend.is_busy(),
        })
    }

    pub(crate) fn storing_tables(&mut self) -> TablesCx<'_> {
        lend!(self => TablesCx {
            mut: tables, log, store, fetches;
            ref:;
            copy: rank;
            now: self.clock.now,
        })
    }

    pub(crate) fn files(&mut self) -> FilesCx<'_> {
        lend!(self => FilesCx {
            mut: opens, locks, caps, fetches, namespace, log, purges, store, counters;
            ref: sessions, settings, changes;
            copy: clock;
        })
    }

    pub(crate) fn fetching(&mut self) -> FetchCx<'_> {
        self.preloading().fetching
    }

    pub(crate) fn capabilities(&mut self) -> CapsCx<'_> {
        let may_grant_exclusive =
            !self.snapshots.is_any() && !self.is_private() && !self.settings.read_only;
        lend!(self => CapsCx {
            mut: caps, leases, fetches, sessions, tables, namespace, counters;
            ref: opens, authority, settings;
            copy:;
            now: self.clock.now,
            is_merging: self.merges.is_busy(),
            is_changing_policy: !self.changes.is_empty(),
            may_grant_exclusive: may_grant_exclusive,
        })
    }

    pub(crate) fn merging(&mut self) -> MergeCx<'_> {
        lend!(self => MergeCx {
            mut: merges, namespace, log, tables, purges, opens, authority, store, counters;
            ref: settings;
            copy: clock;
        })
    }

    pub(crate) fn merge_requests(&mut self) -> MergeRequestCx<'_> {
        lend!(self => MergeRequestCx {
            mut: merge_requests, fetches, counters;
            ref: sessions, tables, namespace, settings;
            copy:;
            now: self.clock.now,
        })
    }

    pub(crate) fn recovering(&mut self) -> RecoveryCx<'_> {
        lend!(self => RecoveryCx {
            mut: recovery, namespace, tables, sessions, log, merges, purges, checkpoint, damage,
                authority, store, counters;
            ref: settings;
            copy: rank, clock;
        })
    }

    pub(crate) fn resending(&mut self) -> ResendCx<'_> {
        lend!(self => ResendCx {
            mut: resend, early, sessions, counters, phase;
            ref: namespace, tables, settings;
            copy:;
            now: self.clock.now,
        })
    }

    pub(crate) fn snapshotting(&mut self) -> SnapshotCx<'_> {
        lend!(self => SnapshotCx {
            mut: snapshots, namespace, fetches, store, counters;
            ref: checkpoint, merges, authority;
            copy: phase, clock;
        })
    }

    pub(crate) fn names(&mut self) -> NamesCx<'_> {
        let under_way = self.under_way();
        lend!(self => NamesCx {
            mut: authority, namespace, sessions, log, counters;
            ref: tables, opens, locks, changes, settings;
            copy: clock;
            line: PeerLine { map: self.map.as_ref(), from: self.rank, term: self.tables.epoch() },
            under_way: under_way,
            is_active: self.phase == Phase::Active,
            needs: Vec::new(),
        })
    }

    pub(crate) fn logging(&mut self) -> LogCx<'_> {
        lend!(self => LogCx {
            mut: log, store, counters;
            ref: sessions, settings;
            copy: rank;
            now: self.clock.now,
        })
    }
}

impl<'a> BetweenCx<'a> {
    pub(crate) fn of(mds: &'a mut Mds) -> Self {
        let line = PeerLine { map: mds.map.as_ref(), from: mds.rank, term: mds.tables.epoch() };
        let base = lend!(mds => PlaceCx {
            mut: authority, fetches, sessions, store, counters;
            ref: namespace, tables, opens, locks;
            copy: phase;
            map: mds.map.as_ref(),
            now: mds.clock.now,
        });
        BetweenCx { base, line }
    }
}

impl<'a> ReserveCx<'a> {
    pub(crate) fn of(mds: &'a mut Mds) -> Self {
        lend!(mds => ReserveCx {
            mut: authority, store;
            ref:;
            copy: phase;
            line: PeerLine { map: mds.map.as_ref(), from: mds.rank, term: mds.tables.epoch() },
            now: mds.clock.now,
        })
    }
}
