//! Inputs: each message and each ended store operation goes to the part that it belongs to.

use metastore::request::{StoreFailure, StoreResult, Token};
use types::{ClientId, ConnId, Epoch};
use wire::{Hello, Message};

use crate::authority::{ImportCx, Places};
use crate::balance::BalanceCx;
use crate::caps::CapsCx;
use crate::checkpoint::CheckpointCx;
use crate::fetch::FetchCx;
use crate::files::{FilesCx, LapseCx};
use crate::log::{LogCx, Written};
use crate::merge::MergeCx;
use crate::op::SubtreeCx;
use crate::purge::PurgeCx;
use crate::recover::RecoveryInput;
use crate::session::{Greeting, SessionCx};
use crate::tables::TablesCx;
use crate::{Mds, MdsEffects, Phase, ReplyTo, Waiting};

impl Mds {
    /// A client, or another rank, sent a message.
    pub(crate) fn message(&mut self, conn: ConnId, message: Message<'_>, effects: &mut MdsEffects) {
        match message {
            Message::Hello(hello) if self.may_greet(conn, hello.client) => {
                self.hello(conn, hello, effects);
            }
            Message::Request(request) => self.request(conn, &request, effects),
            // Operations that the client has answered itself.
            Message::Batch(batch) => {
                let mut requests = batch.requests();
                loop {
                    match requests.read() {
                        Ok(Some(request)) => self.request(conn, request, effects),
                        Ok(None) => return,
                        Err(_) => return effects.close.push(conn),
                    }
                }
            }
            // A part of the journal that a client merges waits as the request before it does.
            Message::Chunk { tid, bytes } => {
                if !SessionCx::of(self).chunk_waits(conn, tid, bytes, effects) {
                    MergeCx::of(self).take_chunk(ReplyTo { conn, tid }, bytes, effects);
                }
            }
            Message::Peer(peer) if self.identities.is_trusted(conn) => {
                self.peer_message(conn, *peer, effects);
            }
            // A process says that it is another user's client, or a rank.
            Message::Hello(_)
            | Message::Peer(_)
            | Message::Welcome(_)
            | Message::Reply(_)
            | Message::MonRequest { .. }
            | Message::MonReply { .. }
            | Message::Trace { .. }
            | Message::Traced(_)
            | Message::Beacon(_)
            | Message::Map(_)
            | Message::Moved { .. }
            | Message::Recall { .. }
            | Message::Revoke { .. }
            | Message::Heartbeat(_)
            | Message::Balanced(_)
            | Message::Stop => effects.close.push(conn),
        }
    }

    /// Whether the peer of a connection may be a client, which may be connected already.
    fn may_greet(&self, conn: ConnId, client: ClientId) -> bool {
        let other = self.sessions.conn_of(client);
        self.identities.may_be(conn, client)
            && other.is_none_or(|other| self.identities.may_follow(conn, other))
    }

    pub(crate) fn monitor_message(&mut self, message: Message<'_>, effects: &mut MdsEffects) {
        match message {
            Message::Map(map) => {
                self.map = Some(*map);
                BalanceCx::of(self).note_balancer();
            }
            Message::Heartbeat(bytes) => BalanceCx::of(self).note_heartbeat(bytes),
            Message::Stop => self.terminate(false, effects),
            Message::Request(request) => self.request(ConnId::MONITOR, &request, effects),
            Message::Hello(_)
            | Message::Welcome(_)
            | Message::Reply(_)
            | Message::Chunk { .. }
            | Message::MonRequest { .. }
            | Message::MonReply { .. }
            | Message::Trace { .. }
            | Message::Traced(_)
            | Message::Peer(_)
            | Message::Moved { .. }
            | Message::Recall { .. }
            | Message::Revoke { .. }
            | Message::Batch(_)
            | Message::Balanced(_)
            | Message::Beacon(_) => {}
        }
    }

    pub(crate) fn hello(&mut self, conn: ConnId, hello: Hello, effects: &mut MdsEffects) {
        let Greeting::Known { old } = SessionCx::of(self).greet(conn, hello, effects) else {
            return;
        };
        let will_report = hello.epoch != Epoch(0) && hello.unsafe_requests > 0;
        LapseCx::of(self).come_back(hello.client, old, will_report, effects);
        CapsCx::of(self).left(hello.client);
        SessionCx::of(self).welcome(conn, hello, effects);
        ImportCx::of(self).ask_for_opens_of(hello.client, effects);
    }

    /// A connection ended.
    pub(crate) fn closed(&mut self, conn: ConnId, effects: &mut MdsEffects) {
        if let Some(client) = SessionCx::of(self).closed(conn) {
            LapseCx::of(self).lose(client, conn, effects);
        }
    }

    /// Closes the connection of a client: none of its requests is executed any more.
    pub(crate) fn close(&mut self, client: ClientId, effects: &mut MdsEffects) {
        if let Some(conn) = self.sessions.conn_of(client) {
            effects.close.push(conn);
            self.closed(conn, effects);
        }
    }

    /// A store operation ended: the result goes to the part of the server that waits for it.
    pub(crate) fn stored(
        &mut self,
        token: Token,
        result: Result<StoreResult, Box<StoreFailure>>,
        effects: &mut MdsEffects,
    ) {
        let Some(waiting) = self.store.end(token) else { return };
        self.counters.store_failures += u64::from(result.is_err());
        self.noticed.store.note(self.clock.now, &result);
        match waiting {
            Waiting::Recovery => self.recover(RecoveryInput::Stored(result), effects),
            Waiting::Log => {
                if let Some(written) = LogCx::of(self).stored(token, result, effects) {
                    if written == Written::Safe {
                        CheckpointCx::of(self).commit_captured(effects);
                    }
                    self.finish_merges(effects);
                }
            }
            Waiting::Tables => {
                TablesCx::of(self).stored(result, effects);
                LapseCx::of(self).end_lapsed(effects);
            }
            Waiting::Fetch(dir) => {
                FetchCx::of(self).stored(dir, result);
                if self.phase == Phase::Recovering {
                    while self.fetches.has_work() {
                        self.fetch_step(effects);
                    }
                }
            }
            Waiting::Checkpoint(dir) => CheckpointCx::of(self).committed(dir, result, effects),
            Waiting::Compact(dir) => CheckpointCx::of(self).compacted(dir, result, effects),
            Waiting::MergeObject(id) => MergeCx::of(self).object_read(id, result, effects),
            Waiting::Attach(id) => self.merges.attach_stored(id, result, effects),
            Waiting::Trim => CheckpointCx::of(self).trimmed(result, effects),
            Waiting::Forget => self.checkpoint.forgotten(result, self.clock.now),
            Waiting::Purge(task) => CheckpointCx::of(self).purge_stored(task, result, effects),
            Waiting::Share(ino) => FilesCx::of(self).share_stored(ino, result, effects),
            Waiting::Subtrees => self.list_stored(result, effects),
            Waiting::Snapshot(id) => self.snapshots.taken(id, result),
            Waiting::Balance(what) => {
                BalanceCx::of(self).stored(what, result);
                self.begin_moves(effects);
            }
            Waiting::Adopt(adopting) => {
                let here = Places::of(self).check_all_here(adopting.subtree());
                SubtreeCx::of(self).adopt_read(*adopting, here, result, effects);
                TablesCx::of(self).tick(effects);
            }
        }
        PurgeCx::of(self).step(effects);
    }
}
