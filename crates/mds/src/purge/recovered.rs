//! Recovery of the purge queue: removed inodes that the replay finds, and inodes on lists of
//! earlier terms.
//!
//! The records of a merge name the inodes that the merge removed. Other removed inodes are found by
//! two signs: an event takes a name from the inode, and the replay ends without the inode.
//!
//! Clients report removed files that they have open when they reconnect, so nothing is purged
//! before the time for that is over.

use std::collections::BTreeMap;

use journal::{Event, Loss};
use metastore::request::{StoreFailure, StoreOp, StoreResult};
use metastore::{Removal, parse_removals_name, removals_prefix};
use namespace::{FreedInode, Namespace};
use types::{Ino, Moment, Seq, Set, Stripe};

use super::merged::{named, removed_in};
use super::{List, PurgeCx, Purges, Task};
use crate::store::Waiting;
use crate::{MdsEffects, Phase};

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Recovered {
    /// Inodes that lost a name by an event of the journal.
    unnamed: Set<Ino>,
    /// Inodes that a record of a merge names as removed, and the position of the record.
    merged: BTreeMap<Ino, (FreedInode, Seq)>,
    /// Inodes to be queued when the time for reconnecting is over.
    waiting: Vec<Ino>,
    /// Removed files without content: a client that has one open may have written since.
    empty: Vec<FreedInode>,
    /// The end of the time for reconnecting.
    until: Option<Moment>,
    /// Lists to be read.
    names: Vec<String>,
    reading: bool,
}

#[cfg(test)]
impl Recovered {
    /// A recovery without lists.
    pub(super) fn done() -> Self {
        Self { until: Some(Moment(0)), ..Self::default() }
    }
}

impl Purges {
    /// Notes the inodes that a replayed event removes, or from which it takes a name.
    pub(crate) fn replayed(&mut self, seq: Seq, event: &Event<'_>) {
        // The inode has a name now, here or in a directory of another rank.
        for ino in named(event).into_iter().flatten() {
            self.recovered.unnamed.remove(&ino);
            self.recovered.merged.remove(&ino);
        }
        self.recovered.unnamed.extend(unnamed(event));
        if let Event::Merged { losses, .. } = event {
            let removed = Loss::all(losses).filter_map(|loss| removed_in(&loss));
            self.recovered.merged.extend(removed.map(|freed| (freed.ino, (freed, seq))));
        }
    }

    /// Takes over a list of an earlier term.
    pub(super) fn take_list(&mut self, name: String, removals: &[Removal], last: Seq) {
        let number = self.next_list;
        self.next_list += 1;
        let list = List { name, left: removals.len(), stored: true };
        let before = self.lists.insert(number, list);
        assert!(before.is_none(), "the number {number} is of one list");
        for removal in removals {
            let ino = removal.ino();
            if !self.all.contains_key(&ino) {
                self.add(freed_of(removal), last, true);
                self.recovered.waiting.push(ino);
            }
            if let Some(entry) = self.all.get_mut(&ino) {
                entry.lists.push(number);
            }
        }
    }
}

/// The inode from which an event takes a name.
fn unnamed(event: &Event<'_>) -> Option<Ino> {
    match *event {
        Event::Unlink { ino, .. }
        | Event::Rmdir { ino, .. }
        | Event::Rename { replaced: ino, .. } => Some(ino).filter(|ino| ino.0 != 0),
        Event::Create(_)
        | Event::Link { .. }
        | Event::SetAttr { .. }
        | Event::SetXattr { .. }
        | Event::SetData { .. }
        | Event::SetPolicy { .. }
        | Event::Session { .. }
        | Event::Merged { .. }
        | Event::Stored { .. } => None,
    }
}

/// Whether an inode that a merge removed has a name again. A name in a directory that the merge
/// removed, too, does not count: a replay has not all names of such a directory, so it leaves
/// inodes below it in memory.
fn is_named_again(
    namespace: &Namespace,
    merged: &BTreeMap<Ino, (FreedInode, Seq)>,
    ino: Ino,
) -> bool {
    let mut at = ino;
    // Directories in a circle have no name that a path reaches.
    for _ in 0..=merged.len() {
        if !namespace.has_name(at) {
            return false;
        }
        match namespace.home_of(at).filter(|home| merged.contains_key(home)) {
            None => return true,
            Some(home) => at = home,
        }
    }
    false
}

pub(super) fn freed_of(removal: &Removal) -> FreedInode {
    let (ino, is_stored) = (removal.ino(), true);
    match *removal {
        Removal::Directory { .. } => {
            FreedInode { ino, is_dir: true, size: 0, stripe: Stripe::default(), is_stored }
        }
        Removal::File { pool, stripes, .. } => {
            let stripe = Stripe::DEFAULT.in_pool(pool);
            let size = stripes.saturating_mul(stripe.bytes());
            FreedInode { ino, is_dir: false, size, stripe, is_stored }
        }
    }
}

impl PurgeCx<'_> {
    /// Takes the inodes that the journal removed, of which the replay found `freed` without a name.
    /// The newest event is `last`.
    pub(crate) fn recover_removed(&mut self, freed: Vec<FreedInode>, last: Seq) {
        let unnamed = std::mem::take(&mut self.purges.recovered.unnamed);
        let merged = std::mem::take(&mut self.purges.recovered.merged);
        if self.is_private() {
            return;
        }
        let is_gone = |ino: &Ino| !is_named_again(self.namespace, &merged, *ino);
        let gone: Vec<Ino> = merged.keys().copied().filter(is_gone).collect();
        for ino in gone {
            let (freed, record) = merged[&ino];
            self.purges.merged.hold_named(freed, record);
            self.namespace.forget_removed(ino);
        }
        if self.damage.withheld(Ino::LINKS).is_some() {
            // A file without a name in memory may have one that the damaged directory counts. The
            // journal is kept, so the recovery after a repair finds the removed files again.
            return;
        }
        let may_continue = self.merges.may_continue();
        for freed in freed {
            let ino = freed.ino;
            if !unnamed.contains(&ino) || self.purges.merged.holds(ino) {
                continue;
            }
            if !freed.is_stored {
                self.purges.recovered.empty.push(freed);
            } else if may_continue {
                // The interrupted merge may have removed the inode.
                self.purges.merged.hold(freed, last, true);
            } else {
                self.purges.add(freed, last, true);
                self.purges.recovered.waiting.push(ino);
            }
        }
    }

    /// Queues an inode, if clients have had the time to report it as open.
    pub(super) fn queue_recovered(&mut self, ino: Ino) {
        let now = self.now;
        if self.is_private() || self.purges.recovered.until.is_some_and(|until| now >= until) {
            self.purges.queue(ino);
        } else {
            self.purges.recovered.waiting.push(ino);
        }
    }

    /// Begins to read the lists of earlier terms, and queues the recovered inodes when the time for
    /// reconnecting is over.
    pub(super) fn take_recovered(&mut self, effects: &mut MdsEffects) {
        if self.phase != Phase::Active || self.is_private() {
            return;
        }
        let Some(until) = self.purges.recovered.until else {
            self.purges.recovered.until = Some(self.now + self.settings.reconnect);
            self.purges.recovered.reading = true;
            let prefix = removals_prefix(self.rank);
            self.store.begin(Waiting::Purge(Task::ReadNames), StoreOp::List { prefix }, effects);
            return;
        };
        let recovered = &mut self.purges.recovered;
        let nothing = recovered.waiting.is_empty() && recovered.empty.is_empty();
        if nothing || recovered.reading || self.now < until {
            return;
        }
        for freed in std::mem::take(&mut recovered.empty) {
            if self.opens.keep(freed) {
                self.purges.add(freed, self.log.last(), true);
            }
        }
        for ino in std::mem::take(&mut self.purges.recovered.waiting) {
            self.purges.queue(ino);
        }
        self.purges.room.ask(self.now);
    }

    pub(crate) fn removals_found(&mut self, result: Result<StoreResult, Box<StoreFailure>>) {
        // After a failure, the next term reads the lists.
        if let Ok(StoreResult::Names(names)) = result {
            // The lists of this term are known.
            let epoch = self.tables.epoch();
            let is_old = |name: &String| {
                parse_removals_name(name).is_some_and(|(_, written, _)| written < epoch)
            };
            self.purges.recovered.names = names.into_iter().filter(is_old).rev().collect();
        }
    }

    pub(crate) fn removals_read(
        &mut self,
        name: String,
        result: Result<StoreResult, Box<StoreFailure>>,
    ) {
        // An unreadable list stays in the store, and `cudele fsck` reports it.
        if let Ok(StoreResult::Bytes(bytes, _)) = result
            && let Ok(removals) = Removal::decode_list(&name, &bytes)
        {
            self.purges.take_list(name, &removals, self.log.last());
        }
    }

    pub(crate) fn read_next_removals(&mut self, effects: &mut MdsEffects) {
        let Some(object) = self.purges.recovered.names.pop() else {
            self.purges.recovered.reading = false;
            return;
        };
        let task = Waiting::Purge(Task::Read(object.clone()));
        self.store.begin(task, StoreOp::Get { object }, effects);
    }
}
