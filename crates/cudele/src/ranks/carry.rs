//! What this client has open, or locked, follows the file when another rank serves it (F-13): the rank that gave it away
//! says so, or the other one, which is told what there is, as a server is that was restarted.

use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, MutexGuard, PoisonError};

use types::{Ino, Rank, Result};

use super::Ranks;
use crate::Fs;
use crate::link::Link;

impl Ranks {
    /// While this is held, nothing is between two sessions.
    fn carrying(&self) -> MutexGuard<'_, ()> {
        self.carrying.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The links in whose sessions a file is open, but that to one rank. `zero` is the link to rank 0.
    fn holders(&self, zero: &Arc<Link>, ino: Ino, but: Option<Rank>) -> Vec<Arc<Link>> {
        let mut links = self.others();
        links.push(zero.clone());
        links.retain(|link| Some(link.rank()) != but && link.lock().session.has(ino));
        links
    }

    /// Has what is open of files in other sessions told to the rank that serves them; and of those that are in none,
    /// that they are not open any more.
    fn carry(self: &Arc<Self>, zero: &Arc<Link>, (to, files): (Rank, &[Ino])) -> Result<()> {
        let link = self.link_to(zero, to)?;
        link.be_connected()?;
        let carrying = self.carrying();
        for ino in files {
            self.set_place(*ino, to);
            let from = self.holders(zero, *ino, Some(to));
            from.iter().for_each(|from| link.put_in(*ino, Some(from.take_out(*ino))));
            if from.is_empty() {
                link.put_in(*ino, None);
            }
        }
        link.tell();
        drop(carrying);
        Ok(())
    }
}

/// Carries what one server says has moved, in this order, on a thread of its own: who serves it now may be away for a
/// while, and others are heard meanwhile.
pub(super) struct Carrier {
    ranks: Arc<Ranks>,
    zero: Arc<Link>,
    thread: Option<Sender<(Rank, Vec<Ino>)>>,
}

impl Carrier {
    pub(super) fn new(ranks: &Arc<Ranks>, zero: &Arc<Link>) -> Self {
        Self { ranks: ranks.clone(), zero: zero.clone(), thread: None }
    }

    /// What cannot be told now is told when the file is asked for.
    pub(super) fn carry(&mut self, to: Rank, files: Vec<Ino>) {
        if self.thread.is_none() {
            let (told, hears) = mpsc::channel::<(Rank, Vec<Ino>)>();
            let (ranks, zero) = (self.ranks.clone(), self.zero.clone());
            let carry = move || {
                for (to, files) in hears {
                    let _ = ranks.carry(&zero, (to, &files));
                }
            };
            self.thread = super::links::start("cudele-carry", carry).is_ok().then_some(told);
        }
        if let Some(thread) = &self.thread {
            let _ = thread.send((to, files));
        }
    }
}

impl Fs {
    /// Does something with the session in which a file is open; if it is in none, with that of whoever serves it.
    pub(crate) fn at_holder<R>(&self, ino: Ino, act: impl FnOnce(&Arc<Link>) -> R) -> R {
        let link = self.link_of(ino);
        if self.ranks.others().is_empty() {
            return act(&link);
        }
        let carrying = self.ranks.carrying();
        let is_here = link.lock().session.has(ino);
        let holders = if is_here { Vec::new() } else { self.ranks.holders(&self.link, ino, None) };
        let result = act(holders.first().unwrap_or(&link));
        drop(carrying);
        result
    }

    /// A file was found on another rank than was thought: what is open of it goes there, if nobody has said so.
    pub(super) fn carry_found(&self, ino: Ino, rank: Rank) {
        if !self.ranks.holders(&self.link, ino, Some(rank)).is_empty() {
            // If it cannot be reached, whoever asks it is told.
            let _ = self.ranks.carry(&self.link, (rank, &[ino]));
        }
    }
}
