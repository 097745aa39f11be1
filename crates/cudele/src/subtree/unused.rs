//! Inode numbers that a client has not used: they go back with its subtree, and others get them.
//!
//! So a client names only numbers that nobody has used: not this process, no journal of an earlier
//! one, no other process that has the subtree at the same time, and no content that one wrote which
//! did not come to its end. From then on it does not use them itself, also where the subtree stays
//! its own because the merge failed. Invariant: its disk, if it says anything, says so before the
//! server hears of it.

use std::sync::atomic::Ordering;

use types::{InoRange, Result};
use wire::Unused;

use super::Subtree;
use crate::Owner;
use crate::state::Share;

impl Subtree {
    /// Records on this machine that it owns the subtree, so that a later process can go on.
    ///
    /// # Errors
    /// `EIO`, `ENOSPC`.
    pub fn remember(&self) -> Result<()> {
        self.write_owner(self.exact)
    }

    fn write_owner(&self, exact: bool) -> Result<()> {
        if self.share.get().is_none() {
            // Who was quicker has the same directory.
            let _ = self.share.set(Share::new(&self.state)?);
        }
        let used = self.inner.last_taken().0;
        let reached = self.inner.next_seq().0;
        self.state.set_owner(&Owner { used, exact, reached, ..self.owner.clone() })?;
        self.content_noted.store(!exact, Ordering::Relaxed);
        Ok(())
    }

    /// Content is about to be written to the object store for a number that no journal has yet.
    /// Should this process end before one has it, it must be known that there may be such: nobody is
    /// to get that number and find the content. For callers that write content themselves.
    ///
    /// # Errors
    /// `EIO`, `ENOSPC`: nothing may be written then.
    pub fn note_content(&self) -> Result<()> {
        if self.share.get().is_none() || self.content_noted.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.write_owner(false)
    }

    /// What was appended is about to be merged: a later process must not use its numbers again. From
    /// the journals on this disk it would know them.
    pub(super) fn note_used(&self) -> Result<()> {
        if self.share.get().is_none() || self.policy.contains(policy::Mechanism::LocalPersist) {
            return Ok(());
        }
        self.remember()
    }

    /// Gives up the numbers that are left, if nobody else can have used them.
    pub(super) fn give_up_unused(&mut self) -> Result<()> {
        if !self.exact {
            return Ok(());
        }
        let Some(share) = self.share.take() else {
            // No other process knows of the subtree.
            self.owner.unused.extend(pairs(self.inner.give_up()));
            return Ok(());
        };
        let done = share.if_alone(|| {
            self.owner.unused.extend(pairs(self.inner.give_up()));
            let (used, reached) = (self.inner.last_taken().0, self.inner.next_seq().0);
            self.state.set_owner(&Owner { used, exact: true, reached, ..self.owner.clone() })
        });
        let _ = self.share.set(share);
        done
    }

    /// The numbers that were given up, as the server is told.
    pub(super) fn unused(&self) -> Vec<u8> {
        Unused::encode(&self.owner.unused().collect::<Vec<_>>())
    }
}

fn pairs(ranges: Vec<InoRange>) -> impl Iterator<Item = (u64, u64)> {
    ranges.into_iter().map(|range| (range.start, range.end))
}
