//! Removes a rank from the cluster while clients work: its subtrees move first.

use std::time::{Duration, Instant};

use types::{Errno, Error, Rank, Result};
use wire::{MonAnswer, MonOp};

use crate::{Cluster, Fs};

/// The time for clients to release a subtree: by closing files, and by ending changes of policies.
const KEPT_WITHIN: Duration = Duration::from_secs(30);
/// How long its server may take to write everything down.
const ENDS_WITHIN: Duration = Duration::from_secs(30);
const RETRY: Duration = Duration::from_millis(20);

impl Cluster {
    /// Ends the server of the last rank, and forgets the rank. It must serve nothing any more.
    fn remove(&self, rank: Rank) -> Result<()> {
        let answer = self.call(MonOp::Remove { rank })?;
        if answer == MonAnswer::Done { Ok(()) } else { Err(crate::cluster::unexpected(&answer)) }
    }

    fn has_rank(&self, rank: Rank) -> Result<bool> {
        Ok(self.status()?.mds.iter().any(|entry| entry.rank == rank))
    }
}

impl Fs {
    /// Removes the last rank from the cluster while clients work: all its subtrees move to rank 0,
    /// then its server ends. Returns the number of subtrees.
    ///
    /// # Errors
    /// `EBUSY` for rank 0, for a rank that is not the last, and if a subtree cannot move; `ENOENT`
    /// if there is no such rank; `ETIMEDOUT` if its server does not end.
    pub fn remove_rank(&self, rank: Rank) -> Result<u64> {
        let cluster = self.cluster();
        let known = cluster.status()?.mds;
        if !known.iter().any(|entry| entry.rank == rank) {
            return Err(Error::new(Errno::NotFound, rank.to_string(), "there is no such rank"));
        }
        let last = known.iter().map(|entry| entry.rank).max().unwrap_or(rank);
        if rank == Rank(0) || last != rank {
            let cause = if rank == Rank(0) {
                "it has the root of the namespace".to_owned()
            } else {
                format!("{last} is removed first: ranks go in their order")
            };
            return Err(Error::new(Errno::Busy, rank.to_string(), cause));
        }
        let moved = self.empty_rank(rank)?;
        cluster.remove(rank)?;
        let start = Instant::now();
        while cluster.has_rank(rank)? {
            if start.elapsed() >= ENDS_WITHIN {
                return Err(Error::new(
                    Errno::TimedOut,
                    rank.to_string(),
                    "its server does not end",
                )
                .remedy("see its log, and remove it once more"));
            }
            std::thread::sleep(RETRY);
        }
        if let Some(late) = cluster.pinned()?.into_iter().find(|pinned| pinned.rank == rank) {
            let path = String::from_utf8_lossy(&late.path).into_owned();
            let up = format!("`cudele up --mds {}` brings the rank back", rank.0 + 1);
            return Err(Error::new(Errno::Busy, path, "it was moved there meanwhile").remedy(up));
        }
        Ok(moved)
    }

    /// Moves everything that a rank serves to rank 0.
    fn empty_rank(&self, rank: Rank) -> Result<u64> {
        let (start, mut moved) = (Instant::now(), 0);
        loop {
            let pinned = self.cluster().pinned()?;
            let Some(next) = pinned.into_iter().find(|pinned| pinned.rank == rank) else {
                return Ok(moved);
            };
            self.set_place(next.root, rank);
            match self.pin(next.root, Rank(0)) {
                Ok(()) => moved += 1,
                Err(error)
                    if matches!(error.errno, Errno::Busy | Errno::Again)
                        && start.elapsed() < KEPT_WITHIN =>
                {
                    std::thread::sleep(RETRY);
                }
                Err(error) => {
                    return Err(error.about(String::from_utf8_lossy(&next.path).into_owned()));
                }
            }
        }
    }
}
