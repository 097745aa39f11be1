//! Every update of a subtree with its promise: the table of `docs/promises/policies.md`, update by
//! update.
//!
//! The ledger records completed mechanisms and faults, and decides which updates must exist and
//! which may. Invariant: an unmerged update is not visible, and a promised one is.

use std::collections::{BTreeMap, BTreeSet};

use journal::Event;
use types::{Ino, Timestamp};

use crate::oracle::Violation;

/// Whether other clients see an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// It was not merged, or was lost and is not there (any more).
    No,
    /// No reply came, or the server that had it crashed.
    Perhaps,
    /// The server has it in memory.
    Memory,
    /// It survives the server.
    Stable,
}

/// Where a copy is from which it can be merged (again).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Kept {
    /// In a living process.
    pub(super) memory: bool,
    /// In a journal on the client's disk.
    pub(super) disk: bool,
    /// In a journal object.
    pub(super) store: bool,
    /// In a log of requests on the client's disk.
    pub(super) log: bool,
}

/// Identifies an update in a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Mark {
    /// A create: the inode number.
    Created(Ino),
    /// Any other event: its time, which a workload gives to one event only.
    At(Timestamp),
}

impl Mark {
    /// The mark of an event of a client.
    fn of(event: &Event<'_>) -> Option<Self> {
        if let Some(ino) = event.numbered() {
            return Some(Self::Created(ino));
        }
        match *event {
            Event::Link { time, .. }
            | Event::Unlink { time, .. }
            | Event::Rmdir { time, .. }
            | Event::Rename { time, .. }
            | Event::SetAttr { time, .. }
            | Event::SetXattr { time, .. }
            | Event::SetData { time, .. }
            | Event::SetPolicy { time, .. } => Some(Self::At(time)),
            Event::Create(_)
            | Event::Session { .. }
            | Event::Merged { .. }
            | Event::Stored { .. } => None,
        }
    }
}

/// The marks in a journal.
pub(super) fn marks(bytes: &[u8]) -> BTreeSet<Mark> {
    let mut marks = BTreeSet::new();
    let Ok(mut reader) = journal::SegmentReader::open(bytes) else { return marks };
    while let Ok(Some(block)) = reader.next_block() {
        let mut events = block.events();
        while let Ok(Some(record)) = events.next_event() {
            marks.extend(Mark::of(&record.event));
        }
    }
    marks
}

/// An update: a file or directory that was created, under an unused name; or, in the workloads of
/// `ace`, any change.
#[derive(Clone, Debug)]
pub(super) struct Update {
    pub(super) parent: Ino,
    pub(super) name: String,
    /// 0 if no reply came.
    pub(super) ino: Ino,
    /// The time of a change that is no create.
    pub(super) time: Option<Timestamp>,
    pub(super) dir: bool,
    /// No journal has it any more: its number may be used again if it is not shown.
    pub(super) dead: bool,
    pub(super) shown: Shown,
    /// A merge of it was in the memory of a server that crashed, and it was not sent again since.
    pub(super) undone: bool,
    /// A server that had the update in its memory only crashed: the store may have a part of it.
    pub(super) torn: bool,
    pub(super) kept: Kept,
    /// The process that sends it again if the server crashes, until it is durable.
    pub(super) resends: Option<usize>,
    /// Updates that are merged as a whole or not at all; 0 for none.
    pub(super) whole: u64,
    /// Updates of which the last ones may be lost, without a gap; 0 for none.
    pub(super) ordered: usize,
}

impl Update {
    /// An update that is nowhere yet.
    pub(super) fn new(parent: Ino, name: &str, dir: bool) -> Self {
        Self {
            parent,
            name: name.to_owned(),
            ino: Ino(0),
            time: None,
            dir,
            dead: false,
            shown: Shown::No,
            undone: false,
            torn: false,
            kept: Kept::default(),
            resends: None,
            whole: 0,
            ordered: 0,
        }
    }

    pub(super) fn mark(&self) -> Mark {
        self.time.map_or(Mark::Created(self.ino), Mark::At)
    }

    /// Whether a journal or a journal object orders it: a crash takes no part of it.
    fn is_ordered(&self) -> bool {
        self.whole > 0 || self.ordered > 0
    }
}

/// The visible content of a subtree: names in directories, and their inodes.
pub(super) type Listing = BTreeMap<(Ino, String), Ino>;

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) updates: Vec<Update>,
    groups: u64,
}

impl Ledger {
    /// Notes an update. Returns its place.
    pub(super) fn add(&mut self, update: Update) -> usize {
        self.updates.push(update);
        self.updates.len() - 1
    }

    /// A number for updates that are merged as a whole.
    pub(super) fn group(&mut self) -> u64 {
        self.groups += 1;
        self.groups
    }

    /// Directories in which one may work, with the root of the subtree.
    pub(super) fn dirs(&self, root: Ino, usable: impl Fn(&Update) -> bool) -> Vec<Ino> {
        let mut dirs = vec![root];
        for update in self.updates.iter().filter(|update| update.dir && update.ino != Ino(0)) {
            if usable(update) && dirs.contains(&update.parent) {
                dirs.push(update.ino);
            }
        }
        dirs
    }

    /// The updates that a journal holds.
    pub(super) fn places(&self, marks: &BTreeSet<Mark>) -> Vec<usize> {
        let held = |at: &usize| {
            let update = &self.updates[*at];
            marks.contains(&update.mark()) && !update.dead
        };
        (0..self.updates.len()).filter(held).collect()
    }

    /// They are being merged: from now on they may be there.
    pub(super) fn sent(&mut self, places: &[usize], whole: u64) {
        for at in places {
            let update = &mut self.updates[*at];
            update.undone = false;
            if matches!(update.shown, Shown::No | Shown::Perhaps) {
                (update.shown, update.whole) = (Shown::Perhaps, whole);
            }
        }
    }

    /// They are merged. An update in a directory that the server may have lost has no place until
    /// the directory is merged again.
    pub(super) fn merged(&mut self, places: &[usize], stable: bool) {
        let is_lost = |update: &Update| matches!(update.shown, Shown::No | Shown::Perhaps);
        let lost = self.updates.iter().filter(|update| update.dir && is_lost(update));
        let mut lost: BTreeSet<Ino> = lost.map(|update| update.ino).collect();
        for at in places {
            let update = &mut self.updates[*at];
            if update.shown != Shown::Stable && !lost.contains(&update.parent) {
                lost.remove(&update.ino);
                update.shown = if stable { Shown::Stable } else { Shown::Memory };
            }
        }
    }

    /// The server's memory was written to the metadata store.
    pub(super) fn stored(&mut self) {
        for update in &mut self.updates {
            if update.shown == Shown::Memory {
                (update.shown, update.resends) = (Shown::Stable, None);
            }
        }
    }

    /// A process is dead.
    pub(super) fn process_ended(&mut self, process: usize) {
        for update in &mut self.updates {
            update.kept.memory = false;
            if update.resends == Some(process) {
                update.resends = None;
            }
        }
    }

    /// The server crashed. If the client does not repeat merges under the policy in force, the
    /// updates are lost, and no later policy brings them back.
    pub(super) fn server_crashed(&mut self, repeats: bool) {
        for update in &mut self.updates {
            let ordered = update.is_ordered();
            update.torn |= update.shown == Shown::Perhaps && !ordered;
            // A living client repeats the update before any client looks.
            if update.shown == Shown::Memory && update.resends.is_none() {
                (update.shown, update.undone) = (Shown::Perhaps, true);
                update.kept.disk &= repeats;
                update.torn |= !ordered;
            }
        }
    }

    /// The disk is gone.
    pub(super) fn disk_gone(&mut self) {
        for update in &mut self.updates {
            (update.kept.disk, update.kept.log) = (false, false);
        }
    }

    /// Only journal objects with these updates remain. The server deletes an object when its events
    /// are in the metadata store.
    pub(super) fn objects_gone(&mut self, left: &BTreeSet<Mark>) {
        for update in self.updates.iter_mut().filter(|update| !left.contains(&update.mark())) {
            let merged = matches!(update.shown, Shown::Perhaps | Shown::Memory);
            if update.kept.store && merged {
                (update.shown, update.kept.store) = (Shown::Stable, false);
            }
        }
    }

    /// A process takes up journals that hold these updates: everything that is kept there must be
    /// among them, or be safe with the server.
    ///
    /// # Errors
    /// What is missing.
    pub(super) fn taken_up(&mut self, found: &BTreeSet<Mark>) -> Result<(), Violation> {
        let mut missing = Vec::new();
        for update in &mut self.updates {
            let mark = update.mark();
            let Update { kept, shown, dead, .. } = update;
            if found.contains(&mark) && !*dead {
                kept.memory = true;
            } else if (kept.disk || kept.store) && matches!(shown, Shown::No | Shown::Perhaps) {
                missing.push(update.name.clone());
            } else if *shown == Shown::No {
                // The update is lost, and its number may be used again.
                *dead = true;
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        Err(format!("kept by a journal, and not found by the next process: {missing:?}"))
    }

    /// A log was replayed. An update in a directory that only another log knows has no place, and
    /// is not replayed again.
    pub(super) fn replayed(&mut self, places: &[usize], root: Ino) {
        let there = |update: &&Update| matches!(update.shown, Shown::Memory | Shown::Stable);
        let mut dirs = BTreeSet::from([root]);
        for update in self.updates.iter().filter(there) {
            // The same holds for updates inside such a directory: a directory comes before its
            // entries.
            if dirs.contains(&update.parent) {
                dirs.insert(update.ino);
            }
        }
        for at in places {
            let update = &mut self.updates[*at];
            update.kept.log &= dirs.contains(&update.parent);
        }
    }

    /// An update that a log on the client's disk keeps, and the server does not have.
    pub(super) fn not_replayed(&self) -> Option<&Update> {
        let has = |update: &Update| matches!(update.shown, Shown::Memory | Shown::Stable);
        self.updates.iter().find(|update| update.kept.log && !has(update))
    }

    /// Compares the visible updates with those that must and may exist, and learns the rest.
    ///
    /// # Errors
    /// A visible update that must not exist, or a missing one that must.
    pub(super) fn compare(&mut self, seen: &Listing) -> Result<(), Violation> {
        let known: BTreeSet<_> =
            self.updates.iter().map(|update| (update.parent, update.name.clone())).collect();
        if let Some(strange) = seen.keys().find(|key| !known.contains(*key)) {
            return Err(format!("{strange:?} is there, and nobody made it"));
        }
        let distinct: BTreeSet<Ino> = seen.values().copied().collect();
        if distinct.len() < seen.len() {
            return Err(format!("an inode number was used twice: {seen:?}"));
        }
        let there = |update: &Update| seen.get(&(update.parent, update.name.clone())).copied();
        self.check_groups(&there)?;
        let mut hidden = BTreeSet::new();
        for update in &mut self.updates {
            // In a directory that is lost there is nothing.
            let lost_parent = hidden.contains(&update.parent);
            match (there(update), update.shown) {
                (Some(ino), shown) => {
                    if update.ino != Ino(0) && update.ino != ino {
                        return Err(format!("{} is {ino}, not {}", update.name, update.ino));
                    }
                    if shown == Shown::No {
                        return Err(format!("{} is shown, and must not be", update.name));
                    }
                    update.ino = ino;
                    if shown == Shown::Perhaps {
                        update.shown = Shown::Memory;
                    }
                }
                (None, Shown::Memory | Shown::Stable) if !lost_parent => {
                    return Err(format!("lost, but was promised: {update:?}"));
                }
                (None, shown) => {
                    // A repeated merge restores the directory, with the part of it that the
                    // server's journal has.
                    let hides = lost_parent && shown != Shown::No;
                    update.shown = if hides { Shown::Perhaps } else { Shown::No };
                    hidden.insert(update.ino);
                }
            }
        }
        Ok(())
    }

    fn check_groups(&self, there: &impl Fn(&Update) -> Option<Ino>) -> Result<(), Violation> {
        let dirs: BTreeMap<Ino, &Update> = self.updates.iter().map(|dir| (dir.ino, dir)).collect();
        let mut groups: BTreeMap<u64, Vec<&Update>> = BTreeMap::new();
        let mut orders: BTreeMap<usize, Vec<&Update>> = BTreeMap::new();
        for update in self.updates.iter().filter(|update| update.shown == Shown::Perhaps) {
            // A directory that was lost before leaves no place to merge or replay its entries: the
            // directory may be durable by a weaker promise than its entries. If both are of one
            // merge, or of one order, the directory itself is counted.
            let apart = |dir: &Update| dir.whole == 0 || dir.whole != update.whole;
            let lost = |dir: &&Update| there(dir).is_none() && apart(dir);
            if dirs.get(&update.parent).is_some_and(lost) {
                continue;
            }
            if update.whole > 0 {
                groups.entry(update.whole).or_default().push(update);
            } else if update.ordered > 0 {
                orders.entry(update.ordered).or_default().push(update);
            }
        }
        for members in groups.values() {
            let count = members.iter().filter(|update| there(update).is_some()).count();
            if count != 0 && count != members.len() {
                return Err(format!("{count} of {} updates of one merge", members.len()));
            }
        }
        for members in orders.values() {
            let gap = members.iter().skip_while(|update| there(update).is_some());
            if let Some(update) = gap.into_iter().find(|update| there(update).is_some()) {
                return Err(format!("{} is there, and one before it is lost", update.name));
            }
        }
        Ok(())
    }
}
