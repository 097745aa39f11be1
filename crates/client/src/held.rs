//! What a client has open and locked at the server: told again when the server does not know it.

use std::collections::BTreeMap;

use types::{Ino, Lock, LockKind, LockMode, LockRanges};
use wire::{Access, Op};

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Held {
    opens: BTreeMap<Ino, Open>,
    locks: BTreeMap<(Ino, LockKind, u64), LockRanges>,
}

/// How often a file is open.
#[derive(Clone, Copy, Debug, Default)]
struct Open {
    reading: u32,
    writing: u32,
    shared: bool,
}

impl Held {
    pub(crate) fn is_empty(&self) -> bool {
        self.opens.is_empty() && self.locks.is_empty()
    }

    pub(crate) fn opened(&mut self, ino: Ino, write: bool) {
        let open = self.opens.entry(ino).or_default();
        if write {
            open.writing += 1;
        } else {
            open.reading += 1;
        }
    }

    /// Says whether it was the last of its kind: then the server is to know.
    pub(crate) fn closed(&mut self, ino: Ino, write: bool) -> bool {
        let Some(open) = self.opens.get_mut(&ino) else { return false };
        let count = if write { &mut open.writing } else { &mut open.reading };
        let was_open = *count > 0;
        *count = count.saturating_sub(1);
        let last = was_open && *count == 0;
        if open.reading == 0 && open.writing == 0 {
            self.opens.remove(&ino);
        }
        last
    }

    pub(crate) fn shared(&mut self, ino: Ino) {
        if let Some(open) = self.opens.get_mut(&ino) {
            open.shared = true;
        }
    }

    pub(crate) fn locked(&mut self, ino: Ino, lock: Lock) {
        let key = (ino, lock.kind, lock.owner);
        let ranges = self.locks.entry(key).or_default();
        ranges.set(lock);
        if ranges.is_empty() {
            self.locks.remove(&key);
        }
    }

    /// A lock that somebody else has now.
    pub(crate) fn lost(&mut self, ino: Ino, lock: Lock) {
        self.locked(ino, Lock { mode: LockMode::Unlock, ..lock });
    }

    /// What a server is told that does not know it.
    pub(crate) fn tell(&self) -> impl Iterator<Item = Op<'static>> {
        let opens = self.opens.iter().map(|(ino, open)| {
            let Open { reading, writing, shared } = *open;
            let access = Access { read: reading > 0, write: writing > 0, shared };
            Op::Reopen { ino: *ino, access }
        });
        let locks = self.locks.iter().flat_map(|((ino, ..), ranges)| {
            ranges.iter().map(|lock| Op::Lock { ino: *ino, lock: *lock, wait: false })
        });
        opens.chain(locks)
    }
}
