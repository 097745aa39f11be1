//! Waiters: what waits for a directory, and what may go on.

use namespace::Namespace;
use types::{ClientId, ConnId, Error, Ino, Moment};
use wire::{ChangeOp, Message, Op};

use super::{Fetches, Need, TABLE_PUT};
use crate::ReplyTo;
use crate::admission::Incoming;
use crate::op::Release;
use crate::session::Sessions;

/// A request or operation that waits for a directory.
#[derive(Debug)]
pub(crate) enum Waiter {
    /// A question: the frame is handled again.
    Question(ConnId, Vec<u8>),
    /// The blocked changes of a client.
    Changes(ClientId),
    /// Asynchronous operations of a client.
    Async(ClientId),
    /// The merge at the head of the queue.
    Merge,
    /// A subtree that is given back.
    Release(Release),
    /// Recovery.
    Recovery,
    /// The search for inodes after a recovery.
    Search,
    /// Directories of a subtree that came from another rank.
    Preload,
    /// A move of the balancer.
    Balancer,
    /// A removed tree whose room is given back.
    Reap,
    /// The count of a quota.
    Count(Ino),
    /// A change of policy, whose subtree is stored now.
    Change(ReplyTo),
    /// A subtree that is given back, which is merged and stored.
    Merged(Release),
    /// Nothing: the directory was shown to all that waited for it.
    Seen(Ino),
}

/// A waiter whose wait is over.
#[derive(Debug)]
pub(crate) enum Woken {
    /// A part of the directory is in memory, or a client has returned the directory.
    Arrived(Waiter),
    /// The directory cannot be read.
    Failed(Ino, Waiter, Error),
}

impl Fetches {
    /// Adds a waiter. Returns whether the directory must be fetched now.
    pub(super) fn add(&mut self, dir: Ino, need: Need, waiter: Waiter) -> bool {
        self.waiting.entry(dir).or_default().push(waiter);
        if dir == TABLE_PUT {
            return false;
        }
        let needed = self.needed.entry(dir).or_default();
        match need {
            Need::Names(names) => needed.names.extend(names),
            Need::Whole => needed.whole = true,
        }
        match &mut self.batch {
            Some(batch) => {
                batch.push(dir);
                false
            }
            None => true,
        }
    }

    /// Lets a waiter wait again for a directory that cannot be read now: it is read later.
    pub(crate) fn try_later(&mut self, dir: Ino, waiter: Waiter, now: Moment) {
        let waiters = self.waiting.entry(dir).or_default();
        if waiters.is_empty() {
            self.failed.push((dir, now));
        }
        waiters.push(waiter);
        self.needed.entry(dir).or_default().whole = true;
    }

    /// A directory could not be read; what waits for it goes on waiting, until it is read later.
    pub(crate) fn read_later(&mut self, dir: Ino, now: Moment) {
        self.under_way.remove(&dir);
        self.failed.push((dir, now));
    }

    /// A directory cannot be read.
    pub(crate) fn fail(&mut self, dir: Ino, error: &Error) {
        let fetched = self.under_way.remove(&dir);
        assert!(fetched, "{dir}: the fetch was under way");
        self.needed.remove(&dir);
        for waiter in self.waiting.remove(&dir).unwrap_or_default() {
            self.woken.push_back(Woken::Failed(dir, waiter, error.clone()));
        }
    }

    /// Lets a request wait until clients have forgotten a directory.
    pub(crate) fn park_until_returned(
        &mut self,
        sessions: &mut Sessions,
        Incoming { conn, client, request }: Incoming<'_>,
        dir: Ino,
    ) {
        let frame = Message::Request(request.clone()).to_frame();
        // Policies come from the monitor, for whomever they are.
        let waiter = if request.op.is_mutation()
            && !matches!(request.op, Op::Change(ChangeOp::SetPolicy { .. }))
        {
            sessions.get_mut(client).blocked.push_front(frame);
            Waiter::Changes(client)
        } else {
            Waiter::Question(conn, frame)
        };
        self.returning.entry(dir).or_default().push(waiter);
    }

    /// Lets the merge at the head of the queue wait for the same.
    pub(crate) fn merge_waits_until_returned(&mut self, dir: Ino) {
        self.returning.entry(dir).or_default().push(Waiter::Merge);
    }

    /// Wakes the requests that waited until clients dropped a directory.
    pub(crate) fn wake_returned(&mut self, dir: Ino) {
        let waiters = self.returning.remove(&dir).unwrap_or_default();
        self.woken.extend(waiters.into_iter().map(Woken::Arrived));
    }

    /// A request that waited elsewhere is handled as if it had just arrived.
    pub(crate) fn wake_frame(&mut self, conn: ConnId, frame: Vec<u8>) {
        self.resume(Waiter::Question(conn, frame));
    }

    /// A waiter that waited elsewhere goes on.
    pub(crate) fn resume(&mut self, waiter: Waiter) {
        self.woken.push_back(Woken::Arrived(waiter));
    }

    /// Wakes the requests that waited for a directory.
    pub(crate) fn wake(&mut self, dir: Ino) {
        let waiters = self.waiting.remove(&dir).unwrap_or_default();
        self.woken.extend(waiters.into_iter().map(Woken::Arrived));
    }

    /// The next waiter that may go on.
    pub(crate) fn next_woken(&mut self) -> Option<Woken> {
        let woken = self.woken.pop_front()?;
        self.batch.get_or_insert_default();
        Some(woken)
    }

    /// Whether a waiter may go on.
    pub(crate) fn is_any_woken(&self) -> bool {
        !self.woken.is_empty()
    }

    /// The directories that woken waiters need.
    pub(super) fn take_batch(&mut self) -> Vec<Ino> {
        self.batch.take().unwrap_or_default()
    }

    /// Whether a request waits for a directory.
    pub(crate) fn is_waited_for(&self, dir: Ino) -> bool {
        self.waiting.contains_key(&dir)
    }

    /// Whether the walk through moved subtrees waits for a directory: one wakes all of them.
    pub(crate) fn is_preloading(&self, dir: Ino) -> bool {
        let known = |waiters: &Vec<Waiter>| waiters.iter().any(|it| matches!(it, Waiter::Preload));
        self.waiting.get(&dir).is_some_and(known)
    }

    /// Whether a directory of a subtree is being fetched.
    pub(crate) fn is_fetching_below(&self, namespace: &Namespace, root: Ino) -> bool {
        let arrived = self.arrived.iter().map(|arrived| arrived.dir);
        let mut fetched = self.waiting.keys().copied().chain(arrived);
        fetched.any(|dir| namespace.is_within(dir, root))
    }

    /// The frames of waiting requests, and the directories that they wait for.
    pub(crate) fn waiters(&self) -> impl Iterator<Item = (Ino, &Waiter)> {
        let waiting = self.waiting.iter();
        waiting.flat_map(|(dir, waiters)| waiters.iter().map(|waiter| (*dir, waiter)))
    }
}
