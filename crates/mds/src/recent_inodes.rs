//! The inodes that a client asked for last.
//!
//! A request names an inode by its number. A server that evicted the inode answers `ESTALE`; the
//! client then walks the path and sends the request again. Eviction between these two requests
//! would make the client walk again and again, so eviction keeps the inodes that a client walked
//! to or looked into last. A directory that a client reads is also kept under its number while
//! other clients rename it.
//!
//! Invariant: at most [`SHOWN_MAX`] inodes per client, each once, the newest last.

use types::{Ino, Set};

/// Inodes kept per client: a few for each thread of a mount.
const SHOWN_MAX: usize = 32;

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct RecentInodes(Vec<Ino>);

impl RecentInodes {
    /// The client asked for an inode.
    pub(crate) fn note(&mut self, ino: Ino) {
        if self.0.last() == Some(&ino) {
            return;
        }
        let known = self.0.iter().position(|known| *known == ino);
        if let Some(at) = known.or((self.0.len() == SHOWN_MAX).then_some(0)) {
            self.0.remove(at);
        }
        self.0.push(ino);
        debug_assert!(self.0.len() <= SHOWN_MAX, "the number of noted inodes is bounded");
    }

    /// Whether the client asked for an inode not long ago.
    pub(crate) fn has(&self, ino: Ino) -> bool {
        self.0.contains(&ino)
    }

    /// Checks that the inodes are few, and each of them is noted once.
    ///
    /// # Panics
    /// If that does not hold.
    pub(crate) fn validate(&self) {
        assert!(self.0.len() <= SHOWN_MAX, "the number of noted inodes is bounded");
        let twice = (1..self.0.len()).find(|at| self.0[..*at].contains(&self.0[*at]));
        assert!(twice.is_none(), "an inode that a client asked for is noted once");
    }

    /// The inodes, the newest first.
    fn inodes(&self) -> impl Iterator<Item = Ino> {
        self.0.iter().rev().copied()
    }
}

/// The inodes that several clients asked for last, at most `max`: the newest of every client before
/// the second newest of any.
pub(crate) fn newest<'a>(clients: impl Iterator<Item = &'a RecentInodes>, max: usize) -> Set<Ino> {
    let mut all = Set::default();
    let mut left: Vec<_> = clients.map(RecentInodes::inodes).collect();
    while !left.is_empty() && all.len() < max {
        left.retain_mut(|inodes| {
            let next = inodes.next().filter(|_| all.len() < max);
            all.extend(next);
            next.is_some()
        });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_inode_makes_room_for_the_newest() {
        let mut shown = RecentInodes::default();
        for ino in 0..=SHOWN_MAX as u64 {
            shown.note(Ino(100 + ino));
            shown.note(Ino(101));
        }
        let inodes: Vec<Ino> = shown.inodes().collect();
        assert_eq!(inodes.len(), SHOWN_MAX, "one more was noted than has room");
        assert!(!inodes.contains(&Ino(100)), "the first is the oldest");
        assert!(inodes.contains(&Ino(101)), "the second was noted again and again");
    }

    #[test]
    fn the_newest_inode_of_every_client_comes_first() {
        let (mut one, mut other) = (RecentInodes::default(), RecentInodes::default());
        (100..120).for_each(|ino| one.note(Ino(ino)));
        other.note(Ino(7));
        let both = [one, other];
        let of = |max| {
            let mut all: Vec<Ino> = newest(both.iter(), max).into_iter().collect();
            all.sort_unstable();
            all
        };
        assert_eq!(of(2), [Ino(7), Ino(119)]);
        assert_eq!(of(3), [Ino(7), Ino(118), Ino(119)]);
        assert_eq!(of(100).len(), 21);
    }
}
