//! A client's machine: its disk, with the files that its processes left there.
//!
//! Invariant: synced data exists until the disk is gone; unsynced data exists as long as the
//! machine has power.

use std::collections::BTreeMap;

use types::{ClientId, Epoch, Ino, InoRange, Seq};

use policy::Cell;
use types::rng::Rng;

/// A machine's notes about a subtree that it owns, or owned.
#[derive(Clone, Debug)]
pub(super) struct Owner {
    pub(super) client: ClientId,
    pub(super) ranges: Vec<InoRange>,
    pub(super) epoch: Epoch,
    pub(super) policy: Cell,
    pub(super) next_seq: Seq,
    /// Events before it may have been merged from journals that are gone.
    pub(super) reached: Seq,
    pub(super) last_ino: Ino,
    /// Set when the work is done: the term in which it was merged last.
    pub(super) merged_in: Option<Epoch>,
    pub(super) empty: bool,
    /// Journal objects that are not merged.
    pub(super) objects: Vec<String>,
    /// Journal objects of a client whose work was taken over.
    pub(super) adopted: Vec<String>,
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
