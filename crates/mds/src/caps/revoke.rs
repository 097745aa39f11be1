//! Revoking capabilities before another client makes a change.

use types::{ClientId, EntryName, Ino};
use wire::{AdminOp, ChangeOp, Message, Op, ReadOp, SessionOp};

use super::CapsCx;
use crate::op::{place_of, touched, way};
use crate::{MdsEffects, MdsNotice};

impl CapsCx<'_> {
    /// A directory that other clients must drop before this request is executed; the revocations
    /// are sent.
    pub(crate) fn must_revoke(
        &mut self,
        client: ClientId,
        op: &Op<'_>,
        effects: &mut MdsEffects,
    ) -> Option<Ino> {
        if self.caps.is_any_exclusive()
            && let Some(dir) = self.must_revoke_exclusive(client, op, effects)
        {
            return Some(dir);
        }
        if let Op::Session(SessionOp::Open { ino, write }) = *op {
            // Sharing a file moves its content, which changes it.
            let shares = self.opens.judge(client, ino, write) == crate::opens::Verdict::Wait;
            return if shares { self.revoke_inode(ClientId(0), ino, effects) } else { None };
        }
        if !op.is_change() {
            return None;
        }
        // The answer to half of a change between two servers does not update the client's own
        // cache.
        let client = if op.is_mutation() { client } else { ClientId(0) };
        let about = touched(op);
        let mut waits = None;
        for ino in about.inodes() {
            waits = self.revoke_inode(client, ino, effects).or(waits);
            if matches!(op, Op::Change(ChangeOp::SetAttr { .. })) {
                // Its fragments have its permissions.
                for part in self.authority.parts_here(ino) {
                    waits = self.revoke(client, part, effects).or(waits);
                }
            }
        }
        for EntryName { dir, name } in about.names() {
            if let Ok(Some(ino)) = self.namespace.peek(dir, name) {
                waits = self.revoke_inode(client, ino, effects).or(waits);
            }
        }
        waits
    }

    /// A directory that the client that has it alone must return before this request is executed;
    /// the revocations are sent. The owner itself returns it, too, before the server executes a
    /// change there for it.
    fn must_revoke_exclusive(
        &mut self,
        client: ClientId,
        op: &Op<'_>,
        effects: &mut MdsEffects,
    ) -> Option<Ino> {
        let about = touched(op);
        let mut places: Vec<Ino> =
            about.inodes().filter_map(|ino| place_of(self.namespace, ino)).collect();
        for EntryName { dir, name } in about.names() {
            if let Ok(Some(ino)) = self.namespace.peek(dir, name) {
                places.extend(place_of(self.namespace, ino));
            }
        }
        if let Some((base, path)) = op.path() {
            places.extend(way(self.namespace, base, path));
        }
        let listed = if let Op::Read(ReadOp::List { dir, attrs: true, .. }) = *op {
            Some(dir)
        } else if let Op::Admin(AdminOp::WriteDown { parent, name }) = *op {
            if name.is_empty() {
                Some(parent)
            } else {
                self.namespace.peek(parent, name).ok().flatten()
            }
        } else {
            None
        };
        if let Some(dir) = listed {
            // Its entries include the attributes of the directories in it.
            let inside = self.caps.exclusive().map(|(dir, _)| dir);
            let inside = inside.filter(|it| self.namespace.home_of(*it) == Some(dir));
            places.extend(inside);
        }
        let theirs = |caps: &crate::caps::Caps, dir: Ino| {
            caps.owner(dir).is_some_and(|owner| owner != client || op.is_change())
        };
        places.retain(|dir| theirs(self.caps, *dir));
        let mut waits = None;
        for dir in places {
            waits = self.revoke(ClientId(0), dir, effects).or(waits);
        }
        waits
    }

    /// Revokes the inode itself if it is a directory, else its home.
    fn revoke_inode(
        &mut self,
        client: ClientId,
        ino: Ino,
        effects: &mut MdsEffects,
    ) -> Option<Ino> {
        self.revoke(client, place_of(self.namespace, ino)?, effects)
    }

    /// Revokes a directory from every client but `client`. Returns it if a client still has it. The
    /// holders of leases are unknown: the change waits for the leases, even if `client` has one.
    pub(crate) fn revoke(
        &mut self,
        client: ClientId,
        dir: Ino,
        effects: &mut MdsEffects,
    ) -> Option<Ino> {
        for holder in self.caps.revoke(client, dir, self.now) {
            self.counters.revokes += 1;
            if let Some(conn) = self.sessions.conn_of(holder) {
                effects.outbox.send(conn, &Message::Revoke { dir });
            }
        }
        let waits = self.waits_for_lease(dir) || self.caps.others(client, dir).next().is_some();
        waits.then_some(dir)
    }

    /// Revokes everything in a subtree from every client but `client`. Returns a directory that a
    /// client still has.
    pub(crate) fn revoke_below(
        &mut self,
        client: ClientId,
        root: Ino,
        effects: &mut MdsEffects,
    ) -> Option<Ino> {
        let held = self.caps.directories();
        let inside: Vec<Ino> =
            held.filter(|dir| self.namespace.ancestors(*dir).any(|it| it == root)).collect();
        let mut waits = self.waits_for_leases_below(root);
        for dir in inside {
            // A directory that a client has alone has changes that are not here.
            let keeper = if self.caps.owner(dir).is_some() { ClientId(0) } else { client };
            waits = self.revoke(keeper, dir, effects).or(waits);
        }
        waits
    }

    /// Collects all changes in a subtree: revokes the directories that clients have alone. Returns
    /// whether it has all.
    pub(crate) fn end_exclusive_below(&mut self, root: Ino, effects: &mut MdsEffects) -> bool {
        let alone = self.caps.exclusive().map(|(dir, _)| dir);
        let inside: Vec<Ino> = alone.filter(|dir| self.namespace.is_within(*dir, root)).collect();
        for dir in &inside {
            self.revoke(ClientId(0), *dir, effects);
        }
        inside.is_empty()
    }

    /// Collects all changes of clients: revokes the directories that they have alone, and gives
    /// none.
    pub(crate) fn end_exclusive(&mut self, effects: &mut MdsEffects) {
        self.caps.ending_since.get_or_insert(self.now);
        let alone: Vec<Ino> = self.caps.exclusive().map(|(dir, _)| dir).collect();
        for dir in &alone {
            self.revoke(ClientId(0), *dir, effects);
        }
    }

    /// A client has dropped a directory: requests that wait for that check again.
    pub(crate) fn returned(&mut self, client: ClientId, dir: Ino) {
        if self.caps.returned(client, dir, self.now + self.settings.quiet) {
            self.fetches.wake_returned(dir);
        }
    }

    /// Ends revocations of directories that clients cannot use any more.
    pub(crate) fn tick(&mut self, effects: &mut MdsEffects) {
        self.leases_tick();
        let now = self.now;
        self.caps.tidy(now);
        for (dir, holder, since) in self.caps.revoking() {
            let may_lose = self.caps.owner(dir) == Some(holder);
            let over = if may_lose {
                // A client that makes directories in those that it does not return gains no time.
                let since = self.caps.ending_since.map_or(since, |ending| ending.min(since));
                now.since(since) >= self.settings.evict
            } else {
                now.since(self.sessions.get_mut(holder).asked) >= self.settings.lease
            };
            if over {
                self.counters.expired += 1;
                if may_lose {
                    effects.notices.push(MdsNotice::Expired { client: holder, dir });
                }
                self.returned(holder, dir);
            }
        }
        // Clients for which no server needs to wait.
        let gone = self.tables.expected().filter(|client| {
            self.sessions.conn_of(*client).is_none() && !self.caps.is_holding(*client)
        });
        let gone: Vec<ClientId> = gone.collect();
        for client in gone {
            self.tables.stop_expecting(client);
        }
    }

    /// A client has a new connection, and forgot everything before it asked for that.
    pub(crate) fn left(&mut self, client: ClientId) {
        for dir in self.caps.leave(client, self.now + self.settings.quiet) {
            self.fetches.wake_returned(dir);
        }
    }
}
