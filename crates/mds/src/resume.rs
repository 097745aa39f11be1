//! Waiters go on: what a wait was for is here, or will not come.
//!
//! A part of the server that ends a wait only notes that ([`crate::fetch::Woken`]). After each
//! input the server hands every woken waiter to the part that it belongs to, in the order in which
//! the waits ended, until none is left.

use metastore::request::{StoreFailure, StoreResult};
use types::{ClientId, ConnId, Errno, Error, Ino};
use wire::{Failure, Message};

use crate::admission::{Entry, Incoming};
use crate::authority::ExportCx;
use crate::balance::BalanceCx;
use crate::damage::is_damage;
use crate::fetch::{Came, FetchCx, Waiter, Woken, decode};
use crate::merge::MergeCx;
use crate::op::SubtreeCx;
use crate::recover::RecoveryInput;
use crate::search::Search;
use crate::{Mds, MdsEffects, Phase, ReplyTo};

impl Mds {
    /// Lets every woken waiter go on, of which there is one at least.
    pub(crate) fn resume_woken(&mut self, effects: &mut MdsEffects) {
        while let Some(woken) = self.fetches.next_woken() {
            match woken {
                Woken::Arrived(waiter) => self.resume(waiter, effects),
                Woken::Failed(dir, waiter, error) => self.fail(dir, waiter, &error, effects),
            }
        }
        FetchCx::of(self).end_wake(effects);
    }

    fn resume(&mut self, waiter: Waiter, effects: &mut MdsEffects) {
        match waiter {
            Waiter::Question(conn, frame) => {
                if let Some(Message::Request(request)) = decode(&frame) {
                    self.request(conn, &request, effects);
                }
            }
            Waiter::Changes(client) => self.resume_changes(client, effects),
            Waiter::Async(client) => self.resume_async(client, effects),
            Waiter::Merge => self.merges.resume(),
            Waiter::Release(release) => self.release_fetched(release, effects),
            Waiter::Recovery => self.recover(RecoveryInput::Fetched, effects),
            Waiter::Search => {
                self.search.iter_mut().for_each(Search::fetched);
                self.search_on(effects);
            }
            Waiter::Preload => self.authority.fetched(),
            Waiter::Balancer => {
                self.balance.retry_fetched();
                self.begin_moves(effects);
            }
            Waiter::Change(at) => self.go_on_with_change(at, effects),
            Waiter::Merged(release) => self.release_merged(release, effects),
            // It was read for a request that has seen by now that it is another rank's.
            Waiter::Seen(dir) => {
                if self.is_active() && self.authority.is_others(dir) {
                    self.namespace.handover().forget_dirs(&[dir]);
                }
            }
        }
    }

    /// Begins the moves that the balancer has decided.
    pub(crate) fn begin_moves(&mut self, effects: &mut MdsEffects) {
        while let Some(next) = BalanceCx::of(self).next_move() {
            let (root, to) = next.root_and_rank();
            let performed = ExportCx::of(self).begin(next.at, root, to, next.is_pinned());
            if let Some(dir) = BalanceCx::of(self).begun(next, performed, effects) {
                FetchCx::of(self).wait_for_whole(dir, Waiter::Balancer, effects);
            }
        }
    }

    /// A waiter goes on without the directory, which cannot be read.
    fn fail(&mut self, dir: Ino, waiter: Waiter, error: &Error, effects: &mut MdsEffects) {
        // Programs expect EIO for an unreadable directory.
        let errno = if is_damage(error.errno) { Errno::Io } else { error.errno };
        let failure = Failure { errno, text: error.to_string() };
        match waiter {
            Waiter::Merge if self.merges.waits_on(errno, self.clock.now) => {
                self.fetches.try_later(dir, waiter, self.clock.now);
            }
            Waiter::Question(conn, frame) => {
                if let Some(Message::Request(request)) = decode(&frame) {
                    effects.reply_error(ReplyTo { conn, tid: request.tid }, failure);
                }
            }
            // The first waiting request of the client fails; the next ones need not.
            Waiter::Changes(client) | Waiter::Async(client) => {
                let is_async = matches!(waiter, Waiter::Async(_));
                let session = self.sessions.get_mut(client);
                let queue =
                    if is_async { &mut session.async_ops.waiting } else { &mut session.blocked };
                let frame = queue.pop_front();
                if let (Some(conn), Some(frame)) = (self.sessions.conn_of(client), frame)
                    && let Some(Message::Request(request)) = decode(&frame)
                {
                    self.refuse(Incoming { conn, client, request: &request }, failure, effects);
                }
                self.resume(waiter, effects);
            }
            Waiter::Merge => self.merges.fail(&failure, self.clock.now, effects),
            // The subtree is merged, and still its client's: merging it again is harmless.
            Waiter::Release(release) => effects.reply_error(release.at, failure),
            Waiter::Recovery => {
                self.recover(RecoveryInput::Unreadable(dir, error.clone()), effects);
            }
            // It is tried again when some time has passed.
            Waiter::Search => self.search.iter_mut().for_each(Search::fetched),
            Waiter::Preload => self.authority.fetched(),
            Waiter::Balancer => self.resume(waiter, effects),
            Waiter::Change(_) | Waiter::Merged(_) | Waiter::Seen(_) => {}
        }
    }

    /// The store answered the read of a directory.
    pub(crate) fn fetched(
        &mut self,
        dir: Ino,
        result: Result<StoreResult, Box<StoreFailure>>,
        effects: &mut MdsEffects,
    ) {
        FetchCx::of(self).stored(dir, result);
        if self.phase == Phase::Recovering {
            while self.fetches.has_work() {
                self.fetch_step(effects);
            }
        }
    }

    /// Puts a slice of an arrived directory into the namespace. A directory that is another rank's,
    /// or comes from one, may have been read all the same: for a fact about its root, or before
    /// that was known. Its rows do not count: an inode in it may be in a directory of this rank by
    /// now.
    pub(crate) fn fetch_step(&mut self, effects: &mut MdsEffects) {
        let dir = self.fetches.next_arrived().filter(|_| self.is_active());
        let is_others = dir.is_some_and(|dir| self.authority.is_others(dir));
        if let Some(Came { written_up_to }) = FetchCx::of(self).step(is_others) {
            SubtreeCx::of(self).restore_known_policies();
            self.checkpoint.write_up_to(written_up_to);
        }
        if self.fetches.is_any_woken() {
            self.resume_woken(effects);
        }
    }

    /// Executes a client's blocked changes until one has to wait again. Without a connection these
    /// are only changes that were resent after a crash.
    fn resume_changes(&mut self, client: ClientId, effects: &mut MdsEffects) {
        let conn = self.sessions.conn_of(client).unwrap_or(ConnId::NOBODY);
        let before = self.sessions.act_for(Some(client));
        while let Some(frame) = self.sessions.get_mut(client).blocked.pop_front() {
            let left = self.sessions.get_mut(client).blocked.len();
            match decode(&frame) {
                Some(Message::Request(request)) => {
                    let from = Incoming { conn, client, request: &request };
                    self.execute_from::<{ Entry::WAITED }>(from, effects);
                }
                Some(Message::Chunk { tid, bytes }) => {
                    MergeCx::of(self).take_chunk(ReplyTo { conn, tid }, bytes, effects);
                }
                Some(_) | None => {}
            }
            if self.sessions.get_mut(client).blocked.len() > left {
                break;
            }
        }
        self.sessions.act_for(before);
    }

    /// Continues a client's frames, asynchronous ones and those behind them, until one has to wait
    /// again.
    fn resume_async(&mut self, client: ClientId, effects: &mut MdsEffects) {
        let Some(conn) = self.sessions.conn_of(client) else { return };
        let mut waiting = std::mem::take(&mut self.sessions.get_mut(client).async_ops.waiting);
        while let Some(frame) = waiting.pop_front() {
            match decode(&frame) {
                Some(Message::Request(request)) => self.request(conn, &request, effects),
                Some(Message::Chunk { tid, bytes }) => {
                    self.chunk(conn, tid, bytes, effects);
                }
                Some(_) | None => {}
            }
            let again = &mut self.sessions.get_mut(client).async_ops.waiting;
            if !again.is_empty() {
                again.append(&mut waiting);
                return;
            }
        }
    }
}
