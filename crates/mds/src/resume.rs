//! Waiters go on: what a wait was for is here, or will not come.
//!
//! A part of the server that ends a wait only notes that ([`crate::fetch::Woken`]). After each
//! input the server hands every woken waiter to the part that it belongs to, in the order in which
//! the waits ended, until none is left.

use metastore::request::{StoreFailure, StoreOp, StoreResult};
use types::{ClientId, ConnId, Errno, Error, Ino};
use wire::{Failure, Message};

use crate::admission::{Entry, Incoming};
use crate::damage::is_damage;
use crate::fetch::{Came, Waiter, Woken, decode};
use crate::search::Search;
use crate::{Mds, MdsEffects, Phase, ReplyTo};

impl Mds {
    /// Lets every woken waiter go on.
    #[inline]
    pub(crate) fn resume_woken(&mut self, effects: &mut MdsEffects) {
        if self.fetches.is_any_woken() {
            self.resume_all(effects);
        }
    }

    fn resume_all(&mut self, effects: &mut MdsEffects) {
        while let Some(woken) = self.fetches.next_woken() {
            match woken {
                Woken::Arrived(waiter) => self.resume(waiter, effects),
                Woken::Failed(dir, waiter, error) => self.fail(dir, waiter, &error, effects),
            }
        }
        self.fetching().end_wake(effects);
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
            Waiter::Recovery => self.recovery_continue(effects),
            Waiter::Search => {
                self.search.iter_mut().for_each(Search::fetched);
                self.search_on(effects);
            }
            Waiter::Preload => {
                self.preload_fetched();
                self.authority_step(effects);
            }
            Waiter::Balancer => self.moves_fetched(effects),
            Waiter::Change(at) => self.go_on_with_change(at, effects),
            Waiter::Merged(release) => self.release_merged(release, effects),
            // It was read for a request that has seen by now that it is another rank's.
            Waiter::Seen(dir) => {
                if self.is_others(dir) {
                    self.namespace.forget_dirs(&[dir]);
                }
            }
        }
    }

    /// Directories arrived, or failed to, for which moves of the balancer waited.
    fn moves_fetched(&mut self, effects: &mut MdsEffects) {
        self.balance.retry_fetched();
        self.begin_moves(effects);
    }

    /// Begins the moves that the balancer has decided.
    pub(crate) fn begin_moves(&mut self, effects: &mut MdsEffects) {
        while let Some(next) = self.balancing().next_move() {
            let performed = self.begin_export(next.at, next.root_and_rank(), next.is_pinned());
            if let Some(dir) = self.balancing().begun(next, performed, effects) {
                self.fetching().wait_for_whole(dir, Waiter::Balancer, effects);
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
            Waiter::Changes(client) => self.fail_change(client, failure, effects),
            Waiter::Async(client) => self.fail_async(client, failure, effects),
            Waiter::Merge => self.merges.fail(&failure, self.clock.now, effects),
            // The subtree is merged, and still its client's: merging it again is harmless.
            Waiter::Release(release) => effects.reply_error(release.at, failure),
            Waiter::Recovery => {
                if !self.recover_without(dir, error, effects) {
                    effects.fatal = Some(error.clone());
                }
            }
            // It is tried again when some time has passed.
            Waiter::Search => self.search.iter_mut().for_each(Search::fetched),
            Waiter::Preload => self.preload_fetched(),
            Waiter::Balancer => self.moves_fetched(effects),
            Waiter::Change(_) | Waiter::Merged(_) | Waiter::Seen(_) => {}
        }
    }

    /// The first waiting asynchronous operation of a client fails.
    fn fail_async(&mut self, client: ClientId, failure: Failure, effects: &mut MdsEffects) {
        let frame = self.sessions.get_mut(client).async_ops.waiting.pop_front();
        if let (Some(conn), Some(frame)) = (self.sessions.conn_of(client), frame)
            && let Some(Message::Request(request)) = decode(&frame)
        {
            self.refuse(Incoming { conn, client, request: &request }, failure, effects);
        }
        self.resume_async(client, effects);
    }

    /// The first blocked change of a client fails; the next ones need not.
    fn fail_change(&mut self, client: ClientId, failure: Failure, effects: &mut MdsEffects) {
        let frame = self.sessions.get_mut(client).blocked.pop_front();
        if let (Some(conn), Some(frame)) = (self.sessions.conn_of(client), frame)
            && let Some(Message::Request(request)) = decode(&frame)
        {
            self.refuse(Incoming { conn, client, request: &request }, failure, effects);
        }
        self.resume_changes(client, effects);
    }

    /// The store answered the read of a directory.
    pub(crate) fn fetched(
        &mut self,
        dir: Ino,
        result: Result<StoreResult, Box<StoreFailure>>,
        effects: &mut MdsEffects,
    ) {
        let result = match (result, self.damage.withheld(dir)) {
            // Memory lacks the events that recovery could not apply.
            (Ok(_), Some(error)) => {
                let op = StoreOp::LoadDir { ino: dir };
                Err(Box::new(StoreFailure { error: error.clone(), op }))
            }
            (result, _) => result,
        };
        match result {
            Ok(result) => {
                self.damage.is_read(dir);
                self.fetching().arrive(dir, result);
            }
            Err(failure) => {
                self.damage.note(dir, &failure.error);
                if self.is_resend_busy() && !is_damage(failure.error.errno) {
                    // A change that its client knows as applied must not fail now.
                    self.fetches.read_later(dir, self.clock.now);
                } else {
                    self.fetches.fail(dir, &failure.error);
                }
            }
        }
        if self.phase == Phase::Recovering {
            while self.fetches.has_work() {
                self.fetch_step(effects);
            }
        }
    }

    /// Puts a slice of an arrived directory into the namespace.
    pub(crate) fn fetch_step(&mut self, effects: &mut MdsEffects) {
        let is_others = self.fetches.next_arrived().is_some_and(|dir| self.is_others(dir));
        if let Some(Came { written_up_to }) = self.fetching().step(is_others) {
            self.subtrees().restore_known_policies();
            self.checkpoint.write_up_to(written_up_to);
        }
        self.resume_woken(effects);
    }

    /// Whether a directory is another rank's, or comes from one. It may have been read all the
    /// same, for a fact about its root, or before that was known. Its rows do not count: an inode
    /// in it may be in a directory of this rank by now.
    fn is_others(&self, dir: Ino) -> bool {
        self.is_active() && (self.authority.is_of_other(dir) || self.authority.is_coming(dir))
    }

    /// Executes a client's blocked changes until one has to wait again. Without a connection these
    /// are only changes that were resent after a crash.
    fn resume_changes(&mut self, client: ClientId, effects: &mut MdsEffects) {
        let conn = self.sessions.conn_of(client).unwrap_or(ConnId::NOBODY);
        let before = self.sessions.act_for(Some(client));
        self.resume_changes_over(conn, client, effects);
        self.sessions.act_for(before);
    }

    fn resume_changes_over(&mut self, conn: ConnId, client: ClientId, effects: &mut MdsEffects) {
        while let Some(frame) = self.sessions.get_mut(client).blocked.pop_front() {
            let left = self.sessions.get_mut(client).blocked.len();
            match decode(&frame) {
                Some(Message::Request(request)) => {
                    let from = Incoming { conn, client, request: &request };
                    self.execute_from::<{ Entry::WAITED }>(from, effects);
                }
                Some(Message::Chunk { tid, bytes }) => {
                    self.merging().take_chunk(ReplyTo { conn, tid }, bytes, effects);
                }
                Some(_) | None => {}
            }
            if self.sessions.get_mut(client).blocked.len() > left {
                return;
            }
        }
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
