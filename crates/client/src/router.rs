//! Which metadata server a request is for, and the steps after each answer.
//!
//! A client has one session for each rank. Its first guess is that the rank that allocated an inode
//! number serves the inode, which is right for every inode that did not move. The redirects of
//! servers ([`wire::Redirect`], [`wire::Fragments`]) correct wrong guesses (B-02, B-04). A request
//! goes to another rank only after a rank has answered that it did not execute the request and will
//! not.
//!
//! [`Router`] has the state that all requests of a client share: the ranks of moved inodes, and the
//! fragments of split directories. [`Route`] is one request on its way, as a stack of procedures
//! (`Frame`). [`Route::handle`] takes the result of the last effect and returns the next effect;
//! the driver carries the effect out. Neither waits, locks or reads a clock.
//!
//! Invariants: the router has no entry for an inode on the rank that allocated it; a route asks for
//! one effect at a time; its stack has at most [`FRAMES_MAX`](route::FRAMES_MAX) frames.

mod asked;
mod direct;
mod fragments;
mod ranked;
mod reclaim;
mod route;
mod shape;
mod walks;
mod whole;

use std::collections::BTreeSet;

use types::{Ino, Map, Rank, Span};
use wire::{Answer, Fragments, Op};

use crate::FragmentMap;
pub use asked::{named, second};
pub use direct::{is_direct, is_final};
pub use reclaim::{Sessions, awaits_report, follow, holder, is_elsewhere, reclaim};
pub(crate) use route::unexpected as unexpected_answer;
use route::{Context, Frame, Got, Step, is_passing, unexpected};
pub use route::{Route, RouteEffect, RouteInput};
pub use walks::{WALKS_MAX, WalkStep, Walks, leads_to};

/// The pause before a server that may not know of a move yet is asked again.
const RETRY: Span = Span::from_millis(5);
/// The number of moved inodes whose rank is remembered.
const PLACES_MAX: usize = 1 << 20;

/// See the module documentation.
#[derive(Debug, Default)]
pub struct Router {
    places: Map<Ino, Rank>,
    fragments: FragmentMap,
    /// The ranks besides rank 0 that this client has a session with.
    ranks: BTreeSet<Rank>,
    /// Whether anything was found on another rank than 0.
    several: bool,
    redirected: u64,
    /// How often a server reported that files moved.
    reports: u64,
}

impl Router {
    /// The rank that serves an inode, as far as this client knows.
    #[must_use]
    pub fn place(&self, ino: Ino) -> Rank {
        self.places.get(&ino).copied().unwrap_or(ino.given_by())
    }

    /// Remembers the rank that serves an inode.
    pub fn set_place(&mut self, ino: Ino, rank: Rank) {
        if ino.given_by() == rank {
            self.places.remove(&ino);
            return;
        }
        if self.places.len() >= PLACES_MAX {
            self.places.clear();
        }
        self.places.insert(ino, rank);
        debug_assert!(self.places.len() <= PLACES_MAX, "the number of places is bounded");
    }

    /// A server reported that these files moved to a rank. An answer to a request from before may
    /// be older than that.
    pub fn note_moved(&mut self, files: &[Ino], to: Rank) {
        self.reports += 1;
        files.iter().for_each(|ino| self.set_place(*ino, to));
    }

    /// Whether this client knows of another rank than 0, or of a split directory. Until then every
    /// request about an inode of rank 0 is direct ([`is_direct`]).
    #[must_use]
    pub fn is_needed(&self) -> bool {
        self.several || !self.fragments.is_empty()
    }

    /// Whether this client knows of another rank than 0.
    #[must_use]
    pub fn is_several(&self) -> bool {
        self.several
    }

    /// The number of requests that a server referred to another rank or to a fragment.
    #[must_use]
    pub fn redirected(&self) -> u64 {
        self.redirected
    }

    /// The known fragments of split directories.
    #[must_use]
    pub fn fragments(&self) -> &FragmentMap {
        &self.fragments
    }

    /// Notes that there is a session with a rank.
    pub fn link(&mut self, rank: Rank) {
        if rank != Rank(0) {
            self.ranks.insert(rank);
            self.several = true;
        }
    }

    fn is_linked(&self, rank: Rank) -> bool {
        rank == Rank(0) || self.ranks.contains(&rank)
    }

    /// Forgets the ranks that the cluster does not have any more, and returns them.
    fn forget_removed(&mut self, present: &[Rank]) -> Vec<Rank> {
        let gone = self.ranks.iter().copied().filter(|rank| !present.contains(rank)).collect();
        self.ranks.retain(|rank| present.contains(rank));
        self.places.retain(|_, rank| present.contains(rank));
        gone
    }

    fn note_fragments(&mut self, fragments: &Fragments) {
        self.fragments.note(fragments);
        for (part, rank) in fragments.parts {
            self.set_place(part, rank);
        }
    }

    /// Notes the rank of the subject of a request.
    fn note_place(&mut self, op: &Op<'_>, rank: Rank) {
        if let Some(ino) = named(op) {
            self.set_place(ino, rank);
        }
    }

    /// Notes the rank of the inodes in an answer.
    fn learn(&mut self, rank: Rank, answer: &Answer) {
        if let Answer::Attr(attr) | Answer::Walked { attr: Some(attr), .. } = answer {
            self.set_place(attr.ino, rank);
        }
        // The rank with a name of a split directory may not have the directory.
        if let Answer::Walked { parent, .. } = answer
            && self.fragments.parts(*parent).is_none()
        {
            self.learn_one(rank, *parent);
        }
        if let Answer::Entries { entries, .. } = answer {
            entries.iter().for_each(|(_, attr)| self.learn_one(rank, attr.ino));
        }
    }

    fn learn_one(&mut self, rank: Rank, ino: Ino) {
        if ino.given_by() != rank {
            self.set_place(ino, rank);
        }
    }

    /// Checks the invariants of this module.
    ///
    /// # Panics
    /// If one does not hold.
    pub fn validate(&self) {
        for (ino, rank) in &self.places {
            assert_ne!(ino.given_by(), *rank, "{ino} is noted at the rank that allocated it");
        }
        self.fragments.validate();
        assert!(self.places.len() <= PLACES_MAX, "the number of places is bounded");
        assert!(!self.ranks.contains(&Rank(0)), "the session with rank 0 is always there");
        assert!(self.several || self.ranks.is_empty(), "sessions, but no other rank is known");
    }
}

#[cfg(test)]
mod tests;
