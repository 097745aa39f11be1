//! Removes a rank from the cluster while clients work: its subtrees move first.

use client::RankRemoval;
use types::{Errno, Error, Rank, Result};
use wire::{MonAnswer, MonOp};

use crate::{Cluster, Fs};

impl Cluster {
    /// Ends the server of the last rank, and forgets the rank. It must serve nothing any more.
    fn remove(&self, rank: Rank) -> Result<()> {
        let answer = self.call(MonOp::Remove { rank })?;
        if answer == MonAnswer::Done { Ok(()) } else { Err(crate::cluster::unexpected(&answer)) }
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
        let mut removal = RankRemoval::new(rank, &self.present_ranks()?, crate::moment())?;
        let moved = self.empty_rank(rank, &removal)?;
        self.await_empty_trash(rank, &mut removal)?;
        cluster.remove(rank)?;
        removal.since = crate::moment();
        while self.present_ranks()?.contains(&rank) {
            crate::pause(removal.awaited(crate::moment())?);
        }
        if let Some(late) = cluster.pinned()?.into_iter().find(|pinned| pinned.rank == rank) {
            let path = String::from_utf8_lossy(&late.path).into_owned();
            let up = format!("`cudele up --mds {}` brings the rank back", rank.0 + 1);
            return Err(Error::new(Errno::Busy, path, "it was moved there meanwhile").remedy(up));
        }
        Ok(moved)
    }

    /// No other rank gives the room of removed trees back.
    fn await_empty_trash(&self, rank: Rank, removal: &mut RankRemoval) -> Result<()> {
        removal.since = crate::moment();
        loop {
            let trees = self.trash_of(rank)?;
            let kept = trees.iter().filter(|tree| tree.entry.is_kept()).count();
            if trees.is_empty() {
                return Ok(());
            }
            let cause = format!("{} removed trees are in its trash", trees.len());
            let error = Error::new(Errno::Busy, rank.to_string(), cause)
                .remedy("`cudele trash restore` them, or `cudele trash empty`");
            if kept > 0 {
                return Err(error);
            }
            crate::pause(removal.kept(crate::moment(), error)?);
        }
    }

    /// Moves everything that a rank serves to rank 0.
    fn empty_rank(&self, rank: Rank, removal: &RankRemoval) -> Result<u64> {
        let mut moved = 0;
        loop {
            let pinned = self.cluster().pinned()?;
            let Some(next) = pinned.into_iter().find(|pinned| pinned.rank == rank) else {
                return Ok(moved);
            };
            self.set_place(next.root, rank);
            if let Err(error) = self.pin(next.root, Rank(0)) {
                let pause = removal.kept(crate::moment(), error);
                crate::pause(
                    pause.map_err(|error| error.about(String::from_utf8_lossy(&next.path)))?,
                );
            } else {
                moved += 1;
            }
        }
    }
}
