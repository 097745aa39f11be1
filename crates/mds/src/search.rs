//! Looking for inodes by their numbers.
//!
//! The metadata store finds an inode by the directory that names it. Where only a number is known,
//! after a restart or because its directory was forgotten, the directories are walked through from
//! the top of a subtree until the inode turns up. That is slow, and only done where no client could
//! walk the path again.

use std::collections::{BTreeSet, VecDeque};

use namespace::{Namespace, Refusal};
use types::{Cred, Ino};

use crate::authority::Authority;

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
    /// The directory to be looked into when nothing was found in all others: files in removed trees
    /// may be open.
    last: Option<Ino>,
    /// A directory is being fetched.
    waiting: bool,
}

/// The end of a step of a search.
pub(crate) enum SearchStep {
    /// This directory must be in memory first.
    Fetch(Ino),
    /// Everything is found, or every directory was visited.
    End(Goal),
}

impl Search {
    /// Begins to look for inodes in a subtree.
    pub(crate) fn new(
        goal: Goal,
        top: Ino,
        wanted: BTreeSet<Ino>,
        namespace: &Namespace,
        authority: &Authority,
    ) -> Self {
        // Inodes with several names are not in the directories that name them.
        let mut queue = VecDeque::from([Ino::LINKS]);
        if namespace.knows(top) {
            queue.push_back(top);
        }
        let own = authority.own_roots().into_iter();
        queue.extend(own.filter(|root| !authority.is_coming(*root)));
        Self { goal, wanted, queue, last: Some(Ino::TRASH), waiting: false }
    }

    /// A directory that the search waited for is here, or cannot be fetched.
    pub(crate) fn fetched(&mut self) {
        self.waiting = false;
    }

    /// Whether the search could continue.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting
    }

    /// Continues until everything is found, every directory was visited, or one is missing.
    pub(crate) fn step(&mut self, namespace: &Namespace, authority: &Authority) -> SearchStep {
        loop {
            self.wanted.retain(|ino| !namespace.is_anchored(*ino));
            let dir = self.queue.pop_front().or_else(|| self.last.take());
            let Some(dir) = dir.filter(|_| !self.wanted.is_empty()) else {
                return SearchStep::End(self.goal);
            };
            match look_into(namespace, authority, dir) {
                Ok(dirs) => self.queue.extend(dirs),
                Err(Refusal::Cold(cold)) => {
                    self.queue.push_front(dir);
                    self.waiting = true;
                    return SearchStep::Fetch(cold);
                }
                Err(Refusal::Errno(_)) => {}
            }
        }
    }
}

/// The directories in a directory, all of whose inodes are in memory then.
///
/// # Errors
/// A directory that must be fetched first, or the reason why this one cannot be listed.
pub(crate) fn look_into(
    namespace: &Namespace,
    authority: &Authority,
    dir: Ino,
) -> Result<Vec<Ino>, Refusal> {
    if dir == Ino::LINKS {
        let here = namespace.is_complete(dir);
        return if here { Ok(Vec::new()) } else { Err(Refusal::Cold(dir)) };
    }
    if dir == Ino::TRASH {
        let here = namespace.is_complete(dir);
        let roots = namespace.dirs().names_in(dir, None, usize::MAX).into_iter();
        return if here {
            Ok(roots.map(|(_, ino)| ino).collect())
        } else {
            Err(Refusal::Cold(dir))
        };
    }
    let entries = namespace.list(&Cred::root(), dir, None, usize::MAX, false)?;
    let dirs = entries.into_iter().filter(|entry| entry.attr.is_dir());
    let mut dirs: Vec<Ino> = dirs.map(|entry| entry.attr.ino).collect();
    // Skip subtrees that other ranks serve, and those that are still arriving.
    let others: Vec<Ino> = authority.other_roots().collect();
    dirs.retain(|dir| !others.contains(dir) && !authority.is_coming(*dir));
    Ok(dirs)
}
