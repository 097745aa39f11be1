//! Inode numbers that a client has not used: they return with its subtree, for other clients.
//!
//! A client returns only numbers that are unused: by this process, by the journals of earlier ones,
//! by other processes that have the subtree, and by the content of interrupted writes. Afterwards
//! it does not use them itself, also if the subtree stays decoupled because the merge failed.
//! Invariant: its disk, if it keeps state there, records the return before the server learns of it.

use std::sync::atomic::Ordering;

use types::Result;
use wire::UnusedNumbers;

use super::Subtree;
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
            // A faster thread has set the same directory.
            let _ = self.share.set(Share::new(&self.state)?);
        }
        self.state.set_owner(&self.owner.with(self.job.present_note(), exact))?;
        self.content_noted.store(!exact, Ordering::Relaxed);
        Ok(())
    }

    /// For callers that write content themselves: records that content is about to be written to
    /// the object store for a number that no journal has yet. If this process ends before a journal
    /// has it, no other client may get the number and find the content.
    ///
    /// # Errors
    /// `EIO`, `ENOSPC`: nothing may be written then.
    pub fn note_content(&self) -> Result<()> {
        if self.share.get().is_none() || self.content_noted.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.write_owner(false)
    }

    /// The pending events are about to be merged: a later process must not use their numbers, which
    /// it knows only from journals on this disk.
    pub(super) fn note_used(&self) -> Result<()> {
        if self.share.get().is_none() || self.job.policy.contains(policy::Mechanism::LocalPersist) {
            return Ok(());
        }
        self.remember()
    }

    /// Gives up the remaining numbers, if no other process can have used them.
    pub(super) fn give_up_unused(&mut self) -> Result<()> {
        if !self.exact {
            return Ok(());
        }
        let Some(share) = self.share.take() else {
            // No other process knows of the subtree.
            self.job.note.unused.extend(self.job.inner.give_up());
            return Ok(());
        };
        let done = share.if_sole_user(|| {
            self.job.note.unused.extend(self.job.inner.give_up());
            self.state.set_owner(&self.owner.with(self.job.present_note(), true))
        });
        let _ = self.share.set(share);
        done
    }

    /// The numbers that were given up, encoded for the server.
    pub(super) fn unused(&self) -> Vec<u8> {
        UnusedNumbers::encode(&self.job.note.unused)
    }
}
