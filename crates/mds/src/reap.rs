//! Giving back the room of removed trees, in the background.
//!
//! A tree whose time is over is removed name by name, depth first, with the same events as the
//! removal of a name by a client. So a recovery replays the removal, hard links are counted, and
//! the content of open files stays until they are closed. A crash needs no record: the tree is in
//! the trash until its last name is gone.
//!
//! Requests come first. While there are any, each tick of a few milliseconds allows one small
//! slice; a server without requests removes large slices one after the other.
//!
//! Invariant: before the first name of a tree is removed, the entry in the trash says that the tree
//! cannot be restored.

use std::collections::BTreeMap;

use journal::Event;
use namespace::{Namespace, Refusal};
use types::{Clock, Cred, Errno, Ino, Moment, Origin, Rank, Span, Timestamp, TrashEntry};

use crate::apply::ApplyCx;
use crate::authority::Authority;
use crate::contexts::lend;
use crate::damage::Damage;
use crate::fetch::{FetchCx, Fetches, Waiter};
use crate::log::Log;
use crate::op::Change;
use crate::opens::Opens;
use crate::purge::Purges;
use crate::resend::Resend;
use crate::session::Sessions;
use crate::store::StoreOps;
use crate::trash::Trash;
use crate::watch::Watches;
use crate::{Counters, Mds, MdsEffects, Phase, Settings};

/// Names removed in one slice of a server without requests: a few milliseconds.
const SLICE_IDLE: usize = 4096;
/// The same while requests come: about 4 % of the time between two ticks.
const SLICE_BUSY: usize = 128;
/// Names that are looked up together.
const NAMES: usize = 512;
/// Events of the journal that are not durable yet: with more, the store is slower than this.
const UNSAFE_MAX: u64 = 1 << 16;
/// Removed files whose content waits to be deleted: with more, the store is slower than this.
const PURGES_MAX: usize = 1 << 14;
/// When a directory that could not be read is tried again.
const RETRY: Span = Span::from_millis(10_000);

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Reaper {
    tree: Option<ReapedTree>,
    /// A directory is being fetched.
    is_waiting: bool,
    /// Trees with a directory that cannot be read, and since when.
    stuck: BTreeMap<Ino, Moment>,
    /// The names in the trash were asked for then.
    asked: Option<Moment>,
    /// No request came between the last two ticks.
    is_idle: bool,
    /// A slice is allowed although requests come.
    is_granted: bool,
    /// Requests up to the last tick.
    requests: u64,
}

/// The tree that is being removed.
#[derive(Debug)]
struct ReapedTree {
    root: Ino,
    /// The directories from the root to the one that is being emptied.
    way: Vec<ReapedLevel>,
}

#[derive(Debug)]
struct ReapedLevel {
    dir: Ino,
    /// Its name in the level above.
    name: Vec<u8>,
    /// The last name that was looked at.
    after: Option<Vec<u8>>,
}

impl ReapedTree {
    fn new(root: Ino) -> Self {
        Self { root, way: Vec::new() }
    }
}

impl Reaper {
    /// The tree that is removed next.
    fn next(&self, trash: &Trash, now: Timestamp) -> Option<Ino> {
        trash.due(now).find(|root| !self.stuck.contains_key(root))
    }

    /// A directory that was waited for is in memory.
    pub(crate) fn fetched(&mut self) {
        self.is_waiting = false;
    }

    /// A directory that was waited for cannot be read.
    pub(crate) fn failed(&mut self, now: Moment) {
        self.is_waiting = false;
        if let Some(tree) = self.tree.take() {
            self.stuck.insert(tree.root, now);
        }
    }
}

/// The end of a slice.
enum ReapedSlice {
    /// So many names as were allowed are removed.
    Full,
    /// Nothing is left of the tree.
    End,
    /// This directory must be in memory first.
    Needs(Ino),
}

impl Mds {
    /// Whether a slice would remove something, and the server may remove it now.
    pub(crate) fn may_reap(&self) -> bool {
        let reaper = &self.reaper;
        let has_time =
            reaper.is_granted || (reaper.is_idle && self.counters.requests == reaper.requests);
        let has_tree =
            || reaper.tree.is_some() || reaper.next(&self.trash, self.clock.time).is_some();
        let is_store_behind =
            self.log.last().0 - self.log.safe().0 > UNSAFE_MAX || self.purges.queued() > PURGES_MAX;
        has_time
            && !reaper.is_waiting
            && !is_store_behind
            && self.phase == Phase::Active
            && has_tree()
            && !self.resend.is_busy()
            && !self.snapshots.is_any()
            && self.log.failed().is_none()
            && !self.settings.read_only
    }
}

/// Giving back the room of removed trees, with all that it may touch.
pub(crate) struct ReapCx<'a> {
    pub(crate) reaper: &'a mut Reaper,
    pub(crate) trash: &'a mut Trash,
    pub(crate) namespace: &'a mut Namespace,
    pub(crate) log: &'a mut Log,
    pub(crate) opens: &'a mut Opens,
    pub(crate) purges: &'a mut Purges,
    pub(crate) watches: &'a mut Watches,
    pub(crate) fetches: &'a mut Fetches,
    pub(crate) sessions: &'a mut Sessions,
    pub(crate) store: &'a mut StoreOps,
    pub(crate) damage: &'a mut Damage,
    pub(crate) counters: &'a mut Counters,
    pub(crate) authority: &'a Authority,
    pub(crate) changes: &'a [Change],
    pub(crate) resend: &'a Resend,
    pub(crate) settings: &'a Settings,
    pub(crate) phase: Phase,
    pub(crate) rank: Rank,
    pub(crate) clock: Clock,
}

impl ReapCx<'_> {
    /// Fetches a whole directory.
    fn fetch(&mut self, dir: Ino, waiter: Waiter, effects: &mut MdsEffects) {
        let mut fetch = FetchCx {
            fetches: &mut *self.fetches,
            sessions: &mut *self.sessions,
            namespace: &mut *self.namespace,
            store: &mut *self.store,
            counters: &mut *self.counters,
            damage: &mut *self.damage,
            settings: self.settings,
            rank: self.rank,
            now: self.clock.now,
            is_resend_busy: self.resend.is_busy(),
        };
        fetch.wait_for_whole(dir, waiter, effects);
    }

    /// Reads the trash once, and allows a slice.
    pub(crate) fn tick(&mut self, effects: &mut MdsEffects) {
        let now = self.clock.now;
        let requests = self.counters.requests;
        self.reaper.is_idle = requests == self.reaper.requests;
        self.reaper.is_granted = !self.reaper.is_idle;
        self.reaper.requests = requests;
        if self.phase != Phase::Active {
            return;
        }
        self.reaper.stuck.retain(|_, since| now.since(*since) < RETRY);
        self.trash.learn(self.namespace);
        let is_asked = self.reaper.asked.is_some_and(|at| now.since(at) < RETRY);
        if !self.trash.is_known() && !is_asked {
            self.reaper.asked = Some(now);
            self.fetch(Ino::TRASH, Waiter::Seen(Ino::TRASH), effects);
        }
    }

    /// Removes a slice of a tree.
    pub(crate) fn step(&mut self, effects: &mut MdsEffects) {
        let names = if self.reaper.is_granted { SLICE_BUSY } else { SLICE_IDLE };
        self.reaper.is_granted = false;
        let Some(mut tree) = self.reaper.tree.take().or_else(|| self.next_tree()) else {
            return;
        };
        match self.reap_slice(&mut tree, names) {
            ReapedSlice::Full => self.reaper.tree = Some(tree),
            ReapedSlice::End => {}
            ReapedSlice::Needs(dir) => {
                self.reaper.tree = Some(tree);
                self.reaper.is_waiting = true;
                self.fetch(dir, Waiter::Reap, effects);
            }
        }
    }

    fn next_tree(&self) -> Option<ReapedTree> {
        self.reaper.next(self.trash, self.clock.time).map(ReapedTree::new)
    }

    fn reap_slice(&mut self, tree: &mut ReapedTree, mut names: usize) -> ReapedSlice {
        if let Err(refusal) = self.begin_to_reap(tree) {
            return self.give_up(tree, refusal);
        }
        while let Some(level) = tree.way.last_mut() {
            if names == 0 {
                return ReapedSlice::Full;
            }
            let dir = level.dir;
            if !self.authority.is_plain() && self.authority.is_others(dir) {
                // Another rank's names are not this rank's to remove.
                return self.give_up(tree, Errno::Busy.into());
            }
            if !self.namespace.is_complete(dir) {
                return ReapedSlice::Needs(dir);
            }
            let found =
                self.namespace.dirs().names_in(dir, level.after.as_deref(), names.min(NAMES));
            if found.is_empty() {
                if self.namespace.dirs().entries_of(dir) > 0 {
                    level.after = None;
                } else if let Err(refusal) = self.reap_directory(tree) {
                    return self.give_up(tree, refusal);
                } else {
                    names -= 1;
                }
                continue;
            }
            let mut below = None;
            for (name, ino) in found {
                if self.namespace.is_dir(ino) {
                    below = Some(ReapedLevel { dir: ino, name: name.clone(), after: None });
                    level.after = Some(name);
                    break;
                }
                if let Err(refusal) = self.reap_name(dir, &name, ino) {
                    return self.give_up(tree, refusal);
                }
                level.after = Some(name);
                names -= 1;
            }
            tree.way.extend(below);
        }
        ReapedSlice::End
    }

    /// Notes that the tree cannot be restored any more, and finds the way to the directory that is
    /// being emptied: a server that is short of memory may have forgotten a part of it.
    fn begin_to_reap(&mut self, tree: &mut ReapedTree) -> Result<(), Refusal> {
        let root = tree.root;
        let is_known = |level: &ReapedLevel| self.namespace.is_within(level.dir, root);
        if !tree.way.is_empty() && tree.way.iter().all(is_known) {
            return Ok(());
        }
        tree.way.clear();
        let Some(entry) = self.trash.get(root).cloned() else { return Ok(()) };
        let named = self.namespace.name_of(root).filter(|(dir, _)| *dir == Ino::TRASH);
        let Some((_, mut name)) = named else {
            self.trash.remove(root);
            return Ok(());
        };
        if entry.is_kept() {
            let entry = TrashEntry { until: Timestamp(0), ..entry };
            let ended = entry.encode()?;
            let planned = self.namespace.plan().rename_in_trash(&name, &ended, self.clock.time)?;
            self.apply_reaped(Ino::TRASH, &planned.event());
            drop(planned);
            name = ended;
            self.trash.put(entry);
        }
        tree.way.push(ReapedLevel { dir: root, name, after: None });
        Ok(())
    }

    fn reap_name(&mut self, dir: Ino, name: &[u8], ino: Ino) -> Result<(), Refusal> {
        let time = self.clock.time;
        if self.namespace.home_of(ino) == Some(dir) {
            // The rules allow root everything in a directory that no client can reach.
            self.apply_reaped(dir, &Event::Unlink { parent: dir, name, ino, time });
            return Ok(());
        }
        let planned = self.namespace.plan().unlink(&Cred::root(), dir, name, time)?;
        self.apply_reaped(dir, &planned.event());
        Ok(())
    }

    /// Removes the directory at the end of the way, which is empty.
    fn reap_directory(&mut self, tree: &mut ReapedTree) -> Result<(), Refusal> {
        let Some(ReapedLevel { dir, name, .. }) = tree.way.last() else { return Ok(()) };
        let (dir, time) = (*dir, self.clock.time);
        let home = self.namespace.home_of(dir).unwrap_or(Ino::TRASH);
        let planned = if home == Ino::TRASH {
            self.namespace.plan().reaped(name, time)?
        } else {
            self.namespace.plan().rmdir(&Cred::root(), home, name, time)?
        };
        self.apply_reaped(home, &planned.event());
        drop(planned);
        tree.way.pop();
        if home == Ino::TRASH {
            self.trash.remove(tree.root);
        }
        Ok(())
    }

    /// Journals and applies the removal of a name.
    fn apply_reaped(&mut self, place: Ino, event: &Event<'_>) {
        self.counters.reaped += u64::from(!matches!(event, Event::Rename { .. }));
        // With the trash as the second place, the journal has the event under any policy.
        lend!(self => ApplyCx).journal_and_apply(Origin::default(), place, Ino::TRASH, event);
    }

    /// A tree waits for a directory, or for a later attempt.
    fn give_up(&mut self, tree: &ReapedTree, refusal: Refusal) -> ReapedSlice {
        match refusal {
            Refusal::Cold(dir) => ReapedSlice::Needs(dir),
            Refusal::Errno(_) => {
                self.reaper.stuck.insert(tree.root, self.clock.now);
                ReapedSlice::End
            }
        }
    }
}
