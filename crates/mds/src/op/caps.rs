//! Giving capabilities with replies, and taking them back before somebody else makes a change.
//! What they mean is said in `caps`.

use types::{Attr, ClientId, Ino};
use wire::{Answer, Failure, Message, Op, Request, Told};

use super::touched;
use crate::{Effects, Mds};

impl Mds {
    /// What a client may remember of an answer that is sent at once. Not of one that is sent later:
    /// the capability may have been taken away before.
    pub(crate) fn tell(
        &mut self,
        client: ClientId,
        request: &Request<'_>,
        answer: Result<&Answer, &Failure>,
    ) -> Option<Told> {
        // A merge changes a subtree bit by bit.
        if !request.remembers || client.0 == 0 || self.merges.is_busy() {
            return None;
        }
        if !self.tables.may_remember(client) {
            return None;
        }
        let (place, inode) = match (&request.op, answer) {
            (Op::Lookup { parent, .. }, Ok(Answer::Attr(attr))) => (*parent, Some(attr)),
            (Op::Create { parent, .. }, Ok(Answer::Attr(attr))) => (*parent, Some(attr)),
            (Op::Lookup { parent, .. }, Err(failure))
                if failure.errno == types::Errno::NotFound =>
            {
                (*parent, None)
            }
            (
                Op::Unlink { parent, .. } | Op::Rmdir { parent, .. } | Op::Link { parent, .. },
                Ok(_),
            ) => (*parent, None),
            (Op::Rename { new_parent, .. }, Ok(_)) => (*new_parent, None),
            (Op::GetAttr { ino }, Ok(Answer::Attr(attr))) if attr.is_dir() => (*ino, None),
            (Op::List { dir, .. }, Ok(Answer::Entries { .. })) => (*dir, None),
            _ => return None,
        };
        if !self.caps.grant(client, place, self.clock.now) {
            return None;
        }
        let dir = self.namespace.getattr(place).ok()?;
        let inode = match (inode, &request.op) {
            (Some(attr), _) => self.may_remember(client, place, attr),
            (None, Op::List { .. }) => !self.opens.is_any_shared(),
            (None, _) => false,
        };
        Some(Told { dir, inode })
    }

    fn may_remember(&mut self, client: ClientId, place: Ino, attr: &Attr) -> bool {
        if attr.is_dir() {
            return self.caps.grant(client, attr.ino, self.clock.now);
        }
        // One with several names is changed through any of them.
        attr.nlink == 1
            && self.namespace.home_of(attr.ino) == Some(place)
            && !self.opens.is_any_shared()
    }

    /// A directory that others must forget before this is carried out, all of which are told.
    pub(crate) fn must_revoke(
        &mut self,
        client: ClientId,
        op: &Op<'_>,
        effects: &mut Effects,
    ) -> Option<Ino> {
        if self.caps.is_empty() {
            return None;
        }
        if let Op::Open { ino, write } = *op {
            // Sharing a file moves its content, which changes it.
            let shares = self.opens.judge(client, ino, write) == crate::opens::Verdict::Wait;
            return if shares { self.revoke_inode(ClientId(0), ino, effects) } else { None };
        }
        if !op.is_mutation() {
            return None;
        }
        let (inos, names) = touched(op);
        let mut waits = None;
        for ino in inos.into_iter().flatten() {
            waits = self.revoke_inode(client, ino, effects).or(waits);
        }
        for (parent, name) in names.into_iter().flatten() {
            if let Ok(Some(ino)) = self.namespace.peek(parent, name) {
                waits = self.revoke_inode(client, ino, effects).or(waits);
            }
        }
        waits
    }

    /// Takes the directory that an inode is, or stands in.
    fn revoke_inode(&mut self, client: ClientId, ino: Ino, effects: &mut Effects) -> Option<Ino> {
        let place = if self.namespace.is_dir(ino) { ino } else { self.namespace.home_of(ino)? };
        self.revoke(client, place, effects)
    }

    /// Takes a directory from everybody but `client`. Returns it if somebody still has it.
    fn revoke(&mut self, client: ClientId, dir: Ino, effects: &mut Effects) -> Option<Ino> {
        for holder in self.caps.revoke(client, dir) {
            self.counters.revokes += 1;
            if let Some(conn) = self.sessions.conn_of(holder) {
                effects.outbox.send(conn, &Message::Revoke { dir });
            }
        }
        self.caps.others(client, dir).next().map(|_| dir)
    }

    /// Takes everything in a subtree from everybody but `client`. Returns one that somebody still
    /// has.
    pub(crate) fn revoke_below(
        &mut self,
        client: ClientId,
        root: Ino,
        effects: &mut Effects,
    ) -> Option<Ino> {
        let held = self.caps.directories();
        let inside: Vec<Ino> =
            held.filter(|dir| self.namespace.ancestors(*dir).any(|it| it == root)).collect();
        let mut waits = None;
        for dir in inside {
            waits = self.revoke(client, dir, effects).or(waits);
        }
        waits
    }

    /// A client has forgotten a directory: whoever waits for that looks again.
    pub(crate) fn returned(&mut self, client: ClientId, dir: Ino, effects: &mut Effects) {
        if self.caps.returned(client, dir, self.clock.now + self.settings.quiet) {
            self.retry_returned(dir, effects);
        }
    }

    /// What clients cannot remember any more is taken from them.
    pub(crate) fn caps_tick(&mut self, effects: &mut Effects) {
        let now = self.clock.now;
        self.caps.tidy(now);
        for (dir, holder) in self.caps.revoking() {
            let asked = self.sessions.get_mut(holder).asked;
            if now.since(asked) >= self.settings.lease {
                self.counters.expired += 1;
                self.returned(holder, dir, effects);
            }
        }
        // Whom no server needs to wait for.
        let gone = self.tables.remembering().filter(|client| {
            self.sessions.conn_of(*client).is_none() && !self.caps.is_holding(*client)
        });
        let gone: Vec<ClientId> = gone.collect();
        for client in gone {
            self.tables.forgets(client);
        }
    }

    /// A client has a new connection, and forgot everything before it asked for that.
    pub(crate) fn caps_left(&mut self, client: ClientId, effects: &mut Effects) {
        for dir in self.caps.leave(client, self.clock.now + self.settings.quiet) {
            self.retry_returned(dir, effects);
        }
    }
}
