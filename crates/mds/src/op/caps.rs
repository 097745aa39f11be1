//! Giving capabilities with replies, and revoking them before another client makes a change. `caps`
//! explains them.

use policy::{Ack, Mechanism};
use types::{Attr, ClientId, Ino, Path, Stripe};
use wire::{Answer, Failure, Grants, Message, Op, Request, WantsExclusive};

use super::touched;
use crate::{Mds, MdsEffects, Phase};

impl Mds {
    /// The part of an immediate answer that a client may cache. A delayed answer gives none: the
    /// capability may have been revoked before.
    pub(crate) fn tell(
        &mut self,
        client: ClientId,
        request: &Request<'_>,
        answer: Result<&Answer, &Failure>,
    ) -> Option<Grants> {
        // A merge changes a subtree bit by bit.
        if !request.remembers || client.0 == 0 || self.merges.is_busy() {
            return None;
        }
        if !self.authority.is_plain()
            && !touched(&request.op).0.into_iter().flatten().all(|ino| self.may_tell_of(ino))
        {
            return None;
        }
        // A subtree with `merge: on_demand` is not cached: each look asks for a merge.
        if !self.tables.decoupled.is_empty()
            && self.merge_request_for(client, &request.op).is_some()
        {
            return None;
        }
        if let Some(told) = self.notify_leased(request, answer) {
            return Some(told);
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
        if self.is_under_leases(place)
            || !self.tables.may_remember(client)
            || !self.caps.grant(client, place, self.clock.now)
        {
            return None;
        }
        let dir = self.namespace.getattr(place).ok()?;
        let inode = match (inode, &request.op) {
            (Some(attr), _) => self.may_remember(client, place, attr),
            (None, Op::List { attrs, .. }) => {
                *attrs && !self.opens.is_any_shared() && self.are_all_at_home(place, answer)
            }
            (None, _) => false,
        };
        let alone = self.notify_exclusive(client, request, place);
        let new_alone = match (&request.op, answer) {
            (Op::Create { .. }, Ok(Answer::Attr(attr))) if attr.is_dir() && inode => {
                self.notify_exclusive(client, request, attr.ino)
            }
            _ => None,
        };
        Some(Grants { dir, inode, alone, new_alone, lease: None })
    }

    /// Gives a client that has just made a change a directory alone, if it wants that and can have
    /// it. Returns how files that are created there are striped.
    fn notify_exclusive(
        &mut self,
        client: ClientId,
        request: &Request<'_>,
        dir: Ino,
    ) -> Option<Stripe> {
        let fragmented = !self.authority.is_plain() && self.is_fragmented(dir);
        if request.wants_alone == WantsExclusive::Never || !request.op.is_mutation() || fragmented {
            return None;
        }
        let policy = &self.namespace.effective_policy(dir).1.policy;
        let may = match policy.ack {
            Ack::Safe => false,
            Ack::Applied => request.wants_alone == WantsExclusive::Always,
            Ack::Async => true,
        };
        // Clients that log their requests need the server's answers.
        let logged = policy.contains(Mechanism::LocalPersist);
        let stripe = policy.stripe;
        if !may || logged || !policy.contains(Mechanism::Rpcs) || self.is_ending_exclusive() {
            return None;
        }
        if self.is_under_leases(dir) || self.leases.is_leased(dir, self.clock.now) {
            return None;
        }
        if !self.changes.is_empty() || self.is_decoupled(dir) || self.is_open_by_others(client, dir)
        {
            return None;
        }
        self.caps.grant_exclusive(client, dir).then_some(stripe)
    }

    /// Whether a directory is in a subtree that belongs to a client.
    fn is_decoupled(&self, dir: Ino) -> bool {
        let decoupled = &self.tables.decoupled;
        !decoupled.is_empty() && self.namespace.ancestors(dir).any(|it| decoupled.contains_key(&it))
    }

    /// Whether other clients have files of a directory open.
    fn is_open_by_others(&self, client: ClientId, dir: Ino) -> bool {
        self.opens.of_others(client).any(|ino| self.namespace.home_of(ino) == Some(dir))
    }

    /// Whether a directory is the home of the files that it lists: a file that has had several
    /// names has another home, and changes without a revocation of this directory.
    pub(super) fn are_all_at_home(&self, dir: Ino, answer: Result<&Answer, &Failure>) -> bool {
        let Ok(Answer::Entries { entries, .. }) = answer else { return false };
        entries.iter().all(|(_, attr)| {
            attr.is_dir() || attr.nlink > 1 || self.namespace.home_of(attr.ino) == Some(dir)
        })
    }

    fn may_remember(&mut self, client: ClientId, place: Ino, attr: &Attr) -> bool {
        if attr.is_dir() {
            return self.may_tell_of(attr.ino)
                && !self.is_under_leases(attr.ino)
                && self.caps.grant(client, attr.ino, self.clock.now);
        }
        self.stands_in(place, attr)
    }

    /// Whether every change of a file's attributes is a change of its directory.
    pub(super) fn stands_in(&self, place: Ino, attr: &Attr) -> bool {
        // One with several names is changed through any of them.
        attr.nlink == 1
            && self.namespace.home_of(attr.ino) == Some(place)
            && !self.opens.is_any_shared()
    }

    /// A directory that other clients must drop before this request is executed; the revocations
    /// are sent.
    pub(crate) fn must_revoke(
        &mut self,
        client: ClientId,
        op: &Op<'_>,
        effects: &mut MdsEffects,
    ) -> Option<Ino> {
        if self.caps.is_empty() && self.leases.is_empty() {
            return None;
        }
        if self.caps.is_any_exclusive()
            && let Some(dir) = self.must_revoke_exclusive(client, op, effects)
        {
            return Some(dir);
        }
        if let Op::Open { ino, write } = *op {
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
        let (inos, names) = touched(op);
        let mut waits = None;
        for ino in inos.into_iter().flatten() {
            waits = self.revoke_inode(client, ino, effects).or(waits);
            if matches!(op, Op::SetAttr { .. }) {
                // Its fragments have its permissions.
                for part in self.parts_here(ino) {
                    waits = self.revoke(client, part, effects).or(waits);
                }
            }
        }
        for (parent, name) in names.into_iter().flatten() {
            if let Ok(Some(ino)) = self.namespace.peek(parent, name) {
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
        let (inos, names) = touched(op);
        let mut places: Vec<Ino> =
            inos.into_iter().flatten().filter_map(|ino| self.place_of(ino)).collect();
        for (parent, name) in names.into_iter().flatten() {
            if let Ok(Some(ino)) = self.namespace.peek(parent, name) {
                places.extend(self.place_of(ino));
            }
        }
        if let Op::Walk { base, path } = *op {
            places.extend(self.way(base, path));
        }
        let listed = if let Op::List { dir, attrs: true, .. } = *op {
            Some(dir)
        } else if let Op::WriteDown { parent, name } = *op {
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
            let inside = self.caps.alone().map(|(dir, _)| dir);
            let inside = inside.filter(|it| self.namespace.home_of(*it) == Some(dir));
            places.extend(inside);
        }
        let theirs = |caps: &crate::caps::Caps, dir: Ino| {
            caps.owner(dir).is_some_and(|owner| owner != client || op.is_change())
        };
        places.retain(|dir| theirs(&self.caps, *dir));
        let mut waits = None;
        for dir in places {
            waits = self.revoke(ClientId(0), dir, effects).or(waits);
        }
        waits
    }

    /// The directories on a path, as far as they are in memory, and the one in which it ends.
    pub(super) fn way(&self, base: Ino, path: &[u8]) -> Vec<Ino> {
        let mut way = vec![base];
        let Ok(path) = Path::parse(path) else { return way };
        let mut at = base;
        for name in path.components() {
            let Ok(Some(ino)) = self.namespace.peek(at, name) else { break };
            way.extend(self.place_of(ino));
            at = ino;
        }
        way
    }

    /// The inode itself if it is a directory, else its home.
    pub(crate) fn place_of(&self, ino: Ino) -> Option<Ino> {
        if self.namespace.is_dir(ino) { Some(ino) } else { self.namespace.home_of(ino) }
    }

    /// Revokes the inode itself if it is a directory, else its home.
    fn revoke_inode(
        &mut self,
        client: ClientId,
        ino: Ino,
        effects: &mut MdsEffects,
    ) -> Option<Ino> {
        self.revoke(client, self.place_of(ino)?, effects)
    }

    /// Revokes a directory from every client but `client`. Returns it if a client still has it. The
    /// holders of leases are unknown: the change waits for the leases, even if `client` has one.
    pub(crate) fn revoke(
        &mut self,
        client: ClientId,
        dir: Ino,
        effects: &mut MdsEffects,
    ) -> Option<Ino> {
        for holder in self.caps.revoke(client, dir, self.clock.now) {
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
        let alone = self.caps.alone().map(|(dir, _)| dir);
        let inside: Vec<Ino> = alone.filter(|dir| self.namespace.is_within(*dir, root)).collect();
        for dir in &inside {
            self.revoke(ClientId(0), *dir, effects);
        }
        inside.is_empty()
    }

    /// Collects all changes of clients: revokes the directories that they have alone, and gives
    /// none. Returns whether it has all.
    pub(crate) fn end_exclusive(&mut self, effects: &mut MdsEffects) -> bool {
        self.ending_alone = true;
        let alone: Vec<Ino> = self.caps.alone().map(|(dir, _)| dir).collect();
        for dir in &alone {
            self.revoke(ClientId(0), *dir, effects);
        }
        alone.is_empty()
    }

    fn is_ending_exclusive(&self) -> bool {
        let apart = self.is_private() || self.settings.read_only;
        self.ending_alone || self.snapshots.is_any() || apart
    }

    /// A client has dropped a directory: requests that wait for that check again.
    pub(crate) fn returned(&mut self, client: ClientId, dir: Ino) {
        if self.caps.returned(client, dir, self.clock.now + self.settings.quiet) {
            self.fetches.wake_returned(dir);
        }
    }

    /// Ends revocations of directories that clients cannot use any more.
    pub(crate) fn caps_tick(&mut self, effects: &mut MdsEffects) {
        let now = self.clock.now;
        self.caps.tidy(now);
        for (dir, holder, since) in self.caps.revoking() {
            let over = if self.caps.owner(dir) == Some(holder) {
                now.since(since) >= self.settings.evict
            } else {
                now.since(self.sessions.get_mut(holder).asked) >= self.settings.lease
            };
            if over {
                self.counters.expired += 1;
                self.returned(holder, dir);
            }
        }
        if self.ending_alone && !self.caps.is_any_exclusive() && self.phase == Phase::Active {
            self.terminate(effects);
        }
        // Clients for which no server needs to wait.
        let gone = self.tables.remembering().filter(|client| {
            self.sessions.conn_of(*client).is_none() && !self.caps.is_holding(*client)
        });
        let gone: Vec<ClientId> = gone.collect();
        for client in gone {
            self.tables.forgets(client);
        }
    }

    /// A client has a new connection, and forgot everything before it asked for that.
    pub(crate) fn caps_left(&mut self, client: ClientId) {
        for dir in self.caps.leave(client, self.clock.now + self.settings.quiet) {
            self.fetches.wake_returned(dir);
        }
    }
}
