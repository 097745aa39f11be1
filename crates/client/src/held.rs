//! The client's open files and locks at the server: registered again at a server that does not know
//! them.
//!
//! Messages of both sides keep their order, but cross each other. A file that is closed and opened
//! again counts as a new open, and earlier recalls and yields do not concern it.

use std::collections::{BTreeMap, BTreeSet};

use types::{Ino, Lock, LockKind, LockMode, LockRanges, Tid};
use wire::{Access, Op, SessionOp};

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Held {
    opens: BTreeMap<Ino, Open>,
    /// Recalls of files that are perhaps being created: the answer with their numbers comes later.
    early: BTreeSet<Ino>,
    locks: BTreeMap<(Ino, LockKind, u64), LockRanges>,
    /// Decoupled subtrees that are merged on demand, and whether another client waits for the
    /// merge.
    subtrees: BTreeMap<Ino, bool>,
}

/// The client's state of a file, on its way from the session with one server to the session with
/// another.
#[derive(Clone, Debug, Default)]
pub struct FileState {
    open: Open,
    locks: Vec<((LockKind, u64), LockRanges)>,
    /// For the root of a subtree that is merged on demand: whether another client waits for the
    /// merge.
    offered: Option<bool>,
}

impl FileState {
    /// Whether the client has the file neither open nor locked there, and offers no merge.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let Self { open, locks, offered } = self;
        open.reading == 0 && open.writing == 0 && locks.is_empty() && offered.is_none()
    }

    /// A lock is lost. Returns whether a part of it is here.
    pub(crate) fn lose(&mut self, lock: Lock) -> bool {
        let mut is_here = false;
        for ((kind, owner), ranges) in &mut self.locks {
            if (*kind, *owner) == (lock.kind, lock.owner) {
                is_here |= ranges.iter().any(|had| had.start <= lock.end && lock.start <= had.end);
                ranges.set(Lock { mode: LockMode::Unlock, ..lock });
            }
        }
        self.locks.retain(|(_, ranges)| !ranges.is_empty());
        is_here
    }

    /// The messages to a server that may have the file registered, and must drop it.
    pub(crate) fn given_up(&self, ino: Ino) -> Vec<Op<'static>> {
        let open = self.open;
        let mut ops = Vec::new();
        for (write, count) in [(false, open.reading), (true, open.writing)] {
            ops.extend((count > 0).then_some(Op::Session(SessionOp::Close { ino, write })));
        }
        let locks = self.locks.iter().flat_map(|(_, ranges)| ranges.iter());
        let unlock = |lock: &Lock| Lock { mode: LockMode::Unlock, ..*lock };
        ops.extend(
            locks.map(|lock| Op::Session(SessionOp::Lock { ino, lock: unlock(lock), wait: false })),
        );
        ops
    }
}

/// How often a file is open.
#[derive(Clone, Copy, Debug, Default)]
struct Open {
    reading: u32,
    writing: u32,
    /// The request that opened it when it was not open.
    since: Tid,
    /// The server has answered one of the opens since, or the client reported them.
    granted: bool,
    /// The client reported opens that the server had not answered.
    reported: bool,
    /// Others want it.
    recalled: bool,
    shared: bool,
}

/// The steps after a close.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Closed {
    /// It was the last of its kind: the server is to know.
    pub(crate) last: bool,
    /// Another client waits for the close.
    pub(crate) awaited: bool,
}

impl Held {
    pub(crate) fn is_empty(&self) -> bool {
        self.opens.is_empty() && self.locks.is_empty()
    }

    /// A file is being opened.
    pub(crate) fn opened(&mut self, ino: Ino, write: bool, tid: Tid) {
        let new = || Open { since: tid, ..Open::default() };
        let open = self.opens.entry(ino).or_insert_with(new);
        if write {
            open.writing += 1;
        } else {
            open.reading += 1;
        }
    }

    pub(crate) fn closed(&mut self, ino: Ino, write: bool) -> Closed {
        let Some(open) = self.opens.get_mut(&ino) else { return Closed::default() };
        let count = if write { &mut open.writing } else { &mut open.reading };
        let was_open = *count > 0;
        *count = count.saturating_sub(1);
        let last = was_open && *count == 0;
        let awaited = open.recalled && !open.shared;
        if open.reading == 0 && open.writing == 0 {
            self.opens.remove(&ino);
        }
        Closed { last, awaited }
    }

    /// The server rejected an open. Returns whether the client must report the last close of this
    /// kind: earlier holders were not the last when they closed the file.
    pub(crate) fn refused(&mut self, ino: Ino, write: bool) -> bool {
        let granted = self.opens.get(&ino).is_some_and(|open| open.granted);
        self.closed(ino, write).last && granted
    }

    /// The server has opened it.
    pub(crate) fn granted(&mut self, ino: Ino, shared: bool) {
        if let Some(open) = self.opens.get_mut(&ino) {
            (open.granted, open.reported) = (true, false);
            open.shared = shared;
            // An earlier recall is settled if the file is private now.
            open.recalled &= shared;
        }
    }

    /// It was created open.
    pub(crate) fn created(&mut self, ino: Ino, tid: Tid) -> bool {
        self.opened(ino, true, tid);
        let recalled = self.early.remove(&ino);
        if let Some(open) = self.opens.get_mut(&ino) {
            open.granted = true;
            open.recalled |= recalled;
        }
        recalled
    }

    /// No file is being created any more.
    pub(crate) fn forget_early(&mut self) {
        self.early.clear();
    }

    /// The server recalls a file. Returns whether the client has it: an open without a reply came
    /// after the recall.
    pub(crate) fn recall(&mut self, ino: Ino, creating: bool) -> bool {
        if let Some(asked) = self.subtrees.get_mut(&ino) {
            *asked = true;
            return true;
        }
        match self.opens.get_mut(&ino) {
            Some(open) if open.granted => {
                open.recalled = true;
                true
            }
            Some(_) | None => {
                if creating {
                    self.early.insert(ino);
                }
                false
            }
        }
    }

    /// The server rejected the report of an open file. Returns whether the file is still open.
    pub(crate) fn rejected(&mut self, ino: Ino) -> bool {
        let Some(open) = self.opens.get_mut(&ino) else { return false };
        (open.recalled, open.shared) = (true, false);
        true
    }

    /// From now on a subtree is merged on demand, or is no longer.
    pub(crate) fn offer(&mut self, root: Ino, offered: bool) {
        if offered {
            self.subtrees.entry(root).or_insert(false);
        } else {
            self.subtrees.remove(&root);
        }
    }

    /// Whether another client waits for the merge of a subtree.
    pub(crate) fn has_merge_request(&self, root: Ino) -> bool {
        self.subtrees.get(&root).is_some_and(|asked| *asked)
    }

    /// A subtree is about to be merged: a later demand needs another merge.
    pub(crate) fn take_merge_request(&mut self, root: Ino) -> bool {
        self.subtrees.get_mut(&root).is_some_and(std::mem::take)
    }

    /// A file was given up by this request.
    pub(crate) fn yielded(&mut self, ino: Ino, tid: Tid) {
        if let Some(open) = self.opens.get_mut(&ino).filter(|open| open.since < tid) {
            open.shared = true;
        }
    }

    /// Whether a file is open and shared.
    pub(crate) fn is_shared(&self, ino: Ino) -> bool {
        self.opens.get(&ino).is_some_and(|open| open.shared)
    }

    /// Whether a file is to be given up.
    pub(crate) fn is_recalled(&self, ino: Ino) -> bool {
        self.opens.get(&ino).is_some_and(|open| open.recalled && !open.shared)
    }

    pub(crate) fn locked(&mut self, ino: Ino, lock: Lock) {
        let key = (ino, lock.kind, lock.owner);
        let ranges = self.locks.entry(key).or_default();
        ranges.set(lock);
        if ranges.is_empty() {
            self.locks.remove(&key);
        }
    }

    /// A lock that another client has now. Returns whether this client had it: it may have moved to
    /// the session with another server since its report.
    pub(crate) fn lost(&mut self, ino: Ino, lock: Lock) -> bool {
        let had = self.locks.contains_key(&(ino, lock.kind, lock.owner));
        self.locked(ino, Lock { mode: LockMode::Unlock, ..lock });
        had
    }

    /// Whether a file is open, as far as is known, or locked, or the root of a subtree that is
    /// merged on demand.
    pub(crate) fn has(&self, ino: Ino) -> bool {
        let is_offered = self.subtrees.contains_key(&ino);
        is_offered || self.opens.contains_key(&ino) || self.locks_of(ino).next().is_some()
    }

    fn locks_of(&self, ino: Ino) -> impl Iterator<Item = (&(Ino, LockKind, u64), &LockRanges)> {
        self.locks.iter().filter(move |((of, ..), _)| *of == ino)
    }

    /// Takes out the state of a file, except for opens without a reply, of which there are this
    /// many for reading and for writing, and for locks whose end has no reply: nobody would end
    /// them at the other rank.
    pub(crate) fn take_out(
        &mut self,
        ino: Ino,
        reading: u32,
        writing: u32,
        ends: &[Lock],
    ) -> FileState {
        let mut open = Open::default();
        if let Some(known) = self.opens.get_mut(&ino) {
            open = *known;
            open.reading = known.reading.saturating_sub(reading);
            open.writing = known.writing.saturating_sub(writing);
            let counted = known.reading >= open.reading && known.writing >= open.writing;
            assert!(counted, "{ino}: opens with a reply are counted");
            known.reading -= open.reading;
            known.writing -= open.writing;
            // The server must hear of the end of an open that it has from a report.
            (known.granted, known.recalled, known.shared) = (known.reported, false, false);
            if known.reading == 0 && known.writing == 0 {
                self.opens.remove(&ino);
            }
        }
        let locks = self.take_locks(ino, ends);
        FileState { open, locks, offered: self.subtrees.remove(&ino) }
    }

    fn take_locks(&mut self, ino: Ino, ends: &[Lock]) -> Vec<((LockKind, u64), LockRanges)> {
        let mut taken = Vec::new();
        self.locks.retain(|(of, kind, owner), ranges| {
            if *of != ino {
                return true;
            }
            let mut moved = ranges.clone();
            let is_same = |end: &&Lock| (end.kind, end.owner) == (*kind, *owner);
            ends.iter().filter(is_same).for_each(|end| moved.set(*end));
            moved.iter().for_each(|lock| ranges.set(Lock { mode: LockMode::Unlock, ..*lock }));
            if !moved.is_empty() {
                taken.push(((*kind, *owner), moved));
            }
            !ranges.is_empty()
        });
        taken
    }

    /// Puts in the state from another session. Returns the messages for the server: the file is
    /// open, or it is not.
    pub(crate) fn put_in(&mut self, ino: Ino, file_state: FileState) -> Vec<Op<'static>> {
        let FileState { open, locks, offered } = file_state;
        if let Some(asked) = offered {
            *self.subtrees.entry(ino).or_default() |= asked;
        }
        let mut ops = Vec::new();
        for ((kind, owner), ranges) in locks {
            ops.extend(
                ranges
                    .iter()
                    .map(|lock| Op::Session(SessionOp::Lock { ino, lock: *lock, wait: false })),
            );
            self.locks.entry((ino, kind, owner)).or_insert(ranges);
        }
        if open.reading > 0 || open.writing > 0 {
            let known = self.opens.entry(ino).or_default();
            known.reading += open.reading;
            known.writing += open.writing;
            known.granted = true;
            known.shared |= open.shared;
        }
        match self.opens.get(&ino) {
            Some(known) if known.granted => ops.push(reopen(ino, known)),
            Some(_) | None => ops.push(reopen(ino, &Open::default())),
        }
        ops
    }

    /// The messages that register all state at a new server. The server replies with its recalls.
    pub(crate) fn reclaim_ops(&mut self) -> impl Iterator<Item = Op<'static>> {
        for open in self.opens.values_mut() {
            open.reported |= !open.granted;
            (open.granted, open.recalled) = (true, false);
        }
        self.early.clear();
        let opens = self.opens.iter().map(|(ino, open)| reopen(*ino, open));
        let locks = self.locks.iter().flat_map(|((ino, ..), ranges)| {
            ranges
                .iter()
                .map(|lock| Op::Session(SessionOp::Lock { ino: *ino, lock: *lock, wait: false }))
        });
        opens.chain(locks)
    }
}

/// The message that registers an open file.
fn reopen(ino: Ino, open: &Open) -> Op<'static> {
    let Open { reading, writing, shared, .. } = *open;
    Op::Session(SessionOp::Reopen {
        ino,
        access: Access { read: reading > 0, write: writing > 0, shared },
    })
}

mod validate;
