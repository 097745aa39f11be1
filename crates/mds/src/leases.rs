//! Leases: until when clients may remember what they were told of a directory, where the policy says
//! `cache: lease`.
//!
//! The protocol keeps nothing about clients. A client may remember what it is told for a span, which
//! it counts from when it sent its request, by its own clock. The server notes when that is over for
//! the last of them, with an allowance for clocks that run differently, and before anybody changes
//! the directory, even who was told something himself, it waits until then. Nobody answers for that,
//! and nobody is told. So that the wait ends, no lease is given from when a change waits until it is
//! carried out.
//!
//! A span and no date: the client's count begins before the server's does, wherever either clock
//! stands. Only how fast they run counts: a client stays within the promise as long as its clock
//! loses no more than the allowance against the server's during one lease.
//!
//! In memory only. That there are leases at all is in the rank's table (`Tables::may_remember` of
//! [`ANYBODY`]), and the next server does nothing before they are over.
//!
//! Invariant: what is kept is for directories, and as much for one client as for ten thousand.

use std::collections::{BTreeMap, BTreeSet};

use types::{ClientId, Ino, Moment, Span};

/// Stands in the rank's table for everybody to whom a lease was given.
pub(crate) const ANYBODY: ClientId = ClientId(0);

/// Directories under leases at the same time, some 50 MB; further ones get none.
const DIRS_MAX: usize = 1 << 20;
/// How often what is over is removed.
const SWEEP: Span = Span::from_millis(250);
/// How long no lease was given before the rank's table forgets that there were any.
const FORGET_AFTER: Span = Span::from_millis(60_000);

/// How long leases are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// What a client is told.
    pub(crate) span: Span,
    /// How much longer the server waits.
    pub(crate) slack: Span,
    /// How long nobody gets a lease after a wait: changes often come in groups.
    pub(crate) quiet: Span,
}

#[derive(Clone, Copy, Debug)]
struct Lease {
    /// Nobody remembers anything after that.
    until: Moment,
    /// Nobody gets another one before that.
    closed: Moment,
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Leases {
    terms: Terms,
    dirs: BTreeMap<Ino, Lease>,
    /// Subtrees of which no directory is leased until then.
    closed: BTreeMap<Ino, Moment>,
    /// Those whose end somebody waits for.
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

    /// How long after a lease was given everybody has forgotten what came with it.
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

    /// Whether somebody may remember something of a directory.
    pub(crate) fn is_leased(&self, dir: Ino, now: Moment) -> bool {
        self.dirs.get(&dir).is_some_and(|lease| now < lease.until)
    }

    /// All such directories.
    pub(crate) fn directories(&self, now: Moment) -> impl Iterator<Item = Ino> {
        self.dirs.iter().filter(move |(_, lease)| now < lease.until).map(|(dir, _)| *dir)
    }

    /// What waits for a subtree is to wait once: none of its directories is leased until then.
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

    /// Gives whoever asks a lease of a directory, unless a change waits. Returns its span.
    pub(crate) fn give(&mut self, dir: Ino, now: Moment) -> Option<Span> {
        let until = now + self.whole();
        let is_full = self.dirs.len() >= DIRS_MAX;
        match self.dirs.get_mut(&dir) {
            Some(lease) if now < lease.closed => return None,
            Some(lease) => lease.until = lease.until.max(until),
            None if is_full => return None,
            None => drop(self.dirs.insert(dir, Lease { until, closed: now })),
        }
        self.given = Some(now);
        Some(self.terms.span)
    }

    /// Somebody wants to change a directory. Says whether that has to wait.
    pub(crate) fn must_wait(&mut self, dir: Ino, now: Moment) -> bool {
        let closed = now + self.whole() + self.terms.quiet;
        let Some(lease) = self.dirs.get_mut(&dir).filter(|lease| now < lease.until) else {
            return false;
        };
        if self.awaited.insert(dir) {
            // Long enough for a change that waits for other directories, too: none of them is
            // leased for longer.
            lease.closed = closed;
        }
        true
    }

    /// Time has passed. Returns the directories that somebody waited for and nobody remembers.
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

    /// Whether the rank's table need not say any more that there are leases. Says so once.
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
    fn a_directory_that_was_waited_for_is_leased_to_nobody_for_a_moment() {
        let mut leases = leases();
        leases.give(DIR, at(0));
        assert!(leases.must_wait(DIR, at(900)));
        leases.over(at(1010));
        // Another change, before anybody is told anything again.
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
    fn what_is_over_is_not_kept() {
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
