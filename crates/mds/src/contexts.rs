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
use crate::files::{FilesCx, LapseCx};
use crate::health::HealthCx;
use crate::log::LogCx;
use crate::merge::MergeCx;
use crate::merge_request::MergeRequestCx;
use crate::notice::NoticeCx;
use crate::op::{AskCx, ChangeCx, SubtreeCx};
use crate::peers::PeerLine;
use crate::purge::PurgeCx;
use crate::quotas::QuotaCx;
use crate::reap::ReapCx;
use crate::recover::RecoveryCx;
use crate::resend::ResendCx;
use crate::session::SessionCx;
use crate::snapshot::SnapshotCx;
use crate::tables::TablesCx;
use crate::trash::TrashCx;
use crate::watch::WatchCx;
use crate::{Mds, Phase};

/// A context: its fields borrow the fields with the same names, or copy them. Contexts that other
/// contexts hold, too, are written here.
macro_rules! lend {
    ($from:ident => ApplyCx) => {
        lend!($from => ApplyCx {
            mut: namespace, log, opens, purges, watches;
            ref: changes;
            copy:;
            is_private: $from.settings.private.is_some(),
            now: $from.clock.now,
        })
    };
    ($from:ident => ChangeCx) => {
        lend!($from => ChangeCx {
            mut: tables, counters;
            ref: sessions, authority;
            copy: rank;
            apply: lend!($from => ApplyCx),
            time: $from.clock.time,
        })
    };
    ($from:ident => PurgeCx) => {
        lend!($from => PurgeCx {
            mut: purges, opens, namespace, checkpoint, store, counters;
            ref: log, tables, merges, damage, settings;
            copy: phase, rank;
            is_taking_snapshot: $from.snapshots.is_any(),
            now: $from.clock.now,
        })
    };
    ($from:ident => TablesCx) => {
        lend!($from => TablesCx {
            mut: tables, log, store, fetches;
            ref:;
            copy: rank;
            now: $from.clock.now,
        })
    };
    ($from:ident => FilesCx) => {
        lend!($from => FilesCx {
            mut: opens, locks, caps, fetches, namespace, log, purges, watches, store, counters;
            ref: sessions, authority, settings, changes;
            copy: clock;
        })
    };
    ($from:ident => PlaceCx) => {
        lend!($from => PlaceCx {
            mut: authority, fetches, sessions, store, counters;
            ref: namespace, tables, opens, locks;
            copy: phase;
            map: $from.map.as_ref(),
            now: $from.clock.now,
        })
    };
    ($from:ident => PeerLine) => {
        PeerLine { map: $from.map.as_ref(), from: $from.rank, term: $from.tables.epoch() }
    };
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

/// A context that the server lends.
macro_rules! context {
    ($mds:ident: $server:ty => $context:ident $($fields:tt)?) => {
        impl<'a> $context<'a> {
            #[inline]
            pub(crate) fn of($mds: $server) -> Self {
                lend!($mds => $context $($fields)?)
            }
        }
    };
}

context!(mds: &'a mut Mds => BalanceCx {
    mut: balance, namespace, counters, store;
    ref: authority, tables, settings;
    copy: phase, rank, clock;
    map: mds.map.as_ref(),
});

context!(mds: &'a mut Mds => ReapCx {
    mut: reaper, trash, namespace, log, opens, purges, watches, fetches, sessions, store, damage,
        counters;
    ref: authority, changes, resend, settings;
    copy: phase, rank, clock;
});

impl<'a> CheckpointCx<'a> {
    pub(crate) fn of(mds: &'a mut Mds) -> Self {
        ExportCx::of(mds).base
    }
}

impl<'a> ExportCx<'a> {
    pub(crate) fn of(mds: &'a mut Mds) -> Self {
        let base = lend!(mds => CheckpointCx {
            mut: checkpoint, purges, compaction, damage, merges, snapshots, changes, fetches,
                sessions, namespace, log, tables, opens, authority, store, counters;
            ref: caps, settings;
            copy: phase, rank, clock;
            is_resend_busy: mds.resend.is_busy(),
        });
        ExportCx { base, locks: &mut mds.locks, map: mds.map.as_ref() }
    }
}

impl<'a> PreloadCx<'a> {
    pub(crate) fn of(mds: &'a mut Mds) -> Self {
        let fetching = lend!(mds => FetchCx {
            mut: fetches, sessions, namespace, store, counters, damage;
            ref: settings;
            copy: rank;
            now: mds.clock.now,
            is_resend_busy: mds.resend.is_busy(),
        });
        PreloadCx { authority: &mut mds.authority, fetching }
    }
}

impl<'a> QuotaCx<'a> {
    pub(crate) fn of(mds: &'a mut Mds) -> Self {
        let is_busy = mds.resend.is_busy();
        let is_quiet = mds.is_active() && !is_busy && !mds.merges.has_begun();
        let fetching = lend!(mds => FetchCx {
            mut: fetches, sessions, namespace, store, counters, damage;
            ref: settings;
            copy: rank;
            now: mds.clock.now,
            is_resend_busy: is_busy,
        });
        let (counter, authority) = (&mut mds.quota_counter, &mds.authority);
        QuotaCx { counter, fetching, tables: &mds.tables, authority, is_quiet }
    }
}

context!(mds: &'a mut Mds => PurgeCx);

context!(mds: &'a mut Mds => AskCx {
    mut: namespace, sessions, counters;
    ref: tables, authority, log;
    copy:;
});

context!(mds: &'a mut Mds => ChangeCx);

context!(mds: &'a mut Mds => TrashCx {
    mut: trash;
    ref:;
    copy:;
    change: lend!(mds => ChangeCx),
});

context!(mds: &'a mut Mds => WatchCx {
    mut: watches, authority;
    ref: tables, settings;
    copy: clock;
});

impl<'a> SubtreeCx<'a> {
    pub(crate) fn of(mds: &'a mut Mds) -> Self {
        let refusing = mds.phase.refusing(&mds.log);
        lend!(mds => SubtreeCx {
            mut: namespace, log, tables, merges, watches, sessions, store, counters, unrestored;
            ref: authority;
            copy: clock;
            refusing: refusing,
        })
    }
}

context!(mds: &'a Mds => Places {
    mut:;
    ref: authority, namespace, tables, opens, locks;
    copy:;
    map: mds.map.as_ref(),
});

context!(mds: &'a Mds => HealthCx {
    mut:;
    ref: health, balance, damage, log, caps, settings, namespace;
    copy:;
    now: mds.clock.now,
});

context!(mds: &'a Mds => PeerLine);

context!(mds: &'a mut Mds => NoticeCx {
    mut: noticed;
    ref: health, log, tables;
    copy: phase;
    now: mds.clock.now,
});

context!(mds: &'a mut Mds => SessionCx {
    mut: sessions, early, resend, merges, log;
    ref: tables, identities;
    copy: phase;
    now: mds.clock.now,
});

context!(mds: &'a mut Mds => PlaceCx);

context!(mds: &'a mut Mds => ListCx {
    mut: authority, namespace, fetches, store;
    ref:;
    copy:;
    now: mds.clock.now,
});

context!(mds: &'a mut Mds => ImportCx {
    mut: authority, namespace, log, tables, merges, fetches, opens, locks, store, counters;
    ref: sessions, settings;
    copy: clock;
});

impl UnderWay {
    pub(crate) fn of(mds: &Mds) -> Self {
        UnderWay {
            is_taking_snapshot: mds.snapshots.is_any(),
            is_changing_policy: !mds.changes.is_empty(),
        }
    }
}

impl<'a> ReshapeCx<'a> {
    pub(crate) fn of(mds: &'a mut Mds) -> Self {
        let (under_way, refusing) = (UnderWay::of(mds), mds.phase.refusing(&mds.log));
        lend!(mds => ReshapeCx {
            mut: authority, tables, fetches, balance, store, counters;
            ref: locks, settings;
            copy: phase;
            apply: lend!(mds => ApplyCx),
            map: mds.map.as_ref(),
            under_way: under_way,
            refusing: refusing,
            time: mds.clock.time,
            is_resend_busy: mds.resend.is_busy(),
        })
    }
}

context!(mds: &'a mut Mds => TablesCx);

context!(mds: &'a mut Mds => FilesCx);

context!(mds: &'a mut Mds => LapseCx {
    mut: tables, sessions, opens, locks, caps, fetches, namespace, log, purges, watches, store,
        counters;
    ref: authority, settings, changes;
    copy: phase, rank, clock;
});

impl<'a> FetchCx<'a> {
    pub(crate) fn of(mds: &'a mut Mds) -> Self {
        PreloadCx::of(mds).fetching
    }
}

impl<'a> CapsCx<'a> {
    pub(crate) fn of(mds: &'a mut Mds) -> Self {
        let may_grant_exclusive =
            !mds.snapshots.is_any() && mds.settings.private.is_none() && !mds.settings.read_only;
        lend!(mds => CapsCx {
            mut: caps, leases, fetches, sessions, tables, namespace, counters;
            ref: opens, authority, settings;
            copy:;
            now: mds.clock.now,
            is_merging: mds.merges.is_busy(),
            is_changing_policy: !mds.changes.is_empty(),
            may_grant_exclusive: may_grant_exclusive,
        })
    }
}

context!(mds: &'a mut Mds => MergeCx {
    mut: merges, namespace, log, tables, purges, opens, watches, authority, store, counters;
    ref: identities, settings;
    copy: clock;
});

context!(mds: &'a mut Mds => MergeRequestCx {
    mut: merge_requests, fetches, counters;
    ref: sessions, tables, namespace, settings;
    copy:;
    now: mds.clock.now,
});

context!(mds: &'a mut Mds => RecoveryCx {
    mut: recovery, namespace, tables, sessions, log, merges, purges, checkpoint, damage,
        authority, store, counters;
    ref: settings;
    copy: rank, clock;
});

context!(mds: &'a mut Mds => ResendCx {
    mut: resend, early, sessions, counters, phase;
    ref: namespace, tables, settings;
    copy:;
    now: mds.clock.now,
});

context!(mds: &'a mut Mds => SnapshotCx {
    mut: snapshots, namespace, fetches, store, counters;
    ref: checkpoint, merges, authority;
    copy: phase, clock;
});

impl<'a> NamesCx<'a> {
    pub(crate) fn of(mds: &'a mut Mds) -> Self {
        let under_way = UnderWay::of(mds);
        lend!(mds => NamesCx {
            mut: authority, namespace, sessions, log, watches, counters;
            ref: tables, opens, locks, changes, settings;
            copy: clock;
            under_way: under_way,
            line: lend!(mds => PeerLine),
            is_active: mds.phase == Phase::Active,
            needs: Vec::new(),
        })
    }
}

context!(mds: &'a mut Mds => BetweenCx {
    mut:;
    ref:;
    copy:;
    base: lend!(mds => PlaceCx),
    line: lend!(mds => PeerLine),
});

context!(mds: &'a mut Mds => ReserveCx {
    mut: authority, store;
    ref:;
    copy: phase;
    line: lend!(mds => PeerLine),
    now: mds.clock.now,
});

context!(mds: &'a mut Mds => LogCx {
    mut: log, store, counters;
    ref: sessions, settings;
    copy: rank;
    now: mds.clock.now,
});
