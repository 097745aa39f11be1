//! The ring of changes: bounded in bytes, each change with the watchers that may see it.
//!
//! Invariant: the numbers of changes grow, and no number is given twice, also over a cleared ring.

use std::collections::VecDeque;

use types::{FileType, Ino, Timestamp};
use wire::{ChangeKind, ChangedName, WatchPage, WatchPoint, WatchedChange};

use super::WATCHERS_MAX;

/// The watchers that may see the two names of a change, a bit for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Masks {
    pub(super) at: u64,
    pub(super) to: u64,
}

#[derive(Debug)]
struct Recorded {
    masks: Masks,
    change: WatchedChange,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Ring {
    changes: VecDeque<Recorded>,
    /// The number of the first change.
    start: u64,
    bytes: usize,
    bytes_max: usize,
    /// So many changes at the end are not complete.
    unsettled: usize,
    /// For each watcher the number behind the newest change that it may see, and behind the newest
    /// one of these that the ring has dropped.
    seen: Vec<Seen>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    newest: u64,
    dropped: u64,
}

/// The type of the inode that moved the other way.
fn other_type(change: &WatchedChange) -> FileType {
    let code = u32::try_from(change.number).unwrap_or(0);
    FileType::from_mode(code << 12).unwrap_or_default()
}

/// The change as a watcher sees it, which may see one of two names only.
fn seen(change: &WatchedChange, at: bool, to: bool) -> WatchedChange {
    let half = |kind, name: &Option<ChangedName>, ino| WatchedChange {
        kind,
        at: name.clone(),
        to: None,
        other: Ino(0),
        number: 0,
        ino,
        ..change.clone()
    };
    match (change.kind, at, to) {
        // A name that a user does not see got another inode: the user sees one that appears.
        (ChangeKind::Exchange, true, false) => WatchedChange {
            file_type: other_type(change),
            ..half(ChangeKind::MovedTo, &change.at, change.other)
        },
        (ChangeKind::Exchange, false, true) => half(ChangeKind::MovedTo, &change.to, change.ino),
        (_, true, false) if change.to.is_some() => {
            half(ChangeKind::MovedFrom, &change.at, change.ino)
        }
        (_, false, true) => WatchedChange {
            other: change.other,
            ..half(ChangeKind::MovedTo, &change.to, change.ino)
        },
        _ => change.clone(),
    }
}

impl Ring {
    /// An empty ring for so many bytes.
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, ..Self::default() }
    }

    /// The number of the next change.
    pub(super) fn end(&self) -> u64 {
        self.start + self.changes.len() as u64
    }

    /// The bytes of all changes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a change, and drops the first ones beyond the limit. It is complete after
    /// [`Ring::settle`].
    pub(super) fn push(&mut self, masks: Masks, change: WatchedChange) {
        self.bytes += change.bytes();
        self.unsettled += 1;
        self.changes.push_back(Recorded { masks, change });
        let end = self.end();
        self.each(masks, |seen| seen.newest = end);
        while self.bytes > self.bytes_max
            && let Some(Recorded { masks, change }) = self.changes.pop_front()
        {
            self.bytes -= change.bytes();
            self.start += 1;
            let start = self.start;
            self.each(masks, |seen| seen.dropped = start);
        }
        self.unsettled = self.unsettled.min(self.changes.len());
    }

    fn each(&mut self, masks: Masks, note: impl Fn(&mut Seen)) {
        let mut bits = masks.at | masks.to;
        self.seen.resize(WATCHERS_MAX, Seen::default());
        while bits != 0 {
            note(&mut self.seen[bits.trailing_zeros() as usize]);
            bits &= bits - 1;
        }
    }

    /// Completes the last changes.
    pub(super) fn settle(&mut self, time: Timestamp, whole: impl Fn(Ino) -> Ino) {
        let settled = self.changes.len() - std::mem::take(&mut self.unsettled);
        for Recorded { change, .. } in self.changes.range_mut(settled..) {
            change.time = time;
            for name in [&mut change.at, &mut change.to].into_iter().flatten() {
                name.dir = whole(name.dir);
            }
        }
    }

    /// Drops all changes. A watcher that has not read them has lost them, and so has one that has
    /// read all: the number of one change is left out.
    pub(super) fn clear(&mut self) {
        self.start = self.end() + 1;
        self.changes.clear();
        (self.bytes, self.unsettled) = (0, 0);
        self.seen = vec![Seen { newest: self.start, dropped: self.start }; WATCHERS_MAX];
    }

    fn from(&self, after: u64) -> impl Iterator<Item = (u64, &Recorded)> {
        let skip = usize::try_from(after.saturating_sub(self.start)).unwrap_or(usize::MAX);
        let skip = skip.min(self.changes.len());
        (self.start + skip as u64..).zip(self.changes.range(skip..))
    }

    /// Whether a watcher may see a change behind a number, which the ring may have dropped.
    pub(super) fn has_for(&self, watcher: usize, after: u64) -> bool {
        self.seen.get(watcher).is_some_and(|seen| seen.newest > after)
    }

    /// Whether the ring has dropped a change behind a number that a watcher may see.
    pub(super) fn has_dropped(&self, watcher: usize, after: u64) -> bool {
        self.seen.get(watcher).is_some_and(|seen| seen.dropped > after)
    }

    /// The changes for a watcher behind a number, at most so many bytes and so many visited ones.
    pub(super) fn page(&self, watcher: usize, after: u64, bytes: usize, visits: u64) -> WatchPage {
        let bit = 1 << watcher;
        let (mut page, mut taken, mut next) = (WatchPage::default(), 0, after);
        for (number, Recorded { masks, change }) in self.from(after) {
            if taken >= bytes || number - after >= visits {
                page.more = true;
                break;
            }
            next = number + 1;
            let (at, to) = (masks.at & bit != 0, masks.to & bit != 0);
            if at || to {
                let change = seen(change, at, to);
                taken += change.bytes();
                page.changes.push((number, change));
            }
        }
        page.next = WatchPoint { next, ..WatchPoint::default() };
        page
    }

    /// Checks the sum of the bytes.
    ///
    /// # Panics
    /// If it is wrong.
    pub(super) fn validate(&self) {
        let bytes: usize = self.changes.iter().map(|it| it.change.bytes()).sum();
        assert!(bytes == self.bytes, "the bytes of the ring are counted");
        assert!(bytes <= self.bytes_max, "the ring is within its limit");
    }
}
