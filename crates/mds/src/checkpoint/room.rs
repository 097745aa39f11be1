//! Room in memory: directories that the metadata store has are forgotten when memory holds more
//! than the settings allow, and the next merge waits for that.
//!
//! Invariant: a merge waits for a bounded time; one that has begun is not disturbed.

use namespace::Namespace;
use types::{Ino, Set, Span};
use wire::Message;

use super::{Checkpoint, CheckpointCx};
use crate::fetch::{Waiter, decode};
use crate::merge::Merges;
use crate::op::touched;
use crate::recent_inodes::newest;
use crate::{Mds, Phase, Settings};

/// So many names that do not exist take as much memory as an inode and its name.
const ABSENT_PER_INODE: u64 = 3;
/// Of the inodes that fit into memory, one in so many is kept for the clients that asked for it
/// last.
const PINNED_SHARE: u64 = 4;
/// How often memory is looked at.
const EVICT_INTERVAL: Span = Span::from_millis(100);
/// The same while a merge waits until there is room.
const EVICT_INTERVAL_MERGE: Span = Span::from_millis(4);
/// A merge waits for room in memory until nothing was written for so long, and no longer than this.
const STUCK_AFTER: Span = Span::from_millis(300);
const ROOM_AFTER_MAX: Span = Span::from_millis(2000);

impl Mds {
    /// Forgets directories if memory is full. With several ranks, open and locked files stay: they
    /// go with their subtrees to other ranks.
    pub(crate) fn evict(&mut self) {
        if !CheckpointCx::of(self).may_evict() {
            return;
        }
        let (has_ranks, mut kept) = (self.authority.has_ranks(self.map.as_ref()), Vec::new());
        if has_ranks {
            kept.extend(self.opens.files().chain(self.locks.files()));
        }
        CheckpointCx::of(self).evict(kept.into_iter());
    }
}

impl CheckpointCx<'_> {
    /// Whether more inodes are in memory than the settings allow, and some can be forgotten now.
    pub(crate) fn may_evict(&mut self) -> bool {
        let now = self.clock.now;
        self.look_for_room();

        // A request that needs several directories, one after the other, would never have all of
        // them.
        let hurry = self.checkpoint.merge_lacks_room(self.namespace, self.merges, self.settings)
            && self.fetches.is_idle();
        let interval = if hurry { EVICT_INTERVAL_MERGE } else { EVICT_INTERVAL };
        let due = now.since(self.checkpoint.evicted_at) >= interval;
        // A merge needs the directories against which it was verified, and resent requests need
        // theirs.
        let needed = self.merges.has_begun() || self.is_resend_busy;
        if !due || self.phase != Phase::Active || needed {
            return false;
        }
        if !is_small_enough(self.namespace, self.settings) {
            self.namespace.store().count_absent();
        }
        !is_small_enough(self.namespace, self.settings)
    }

    /// Forgets directories, but not those of some inodes.
    pub(crate) fn evict(&mut self, kept: impl Iterator<Item = Ino>) {
        self.checkpoint.evicted_at = self.clock.now;

        if self.checkpoint.target.is_none() && self.namespace.dirtiest().is_some() {
            self.checkpoint.write_all();
        }
        // A request that waits for one directory also needs its other directories when that one
        // arrives.
        let wanted = self.wanted_directories();
        let most = usize::try_from(self.settings.inodes_max / PINNED_SHARE).unwrap_or(usize::MAX);
        let mut pinned = newest(self.sessions.shown(), most.max(1));
        pinned.extend(self.namespace.pinned_by_quotas());
        pinned.extend(kept);

        for dir in self.namespace.dirs().directory_list() {
            if is_small_enough(self.namespace, self.settings) {
                return;
            }
            let keep = self.tables.decoupled.contains_key(&dir) || wanted.contains(&dir);
            if keep {
                continue;
            }
            let named = self.namespace.dirs().journalled_up_to(dir)
                >= self.checkpoint.first_in_journal(self.log);
            if self.namespace.store().evict(dir, &pinned) {
                self.counters.evicted += 1;
                if named {
                    self.authority.journal_is_unclear(self.log.last());
                }
            } else if self.namespace.store().thin(dir, &pinned) > 0 {
                self.counters.evicted += 1;
            }
        }
    }

    /// Do not wait for directories that cannot be written, or are needed.
    fn look_for_room(&mut self) {
        let now = self.clock.now;
        let waits = self.merges.is_next_new() && !is_small_enough(self.namespace, self.settings);
        if !waits {
            (self.checkpoint.waits, self.checkpoint.is_stuck) = (None, false);
            return;
        }
        let commits = self.counters.commits;
        let writing = !self.checkpoint.committing.is_empty() && self.checkpoint.failed.is_empty();
        let (first, mut since, before) = self.checkpoint.waits.unwrap_or((now, now, commits));
        if writing || before != commits {
            since = now;
        }
        self.checkpoint.waits = Some((first, since, commits));
        self.checkpoint.is_stuck |=
            now.since(since) >= STUCK_AFTER || now.since(first) >= ROOM_AFTER_MAX;
    }

    /// The directories that are waited for, those that the waiting requests name, those of open
    /// files, and all above.
    fn wanted_directories(&mut self) -> Set<Ino> {
        let mut named = Vec::new();
        for (dir, waiter) in self.fetches.waiters() {
            named.push(dir);
            let frame = match waiter {
                Waiter::Question(_, frame) => Some(frame.as_slice()),
                Waiter::Changes(client) => self.sessions.first_blocked(*client),
                Waiter::Async(client) => self.sessions.first_async(*client),
                Waiter::Merge
                | Waiter::Release(_)
                | Waiter::Recovery
                | Waiter::Search
                | Waiter::Balancer
                | Waiter::Reap
                | Waiter::Count(_)
                | Waiter::Preload
                | Waiter::Change(_)
                | Waiter::Merged(_)
                | Waiter::Seen(_) => None,
            };
            if let Some(Message::Request(request)) = frame.and_then(decode) {
                named.extend(touched(&request.op).inodes());
            }
        }
        named.extend(self.opens.files());
        // Where they have their names.
        named.extend(self.authority.named_roots());
        named.extend(self.authority.preload_homes(self.namespace));
        named.extend(self.authority.exporting());
        // Merges name these by their numbers, and refuse events in them if they are forgotten.
        named.extend(self.tables.decoupled.keys().copied());
        // Asynchronous operations there must not have to wait.
        named.extend(self.caps.exclusive().map(|(dir, _)| dir));
        named.into_iter().flat_map(|ino| self.namespace.ancestors(ino)).collect()
    }
}

impl Checkpoint {
    /// Whether the next merge waits until memory has room for its names. A merge that has begun
    /// continues.
    pub(crate) fn merge_lacks_room(
        &self,
        namespace: &Namespace,
        merges: &Merges,
        settings: &Settings,
    ) -> bool {
        !is_small_enough(namespace, settings) && !self.is_stuck && merges.is_next_new()
    }
}

/// Whether there is room for more in memory.
fn is_small_enough(namespace: &Namespace, settings: &Settings) -> bool {
    let held = namespace.inodes() + namespace.dirs().absent_at_most() / ABSENT_PER_INODE;
    held <= settings.inodes_max
}
