//! `merge: on_demand` (BF-04): the first request of another client in a decoupled subtree waits
//! until the owner has merged.
//!
//! The server sends the owner a merge request ([`Message::Recall`] of the root); the owner merges
//! its changes, and confirms ([`SessionOp::Yield`] of the root; not `Return`, with which it also
//! drops the root directory when the very merge revokes that). For a moment after that
//! ([`crate::Settings::merge_request_pause`]) the server answers every request at once, so that
//! reading a tree costs its owner a merge a second and not one for each name. A client that is
//! gone, or silent for [`crate::Settings::demand`], delays no request for longer: then other
//! clients see the result of its last merge.
//!
//! In memory only: clients repeat waiting requests after a restart.

use std::collections::BTreeMap;

use namespace::Namespace;
use types::{ClientId, Ino, Moment};
use wire::{AdminOp, Message, Op, ReadOp, SessionOp};

use crate::fetch::Fetches;
use crate::op::{touched, way};
use crate::session::Sessions;
use crate::tables::Tables;
use crate::{Counters, MdsEffects, Settings};

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct MergeRequests {
    /// Roots whose owners got a merge request, and when.
    asked: BTreeMap<Ino, Moment>,
    /// Roots for which no merge request is sent until then.
    quiet: BTreeMap<Ino, Moment>,
}

/// Merge requests, with all that sending and ending them may touch.
pub(crate) struct MergeRequestCx<'a> {
    pub(crate) merge_requests: &'a mut MergeRequests,
    pub(crate) fetches: &'a mut Fetches,
    pub(crate) counters: &'a mut Counters,
    pub(crate) sessions: &'a Sessions,
    pub(crate) tables: &'a Tables,
    pub(crate) namespace: &'a Namespace,
    pub(crate) settings: &'a Settings,
    pub(crate) now: Moment,
}

impl MergeRequestCx<'_> {
    /// The subtree that its owner must merge before this request is answered; the merge request is
    /// sent.
    pub(crate) fn must_merge(
        &mut self,
        client: ClientId,
        op: &Op<'_>,
        effects: &mut MdsEffects,
    ) -> Option<Ino> {
        if !is_look(op) {
            return None;
        }
        let root = merge_request_for(self.tables, self.namespace, client, op)?;
        if self.merge_requests.quiet.get(&root).is_some_and(|until| self.now < *until) {
            return None;
        }
        let owner = self.tables.decoupled.get(&root)?.client;
        // A disconnected client cannot merge.
        let conn = self.sessions.conn_of(owner)?;
        self.merge_requests.asked.entry(root).or_insert_with(|| {
            self.counters.merge_requests += 1;
            effects.outbox.send(conn, &Message::Recall { ino: root });
            self.now
        });
        Some(root)
    }

    /// The subtree is another rank's: waiting requests are redirected there.
    pub(crate) fn end_elsewhere(&mut self, root: Ino) {
        if self.merge_requests.asked.remove(&root).is_some() {
            self.fetches.wake_returned(root);
        }
    }

    /// The requested merge is done, or will not happen: waiting requests are answered from the
    /// present state.
    pub(crate) fn end(&mut self, root: Ino) {
        if self.merge_requests.asked.remove(&root).is_some() {
            self.merge_requests.quiet.insert(root, self.now + self.settings.merge_request_pause);
            self.fetches.wake_returned(root);
        }
    }

    /// Ends the wait for clients that are gone, do not answer, or have released their subtree.
    pub(crate) fn tick(&mut self) {
        let now = self.now;
        self.merge_requests.quiet.retain(|_, until| now < *until);
        let asked: Vec<(Ino, Moment)> =
            self.merge_requests.asked.iter().map(|(root, since)| (*root, *since)).collect();
        for (root, since) in asked {
            let owner = self.tables.owner(root).map(|owner| owner.client);
            let is_there = owner.is_some_and(|owner| self.sessions.conn_of(owner).is_some());
            if !is_there || now.since(since) >= self.settings.merge_request_wait {
                self.end(root);
            }
        }
    }
}

/// The subtree of another client that a look leads into.
pub(crate) fn merge_request_for(
    tables: &Tables,
    namespace: &Namespace,
    client: ClientId,
    op: &Op<'_>,
) -> Option<Ino> {
    if let Op::Read(ReadOp::Walk { base, path }) = *op {
        return way(namespace, base, path)
            .into_iter()
            .find_map(|ino| on_demand(tables, namespace, client, ino));
    }
    let about = touched(op);
    let named = about.names().filter_map(|at| namespace.peek(at.dir, at.name).ok()?);
    about.inodes().chain(named).find_map(|ino| on_demand(tables, namespace, client, ino))
}

/// The root of the subtree of another client, to be merged on demand, that an inode is in.
fn on_demand(tables: &Tables, namespace: &Namespace, client: ClientId, ino: Ino) -> Option<Ino> {
    namespace.ancestors(ino).find(|above| {
        let owner = tables.decoupled.get(above);
        owner.is_some_and(|owner| owner.on_demand && !owner.released && owner.client != client)
    })
}

/// Whether a request reads the subtree. The policy of a directory is in no journal.
fn is_look(op: &Op<'_>) -> bool {
    match op {
        Op::Read(op) => !matches!(op, ReadOp::GetPolicy { .. }),
        Op::Session(op) => matches!(op, SessionOp::Open { .. }),
        Op::Admin(op) => matches!(op, AdminOp::WriteDown { .. }),
        Op::Change(_) | Op::Job(_) | Op::Rank(_) => false,
    }
}
