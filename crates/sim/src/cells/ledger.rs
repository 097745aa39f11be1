//! Every update of a subtree, with what is promised of it: the table of `docs/semantics.md`, one
//! update at a time.
//!
//! The ledger hears which mechanism completed for which updates and which fault struck, and says
//! what must be there and what may be. Invariant: an update that nobody merged is not shown, and
//! one that is promised is.

use std::collections::{BTreeMap, BTreeSet};

use types::Ino;

use crate::oracle::Violation;

/// Whether others see an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// It was not merged, or was lost and is not there (any more).
    No,
    /// Nobody was told, or the server that had it crashed.
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

/// An update: a file or directory that was created, under a name that nobody used before.
#[derive(Clone, Debug)]
pub(super) struct Update {
    pub(super) parent: Ino,
    pub(super) name: String,
    /// 0 if nobody was told.
    pub(super) ino: Ino,
    pub(super) dir: bool,
    /// No journal has it any more: its number may be used again if it is not shown.
    pub(super) dead: bool,
    pub(super) shown: Shown,
    /// A merge of it was in the memory of a server that crashed, and it was not sent again since.
    pub(super) undone: bool,
    pub(super) kept: Kept,
    /// The process that sends it again if the server crashes, until it is durable.
    pub(super) resends: Option<usize>,
    /// Updates that are merged as a whole or not at all; 0 for none.
    pub(super) whole: u64,
    /// Updates of which the last ones may be lost, without a gap; 0 for none.
    pub(super) ordered: usize,
}

/// What a subtree shows: names in directories, and what they lead to.
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

    /// The updates that a journal holds, by inode numbers.
    pub(super) fn places(&self, inos: &BTreeSet<Ino>) -> Vec<usize> {
        let held = |at: &usize| {
            let update = &self.updates[*at];
            inos.contains(&update.ino) && !update.dead
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

    /// They are merged.
    pub(super) fn merged(&mut self, places: &[usize], stable: bool) {
        for at in places {
            let update = &mut self.updates[*at];
            if update.shown != Shown::Stable {
                update.shown = if stable { Shown::Stable } else { Shown::Memory };
            }
        }
    }

    /// What the server had in memory is in the metadata store.
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

    /// The server crashed.
    pub(super) fn server_crashed(&mut self) {
        for update in &mut self.updates {
            // What a living client sends again is there before anybody looks.
            if update.shown == Shown::Memory && update.resends.is_none() {
                (update.shown, update.undone) = (Shown::Perhaps, true);
            }
        }
    }

    /// The disk is gone.
    pub(super) fn disk_gone(&mut self) {
        for update in &mut self.updates {
            (update.kept.disk, update.kept.log) = (false, false);
        }
    }

    /// No journal objects are left but those that hold these updates. The server deletes those whose
    /// events are in the metadata store.
    pub(super) fn objects_gone(&mut self, left: &BTreeSet<Ino>) {
        for update in self.updates.iter_mut().filter(|update| !left.contains(&update.ino)) {
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
    pub(super) fn taken_up(&mut self, found: &BTreeSet<Ino>) -> Result<(), Violation> {
        let mut missing = Vec::new();
        for update in &mut self.updates {
            let Update { kept, shown, ino, dead, .. } = update;
            if found.contains(ino) && !*dead {
                kept.memory = true;
            } else if (kept.disk || kept.store) && matches!(shown, Shown::No | Shown::Perhaps) {
                missing.push(update.name.clone());
            } else if *shown == Shown::No {
                // Nobody has it any more, and its number may be used again.
                *dead = true;
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        Err(format!("kept by a journal, and not found by the next process: {missing:?}"))
    }

    /// A log was replayed. What was done in a directory that only another log knows has no place, and
    /// is not replayed again.
    pub(super) fn replayed(&mut self, places: &[usize], root: Ino) {
        let there = |update: &&Update| matches!(update.shown, Shown::Memory | Shown::Stable);
        let mut dirs = BTreeSet::from([root]);
        for update in self.updates.iter().filter(there) {
            // Nor has what was done in such a directory: a directory comes before what is in it.
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

    /// Compares what others see with what must be and what may be there, and learns the rest.
    ///
    /// # Errors
    /// What is there and must not be, or the other way around.
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
                    // A merge that is repeated brings the directory back, with what the journal of
                    // the server has of it.
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
            // In a directory that was lost before there is nothing to merge it into, or to replay
            // it in: that the directory is there may be kept by less than what is done in it. If
            // both are of one merge, or of one order, the directory itself is counted.
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
