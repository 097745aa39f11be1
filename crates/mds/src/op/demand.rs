//! `merge: on_demand` (BF-04): who first asks for something in a subtree that a client has decoupled waits
//! until that client has merged.
//!
//! The client is told ([`Message::Recall`] of the root), merges what it holds, and says so
//! ([`Op::Yield`] of the root; not [`Op::Return`], with which it also forgets the root directory when
//! the very merge takes that from it). For a moment behind that ([`crate::Settings::demand_quiet`])
//! everybody is told what is there, so that reading a tree costs its owner a merge a second and not one for each name. A client
//! that is gone, or says nothing for [`crate::Settings::demand`], holds nobody up for longer: then others see what it
//! merged before.
//!
//! In memory only: what waited is asked again after a restart.

use std::collections::BTreeMap;

use types::{ClientId, Ino, Moment};
use wire::{Message, Op};

use super::touched;
use crate::{Effects, Mds};

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Demands {
    /// Roots whose clients were told, and when.
    asked: BTreeMap<Ino, Moment>,
    /// Roots of which nobody asks for more until then.
    quiet: BTreeMap<Ino, Moment>,
}

impl Mds {
    /// The subtree that is to be merged before this is answered; its client is told.
    pub(crate) fn must_merge(
        &mut self,
        client: ClientId,
        op: &Op<'_>,
        effects: &mut Effects,
    ) -> Option<Ino> {
        if self.tables.decoupled.is_empty() || !is_look(op) {
            return None;
        }
        let root = self.demanded(client, op)?;
        let now = self.clock.now;
        if self.demands.quiet.get(&root).is_some_and(|until| now < *until) {
            return None;
        }
        let owner = self.tables.decoupled.get(&root)?.client;
        // Who is gone answers nobody.
        let conn = self.sessions.conn_of(owner)?;
        self.demands.asked.entry(root).or_insert_with(|| {
            self.counters.demands += 1;
            effects.outbox.send(conn, &Message::Recall { ino: root });
            now
        });
        Some(root)
    }

    /// The subtree of another client that a look leads into.
    pub(super) fn demanded(&self, client: ClientId, op: &Op<'_>) -> Option<Ino> {
        if let Op::Walk { base, path } = *op {
            return self.way(base, path).into_iter().find_map(|ino| self.on_demand(client, ino));
        }
        let (inos, names) = touched(op);
        let named = names.into_iter().flatten();
        let named = named.filter_map(|(parent, name)| self.namespace.peek(parent, name).ok()?);
        inos.into_iter().flatten().chain(named).find_map(|ino| self.on_demand(client, ino))
    }

    /// The root of the subtree of another client, to be merged on demand, that an inode is in.
    fn on_demand(&self, client: ClientId, ino: Ino) -> Option<Ino> {
        self.namespace.ancestors(ino).find(|above| {
            let owner = self.tables.decoupled.get(above);
            owner.is_some_and(|owner| owner.on_demand && !owner.released && owner.client != client)
        })
    }

    /// Whether this is the root of a subtree that a client has decoupled.
    pub(crate) fn is_root_of(&self, client: ClientId, ino: Ino) -> bool {
        self.tables.decoupled.get(&ino).is_some_and(|owner| owner.client == client)
    }

    /// The subtree is another rank's: whoever waits asks that one.
    pub(crate) fn demand_elsewhere(&mut self, root: Ino, effects: &mut Effects) {
        if self.demands.asked.remove(&root).is_some() {
            self.retry_returned(root, effects);
        }
    }

    /// What was asked for is merged, or will not be: whoever waits is told what is there.
    pub(crate) fn end_demand(&mut self, root: Ino, effects: &mut Effects) {
        if self.demands.asked.remove(&root).is_some() {
            self.demands.quiet.insert(root, self.clock.now + self.settings.demand_quiet);
            self.retry_returned(root, effects);
        }
    }

    /// Nobody waits for clients that are gone, do not answer, or have given their subtree back.
    pub(crate) fn demand_tick(&mut self, effects: &mut Effects) {
        let now = self.clock.now;
        self.demands.quiet.retain(|_, until| now < *until);
        let asked: Vec<(Ino, Moment)> =
            self.demands.asked.iter().map(|(root, since)| (*root, *since)).collect();
        for (root, since) in asked {
            let owner = self.tables.owner(root).map(|owner| owner.client);
            let is_there = owner.is_some_and(|owner| self.sessions.conn_of(owner).is_some());
            if !is_there || now.since(since) >= self.settings.demand {
                self.end_demand(root, effects);
            }
        }
    }
}

/// Whether a request shows somebody what is there.
fn is_look(op: &Op<'_>) -> bool {
    matches!(
        op,
        Op::Lookup { .. }
            | Op::Walk { .. }
            | Op::GetAttr { .. }
            | Op::GetXattr { .. }
            | Op::ListXattr { .. }
            | Op::GetData { .. }
            | Op::List { .. }
            | Op::Open { .. }
            | Op::WriteDown { .. }
    )
}
