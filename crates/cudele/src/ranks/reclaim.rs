//! Open files and locks of this client follow a file to another rank: carries out what
//! [`client::follow`] and [`client::reclaim`] decide, on the links.

use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, MutexGuard, PoisonError};

use client::{FileState, Sessions};
use types::{Ino, Rank, Result};

use super::Ranks;
use crate::Fs;
use crate::link::Link;

/// The links of a client, each with a session.
struct Links(Vec<Arc<Link>>);

impl Links {
    /// The link to a rank that is among them.
    fn to(&self, rank: Rank) -> Option<&Arc<Link>> {
        self.0.iter().find(|link| link.rank() == rank)
    }
}

impl Sessions for Links {
    fn ranks(&self) -> Vec<Rank> {
        self.0.iter().map(|link| link.rank()).collect()
    }

    fn has(&mut self, rank: Rank, ino: Ino) -> bool {
        self.to(rank).is_some_and(|link| link.lock().session.has(ino))
    }

    fn awaits_report(&mut self, rank: Rank, ino: Ino) -> bool {
        self.to(rank).is_some_and(|link| link.lock().session.awaits_report(ino))
    }

    fn take_out(&mut self, rank: Rank, ino: Ino) -> FileState {
        self.to(rank).map(|link| link.take_out(ino)).unwrap_or_default()
    }

    fn put_in(&mut self, rank: Rank, ino: Ino, state: Option<FileState>) {
        if let Some(link) = self.to(rank) {
            link.put_in(ino, state);
        }
    }
}

impl Ranks {
    /// While this is held, nothing is between two sessions.
    fn reclaiming(&self) -> MutexGuard<'_, ()> {
        self.reclaiming.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All links. `zero` is the link to rank 0.
    fn links(&self, zero: &Arc<Link>) -> Links {
        let mut links = self.others();
        links.push(zero.clone());
        Links(links)
    }

    /// Carries out one of the functions by which the state of these files gets to a rank.
    fn carry<T>(
        self: &Arc<Self>,
        zero: &Arc<Link>,
        to: Rank,
        files: &[Ino],
        act: impl FnOnce(&mut Links) -> T,
    ) -> Result<T> {
        let link = self.link_to(zero, to)?;
        link.be_connected()?;
        loop {
            let reclaiming = self.reclaiming();
            let mut links = self.links(zero);
            let awaited = client::awaits_report(&mut links, files, to);
            if let Some((rank, ino)) = awaited
                && let Some(from) = links.to(rank)
            {
                // Other files are not held up by this one.
                drop(reclaiming);
                from.await_reports(ino);
                continue;
            }
            let result = act(&mut links);
            link.send_pending();
            drop(reclaiming);
            return Ok(result);
        }
    }

    /// A server said that these files moved to a rank.
    fn follow(self: &Arc<Self>, zero: &Arc<Link>, to: Rank, files: &[Ino]) -> Result<()> {
        self.carry(zero, to, files, |links| {
            self.note_moved(files, to);
            client::follow(links, files, to);
        })
    }
}

/// Carries the moves that one server reports, in this order, on a thread of its own: the receiving
/// server may be away for a while, and other notices arrive during that.
pub(super) struct Reclaimer {
    ranks: Arc<Ranks>,
    zero: Arc<Link>,
    thread: Option<Sender<(Rank, Vec<Ino>)>>,
}

impl Reclaimer {
    pub(super) fn new(ranks: &Arc<Ranks>, zero: &Arc<Link>) -> Self {
        Self { ranks: ranks.clone(), zero: zero.clone(), thread: None }
    }

    /// After a failure, the next request for the file reports it.
    pub(super) fn follow(&mut self, to: Rank, files: Vec<Ino>) {
        if self.thread.is_none() {
            let (sender, receiver) = mpsc::channel::<(Rank, Vec<Ino>)>();
            let (ranks, zero) = (self.ranks.clone(), self.zero.clone());
            let work = move || {
                for (to, files) in receiver {
                    let _ = ranks.follow(&zero, to, &files);
                }
            };
            self.thread = super::links::start(self.zero.cluster(), "cudele-carry", work)
                .is_ok()
                .then_some(sender);
        }
        if let Some(thread) = &self.thread {
            let _ = thread.send((to, files));
        }
    }
}

impl Fs {
    /// Calls `act` with the session that has a file open; if none has, with the session of the rank
    /// that serves it.
    pub(crate) fn at_holder<R>(&self, ino: Ino, act: impl FnOnce(&Arc<Link>) -> R) -> R {
        let link = self.link_of(ino);
        if self.ranks.others().is_empty() {
            return act(&link);
        }
        let reclaiming = self.ranks.reclaiming();
        let mut links = self.ranks.links(&self.link);
        let rank = client::holder(&mut links, ino, link.rank());
        let result = act(links.to(rank).unwrap_or(&link));
        drop(reclaiming);
        result
    }

    /// A rank serves a file: the open state of other sessions follows, unless the move was
    /// reported. Returns whether there was any.
    pub(super) fn reclaim_found(&self, ino: Ino, rank: Rank) -> bool {
        if !client::is_elsewhere(&mut self.ranks.links(&self.link), ino, rank) {
            return false;
        }
        let carried = self.ranks.carry(&self.link, rank, &[ino], |links| {
            self.ranks.set_place(ino, rank);
            client::reclaim(links, ino, rank)
        });
        // A request to an unreachable rank returns the error.
        carried.unwrap_or_default()
    }
}
