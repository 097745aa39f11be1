//! Open files and locks of this client follow a file to another rank (F-13). The giving rank
//! reports the move, or the receiving one does; the receiving rank then gets the open files, as a
//! restarted server does.

use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, MutexGuard, PoisonError};

use types::{Ino, Rank, Result};

use super::Ranks;
use crate::Fs;
use crate::link::Link;

impl Ranks {
    /// While this is held, nothing is between two sessions.
    fn reclaiming(&self) -> MutexGuard<'_, ()> {
        self.reclaiming.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The links whose sessions have a file open, except the link to one rank. `zero` is the link
    /// to rank 0.
    fn holders(&self, zero: &Arc<Link>, ino: Ino, but: Option<Rank>) -> Vec<Arc<Link>> {
        let mut links = self.others();
        links.push(zero.clone());
        links.retain(|link| Some(link.rank()) != but && link.lock().session.has(ino));
        links
    }

    /// Reports to the rank that serves these files which of them other sessions have open, and that
    /// the rest is not open any more. Returns whether another session had one.
    fn reclaim(self: &Arc<Self>, zero: &Arc<Link>, to: Rank, files: &[Ino]) -> Result<bool> {
        let link = self.link_to(zero, to)?;
        link.be_connected()?;
        let reclaiming = self.reclaiming();
        let mut is_any = false;
        for ino in files {
            self.set_place(*ino, to);
            let from = self.holders(zero, *ino, Some(to));
            for from in &from {
                let state = from.take_out(*ino);
                is_any |= !state.is_empty();
                link.put_in(*ino, Some(state));
            }
            if from.is_empty() {
                link.put_in(*ino, None);
            }
        }
        link.send_pending();
        drop(reclaiming);
        Ok(is_any)
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
    pub(super) fn reclaim(&mut self, to: Rank, files: Vec<Ino>) {
        if self.thread.is_none() {
            let (sender, receiver) = mpsc::channel::<(Rank, Vec<Ino>)>();
            let (ranks, zero) = (self.ranks.clone(), self.zero.clone());
            let work = move || {
                for (to, files) in receiver {
                    let _ = ranks.reclaim(&zero, to, &files);
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
        let is_here = link.lock().session.has(ino);
        let holders = if is_here { Vec::new() } else { self.ranks.holders(&self.link, ino, None) };
        let result = act(holders.first().unwrap_or(&link));
        drop(reclaiming);
        result
    }

    /// A rank serves a file: the open state of other sessions follows, unless the move was
    /// reported. Returns whether there was any.
    pub(super) fn reclaim_found(&self, ino: Ino, rank: Rank) -> bool {
        let is_any = !self.ranks.holders(&self.link, ino, Some(rank)).is_empty();
        // A request to an unreachable rank returns the error.
        is_any && self.ranks.reclaim(&self.link, rank, &[ino]).unwrap_or_default()
    }
}
