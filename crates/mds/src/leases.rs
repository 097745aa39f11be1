//! Leases: until when clients may cache a directory, where the policy has `cache: lease`.
//!
//! The protocol keeps no state per client. A client may cache an answer for a span, which begins
//! when it sent its request, by its own clock. The server notes when the last of these spans ends,
//! with an allowance for clocks of different speed, and a change of the directory, even by a client
//! that has a lease itself, waits until then. No client acknowledges that, and none is notified. So
//! that the wait ends, no lease is granted from when a change begins to wait until it is executed.
//!
//! A span and no date: the client's count begins before the server's does, wherever either clock
//! stands. Only how fast they run counts: a client stays within the promise as long as its clock
//! loses no more than the allowance against the server's during one lease.
//!
//! In memory only. The rank's table notes that leases exist (`Tables::expect_back` of
//! [`ANYBODY`]), and after a restart the server makes no change before they have expired.
//!
//! Invariant: the state is per directory, and as small for ten thousand clients as for one.

use std::collections::{BTreeMap, BTreeSet};

use types::{ClientId, Ino, Moment, Span};

/// The entry in the rank's table for all clients with leases.
pub(crate) const ANYBODY: ClientId = ClientId(0);

/// Directories under leases at the same time, some 50 MB; further ones get none.
const DIRS_MAX: usize = 1 << 20;
/// How often expired leases are removed.
const SWEEP: Span = Span::from_millis(250);
/// How long no lease was given before the rank's table forgets that there were any.
const FORGET_AFTER: Span = Span::from_millis(60_000);

/// How long leases are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// The span that a client gets.
    pub(crate) span: Span,
    /// How much longer the server waits.
    pub(crate) slack: Span,
    /// How long no client gets a lease after a wait: changes often come in groups.
    pub(crate) quiet: Span,
}

#[derive(Clone, Copy, Debug)]
struct Lease {
    /// All leases have expired after that.
    until: Moment,
    /// No client gets another one before that.
    closed: Moment,
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Leases {
    terms: Terms,
    dirs: BTreeMap<Ino, Lease>,
    /// Subtrees of which no directory is leased until then.
    closed: BTreeMap<Ino, Moment>,
    /// Those for whose end a request waits.
    awaited: BTreeSet<Ino>,
    /// When the last one was given, if the rank's table may say that there are any.
    given: Option<Moment>,
    swept: Moment,
}

impl Leases {
    pub(crate) fn new(terms: Terms) -> Self {
        let (dirs, closed, awaited) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        Self { terms, dirs, closed, awaited, given: None, swept: Moment::default() }
    }

    /// How long after it was granted a lease has expired on every client.
    pub(crate) fn whole(&self) -> Span {
        Span(self.terms.span.0.saturating_add(self.terms.slack.0))
    }

    /// Directories under leases, or closed to them.
    pub(crate) fn len(&self) -> usize {
        self.dirs.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.dirs.is_empty()
    }

    /// Whether a client may cache a directory.
    pub(crate) fn is_leased(&self, dir: Ino, now: Moment) -> bool {
        self.dirs.get(&dir).is_some_and(|lease| now < lease.until)
    }

    /// All such directories.
    pub(crate) fn directories(&self, now: Moment) -> impl Iterator<Item = Ino> {
        self.dirs.iter().filter(move |(_, lease)| now < lease.until).map(|(dir, _)| *dir)
    }

    /// A request about a subtree should wait only once: none of its directories is leased until
    /// then.
    pub(crate) fn close_below(&mut self, root: Ino, now: Moment) {
        let until = now + self.whole() + self.terms.quiet;
        let known = self.closed.entry(root).or_insert(until);
        if *known <= now {
            *known = until;
        }
    }

    /// The subtrees of which no directory is leased now.
    pub(crate) fn closed_below(&self, now: Moment) -> impl Iterator<Item = Ino> {
        self.closed.iter().filter(move |(_, until)| now < **until).map(|(root, _)| *root)
    }

    /// Grants a lease of a directory, unless a change waits. Returns its span.
    pub(crate) fn give(&mut self, dir: Ino, now: Moment) -> Option<Span> {
        let until = now + self.whole();
        let is_full = self.dirs.len() >= DIRS_MAX;
        match self.dirs.get_mut(&dir) {
            Some(lease) if now < lease.closed => return None,
            Some(lease) => lease.until = lease.until.max(until),
            None if is_full => return None,
            None => drop(self.dirs.insert(dir, Lease { until, closed: now })),
        }
        debug_assert!(self.is_leased(dir, now), "{dir}: a granted lease holds");
        self.given = Some(now);
        Some(self.terms.span)
    }

    /// A request changes a directory. Returns whether that has to wait.
    pub(crate) fn must_wait(&mut self, dir: Ino, now: Moment) -> bool {
        let closed = now + self.whole() + self.terms.quiet;
        let Some(lease) = self.dirs.get_mut(&dir).filter(|lease| now < lease.until) else {
            return false;
        };
        // The directory is open again if no tick came for so long: the server stood still.
        if self.awaited.insert(dir) || lease.closed <= now {
            // Long enough for a change that waits for other directories, too: none of them is
            // leased for longer.
            lease.closed = closed;
        }
        true
    }

    /// Time has passed. Returns the directories for which requests waited and whose leases have
    /// expired.
    pub(crate) fn over(&mut self, now: Moment) -> Vec<Ino> {
        let Self { dirs, awaited, .. } = self;
        let over = |dir: &Ino| dirs.get(dir).is_none_or(|lease| lease.until <= now);
        let over: Vec<Ino> = awaited.iter().copied().filter(over).collect();
        for dir in &over {
            self.awaited.remove(dir);
        }
        if now.since(self.swept) >= SWEEP {
            self.swept = now;
            self.dirs.retain(|_, lease| now < lease.until || now < lease.closed);
            self.closed.retain(|_, until| now < *until);
        }
        over
    }

    /// Whether the rank's table need not note any more that leases exist. Returns true once.
    pub(crate) fn are_past(&mut self, now: Moment) -> bool {
        let past = self.given.is_some_and(|given| now.since(given) >= FORGET_AFTER);
        if past {
            self.given = None;
        }
        past
    }

    /// An earlier server may have given leases.
    pub(crate) fn recovered(&mut self, now: Moment) {
        self.given = Some(now);
    }
}

mod validate;

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: Ino = Ino(7);

    fn at(millis: u64) -> Moment {
        Moment::default() + Span::from_millis(millis)
    }

    fn leases() -> Leases {
        let ms = Span::from_millis;
        Leases::new(Terms { span: ms(1000), slack: ms(10), quiet: ms(500) })
    }

    #[test]
    fn a_change_waits_for_the_last_lease_and_ends_the_giving() {
        let mut leases = leases();
        assert!(!leases.must_wait(DIR, at(0)), "nobody was told anything");
        assert_eq!(leases.give(DIR, at(0)), Some(Span::from_millis(1000)));
        assert!(leases.give(DIR, at(400)).is_some());
        assert!(leases.must_wait(DIR, at(900)));
        assert!(leases.give(DIR, at(901)).is_none(), "a change waits");
        assert!(leases.over(at(1409)).is_empty());
        assert!(leases.must_wait(DIR, at(1409)));
        assert_eq!(leases.over(at(1410)), [DIR]);
        assert!(!leases.must_wait(DIR, at(1410)));
        assert!(leases.over(at(1411)).is_empty(), "it is said once");
    }

    #[test]
    fn a_directory_is_not_leased_again_right_after_a_wait() {
        let mut leases = leases();
        leases.give(DIR, at(0));
        assert!(leases.must_wait(DIR, at(900)));
        leases.over(at(1010));
        // Another change, before a client gets a lease again.
        assert!(leases.give(DIR, at(1500)).is_none() && !leases.must_wait(DIR, at(1500)));
        assert!(leases.give(DIR, at(900 + 1010 + 500)).is_some());
    }

    #[test]
    fn a_change_in_two_directories_waits_once() {
        let mut leases = leases();
        let other = Ino(8);
        leases.give(DIR, at(0));
        leases.give(other, at(899));
        assert!(leases.must_wait(DIR, at(900)) && leases.must_wait(other, at(900)));
        assert_eq!(leases.over(at(1010)), [DIR]);
        assert!(leases.give(DIR, at(1011)).is_none(), "it would wait for this one again");
        assert_eq!(leases.over(at(1909)), [other]);
        assert!(!leases.must_wait(DIR, at(1909)) && !leases.must_wait(other, at(1909)));
    }

    #[test]
    fn expired_leases_are_dropped() {
        let mut leases = leases();
        for number in 0..1000 {
            leases.give(Ino(number), at(number));
        }
        assert_eq!(leases.len(), 1000);
        leases.over(at(1510));
        assert_eq!(leases.len(), 499);
        leases.over(at(5000));
        assert!(leases.is_empty() && !leases.are_past(at(5000)));
        assert!(leases.are_past(at(61_000)) && !leases.are_past(at(200_000)));
    }
}
