//! A client's machine: its disk, with the files that its processes left there.
//!
//! Invariant: synced data exists until the disk is gone; unsynced data exists as long as the
//! machine has power.

use std::collections::BTreeMap;

use client::OwnerNote;
use types::{ClientId, Epoch, Seq};

use policy::Policy;
use types::rng::Rng;

/// A machine's notes about a subtree that it owns, or owned.
#[derive(Clone, Debug)]
pub(super) struct Owner {
    pub(super) note: OwnerNote,
    pub(super) policy: Policy,
}

/// A file, and the part of it that is on the medium.
#[derive(Clone, Debug, Default)]
pub(super) struct File {
    pub(super) written: Vec<u8>,
    synced: Vec<u8>,
}

impl File {
    pub(super) fn sync(&mut self) {
        self.synced = self.written.clone();
    }

    /// Only a part of the unsynced data had reached the medium.
    fn cut(&mut self, rng: &mut Rng) {
        let kept = rng.index(self.written.len() + 1);
        self.written.truncate(kept);
        if let Some(rest) = self.synced.get(kept..) {
            self.written.extend_from_slice(rest);
        }
        self.sync();
    }
}

/// A log of strong requests (`rpcs+local_persist`).
#[derive(Clone, Debug)]
pub(super) struct Log {
    /// The process that writes it, by its place among the clients.
    pub(super) process: usize,
    pub(super) client: ClientId,
    /// The term since which it is needed.
    pub(super) since: Epoch,
    pub(super) blocks: Vec<Vec<u8>>,
    /// The updates that they are, by their place in the ledger.
    pub(super) updates: Vec<usize>,
    /// How many of them are on the medium.
    pub(super) synced: usize,
}

/// See the module documentation.
#[derive(Clone, Debug, Default)]
pub(super) struct Machine {
    pub(super) owner: Option<Owner>,
    /// Journals, by the position of their first event.
    pub(super) journals: BTreeMap<Seq, File>,
    pub(super) logs: Vec<Log>,
}

impl Machine {
    /// The power fails.
    pub(super) fn cut(&mut self, rng: &mut Rng) {
        self.journals.values_mut().for_each(|file| file.cut(rng));
        for log in &mut self.logs {
            if rng.percent(50) {
                log.blocks.truncate(log.synced);
                log.updates.truncate(log.synced);
            }
            log.synced = log.blocks.len();
        }
    }

    /// Whether the noted work is merged.
    pub(super) fn is_merged(&self) -> bool {
        self.owner.as_ref().is_some_and(|owner| owner.note.merged_in.is_some())
    }

    /// Whether anything is noted of the subtree, or journalled.
    pub(super) fn has_files(&self) -> bool {
        self.owner.is_some() || !self.journals.is_empty()
    }

    /// Removes the notes about the subtree, and its journals; logs of requests stay.
    pub(super) fn forget(&mut self) {
        self.owner = None;
        self.journals.clear();
    }
}
