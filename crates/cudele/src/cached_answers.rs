//! The answers of servers that a listening client ([`Fs::listen`]) keeps, and need not ask for
//! again.

use client::{named, second};
use types::{Cred, Errno, Ino, Result};
use wire::{Answer, Op, ReadOp};

use crate::Fs;
use crate::fs::unexpected;
use crate::link::Link;

/// Names of a directory that are asked for at a time.
const LIST_PAGE: u32 = 4096;

impl Fs {
    /// The number of questions that this client answered itself.
    #[must_use]
    pub fn answered_here(&self) -> u64 {
        let others = self.ranks.others();
        self.link().lock().known + others.iter().map(|link| link.lock().known).sum::<u64>()
    }

    /// Makes a request to one rank.
    pub(crate) fn request_of(&self, link: &Link, cred: &Cred, op: Op<'_>) -> Result<Answer> {
        let answer = link.request(cred, op, &[]);
        if answer.as_ref().is_err_and(|error| error.errno == Errno::Stale) {
            let mut state = link.lock();
            named(&op).into_iter().chain(second(&op)).for_each(|ino| state.session.ask_for(ino));
        }
        let Op::Read(ReadOp::Lookup { parent, .. }) = op else { return answer };
        if answer.as_ref().is_err_and(|error| error.errno == Errno::NotFound)
            && link.lock().session.is_worth_listing(parent)
        {
            // If that is refused, names are asked for one by one as before.
            let _ = learn_names(link, cred, parent);
        }
        answer
    }
}

/// Reads all names of a directory, for the session to remember.
fn learn_names(link: &Link, cred: &Cred, dir: Ino) -> Result<()> {
    let mut after: Option<Vec<u8>> = None;
    loop {
        let op =
            Op::Read(ReadOp::List { dir, after: after.as_deref(), limit: LIST_PAGE, attrs: false });
        let answer = link.request(cred, op, &[])?;
        let Answer::Entries { entries, more } = answer else { return Err(unexpected(&answer)) };
        after = entries.into_iter().last().map(|(name, _)| name);
        if !more || after.is_none() {
            return Ok(());
        }
    }
}
