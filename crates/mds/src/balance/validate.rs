//! The invariants of the balancer.

use types::Rank;

use super::Balance;
use super::moves::{Moves, SIDE_BY_SIDE};

impl Balance {
    /// Checks the invariants of the balancer of a rank.
    ///
    /// # Panics
    /// If one of them does not hold.
    pub(crate) fn validate(&self, rank: Rank) {
        assert!(!self.heartbeats.contains_key(&rank), "a rank hears the heartbeats of other ranks");
        for (from, heard) in &self.heartbeats {
            assert!(heard.beat.rank == *from, "{from}: the heartbeat is of {}", heard.beat.rank);
            let known = usize::from(from.0) < balancer::RANKS_MAX;
            assert!(known, "{from}: the number of ranks is bounded");
            assert!(heard.count > 0, "{from}: a heartbeat is counted");
        }
        self.moves.validate();
    }
}

impl Moves {
    fn validate(&self) {
        assert!(self.under_way.len() <= SIDE_BY_SIDE, "the number of moves is bounded");
        for (at, (tid, it)) in self.under_way.iter().enumerate() {
            let twice = self.under_way[..at].iter().any(|(known, _)| known == tid);
            assert!(!twice && tid.0 <= self.last, "each move has a number of its own");
            assert!(it.beside >= 1, "a move is counted among those side by side");
        }
    }
}
