//! The part of this client's cache that the kernel of a mount may use without asking the client.
//!
//! An answer to a kernel says for how long the kernel may use it: [`LEND`], if the client itself
//! would answer the same from its cache. The client does not take such an answer back. Before it
//! returns the capability of a directory, it waits until the newest answer about the directory has
//! lapsed in the kernel, so the server, and with it every other client, never overtakes a kernel.
//! Notifications would be faster, but a kernel takes the lock of the directory for one, and a
//! program that holds this lock may wait for the server.
//!
//! While a directory changes hands, it is not lent: a directory that several clients use costs them
//! one wait, and all waits of a client are a small share of its time.
//!
//! Invariant: a directory whose return waits is lent to no kernel.

mod validate;

use types::{Ino, Map, Moment, Span};

/// The time for which a kernel may use an answer.
pub(crate) const LEND: Span = Span::from_millis(100);
/// The time from an answer until no kernel uses it: [`LEND`], the age at which a mount withdraws
/// the permission from a late reply (50 ms), and delays in the kernel between the arrival of a
/// reply and its use.
pub(crate) const LAPSE: Span = Span::from_millis(300);
/// A client that has heard nothing from the server for so long asks before it lends: an answer
/// lapses in the kernel before the server stops to wait for this client (`mds::Settings::lease`).
pub(crate) const FRESH: Span = Span::from_millis(800);
/// A directory that was revoked is not lent for so long.
const CONTESTED: Span = Span(10_000_000_000);
/// After a wait, nothing is lent for so many times as long as the wait.
const PAUSES_PER_WAIT: u64 = 10;
/// More contested directories than this are not remembered one by one: nothing is lent instead.
const CONTESTED_MAX: usize = 4096;
/// Lent directories are looked through for lapsed ones from this number on.
const TIDY_MIN: usize = 4096;

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Lent {
    /// The newest answer about each directory.
    newest: Map<Ino, Moment>,
    /// The lapsed ones among them are forgotten at this number.
    tidy_at: usize,
    /// The newest answer about any.
    last: Moment,
    /// Directories to return, and the time at which all answers about them have lapsed.
    returning: Map<Ino, Moment>,
    /// Directories that another client wanted, and until when they are not lent.
    contested: Map<Ino, Moment>,
    /// Nothing is lent until then.
    paused: Moment,
}

/// The time at which a directory can be returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Returned {
    /// No kernel uses it.
    AtOnce,
    /// A kernel may use it still: [`Lent::lapsed`] names it later.
    Later,
    /// The same, and an earlier call said so.
    Already,
}

impl Lent {
    /// A kernel is told something about a directory that the cache holds. Returns for how long the
    /// kernel may use it.
    pub(crate) fn lend(&mut self, dir: Ino, now: Moment) -> Span {
        let contested = self.contested.get(&dir).is_some_and(|until| now < *until);
        if now < self.paused || contested || self.returning.contains_key(&dir) {
            return Span(0);
        }
        self.last = self.last.max(now);
        self.newest.insert(dir, now);
        if self.newest.len() >= self.tidy_at.max(TIDY_MIN) {
            self.newest.retain(|_, newest| now < *newest + LAPSE);
            self.tidy_at = 2 * self.newest.len();
        }
        LEND
    }

    /// A directory leaves the cache: another client wants it, or this one does not.
    pub(crate) fn give_back(&mut self, dir: Ino, is_wanted: bool) -> Returned {
        if self.returning.contains_key(&dir) {
            return Returned::Already;
        }
        let newest = self.newest.remove(&dir);
        if is_wanted {
            self.contest(dir, newest);
        }
        let Some(newest) = newest else { return Returned::AtOnce };
        self.returning.insert(dir, newest + LAPSE);
        Returned::Later
    }

    fn contest(&mut self, dir: Ino, newest: Option<Moment>) {
        let until = newest.unwrap_or(self.last) + CONTESTED;
        if self.contested.len() >= CONTESTED_MAX {
            self.contested.clear();
            self.paused = self.paused.max(until);
        }
        self.contested.insert(dir, until);
        // How long the wait is depends on the present. It is at most this.
        if let Some(newest) = newest {
            self.paused = self.paused.max(newest + Span(PAUSES_PER_WAIT * LAPSE.0));
        }
    }

    /// When the next directory can be returned.
    pub(crate) fn due(&self) -> Option<Moment> {
        self.returning.values().copied().min()
    }

    /// The directories that no kernel uses any more, to be returned now.
    pub(crate) fn lapsed(&mut self, now: Moment) -> Vec<Ino> {
        let lapsed = self.returning.iter().filter(|(_, due)| **due <= now);
        let mut lapsed: Vec<Ino> = lapsed.map(|(dir, _)| *dir).collect();
        lapsed.sort_unstable();
        for dir in &lapsed {
            self.returning.remove(dir);
        }
        lapsed
    }

    /// The connection is gone. Returns the directories whose return waited.
    pub(crate) fn disconnected(&mut self) -> Vec<Ino> {
        self.newest.clear();
        let mut waiting: Vec<Ino> = self.returning.drain().map(|(dir, _)| dir).collect();
        waiting.sort_unstable();
        waiting
    }

    /// When no kernel uses any answer so far.
    pub(crate) fn over(&self) -> Moment {
        self.last + LAPSE
    }
}

#[cfg(test)]
mod tests;
