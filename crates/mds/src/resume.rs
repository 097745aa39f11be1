//! Waiters go on: what a wait was for is here, or will not come.
//!
//! A part of the server that ends a wait only notes that ([`crate::fetch::Woken`]). After each
//! input the server hands every woken waiter to the part that it belongs to, in the order in which
//! the waits ended, until none is left.

use std::collections::BTreeSet;

use types::{ClientId, ConnId, Errno, Error, Ino};
use wire::{Failure, Message, Request, WantsExclusive};

use crate::admission::{Entry, Incoming};
use crate::authority::ExportCx;
use crate::balance::BalanceCx;
use crate::caps::CapsCx;
use crate::checkpoint::CheckpointCx;
use crate::damage::is_damage;
use crate::fetch::{Came, FetchCx, Need, Waiter, Woken, decode};
use crate::files::LapseCx;
use crate::merge::{MergeCx, MergeEnd, MergeNeed, MergeThen, Merged};
use crate::op::{Release, SubtreeCx, change_stored, drop_change, next_policy_stores};
use crate::recover::RecoveryInput;
use crate::resend::{ResendCx, ResendNeed};
use crate::search::{Goal, Search, SearchStep};
use crate::snapshot::{SnapshotCx, SnapshotNeed};
use crate::tables::TablesCx;
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
            Waiter::Question(conn, frame) => self.take_frames([(conn, frame)], effects),
            Waiter::Changes(client) => self.resume_changes(client, effects),
            Waiter::Async(client) => self.resume_async(client, effects),
            Waiter::Merge => self.merges.resume(),
            Waiter::Release(release) => {
                // The changes of other clients since then are stored, too.
                if next_policy_stores(&mut self.namespace, &self.tables, release.subtree) {
                    CheckpointCx::of(self).flush_to_release(release, effects);
                } else {
                    self.release_merged(release, effects);
                }
            }
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
            Waiter::Reap => self.reaper.fetched(),
            Waiter::Count(dir) => self.quota_counter.fetched(dir),
            Waiter::Change(at) => {
                if let Some(frame) = change_stored(&mut self.changes, at)
                    && let Some(Message::Request(request)) = decode(&frame)
                    && let Some(client) = self.sessions.client(at.conn)
                {
                    let from = Incoming { conn: at.conn, client, request: &request };
                    self.execute::<{ Entry::NEW }>(from, effects);
                }
                // The request was refused, or its connection is gone.
                drop_change(&mut self.changes, at);
            }
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
            Waiter::Reap => self.reaper.failed(self.clock.now),
            // A directory of a count is tried again later.
            Waiter::Change(_) | Waiter::Merged(_) | Waiter::Seen(_) | Waiter::Count(_) => {}
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
                    self.execute::<{ Entry::WAITED }>(from, effects);
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
            self.take_frames([(conn, frame)], effects);
            let again = &mut self.sessions.get_mut(client).async_ops.waiting;
            if !again.is_empty() {
                again.append(&mut waiting);
                return;
            }
        }
    }

    /// Continues the merge at the head of the queue, and has other parts do what it needs.
    pub(crate) fn merge_step(&mut self, effects: &mut MdsEffects) {
        loop {
            match MergeCx::of(self).step(effects) {
                None => return,
                Some(MergeNeed::Forgotten(subtree)) => {
                    let caches = CapsCx::of(self).revoke_below(ClientId(0), subtree, effects);
                    let Some(dir) = caches else {
                        self.merges.forgotten();
                        continue;
                    };
                    self.merges.waits_for_clients();
                    return self.fetches.merge_waits_until_returned(dir);
                }
                Some(MergeNeed::Directory(dir)) => {
                    return FetchCx::of(self).wait_for_whole(dir, Waiter::Merge, effects);
                }
                Some(MergeNeed::Names(dir, names)) => {
                    let need = Need::Names(names);
                    return FetchCx::of(self).wait_for(dir, need, Waiter::Merge, effects);
                }
                Some(MergeNeed::Inode { subtree, ino }) => {
                    // The root of a released subtree may have to be searched itself.
                    let is_known = self.namespace.is_anchored(subtree);
                    let top = if is_known { subtree } else { Ino::ROOT };
                    let wanted = BTreeSet::from([ino]);
                    let (namespace, authority) = (&self.namespace, &self.authority);
                    assert!(self.search.is_none(), "one search at a time");
                    self.search =
                        Some(Search::new(Goal::Merge(ino), top, wanted, namespace, authority));
                    return self.search_on(effects);
                }
                Some(MergeNeed::Stored(flush)) => {
                    return CheckpointCx::of(self).flush_subtree(flush, effects);
                }
                Some(MergeNeed::AttachRoot { subtree, root, ranges }) => {
                    return CheckpointCx::of(self).attach_root(subtree, root, ranges, effects);
                }
                Some(MergeNeed::End) => return self.finish_merges(effects),
            }
        }
    }

    /// Answers merges that are applied, once they are as durable as promised.
    pub(crate) fn finish_merges(&mut self, effects: &mut MdsEffects) {
        while let Some(MergeEnd { merged, then }) = MergeCx::of(self).end_next(effects) {
            if let Some(Merged { seq, subtree, object }) = merged {
                CheckpointCx::of(self).note_merge(seq, subtree, &object);
            }
            match then {
                Some(MergeThen::Store(flush)) => {
                    CheckpointCx::of(self).flush_subtree(flush, effects);
                }
                Some(MergeThen::Release(release)) => self.release_merged(release, effects),
                None => {}
            }
        }
    }

    /// Releases a subtree whose merge is done, as soon as the directories above it are in memory.
    fn release_merged(&mut self, release: Release, effects: &mut MdsEffects) {
        match SubtreeCx::of(self).release_merged(release) {
            None => TablesCx::of(self).tick(effects),
            Some((cold, release)) => {
                FetchCx::of(self).wait_for_whole(cold, Waiter::Release(release), effects);
            }
        }
    }

    /// Continues the search, and has the part that needs the inodes go on at its end.
    pub(crate) fn search_on(&mut self, effects: &mut MdsEffects) {
        let Some(search) = &mut self.search else { return };
        match search.step(&self.namespace, &self.authority) {
            SearchStep::Fetch(dir) => {
                FetchCx::of(self).wait_for_whole(dir, Waiter::Search, effects);
            }
            SearchStep::End(goal) => {
                self.search = None;
                let silent = self.sessions.missing();
                match goal {
                    Goal::Serve if ResendCx::of(self).become_active() => {
                        LapseCx::of(self).mark_absent(&silent);
                        SubtreeCx::of(self).restore_policies();
                        self.resend_on(effects);
                        self.beacon_tick(effects);
                    }
                    Goal::Serve => {}
                    Goal::Merge(ino) => MergeCx::of(self).searched(ino),
                }
            }
        }
    }

    /// Takes frames as if they had just arrived.
    pub(crate) fn take_frames(
        &mut self,
        frames: impl IntoIterator<Item = (ConnId, Vec<u8>)>,
        effects: &mut MdsEffects,
    ) {
        for (conn, frame) in frames {
            if let Some(message) = decode(&frame) {
                self.message(conn, message, effects);
            }
        }
    }

    /// Becomes active if every client is back, or had its time.
    pub(crate) fn stop_waiting_if_complete(&mut self, effects: &mut MdsEffects) {
        if self.search.is_some() || !matches!(self.phase, Phase::Reconnecting { .. }) {
            return;
        }
        let silent = self.sessions.missing();
        if let Some(wanted) = ResendCx::of(self).stop_waiting() {
            LapseCx::of(self).mark_absent(&silent);
            let (namespace, authority) = (&self.namespace, &self.authority);
            self.search = Some(Search::new(Goal::Serve, Ino::ROOT, wanted, namespace, authority));
            self.search_on(effects);
        }
    }

    /// Continues with resent changes, unless one waits for a directory; then with all other
    /// requests.
    pub(crate) fn resend_on(&mut self, effects: &mut MdsEffects) {
        while let Some(need) = ResendCx::of(self).step() {
            match need {
                ResendNeed::Frame(conn, frame) => self.take_frames([(conn, frame)], effects),
                ResendNeed::Frames(frames) => self.take_frames(frames, effects),
                // Asynchronous operations are left out: the client resends them when it is back,
                // and until then no other client gets into its directories.
                ResendNeed::Absent(client, frame) => {
                    if let Some(Message::Request(request)) = decode(&frame)
                        && !request.is_async
                    {
                        let wants_exclusive = WantsExclusive::Never;
                        let request = Request { remembers: false, wants_exclusive, ..request };
                        let before = self.sessions.act_for(Some(client));
                        self.request(ConnId::NOBODY, &request, effects);
                        self.sessions.act_for(before);
                    }
                }
            }
        }
        let waiting = ResendCx::of(self).take_waiting();
        self.take_frames(waiting, effects);
    }

    /// Continues the first snapshot, as far as possible. Called after every input.
    pub(crate) fn snapshot_step(&mut self, effects: &mut MdsEffects) {
        while let Some(need) = SnapshotCx::of(self).step(effects) {
            let root = match need {
                SnapshotNeed::Drained(root) => {
                    if !CapsCx::of(self).end_exclusive_below(root, effects) {
                        return;
                    }
                    self.snapshots.drained(self.clock.now);
                    root
                }
                SnapshotNeed::Flush(root) => root,
            };
            CheckpointCx::of(self).flush_for_snapshot(root, effects);
        }
    }
}
