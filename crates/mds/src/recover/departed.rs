//! The events that a recovery skips: those about subtrees that moved to other ranks since
//! (`tables::gone`).
//!
//! Another rank has changed their directories, and may be changing them now. So they are not read.
//! Events that added names to them, or changed inodes there, are skipped; events that removed names
//! from them, or moved names between them and other directories, are replayed for the sake of the
//! latter: on directories that are taken to be empty. Behind the last event before a subtree left,
//! all of that is forgotten, as it was when it left. It may have come back later, and then is read
//! in its present state.

use journal::Event;
use types::{Ino, Seq, Set};

use super::RecoveryCx;
use crate::tables::Gone;

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct DepartedSubtrees {
    /// Subtrees, the one that went first at the end.
    pending: Vec<DepartedSubtree>,
    dirs: Set<Ino>,
}

/// The directories and inodes that left with one subtree.
#[derive(Debug, Default, PartialEq, Eq)]
struct DepartedSubtree {
    last: Seq,
    dirs: Vec<Ino>,
    linked: Vec<Ino>,
}

impl DepartedSubtrees {
    pub(super) fn new(all: &[Gone]) -> Self {
        // Each of them may have been the root of a subtree whose name was another rank's.
        let left = |gone: &Gone| DepartedSubtree {
            last: gone.last,
            dirs: gone.dirs.iter().flat_map(|dir| [*dir, Ino::mount_stub(*dir)]).collect(),
            linked: gone.linked.clone(),
        };
        let mut pending: Vec<DepartedSubtree> = all.iter().map(left).collect();
        pending.sort_by_key(|left| std::cmp::Reverse(left.last));
        let mut departed = Self { pending, dirs: Set::default() };
        departed.count();
        departed
    }

    fn count(&mut self) {
        self.dirs = self.pending.iter().flat_map(|left| &left.dirs).copied().collect();
    }

    /// Whether a directory leaves behind the event that is being replayed.
    pub(super) fn covers(&self, dir: Ino) -> bool {
        self.dirs.contains(&dir)
    }

    /// Whether something went before this event.
    pub(super) fn is_due(&self, seq: Seq) -> bool {
        self.pending.last().is_some_and(|left| left.last < seq)
    }

    /// The subtrees that left before this event.
    fn take_due(&mut self, seq: Seq) -> Vec<DepartedSubtree> {
        let mut due = Vec::new();
        while self.is_due(seq) {
            due.extend(self.pending.pop());
        }
        self.count();
        due
    }

    /// Whether inodes with several names went: then their directory must be here.
    pub(super) fn has_linked(&self) -> bool {
        self.pending.iter().any(|left| !left.linked.is_empty())
    }

    /// Whether an event concerns no other directory, now or later.
    pub(super) fn passes_over(&self, event: &Event<'_>) -> bool {
        match *event {
            Event::Create(ref create) => self.covers(create.parent),
            // A later rename out of there carries the whole inode.
            Event::SetAttr { home, .. }
            | Event::SetXattr { home, .. }
            | Event::SetData { home, .. }
            | Event::SetPolicy { home, .. } => self.covers(home),
            Event::Stored { dir } => self.covers(dir),
            Event::Link { .. }
            | Event::Unlink { .. }
            | Event::Rmdir { .. }
            | Event::Rename { .. }
            | Event::Session { .. }
            | Event::Merged { .. } => false,
        }
    }
}

impl RecoveryCx<'_> {
    /// Forgets the subtrees that left before an event.
    pub(super) fn forget_departed(&mut self, seq: Seq) {
        if self.recovery.departed.is_due(seq) {
            for left in self.recovery.departed.take_due(seq) {
                self.namespace.handover().forget_linked(&left.linked, left.last);
                self.namespace.handover().forget_dirs(&left.dirs);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gone(last: u64, dirs: &[u64]) -> Gone {
        let dirs = dirs.iter().copied().map(Ino).collect();
        let linked = vec![Ino(last)];
        Gone { root: Ino(9), moves: 1, last: Seq(last), dirs, linked, went: true }
    }

    #[test]
    fn a_twice_departed_directory_is_skipped_until_its_last_departure() {
        let mut departed =
            DepartedSubtrees::new(&[gone(100, &[9, 10]), gone(200, &[9]), gone(150, &[11])]);
        assert!(
            [9, 10, 11].iter().all(|dir| departed.covers(Ino(*dir))) && !departed.covers(Ino(12))
        );
        assert!(!departed.is_due(Seq(100)) && departed.is_due(Seq(101)));
        let left = |last: u64, dirs: &[u64]| DepartedSubtree {
            last: Seq(last),
            dirs: dirs
                .iter()
                .copied()
                .map(Ino)
                .flat_map(|dir| [dir, Ino::mount_stub(dir)])
                .collect(),
            linked: vec![Ino(last)],
        };
        assert_eq!(departed.take_due(Seq(101)), [left(100, &[9, 10])]);
        assert!(
            departed.covers(Ino::mount_stub(Ino(9))) && !departed.covers(Ino::mount_stub(Ino(10)))
        );
        assert!(departed.covers(Ino(9)) && !departed.covers(Ino(10)));
        assert!(departed.has_linked());
        assert_eq!(departed.take_due(Seq(u64::MAX)), [left(150, &[11]), left(200, &[9])]);
        assert!(departed.pending.is_empty() && !departed.covers(Ino(9)) && !departed.has_linked());
    }
}
