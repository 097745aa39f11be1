//! The removal of a rank while clients work: its subtrees move to rank 0 first.

use types::{Errno, Error, Moment, Rank, Result, Span};

/// The time for clients to release a subtree, by closing files and by ending changes of policies,
/// and for the server to end.
const WITHIN: Span = Span::from_millis(30_000);
const RETRY: Span = Span::from_millis(20);

/// A removal under way.
#[derive(Clone, Copy, Debug)]
pub struct RankRemoval {
    rank: Rank,
    /// When the present step began.
    pub since: Moment,
}

impl RankRemoval {
    /// The removal of one of these ranks.
    ///
    /// # Errors
    /// `EBUSY` for rank 0, and for a rank that is not the last; `ENOENT` if there is no such rank.
    pub fn new(rank: Rank, known: &[Rank], since: Moment) -> Result<Self> {
        if !known.contains(&rank) {
            return Err(Error::new(Errno::NotFound, rank.to_string(), "there is no such rank"));
        }
        let last = known.iter().copied().max().unwrap_or(rank);
        let cause = if rank == Rank(0) {
            "it has the root of the namespace".to_owned()
        } else if last != rank {
            format!("{last} is removed first: ranks go in their order")
        } else {
            return Ok(Self { rank, since });
        };
        Err(Error::new(Errno::Busy, rank.to_string(), cause))
    }

    /// A subtree did not move. Returns the pause before the next attempt.
    ///
    /// # Errors
    /// The same error if there is none.
    pub fn kept(&self, now: Moment, error: Error) -> Result<Span> {
        let is_held = matches!(error.errno, Errno::Busy | Errno::Again);
        if is_held && now.since(self.since) < WITHIN { Ok(RETRY) } else { Err(error) }
    }

    /// The server has not ended yet. Returns the pause before the next look.
    ///
    /// # Errors
    /// `ETIMEDOUT`.
    pub fn awaited(&self, now: Moment) -> Result<Span> {
        if now.since(self.since) < WITHIN {
            return Ok(RETRY);
        }
        let cause = "its server does not end";
        Err(Error::new(Errno::TimedOut, self.rank.to_string(), cause)
            .remedy("see its log, and remove it once more"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_rank_is_removed_and_never_rank_0() {
        let errno = |rank, known: &[u16]| {
            let known: Vec<_> = known.iter().copied().map(Rank).collect();
            RankRemoval::new(Rank(rank), &known, Moment(0)).err().map(|error| error.errno)
        };
        assert_eq!(errno(2, &[0, 1, 2]), None);
        assert_eq!(errno(1, &[0, 1, 2]), Some(Errno::Busy));
        assert_eq!(errno(0, &[0]), Some(Errno::Busy));
        assert_eq!(errno(3, &[0, 1, 2]), Some(Errno::NotFound));
    }

    #[test]
    fn a_held_subtree_and_a_server_that_runs_are_waited_for() {
        let removal = RankRemoval::new(Rank(1), &[Rank(0), Rank(1)], Moment(0)).unwrap();
        let held = || Error::of(Errno::Busy, "/job");
        assert_eq!(removal.kept(Moment(1), held()), Ok(RETRY));
        assert_eq!(removal.kept(Moment(WITHIN.0), held()), Err(held()));
        assert!(removal.kept(Moment(1), Error::of(Errno::NotPermitted, "/job")).is_err());
        assert_eq!(removal.awaited(Moment(1)), Ok(RETRY));
        assert_eq!(removal.awaited(Moment(WITHIN.0)).unwrap_err().errno, Errno::TimedOut);
    }
}
