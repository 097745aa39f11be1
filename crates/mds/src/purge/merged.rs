//! Inodes that a merge removes.
//!
//! A merge may give a removed inode a name again: a create takes the name to which another client
//! moved the inode, and a later rename of the same journal moves the inode out of the way. So a
//! removal is certain when the merge ends. Until then the content is kept, and the inode is on no
//! list.
//!
//! The server writes the directories that the merge changes while the merge continues, and after a
//! crash a replay does not find the inode in them. So the records of the merge in the journal name
//! the inodes. A crash during a merge without records loses the purge.
//!
//! Invariant: a record that names a removed inode stays in the journal until the inode is purged or
//! on a list, except while no list can be written.

use std::collections::{BTreeMap, VecDeque};

use journal::{Event, Loss};
use metastore::Removal;
use namespace::{FreedInode, Namespace};
use types::{Ino, Moment, Seq};

use super::recovered::freed_of;
use super::{PurgeCx, Purges, removal_of};
use crate::MdsEffects;
use crate::opens::Opens;

/// Inodes that one record names: about a megabyte.
const NAMED_MAX: usize = 1 << 16;

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct MergedAway {
    /// Inodes that a merge under way removed.
    pub(super) held: BTreeMap<Ino, Held>,
    /// Those of them that the next record will name.
    unnamed: Vec<Ino>,
    /// The first record that names one of them.
    since: Option<Seq>,
    /// The same of merges that ended while their inodes were on no list, and when they ended.
    pub(super) unlisted: VecDeque<(Seq, Seq)>,
}

#[derive(Debug)]
pub(super) struct Held {
    pub(super) freed: FreedInode,
    /// The newest event when the inode was removed.
    seq: Seq,
    /// The journal has records of the merge.
    recorded: bool,
}

impl MergedAway {
    pub(super) fn holds(&self, ino: Ino) -> bool {
        self.held.contains_key(&ino)
    }

    pub(super) fn hold(&mut self, freed: FreedInode, seq: Seq, recorded: bool) {
        self.held.insert(freed.ino, Held { freed, seq, recorded });
        if recorded {
            self.unnamed.push(freed.ino);
        }
    }

    /// Holds an inode that a replayed record names.
    pub(super) fn hold_named(&mut self, freed: FreedInode, record: Seq) {
        assert!(record.0 > 0, "{}: a record is an event", freed.ino);
        self.held.insert(freed.ino, Held { freed, seq: record, recorded: true });
        self.note_record(record);
    }

    fn note_record(&mut self, record: Seq) {
        self.since = Some(self.since.map_or(record, |since| since.min(record)));
    }
}

/// The inodes to which an event gives a name, also a name of another rank.
pub(super) fn named(event: &Event<'_>) -> [Option<Ino>; 2] {
    match *event {
        Event::Rename { ref moved, ref exchanged, .. } => {
            [Some(moved.attr.ino), exchanged.as_ref().map(|back| back.attr.ino)]
        }
        Event::Create(ref create) => [Some(create.ino), None],
        Event::Link { ino, .. } => [Some(ino), None],
        Event::Unlink { .. }
        | Event::Rmdir { .. }
        | Event::SetAttr { .. }
        | Event::SetXattr { .. }
        | Event::SetData { .. }
        | Event::SetPolicy { .. }
        | Event::Session { .. }
        | Event::Merged { .. }
        | Event::Stored { .. } => [None, None],
    }
}

fn loss_of(freed: &FreedInode) -> Loss {
    match removal_of(freed) {
        Removal::Directory { ino } => Loss::of_removed(ino, None),
        Removal::File { ino, pool, stripes } => Loss::of_removed(ino, Some((pool, stripes))),
    }
}

/// The removed inode that a record names, if the loss is about one.
pub(super) fn removed_in(loss: &Loss) -> Option<FreedInode> {
    let (ino, content) = loss.removed()?;
    Some(freed_of(&match content {
        None => Removal::Directory { ino },
        Some((pool, stripes)) => Removal::File { ino, pool, stripes },
    }))
}

impl Purges {
    /// Holds inodes that a merge removed; `recorded` is whether the journal has records of it.
    pub(crate) fn hold_freed(
        &mut self,
        namespace: &mut Namespace,
        opens: &mut Opens,
        seq: Seq,
        recorded: bool,
        now: Moment,
    ) {
        for freed in namespace.take_freed() {
            self.room.note(&freed, recorded, now);
            if opens.keep(freed) || freed.is_stored {
                self.merged.hold(freed, seq, recorded);
            }
        }
    }

    /// A merge executed an event, which may have given a removed inode a name again.
    pub(crate) fn take_back_named(
        &mut self,
        namespace: &Namespace,
        opens: &mut Opens,
        event: &Event<'_>,
    ) {
        if self.merged.held.is_empty() {
            return;
        }
        for ino in named(event).into_iter().flatten() {
            if namespace.has_name(ino) && self.merged.held.remove(&ino).is_some() {
                opens.named_again(ino);
            }
        }
    }

    /// Whether a record is missing in the journal that names removed inodes, besides so many other
    /// records.
    pub(crate) fn lacks_record(&self, others: usize) -> bool {
        self.merged.unnamed.len() > others.saturating_mul(NAMED_MAX)
    }

    /// The removed inodes that a record at this position names.
    pub(crate) fn name_removed(&mut self, record: Seq) -> Vec<Loss> {
        let merged = &mut self.merged;
        let rest = merged.unnamed.len().saturating_sub(NAMED_MAX);
        let named = merged.unnamed.drain(rest..);
        let held = named.filter_map(|ino| merged.held.get(&ino));
        let losses: Vec<Loss> = held.map(|held| loss_of(&held.freed)).collect();
        if !losses.is_empty() {
            self.merged.note_record(record);
        }
        losses
    }

    /// Whether the journal keeps a record of an ended merge for the purge queue.
    pub(crate) fn are_merges_unlisted(&self) -> bool {
        !self.merged.unlisted.is_empty()
    }

    /// The first record that names an inode which is neither purged nor on a list.
    fn first_record(&mut self) -> Seq {
        while let Some((_, ended)) = self.merged.unlisted.front()
            && self.are_listed(*ended)
        {
            self.merged.unlisted.pop_front();
        }
        let ended = self.merged.unlisted.front().map(|(since, _)| *since);
        // A full store: the trim makes room.
        let ended = ended.filter(|_| self.unwritten.is_none());
        self.merged.since.into_iter().chain(ended).min().unwrap_or(Seq(u64::MAX))
    }
}

impl PurgeCx<'_> {
    /// Queues inodes that ended merges removed.
    pub(crate) fn queue_merged_away(&mut self) {
        if self.purges.merged.held.is_empty() || self.merges.is_halfway() {
            return;
        }
        let (may_continue, last) = (self.merges.may_continue(), self.log.last());
        let held = std::mem::take(&mut self.purges.merged.held);
        let (kept, ended): (BTreeMap<_, _>, BTreeMap<_, _>) =
            held.into_iter().partition(|(_, held)| held.recorded && may_continue);
        if kept.is_empty() {
            self.purges.merged.unnamed.clear();
            let since = self.purges.merged.since.take();
            self.purges.merged.unlisted.extend(since.map(|since| (since, last)));
        }
        self.purges.merged.held = kept;
        for (ino, Held { freed, seq, recorded }) in ended {
            // A list of an earlier term may have the inode.
            if self.namespace.has_name(ino) || self.purges.all.contains_key(&ino) {
                continue;
            }
            let (is_open, certain) = (self.opens.keep(freed), recorded && !self.is_private());
            self.purges.add(freed, if recorded { last } else { seq }, certain);
            self.purges.room.ask(self.now);
            // A client may have written to an empty file that it had open.
            if !is_open {
                self.queue_recovered(ino);
            }
        }
    }

    /// The oldest record of a merge that the journal must keep for the purge queue. Writes a list
    /// if one is missing for that.
    pub(crate) fn keep_for_purges(&mut self, oldest: Seq, effects: &mut MdsEffects) -> Seq {
        let first = self.purges.first_record();
        if first <= oldest && self.purges.are_merges_unlisted() {
            self.list_removals(self.log.safe(), effects);
        }
        first
    }
}
