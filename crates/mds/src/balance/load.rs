//! Load from hits, and how it fades (B-05).
//!
//! Requests only add to a number of their directory, which is at hand (`namespace::Hits`). Here the
//! numbers are fetched some times a second, added to those of all directories above, and fade.

use balancer::HitKind;
use namespace::{Hit, Hits, Namespace};
use types::{DirFragId, Frag, Ino, Moment, Span};

use super::{Balance, BalanceCx};
use crate::apply::directory_of;

/// Shortest time between two counts of hits: hits in between count as of its end.
const COUNT_INTERVAL: Span = Span::from_millis(500);
/// Directories whose hits are counted in one slice: about a millisecond.
const SLICE: usize = 512;
/// Directories whose load is known. Beyond these, hits of a new directory count only for the
/// directories above it.
const KNOWN_MAX: usize = 16_384;

impl BalanceCx<'_> {
    /// Counts the hits since the last time, a slice at a time.
    pub(super) fn count_hits(&mut self, now: Moment) {
        if !self.balance.begun {
            self.balance.begun = true;
            self.namespace.take_hits(usize::MAX);
        }
        let every = COUNT_INTERVAL.min(Span(self.settings.balance_interval.0 / 4));
        if !self.balance.counting && now.since(self.balance.counted) < every {
            return;
        }
        let taken = self.namespace.take_hits(SLICE);
        self.balance.counting = self.namespace.has_hits();
        let mut path = Vec::new();
        for (dir, hits) in taken {
            // Nothing in the trash moves, and its names go at the server's own pace.
            if self.namespace.is_within(dir, Ino::TRASH) {
                continue;
            }
            path.clear();
            path.extend(self.namespace.ancestors(dir).filter(|ino| is_counted(*ino)).map(whole));
            self.balance.count(&mut path, hits, now);
        }
        if !self.balance.counting {
            self.balance.counted = now;
            self.balance.table.forget(now);
            let forwards = self.counters.forwards;
            let new = forwards - std::mem::replace(&mut self.balance.forwards, forwards);
            let half_life = self.settings.balance_half_life;
            self.balance.foreign.hit(HitKind::InodeRead, number(new), now, half_life);
        }
    }
}

impl Balance {
    /// Counts the hits up to here: names are about to move between a directory and its fragments.
    pub(crate) fn count_before_reshape(&mut self, namespace: &mut Namespace, now: Moment) {
        for (dir, hits) in namespace.take_hits(usize::MAX) {
            let above = namespace.ancestors(dir).filter(|ino| is_counted(*ino));
            let mut path: Vec<DirFragId> = above.map(whole).collect();
            self.count(&mut path, hits, now);
        }
    }

    /// All names were moved, and their load moves with them.
    pub(crate) fn count_after_reshape(
        &mut self,
        dir: Ino,
        parts: &[Ino],
        joins: bool,
        now: Moment,
    ) {
        let parts: Vec<DirFragId> = parts.iter().copied().map(whole).collect();
        if joins {
            self.table.join(&parts, whole(dir), now);
        } else {
            self.table.split(whole(dir), &parts);
        }
    }

    fn count(&mut self, path: &mut Vec<DirFragId>, hits: Hits, now: Moment) {
        let table = &mut self.table;
        if table.len() >= KNOWN_MAX {
            path.retain(|id| table.knows(*id));
        }
        let Hits { inode_reads, inode_writes, readdirs, fetches, stores } = hits;
        for (kind, count) in [
            (HitKind::InodeRead, inode_reads),
            (HitKind::InodeWrite, inode_writes),
            (HitKind::ReadDir, readdirs),
            (HitKind::Fetch, fetches),
            (HitKind::Store, stores),
        ] {
            if count > 0 {
                table.hit(path, kind, f64::from(count), now);
            }
        }
    }
}

/// Hidden directories have no load, and do not move.
fn is_counted(ino: Ino) -> bool {
    !ino.is_mount_stub() && !matches!(ino, Ino::LINKS | Ino::ANCHOR | Ino::TRASH)
}

/// The whole directory, which is the unit of a move: its fragments are not served apart yet.
pub(super) fn whole(ino: Ino) -> DirFragId {
    DirFragId { ino, frag: Frag::WHOLE }
}

#[allow(clippy::cast_precision_loss, reason = "more than 2^52 of anything has not happened")]
pub(super) fn number(count: u64) -> f64 {
    count as f64
}

/// Counts a question in the directory that it is about. Changes count themselves.
#[inline]
pub(crate) fn note_use(namespace: &mut Namespace, ino: Ino, hit: Hit) {
    let dir = directory_of(namespace, ino);
    namespace.note_hit(dir, hit);
}
