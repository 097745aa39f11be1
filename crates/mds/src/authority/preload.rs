//! Walking through directories to have them in memory: all of a subtree, or the way to one inode.

use std::collections::VecDeque;

use namespace::{Namespace, Refusal};
use types::{Ino, Rank, Set};

use super::Authority;
use crate::MdsEffects;
use crate::fetch::FetchCx;
use crate::search::look_into;

/// The purpose of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goal {
    /// To have all of a subtree: clients name inodes of it by their numbers, or have open files in
    /// it.
    All(Ino),
    /// To find the place of a directory.
    Find(Ino),
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Preload {
    pub(crate) goal: Goal,
    queue: VecDeque<Ino>,
    waiting: bool,
}

impl Preload {
    /// The key under which requests wait for this walk.
    pub(super) fn key(&self) -> Ino {
        match self.goal {
            Goal::All(root) => Ino::mount_stub(root),
            Goal::Find(ino) => ino,
        }
    }
}

impl Authority {
    /// The home directories of the directories that searches have yet to visit.
    pub(crate) fn preload_homes(&self, namespace: &Namespace) -> Set<Ino> {
        let finds = |it: &&Preload| matches!(it.goal, Goal::Find(_));
        let finds = self.preloads.iter().filter(finds);
        finds.flat_map(|it| &it.queue).filter_map(|dir| namespace.home_of(*dir)).collect()
    }

    /// Begins to walk, unless that is being done.
    pub(super) fn preload(&mut self, goal: Goal) {
        if self.is_preloading(goal) {
            return;
        }
        let queue = VecDeque::from(match goal {
            Goal::All(root) => vec![root],
            Goal::Find(_) => self.tops(),
        });
        self.preloads.push(Preload { goal, queue, waiting: false });
        self.note_plain();
    }

    pub(super) fn is_preloading(&self, goal: Goal) -> bool {
        self.preloads.iter().any(|it| it.goal == goal)
    }

    /// Looks for a directory along a chain of directories, each of which names the next.
    pub(super) fn preload_on_way(&mut self, ino: Ino, way: Vec<Ino>) {
        let (goal, queue) = (Goal::Find(ino), VecDeque::from(way));
        debug_assert!(!queue.is_empty(), "{ino}: a walk begins at a directory");
        self.preloads.retain(|it| it.goal != goal);
        self.preloads.push(Preload { goal, queue, waiting: false });
        self.note_plain();
    }

    /// A directory is here, or cannot be fetched now.
    pub(crate) fn fetched(&mut self) {
        for preload in &mut self.preloads {
            preload.waiting = false;
        }
        if let Some(reshape) = &mut self.reshape {
            reshape.fetched();
        }
    }

    /// The directories from which everything that this rank serves is reached.
    fn tops(&self) -> Vec<Ino> {
        let root = (self.rank == Rank(0)).then_some(Ino::ROOT);
        let own = self.own_roots().into_iter();
        root.into_iter().chain(own.filter(|root| !self.is_coming(*root))).collect()
    }

    /// Finds the names of subtrees that other ranks serve before requests need them: the
    /// directories above them stay in memory.
    pub(crate) fn find_other_roots(&mut self, namespace: &Namespace) {
        let lost: Vec<Ino> =
            self.other_roots().filter(|root| !namespace.is_anchored(*root)).collect();
        for root in lost {
            self.preload(Goal::Find(root));
        }
    }
}

/// The walks, with all that they may touch.
pub(crate) struct PreloadCx<'a> {
    pub(crate) authority: &'a mut Authority,
    pub(crate) fetching: FetchCx<'a>,
}

impl PreloadCx<'_> {
    /// Continues until a directory must be fetched.
    pub(super) fn step(&mut self, effects: &mut MdsEffects) {
        let mut left = Vec::new();
        let mut done = Vec::new();
        for mut preload in std::mem::take(&mut self.authority.preloads) {
            if preload.waiting || !self.walk(&mut preload, effects) {
                left.push(preload);
            } else {
                done.push(preload);
            }
        }
        self.authority.preloads = left;
        if !done.is_empty() {
            self.authority.note_plain();
        }
        for preload in done {
            self.fetching.fetches.wake_returned(preload.key());
        }
    }

    /// Returns whether it is done.
    fn walk(&mut self, preload: &mut Preload, effects: &mut MdsEffects) -> bool {
        loop {
            if let Goal::Find(ino) = preload.goal
                && self.fetching.namespace.is_anchored(ino)
            {
                return true;
            }
            // Half of the memory is left for directories that must stay there.
            let full = matches!(preload.goal, Goal::All(_))
                && self.fetching.namespace.inodes() > self.fetching.settings.inodes_max / 2;
            let Some(dir) = preload.queue.pop_front().filter(|_| !full) else { return true };
            // It may have gone since it was found, and come back.
            if self.authority.is_others(dir) {
                continue;
            }
            match look_into(self.fetching.namespace, self.authority, dir) {
                Ok(dirs) => match preload.goal {
                    Goal::All(_) => preload.queue.extend(dirs),
                    // Depth first: the directories above the queued ones must stay in memory.
                    Goal::Find(_) => dirs.into_iter().for_each(|dir| preload.queue.push_front(dir)),
                },
                Err(Refusal::Cold(cold)) => {
                    preload.queue.push_front(dir);
                    preload.waiting = true;
                    // A frozen directory would arrive after another rank has it.
                    if self.authority.frozen.is_leaving(self.fetching.namespace, dir) {
                        return false;
                    }
                    self.fetching.preload(cold, effects);
                    return false;
                }
                Err(Refusal::Errno(_)) => {}
            }
        }
    }
}
