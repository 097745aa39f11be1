//! The purge queue: data objects of removed files, and objects of removed directories.
//!
//! The content of a file is deleted as soon as the removal is durable in the journal and no client
//! has the file open. Other objects are deleted when the metadata store shows the removal: a
//! removal that is not journalled may be lost in a crash, and a replay may read a removed
//! directory.
//!
//! The queue survives a crash. Until a directory is written without the removed name, a replay
//! finds the inode again (`recovered`). Before such a directory is written, the server writes a
//! list of the inodes in the queue ([`Removal`]), and deletes the list when the last of them is
//! purged.
//!
//! Invariants:
//! * an inode on a list is durably removed;
//! * while a snapshot is taken, no content is deleted because of the journal alone: the snapshot
//!   may show a directory that still has the name.

mod merged;
mod recovered;
mod room;
mod validate;

use std::collections::{BTreeMap, VecDeque};

use metastore::request::{Condition, StoreFailure, StoreOp, StoreResult};
use metastore::{REMOVALS_MAX, Removal, removals_name};
use namespace::{FreedInode, Namespace};
use types::{Ino, Moment, Rank, Seq, Span};

use crate::checkpoint::Checkpoint;
use crate::damage::Damage;
use crate::log::Log;
use crate::merge::Merges;
use crate::opens::Opens;
use crate::store::{StoreOps, Waiting};
use crate::tables::Tables;
use crate::{Counters, MdsEffects, Phase, Settings};

use merged::MergedAway;
use recovered::Recovered;
use room::Room;
pub(crate) use room::RoomWork;

/// Inodes that are purged at the same time.
const DELETING_MAX: usize = 64;
const RETRY: Span = Span::from_millis(500);

/// A store operation of the purge queue.
#[derive(Debug)]
pub(crate) enum Task {
    /// Delete the objects of a removed inode.
    Delete(Ino),
    /// Write a list.
    List(u64),
    /// Name the lists of earlier terms.
    ReadNames,
    /// Read one of them.
    Read(String),
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Purges {
    all: BTreeMap<Ino, Entry>,
    /// Files whose content is deleted when the journal is durable, in the order of removal.
    soon: VecDeque<Ino>,
    /// Inodes that wait until the metadata store shows the removal, and inodes of which it does.
    later: VecDeque<Ino>,
    shown: VecDeque<Ino>,
    /// Inodes with a removal in the journal that are on no list.
    unlisted: VecDeque<Ino>,
    lists: BTreeMap<u64, List>,
    next_list: u64,
    /// The list that is being written.
    writing: Option<u64>,
    /// When the last write of a list failed; `None` after one that succeeded.
    unwritten: Option<Moment>,
    deleting: usize,
    retries: VecDeque<(Ino, Moment)>,
    recovered: Recovered,
    merged: MergedAway,
    room: Room,
}

#[derive(Debug)]
struct Entry {
    freed: FreedInode,
    /// The newest event when it was removed.
    seq: Seq,
    /// The removal is in the journal or in the metadata store.
    certain: bool,
    /// The content is deleted before the metadata store shows the removal.
    soon: bool,
    /// The lists with this inode, written or being written.
    lists: Vec<u64>,
}

/// A list in the store.
#[derive(Debug)]
struct List {
    name: String,
    /// Inodes on the list that are not purged.
    left: usize,
    stored: bool,
}

fn removal_of(freed: &FreedInode) -> Removal {
    let FreedInode { ino, is_dir, size, stripe, .. } = *freed;
    if is_dir {
        return Removal::Directory { ino };
    }
    Removal::File { ino, pool: stripe.pool(), stripes: stripe.count(size) }
}

impl Purges {
    /// How many removed inodes may have objects in the store.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// How many inodes wait for the store to delete their objects.
    pub(crate) fn queued(&self) -> usize {
        self.soon.len() + self.shown.len()
    }

    /// Whether no inode waits to be purged.
    fn is_at_rest(&self) -> bool {
        self.soon.is_empty() && self.later.is_empty() && self.shown.is_empty()
    }

    /// Whether the server may stop: every inode that is left is on a list.
    pub(crate) fn is_idle(&self) -> bool {
        let listed = self.unlisted.is_empty() || self.unwritten.is_some();
        self.is_at_rest()
            && self.retries.is_empty()
            && self.deleting == 0
            && self.writing.is_none()
            && listed
    }

    fn add(&mut self, freed: FreedInode, seq: Seq, journalled: bool) {
        let (certain, soon) = (journalled, journalled && !freed.is_dir);
        let lists = Vec::new();
        let entry = Entry { freed, seq, certain, soon, lists };
        if self.all.insert(freed.ino, entry).is_none() && certain {
            self.unlisted.push_back(freed.ino);
        }
    }

    /// Queues an inode that no client has open.
    fn queue(&mut self, ino: Ino) {
        match self.all.get(&ino) {
            Some(entry) if entry.soon => self.soon.push_back(ino),
            Some(_) => self.later.push_back(ino),
            None => {}
        }
    }

    /// Queues a file without a name that its last client has closed.
    pub(crate) fn queue_closed(&mut self, freed: FreedInode) {
        self.queue(freed.ino);
    }

    /// Notes an inode that lost its last name; `journalled` is whether the journal of the namespace
    /// has the event, at `seq`.
    pub(crate) fn note_freed(
        &mut self,
        freed: FreedInode,
        is_open: bool,
        seq: Seq,
        journalled: bool,
        now: Moment,
    ) {
        self.room.note(&freed, journalled, now);
        if is_open || freed.is_stored {
            self.add(freed, seq, journalled);
        }
        if !is_open && freed.is_stored {
            self.queue(freed.ino);
        }
    }

    /// Queues inodes again that could not be purged.
    pub(crate) fn retry(&mut self, now: Moment) {
        while self.retries.front().is_some_and(|(_, at)| now.since(*at) >= RETRY)
            && let Some((ino, _)) = self.retries.pop_front()
        {
            self.queue(ino);
        }
    }

    fn is_listed(&self, ino: Ino) -> bool {
        self.all.get(&ino).is_some_and(|entry| self.is_on_stored_list(entry))
    }

    fn is_on_stored_list(&self, entry: &Entry) -> bool {
        let stored = |list: &u64| self.lists.get(list).is_some_and(|list| list.stored);
        entry.lists.iter().any(stored)
    }

    /// Takes the inodes for a new list, if one that was removed up to `needed` is on none. `safe`
    /// is the durable position of the journal.
    fn take_unlisted(&mut self, needed: Seq, safe: Seq) -> Vec<Ino> {
        let mut taken = Vec::new();
        while taken.len() < REMOVALS_MAX
            && let Some(ino) = self.unlisted.front()
        {
            let last = if taken.is_empty() { needed.min(safe) } else { safe };
            match self.all.get(ino) {
                // A list of an earlier term has the inode.
                Some(entry) if self.is_on_stored_list(entry) => {}
                Some(entry) if entry.seq > last => break,
                Some(_) => taken.push(*ino),
                // The inode is purged.
                None => {}
            }
            self.unlisted.pop_front();
        }
        taken
    }

    /// Whether every certainly removed inode up to this position is purged or on a stored list.
    fn are_listed(&mut self, seq: Seq) -> bool {
        while let Some(ino) = self.unlisted.front()
            && self.all.get(ino).is_none_or(|entry| self.is_on_stored_list(entry))
        {
            self.unlisted.pop_front();
        }
        let next = self.unlisted.front().and_then(|ino| self.all.get(ino));
        self.writing.is_none() && next.is_none_or(|entry| entry.seq > seq)
    }

    /// Forgets an inode that has no objects any more. Returns the names of lists that are done.
    fn finish(&mut self, ino: Ino) -> Vec<String> {
        let Some(entry) = self.all.remove(&ino) else { return Vec::new() };
        for number in &entry.lists {
            if let Some(list) = self.lists.get_mut(number) {
                assert!(list.left > 0, "{ino} is counted on the list {number}");
                list.left -= 1;
            }
        }
        self.take_done(&entry.lists)
    }

    fn take_done(&mut self, numbers: &[u64]) -> Vec<String> {
        let mut names = Vec::new();
        for number in numbers {
            if self.lists.get(number).is_some_and(|list| list.stored && list.left == 0) {
                names.extend(self.lists.remove(number).map(|list| list.name));
            }
        }
        names
    }
}

/// The purge queue at work, with all that it may touch.
pub(crate) struct PurgeCx<'a> {
    pub(crate) purges: &'a mut Purges,
    pub(crate) opens: &'a mut Opens,
    pub(crate) namespace: &'a mut Namespace,
    pub(crate) checkpoint: &'a mut Checkpoint,
    pub(crate) store: &'a mut StoreOps,
    pub(crate) counters: &'a mut Counters,
    pub(crate) log: &'a Log,
    pub(crate) tables: &'a Tables,
    pub(crate) merges: &'a Merges,
    pub(crate) damage: &'a Damage,
    pub(crate) settings: &'a Settings,
    pub(crate) is_taking_snapshot: bool,
    pub(crate) phase: Phase,
    pub(crate) rank: Rank,
    pub(crate) now: Moment,
}

impl PurgeCx<'_> {
    /// The server works for the job of a branch.
    fn is_private(&self) -> bool {
        self.settings.private.is_some()
    }
}

impl PurgeCx<'_> {
    /// Writes a list of durably removed inodes, if one that was removed up to `needed` is on none.
    /// Returns whether the write of a directory must wait for the list.
    pub(crate) fn list_removals(&mut self, needed: Seq, effects: &mut MdsEffects) -> bool {
        if self.purges.writing.is_some() {
            return true;
        }
        if self.is_private() {
            return false;
        }
        let now = self.now;
        // A full store: directories are written without waiting for a list, because that makes
        // room.
        if self.purges.unwritten.is_some_and(|at| now.since(at) < RETRY) {
            return false;
        }
        let listed = self.purges.take_unlisted(needed, self.log.safe());
        if listed.is_empty() {
            return false;
        }
        assert!(listed.len() <= REMOVALS_MAX, "the length of a list is bounded");
        let number = self.purges.next_list;
        self.purges.next_list += 1;
        let name = removals_name(self.rank, self.tables.epoch(), number);
        let mut removals = Vec::with_capacity(listed.len());
        for ino in listed {
            if let Some(entry) = self.purges.all.get_mut(&ino) {
                entry.lists.push(number);
                removals.push(removal_of(&entry.freed));
            }
        }
        let list = List { name: name.clone(), left: removals.len(), stored: false };
        self.purges.lists.insert(number, list);
        self.purges.writing = Some(number);
        let (data, condition) = (Removal::encode_list(&removals), Condition::Any);
        let op = StoreOp::Put { object: name, data, condition };
        self.store.begin(Waiting::Purge(Task::List(number)), op, effects);
        self.purges.unwritten.is_none()
    }

    pub(crate) fn removals_listed(
        &mut self,
        number: u64,
        result: &Result<StoreResult, Box<StoreFailure>>,
        effects: &mut MdsEffects,
    ) {
        assert!(self.purges.writing == Some(number), "the list {number} was being written");
        self.purges.writing = None;
        if result.is_ok() {
            self.purges.unwritten = None;
            if let Some(list) = self.purges.lists.get_mut(&number) {
                list.stored = true;
            }
            let done = self.purges.take_done(&[number]);
            self.forget_lists(done, effects);
        } else {
            self.purges.unwritten = Some(self.now);
            self.purges.lists.remove(&number);
            let on_it = self.purges.all.iter_mut().filter(|(_, it)| it.lists.contains(&number));
            let mut again = Vec::new();
            for (ino, entry) in on_it {
                entry.lists.retain(|list| *list != number);
                again.push((entry.seq, *ino));
            }
            // The oldest removal is listed first.
            again.sort_unstable();
            again.iter().rev().for_each(|(_, ino)| self.purges.unlisted.push_front(*ino));
        }
    }

    fn forget_lists(&mut self, objects: Vec<String>, effects: &mut MdsEffects) {
        if !objects.is_empty() {
            self.checkpoint.forget(self.store, StoreOp::Delete { objects }, effects);
        }
    }

    /// Purges the inodes that may be purged. Called on every tick and after every store operation.
    pub(crate) fn step(&mut self, effects: &mut MdsEffects) {
        if !matches!(self.phase, Phase::Active | Phase::Stopping) {
            return;
        }
        self.take_recovered(effects);
        self.queue_merged_away();
        if !self.purges.is_at_rest() {
            self.purge_queued(effects);
        }
        // Also an inode that is not queued yet is listed: the next server finds no journal.
        if self.phase == Phase::Stopping {
            self.list_removals(self.log.safe(), effects);
        }
    }

    fn purge_queued(&mut self, effects: &mut MdsEffects) {
        let safe = self.log.safe();
        while self.purges.deleting < DELETING_MAX
            && !self.is_taking_snapshot
            && let Some(ino) = self.purges.soon.front().copied()
            && self.purges.all.get(&ino).is_none_or(|entry| entry.seq <= safe)
        {
            self.purges.soon.pop_front();
            self.delete_removed(ino, effects);
        }
        self.purge_shown(effects);
    }

    /// Purges inodes whose removal the metadata store shows. They are listed first, because no
    /// replay finds them again.
    fn purge_shown(&mut self, effects: &mut MdsEffects) {
        if !self.purges.later.is_empty() {
            let unwritten = self.checkpoint.oldest_unwritten(self.namespace);
            while let Some(ino) = self.purges.later.front().copied() {
                if let Some(entry) = self.purges.all.get_mut(&ino) {
                    if entry.seq >= unwritten {
                        break;
                    }
                    if !std::mem::replace(&mut entry.certain, true) {
                        self.purges.unlisted.push_back(ino);
                    }
                }
                self.purges.later.pop_front();
                self.purges.shown.push_back(ino);
            }
        }
        let private = self.is_private();
        while self.purges.deleting < DELETING_MAX
            && let Some(ino) = self.purges.shown.front().copied()
        {
            let free = private || self.purges.unwritten.is_some() || self.purges.is_listed(ino);
            if !free && self.purges.all.contains_key(&ino) {
                self.list_removals(self.log.safe(), effects);
                return;
            }
            self.purges.shown.pop_front();
            self.delete_removed(ino, effects);
        }
    }

    fn delete_removed(&mut self, ino: Ino, effects: &mut MdsEffects) {
        let Some(freed) = self.purges.all.get(&ino).map(|entry| entry.freed) else { return };
        if self.namespace.has_name(ino) {
            // A repeated merge has created the inode again.
            let done = self.purges.finish(ino);
            return self.forget_lists(done, effects);
        }
        // After a restart, a client may have reported the file as open by now.
        if !freed.is_dir && self.opens.keep(freed) {
            return;
        }
        assert!(self.purges.deleting < DELETING_MAX, "the number of running purges is bounded");
        self.purges.deleting += 1;
        let op = match removal_of(&freed) {
            Removal::Directory { ino } => StoreOp::PurgeDir { ino },
            Removal::File { ino, pool, stripes } => StoreOp::PurgeData { ino, pool, stripes },
        };
        self.store.begin(Waiting::Purge(Task::Delete(ino)), op, effects);
    }

    pub(crate) fn purged(
        &mut self,
        ino: Ino,
        result: &Result<StoreResult, Box<StoreFailure>>,
        effects: &mut MdsEffects,
    ) {
        assert!(self.purges.deleting > 0, "{ino} was being purged");
        self.purges.deleting -= 1;
        if result.is_err() {
            return self.purges.retries.push_back((ino, self.now));
        }
        self.counters.purged += 1;
        let done = self.purges.finish(ino);
        self.forget_lists(done, effects);
    }
}

#[cfg(test)]
mod tests;
