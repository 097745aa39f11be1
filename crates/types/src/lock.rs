//! Locks on files, as POSIX has them.

/// Which of the two kinds of locks, which know nothing of each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LockKind {
    /// Of a whole file, by an open file (`flock`).
    Flock,
    /// Of a range of a file, by a process (`fcntl`).
    Posix,
}

/// The access that a lock denies to other owners.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LockMode {
    /// Writing: several may hold it.
    Read,
    /// Reading and writing.
    Write,
    /// Nothing: gives a lock up.
    Unlock,
}

/// A lock, or the wish for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    /// Its kind.
    pub kind: LockKind,
    /// Its mode.
    pub mode: LockMode,
    /// The owner among the owners of one client.
    pub owner: u64,
    /// The process that `F_GETLK` names to other processes.
    pub pid: u32,
    /// The first byte.
    pub start: u64,
    /// The last byte.
    pub end: u64,
}

impl Lock {
    /// Whether both hold the same kind of lock on some byte.
    #[must_use]
    pub fn overlaps(&self, other: &Lock) -> bool {
        self.kind == other.kind && self.start <= other.end && other.start <= self.end
    }

    /// Whether two locks of different owners exclude each other.
    #[must_use]
    pub fn excludes(&self, other: &Lock) -> bool {
        let unlocks = self.mode == LockMode::Unlock || other.mode == LockMode::Unlock;
        let writes = self.mode == LockMode::Write || other.mode == LockMode::Write;
        self.overlaps(other) && writes && !unlocks
    }
}

/// The locks of one owner on one file: sorted, apart, and merged where they touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockRanges(Vec<Lock>);

impl LockRanges {
    /// Replaces the owner's locks in the range of this one; locks outside the range stay.
    pub fn set(&mut self, lock: Lock) {
        let mut ranges = Vec::with_capacity(self.0.len() + 2);
        for old in self.0.drain(..) {
            if !old.overlaps(&lock) {
                ranges.push(old);
                continue;
            }
            if old.start < lock.start {
                ranges.push(Lock { end: lock.start - 1, ..old });
            }
            if old.end > lock.end {
                ranges.push(Lock { start: lock.end + 1, ..old });
            }
        }
        if lock.mode != LockMode::Unlock {
            ranges.push(lock);
        }
        ranges.sort_unstable_by_key(|range| range.start);
        for range in ranges {
            match self.0.last_mut() {
                Some(last)
                    if last.mode == range.mode && last.end.checked_add(1) == Some(range.start) =>
                {
                    last.end = range.end;
                }
                Some(_) | None => self.0.push(range),
            }
        }
    }

    /// The locks.
    pub fn iter(&self) -> impl Iterator<Item = &Lock> {
        self.0.iter()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
