//! The end of open files and locks with a connection, and their report with the next one.
//!
//! While the server lives, the state of a client outlives its connection until the store knows that
//! a next server must not believe the client ([`crate::tables`]). A client that is back within
//! that time loses nothing: it reports its state, and the state that it does not report ends with
//! its marker ([`SessionOp::Sync`](wire::SessionOp::Sync), sent again).

use namespace::Namespace;
use types::{ClientId, Clock, ConnId, Moment, Rank};

use super::FilesCx;
use crate::authority::Authority;
use crate::caps::Caps;
use crate::contexts::lend;
use crate::fetch::Fetches;
use crate::locks::Locks;
use crate::log::Log;
use crate::op::Change;
use crate::opens::{LeftOpen, Opens};
use crate::purge::Purges;
use crate::session::Sessions;
use crate::store::StoreOps;
use crate::tables::{Tables, TablesCx};
use crate::watch::Watches;
use crate::{Counters, MdsEffects, Phase, ReplyTo, Settings};

/// The state of clients without a connection, with all that its end may touch.
pub(crate) struct LapseCx<'a> {
    pub(crate) tables: &'a mut Tables,
    pub(crate) sessions: &'a mut Sessions,
    pub(crate) opens: &'a mut Opens,
    pub(crate) locks: &'a mut Locks<ReplyTo>,
    pub(crate) caps: &'a mut Caps,
    pub(crate) fetches: &'a mut Fetches,
    pub(crate) namespace: &'a mut Namespace,
    pub(crate) log: &'a mut Log,
    pub(crate) purges: &'a mut Purges,
    pub(crate) watches: &'a mut Watches,
    pub(crate) store: &'a mut StoreOps,
    pub(crate) counters: &'a mut Counters,
    pub(crate) authority: &'a Authority,
    pub(crate) settings: &'a Settings,
    pub(crate) changes: &'a [Change],
    pub(crate) phase: Phase,
    pub(crate) rank: Rank,
    pub(crate) clock: Clock,
}

/// A client that reports its state over a new connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Returning {
    /// When the client sent its marker: the state that it has not reported has ended.
    pub(crate) reported: Option<Moment>,
    /// A report was rejected: the client may not know that before it sends a second marker.
    pub(crate) has_rejected: bool,
}

impl FilesCx<'_> {
    /// The connection of a client ended. Its state stays. Returns whether it has any.
    fn disconnect(&mut self, client: ClientId, conn: ConnId, effects: &mut MdsEffects) -> bool {
        for ino in self.opens.disconnect(client, conn) {
            self.share(ino, effects);
        }
        let mut served = Vec::new();
        let (authority, namespace) = (self.authority, &*self.namespace);
        let is_served = |ino| authority.is_plain() || authority.is_served_here(namespace, ino);
        self.locks.disconnect(client, is_served, &mut served);
        self.serve_locks(served, effects);
        self.caps.abandon(client, self.clock.now);
        self.opens.is_any_of(client) || self.locks.is_any_of(client)
    }

    /// Nothing is open and nothing is locked by a client any more that the client has not reported.
    fn end_old(&mut self, client: ClientId, effects: &mut MdsEffects) {
        let LeftOpen { freed, sharing } = self.opens.end_old(client);
        for freed in freed {
            self.purges.queue_closed(freed);
        }
        for ino in sharing {
            self.share(ino, effects);
        }
        let mut served = Vec::new();
        let (authority, namespace) = (self.authority, &*self.namespace);
        let is_served = |ino| authority.is_plain() || authority.is_served_here(namespace, ino);
        self.locks.end_old(client, is_served, &mut served);
        self.serve_locks(served, effects);
    }
}

impl LapseCx<'_> {
    fn files(&mut self) -> FilesCx<'_> {
        lend!(self => FilesCx)
    }

    fn store_table(&mut self, effects: &mut MdsEffects) {
        lend!(self => TablesCx).tick(effects);
    }

    /// Whether no next server takes the state of clients over.
    fn is_last(&self) -> bool {
        self.settings.read_only || self.settings.private.is_some()
    }

    /// The connection of a client ended while its session had no newer one.
    pub(crate) fn lose(&mut self, client: ClientId, conn: ConnId, effects: &mut MdsEffects) {
        let has_any = self.files().disconnect(client, conn, effects);
        if self.is_last() {
            return self.files().end_old(client, effects);
        }
        if !has_any {
            return;
        }
        self.tables.lapsed.leaves(client);
        if self.phase == Phase::Active {
            self.tables.lapse(client, Some(self.log.last()));
            self.store_table(effects);
        }
    }

    /// A client has a new connection, in place of `old` if it had one. Its state stays if it will
    /// report it.
    pub(crate) fn come_back(
        &mut self,
        client: ClientId,
        old: Option<ConnId>,
        will_report: bool,
        effects: &mut MdsEffects,
    ) {
        let was_leaving = self.tables.lapsed.stays(client);
        let mut has_any = was_leaving;
        if let Some(old) = old {
            has_any |= self.files().disconnect(client, old, effects);
        }
        self.sessions.get_mut(client).returning = will_report.then(Returning::default);
        if !will_report {
            if has_any {
                self.files().end_old(client, effects);
            }
            self.tables.settle(client);
        }
    }

    /// The marker of a client: it has reported all its state. It sends the marker again when it has
    /// the answers to all its reports, if one of them was rejected.
    pub(crate) fn has_reported(&mut self, client: ClientId, effects: &mut MdsEffects) {
        let Some(returning) = &mut self.sessions.get_mut(client).returning else { return };
        let is_first = returning.reported.replace(self.clock.now).is_none();
        if !is_first || !returning.has_rejected {
            self.sessions.get_mut(client).returning = None;
            self.tables.settle(client);
        }
        if is_first {
            self.files().end_old(client, effects);
        }
        self.store_table(effects);
    }

    /// The table of the rank was stored: the state of marked clients ends.
    pub(crate) fn end_lapsed(&mut self, effects: &mut MdsEffects) {
        for client in self.tables.lapsed.due() {
            self.tables.lapsed.stays(client);
            self.files().end_old(client, effects);
        }
    }

    /// The server is active: marks the clients with unknown state, and those that left since they
    /// reported.
    pub(crate) fn mark_absent(&mut self, silent: &[ClientId]) {
        if self.is_last() {
            return;
        }
        for client in silent {
            self.tables.lapse_silent(*client);
        }
        for client in self.tables.lapsed.leaving().collect::<Vec<_>>() {
            self.tables.lapse(client, None);
        }
    }

    /// Forgets marks that no next server needs. Clients of older releases send no second marker:
    /// after a while they have the answers.
    pub(crate) fn forget_lapsed(&mut self) {
        let (now, patience) = (self.clock.now, self.settings.reconnect);
        let had_its_time = |client: &ClientId| {
            let returning = self.sessions.get(*client).and_then(|session| session.returning);
            let reported = returning.and_then(|returning| returning.reported);
            reported.is_some_and(|reported| now.since(reported) >= patience)
        };
        for client in self.tables.lapsed.clients().filter(had_its_time).collect::<Vec<_>>() {
            self.sessions.get_mut(client).returning = None;
            self.tables.settle(client);
        }
        let (sessions, safe) = (&self.sessions, self.log.safe());
        self.tables.forget_lapsed(|client, end| {
            // The journal does not name a client behind the end of its session.
            sessions.conn_of(client).is_some() || end.is_none_or(|end| safe < end)
        });
    }
}
