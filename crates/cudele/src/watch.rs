//! The changes of a subtree, as they happen: executes the requests of [`client::WatchMerge`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{WatchLoss, WatchMerge, WatchPosition};
use types::{Errno, Error, Path, Rank, Result, Span};
use wire::{Answer, MdsEntry, Op, ReadOp, WatchPage, WatchPoint, WatchedChange};

use crate::Fs;
use crate::fs::unexpected;

/// How often a watch looks for ranks that have joined the cluster.
const RANKS_EVERY: Duration = Duration::from_secs(1);
/// How long one call of an iterator waits before the next one.
const WAIT: Duration = Duration::from_secs(60);
/// A counter that servers of older releases do not have.
const COUNTER: &str = "watchers";

/// An element of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    /// A change.
    Change(Box<WatchedChange>),
    /// Changes before this position are lost: the caller looks at the whole subtree again. The
    /// watch goes on from [`Watch::position`].
    Lost(WatchLoss),
}

/// The changes at a path and below it, over all metadata servers.
///
/// The metadata servers keep changes for a watch for some minutes after its last request, in
/// bounded memory ([`Fs::watch`]).
#[derive(Debug)]
pub struct Watch {
    fs: Arc<Fs>,
    path: Path,
    merge: WatchMerge,
    looked_at: Instant,
    /// The position of the caller covers a rank that is not in the cluster.
    left: Option<WatchLoss>,
}

impl Fs {
    /// Watches the changes at a path and below it: from now on, or from a position of an earlier
    /// watch of the same path by the same user.
    ///
    /// A user sees the changes of names in directories that the user may list. A change of an inode
    /// with several names has no path, and is for root only.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EACCES`; `EOPNOTSUPP` if a server is of an older release; `EBUSY` if a
    /// server has too many watchers.
    pub fn watch(
        self: &Arc<Self>,
        path: impl AsRef<[u8]>,
        from: Option<WatchPosition>,
    ) -> Result<Watch> {
        let path = Path::parse(path)?;
        if !self.stat(path.to_bytes())?.is_dir() {
            return Err(Error::of(Errno::NotDirectory, path.quoted()));
        }
        let merge = WatchMerge::from(from.clone().unwrap_or_default());
        let fs = self.clone();
        let mut watch = Watch { fs, path, merge, looked_at: Instant::now(), left: None };
        match from {
            None => watch.restart()?,
            Some(position) => {
                let present = watch.present_ranks()?;
                let left = position.ranks().find(|rank| !present.contains(rank));
                watch.left = left.map(WatchLoss::Left);
                if watch.left.is_none() {
                    watch.left = watch.join_new(&present)?;
                }
            }
        }
        Ok(watch)
    }
}

impl Watch {
    /// The position behind the last change that [`Watch::next_event`] returned.
    #[must_use]
    pub fn position(&self) -> &WatchPosition {
        self.merge.position()
    }

    /// The next change, waiting for one at most so long. `None` if there is none.
    ///
    /// # Errors
    /// `EACCES` if the rights of the user cannot be judged, or have changed; those of requests.
    pub fn next_event(&mut self, wait: Duration) -> Result<Option<WatchEvent>> {
        let until = Instant::now() + wait;
        if let Some(loss) = self.left.take() {
            return self.lost(loss).map(Some);
        }
        let mut asked = false;
        loop {
            if let Some(change) = self.merge.next_change() {
                return Ok(Some(WatchEvent::Change(Box::new(change))));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() && asked && !self.merge.has_more() {
                return Ok(None);
            }
            asked = true;
            if let Some(loss) = self.ask(left)? {
                return self.lost(loss).map(Some);
            }
        }
    }

    /// The changes without end: each element waits for the next one.
    pub fn events(&mut self) -> impl Iterator<Item = Result<WatchEvent>> {
        std::iter::from_fn(|| {
            loop {
                match self.next_event(WAIT) {
                    Ok(None) => {}
                    Ok(Some(event)) => return Some(Ok(event)),
                    Err(error) => return Some(Err(error)),
                }
            }
        })
    }

    /// Asks all ranks for changes.
    fn ask(&mut self, most: Duration) -> Result<Option<WatchLoss>> {
        if self.looked_at.elapsed() >= RANKS_EVERY {
            self.looked_at = Instant::now();
            let present = self.present_ranks()?;
            if let Some(loss) = self.join_new(&present)? {
                return Ok(Some(loss));
            }
        }
        let most = Span(u64::try_from(most.as_nanos()).unwrap_or(u64::MAX));
        for (rank, point) in self.merge.begin_round() {
            let hold = self.merge.hold(most);
            let page = self.request(rank, Some(point), hold)?;
            if let Err(loss) = self.merge.take(rank, page) {
                return Ok(Some(loss));
            }
        }
        Ok(None)
    }

    /// Begins again at the present, and reports the loss.
    fn lost(&mut self, loss: WatchLoss) -> Result<WatchEvent> {
        self.restart()?;
        Ok(WatchEvent::Lost(loss))
    }

    fn restart(&mut self) -> Result<()> {
        self.merge = WatchMerge::default();
        for rank in self.present_ranks()? {
            let page = self.request(rank, None, Span(0))?;
            // No earlier position is valid any more.
            let _ = self.merge.join(rank, &page, true);
        }
        Ok(())
    }

    /// Adds the ranks that have joined the cluster.
    fn join_new(&mut self, present: &[Rank]) -> Result<Option<WatchLoss>> {
        let known: Vec<Rank> = self.merge.position().ranks().collect();
        for rank in present.iter().filter(|rank| !known.contains(rank)) {
            let page = self.request(*rank, None, Span(0))?;
            if let Err(loss) = self.merge.join(*rank, &page, false) {
                return Ok(Some(loss));
            }
        }
        Ok(None)
    }

    /// The ranks of the cluster, all of which must know watches.
    fn present_ranks(&self) -> Result<Vec<Rank>> {
        let servers = self.fs.cluster().status()?.mds;
        // Before its first report a server has no counters at all.
        let is_older = |entry: &&MdsEntry| {
            !entry.counters.is_empty() && entry.counters.iter().all(|(name, _)| name != COUNTER)
        };
        if let Some(entry) = servers.iter().find(is_older) {
            let cause = format!("the server of {} is of an older release", entry.rank);
            return Err(Error::new(Errno::NotSupported, "watch", cause)
                .remedy("restart it with this release"));
        }
        Ok(servers.into_iter().map(|entry| entry.rank).collect())
    }

    fn request(&self, rank: Rank, after: Option<WatchPoint>, hold: Span) -> Result<WatchPage> {
        let link = self.fs.link_to(rank)?;
        let wait = u32::try_from(hold.0.div_ceil(1_000_000)).unwrap_or(u32::MAX);
        let path = self.path.to_bytes();
        let op = Op::Read(ReadOp::Watch { path: &path, after, wait });
        let cred = self.fs.served_as(self.fs.cred());
        let answer = link.request(&cred, op, &[]);
        let answer = answer.map_err(|error| error.about(self.path.quoted()))?;
        let Answer::Watched(page) = answer else { return Err(unexpected(&answer)) };
        Ok(*page)
    }
}
