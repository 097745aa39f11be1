//! A link for each rank, and the threads that serve it.

use std::sync::{Arc, PoisonError};

use types::{Errno, Error, Rank, Result};
use wire::WantsExclusive;

use super::reclaim::Reclaimer;
use super::{Handler, Ranks};
use crate::Cluster;
use crate::link::{Link, LinkNotice};

impl Ranks {
    /// The link to a rank. `zero` is that to rank 0.
    pub(super) fn link_to(self: &Arc<Self>, zero: &Arc<Link>, rank: Rank) -> Result<Arc<Link>> {
        if rank == Rank(0) {
            return Ok(zero.clone());
        }
        if let Some(link) = self.lock().links.get(&rank) {
            return Ok(link.clone());
        }
        let known = zero.cluster().status()?.mds;
        if !known.iter().any(|entry| entry.rank == rank) {
            return Err(Error::new(Errno::Stale, rank.to_string(), "there is no such rank"));
        }
        self.open_link(zero, rank)
    }

    /// The link to a rank that exists.
    pub(super) fn open_link(self: &Arc<Self>, zero: &Arc<Link>, rank: Rank) -> Result<Arc<Link>> {
        if rank == Rank(0) {
            return Ok(zero.clone());
        }
        let mut known = self.lock();
        if let Some(link) = known.links.get(&rank) {
            return Ok(link.clone());
        }
        let made = || {
            let link = Arc::new(zero.to_rank(rank));
            if zero.cluster().has_threads() {
                crate::waiting::note(&link);
            }
            link
        };
        let link = known.links.entry(rank).or_insert_with(made).clone();
        let (handler, wants, lends) = (known.handler.clone(), known.wants_exclusive, known.lends);
        known.router.link(rank);
        self.publish(&known.router);
        drop(known);
        if let Some(handler) = handler {
            listen_on(self, zero, &link, handler)?;
        }
        send_async_on(&link, wants)?;
        if lends {
            lend_on(&link)?;
        }
        Ok(link)
    }
}

/// Listens on a link, on a thread of its own. `zero` is the link to rank 0.
pub(crate) fn listen_on(
    ranks: &Arc<Ranks>,
    zero: &Arc<Link>,
    link: &Arc<Link>,
    handler: Handler,
) -> Result<()> {
    if !link.begin_listening() {
        return Ok(());
    }
    let (link, mut reclaimer) = (link.clone(), Reclaimer::new(ranks, zero));
    let handle = move || {
        link.listen(|notice| match notice {
            LinkNotice::Notice(notice) => {
                let mut handler = handler.lock().unwrap_or_else(PoisonError::into_inner);
                handler(notice);
            }
            LinkNotice::Moved(to, files) => reclaimer.follow(to, files),
        });
    };
    start(zero.cluster(), "cudele-listen", handle)
}

/// Starts to send a server the changes that this client answers itself.
pub(crate) fn send_async_on(link: &Arc<Link>, wants: WantsExclusive) -> Result<()> {
    if link.begin_async(wants) { start_sender(link) } else { Ok(()) }
}

/// Starts to return to a server the directories whose answers have lapsed in a kernel.
pub(crate) fn lend_on(link: &Arc<Link>) -> Result<()> {
    if link.begin_lending() { start_sender(link) } else { Ok(()) }
}

fn start_sender(link: &Arc<Link>) -> Result<()> {
    let sender = link.clone();
    start(link.cluster(), "cudele-tell", move || sender.send_async_regularly())
}

pub(super) fn start(
    cluster: &Cluster,
    name: &str,
    run: impl FnOnce() + Send + 'static,
) -> Result<()> {
    let started = cluster.thread(name).and_then(|thread| thread.spawn(run));
    started.map(drop).map_err(|error| Error::new(Errno::Again, "thread", error.to_string()))
}
