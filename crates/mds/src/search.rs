//! Looking for inodes by their numbers.
//!
//! The metadata store finds an inode by the directory that names it. Where only a number is known,
//! after a restart or because its directory was forgotten, the directories are walked through from
//! the top of a subtree until the inode turns up. That is slow, and only done where no client could
//! walk the path again.

use std::collections::{BTreeSet, VecDeque};

use namespace::Refusal;
use types::{Cred, Ino};

use crate::fetch::Waiter;
use crate::{Mds, MdsEffects};

/// The step after a search.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Goal {
    /// The server serves.
    Serve,
    /// The merge at the head of the queue continues.
    Merge(Ino),
}

/// A search under way.
#[derive(Debug)]
pub(crate) struct Search {
    goal: Goal,
    wanted: BTreeSet<Ino>,
    /// Directories yet to be looked into.
    queue: VecDeque<Ino>,
    /// A directory is being fetched.
    waiting: bool,
}

impl Mds {
    /// Looks for inodes in a subtree.
    pub(crate) fn search_for(
        &mut self,
        goal: Goal,
        top: Ino,
        wanted: BTreeSet<Ino>,
        effects: &mut MdsEffects,
    ) {
        assert!(self.search.is_none(), "one search at a time");
        // Inodes with several names are not in the directories that name them.
        let mut queue = VecDeque::from([Ino::LINKS]);
        if self.namespace.knows(top) {
            queue.push_back(top);
        }
        let own = self.authority.own_roots().into_iter();
        queue.extend(own.filter(|root| !self.authority.is_coming(*root)));
        self.search = Some(Search { goal, wanted, queue, waiting: false });
        self.search_on(effects);
    }

    pub(crate) fn search_for_merge(&mut self, subtree: Ino, ino: Ino, effects: &mut MdsEffects) {
        // The root of a released subtree may have to be searched itself.
        let top = if self.namespace.is_anchored(subtree) { subtree } else { Ino::ROOT };
        self.search_for(Goal::Merge(ino), top, BTreeSet::from([ino]), effects);
    }

    /// A directory that the search waited for is here, or cannot be fetched.
    pub(crate) fn search_fetched(&mut self) {
        if let Some(search) = &mut self.search {
            search.waiting = false;
        }
    }

    /// Repeats failed fetches.
    pub(crate) fn search_tick(&mut self, effects: &mut MdsEffects) {
        if self.search.as_ref().is_some_and(|search| !search.waiting) {
            self.search_on(effects);
        }
    }

    /// Continues until everything is found, every directory was visited, or one is missing.
    pub(crate) fn search_on(&mut self, effects: &mut MdsEffects) {
        let Some(mut search) = self.search.take() else { return };
        loop {
            search.wanted.retain(|ino| !self.namespace.is_anchored(*ino));
            let dir = search.queue.pop_front();
            let Some(dir) = dir.filter(|_| !search.wanted.is_empty()) else {
                return self.search_ended(search.goal, effects);
            };
            match self.look_into(dir) {
                Ok(dirs) => search.queue.extend(dirs),
                Err(Refusal::Cold(cold)) => {
                    search.queue.push_front(dir);
                    search.waiting = true;
                    self.search = Some(search);
                    return self.fetching().wait_for_whole(cold, Waiter::Search, effects);
                }
                Err(Refusal::Errno(_)) => {}
            }
        }
    }

    /// The directories in a directory, all of whose inodes are in memory then.
    pub(crate) fn look_into(&self, dir: Ino) -> Result<Vec<Ino>, Refusal> {
        if dir == Ino::LINKS {
            let here = self.namespace.is_complete(dir);
            return if here { Ok(Vec::new()) } else { Err(Refusal::Cold(dir)) };
        }
        let entries = self.namespace.list(&Cred::root(), dir, None, usize::MAX, false)?;
        let dirs = entries.into_iter().filter(|entry| entry.attr.is_dir());
        let mut dirs: Vec<Ino> = dirs.map(|entry| entry.attr.ino).collect();
        // Skip subtrees that other ranks serve, and those that are still arriving.
        let others: Vec<Ino> = self.authority.other_roots().collect();
        dirs.retain(|dir| !others.contains(dir) && !self.authority.is_coming(*dir));
        Ok(dirs)
    }

    fn search_ended(&mut self, goal: Goal, effects: &mut MdsEffects) {
        match goal {
            Goal::Serve => self.resent_found(effects),
            Goal::Merge(ino) => self.merging().searched(ino),
        }
    }
}
