//! What clients have open, or locked, in a subtree that goes to another rank (F-13); and what they have decoupled in it and
//! merge when somebody asks for it, because they are asked by the rank that serves it.
//!
//! It is known in memory only, and to the clients whose it is. So the rank that gives the subtree away tells them who
//! has it now ([`Message::Moved`]), and they tell that one what they have, as they would tell a server that was restarted. The
//! list of subtrees says of which clients and files it has to hear before anybody is served: else somebody might open
//! alone, or lock, what another one has.
//!
//! A client from which nothing is heard is waited for as long as one after a restart. It may tell later: a file that
//! somebody else writes by then is shared from then on.

use std::collections::{BTreeMap, BTreeSet};

use types::{ClientId, Ino, Moment, Rank, Seq, Span};
use wire::{Answer, Elsewhere, Message, Op, Request};

use super::Import;
use super::place::Place;
use crate::{Effects, Mds};

/// Open files, and offers to merge, that go with a subtree at most, counted for each client that has them.
const OPEN_MAX: usize = 16_384;
/// Files that were closed while they were on their way here, of which that is remembered.
const CLOSED_MAX: usize = 1024;

/// Files on their way here that clients have told of before the list of subtrees did.
#[derive(Debug, Default)]
pub(super) struct Closed(BTreeSet<(ClientId, Ino)>);

impl Closed {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

impl Import {
    /// Whether something is still to be heard of files that clients have open in it, and not for too long.
    pub(super) fn awaits(&mut self, now: Moment, patience: Span) -> bool {
        let since = *self.asks_since.get_or_insert(now);
        !self.awaited.is_empty() && now.since(since) < patience
    }
}

impl Mds {
    /// The files in a subtree, or with names in it only, that clients have open or locked.
    fn held_below(&self, root: Ino, linked: &[Ino]) -> BTreeSet<Ino> {
        let goes =
            |ino: &Ino| self.namespace.is_within(*ino, root) || linked.binary_search(ino).is_ok();
        self.opens.files().chain(self.locks.files()).filter(goes).collect()
    }

    /// Who has which of them, or has decoupled which directory, in order.
    pub(super) fn holders_below(&self, root: Ino, linked: &[Ino]) -> Vec<(ClientId, Ino)> {
        let mut pairs = BTreeSet::new();
        for ino in self.held_below(root, linked) {
            let clients = self.opens.clients(ino).chain(self.locks.clients(ino));
            pairs.extend(clients.map(|client| (client, ino)));
        }
        let owners = self.decoupled_below(root).into_iter();
        pairs.extend(owners.filter_map(|ino| Some((self.tables.offered_by(ino)?, ino))));
        pairs.into_iter().collect()
    }

    /// How many files in a subtree clients are to give up, because others want them, and have not yet.
    pub(super) fn contested_below(&self, root: Ino, linked: &[Ino]) -> usize {
        let held = self.held_below(root, linked);
        held.into_iter().filter(|ino| self.opens.is_becoming_shared(*ino)).count()
    }

    /// Why what clients have open keeps a subtree where it is, if it does.
    pub(super) fn too_many_open(&self, root: Ino, linked: &[Ino]) -> Option<String> {
        let count = self.holders_below(root, linked).len();
        let text = || format!("clients have {count} files open in it; {OPEN_MAX} may go with it");
        (count > OPEN_MAX).then(text)
    }

    /// Who has something open in a subtree that went is told where it is. To be called before it is forgotten.
    pub(super) fn send_opens_after(
        &mut self,
        (root, to): (Ino, Rank),
        linked: &[Ino],
        effects: &mut Effects,
    ) {
        let mut files: BTreeMap<ClientId, Vec<Ino>> = BTreeMap::new();
        for (client, ino) in self.holders_below(root, linked) {
            files.entry(client).or_default().push(ino);
        }
        for ino in self.held_below(root, linked) {
            self.counters.exported_open += 1;
            let mut waiting = self.locks.remove(ino);
            waiting.extend(self.opens.remove(ino));
            for at in waiting {
                let elsewhere = Elsewhere { rank: to, ..Elsewhere::default() };
                let answer = Answer::Elsewhere(Box::new(elsewhere));
                self.reply_with(at, Seq(0), answer, effects);
            }
        }
        for (client, files) in files {
            self.send_moved(client, (to, files), effects);
        }
    }

    fn send_moved(&self, client: ClientId, (to, files): (Rank, Vec<Ino>), effects: &mut Effects) {
        if let Some(conn) = self.sessions.conn_of(client) {
            effects.outbox.send(conn, &Message::Moved { to, files });
        }
    }

    /// Who has something open in a subtree that is to go connects to the other rank ahead of time: if this one is killed as
    /// soon as it went, that one can ask.
    pub(super) fn announce_move(&self, (root, to): (Ino, Rank), effects: &mut Effects) {
        let holders = self.holders_below(root, &[]);
        let clients: BTreeSet<ClientId> = holders.into_iter().map(|(client, _)| client).collect();
        for client in clients {
            self.send_moved(client, (to, Vec::new()), effects);
        }
    }

    /// Clients that are connected are asked what they have open in what comes, once, also if they told of it: what was
    /// said before of where it goes is older than this, and they hear it in this order.
    pub(super) fn ask_for_opens(&mut self, effects: &mut Effects) {
        let mut asked = BTreeSet::new();
        for import in self.authority.imports.iter_mut().filter(|import| !import.asked) {
            import.asked = true;
            asked.extend(import.opened.iter().map(|(client, _)| *client));
        }
        for client in asked {
            self.ask_for_opens_of(client, effects);
        }
    }

    /// A client is asked what it has open in what comes.
    pub(crate) fn ask_for_opens_of(&self, client: ClientId, effects: &mut Effects) {
        let opened = self.authority.imports.iter().flat_map(|import| &import.opened);
        let files = opened.filter(|(of, _)| *of == client).map(|(_, ino)| *ino);
        let files: Vec<Ino> = files.collect();
        if !files.is_empty() {
            self.send_moved(client, (self.rank, files), effects);
        }
    }

    /// Of what an import has to hear: what the list says, without that of which was heard already.
    pub(super) fn unheard(&mut self, opened: &[(ClientId, Ino)]) -> BTreeSet<(ClientId, Ino)> {
        let mut unheard = BTreeSet::new();
        for (client, ino) in opened.iter().copied() {
            let is_closed = self.authority.closed.0.remove(&(client, ino));
            if !is_closed && !self.opens.has(client, ino) {
                unheard.insert((client, ino));
            }
        }
        unheard
    }

    /// A client has told what it has of a file; nothing any more, if `is_closed`.
    pub(crate) fn heard_of(
        &mut self,
        client: ClientId,
        (ino, is_closed): (Ino, bool),
        effects: &mut Effects,
    ) {
        let mut is_awaited = false;
        for import in &mut self.authority.imports {
            is_awaited |= import.awaited.remove(&(client, ino));
        }
        if is_awaited || self.authority.is_plain() || self.place(ino) == Place::Here {
            return;
        }
        if is_closed {
            let closed = &mut self.authority.closed.0;
            if closed.len() == CLOSED_MAX {
                closed.pop_first();
            }
            closed.insert((client, ino));
        }
        // It is on its way, and what is known of that is old.
        if self.is_active() {
            self.read_list(effects);
        }
    }

    /// Whether a lock is asked for in a file of which this rank knows nothing, so that another one may serve it. In a
    /// decoupled subtree, where nothing is known of files, locks are where their numbers were given out.
    pub(crate) fn is_locked_elsewhere(&self, ino: Ino, request: &Request<'_>) -> bool {
        let is_known = self.authority.is_plain()
            || request.replay.is_some()
            || self.namespace.knows(ino)
            || self.opens.is_open(ino)
            || self.locks.clients(ino).next().is_some()
            || self.tables.holder_of(ino).is_some();
        !is_known && self.has_ranks()
    }

    /// The file that a request is about although its name does not matter: what is open or locked goes with it. What
    /// makes a file shared goes on where that began.
    pub(super) fn held_by(&self, request: &Request<'_>) -> Option<Ino> {
        if let Op::Lock { ino, .. } | Op::GetLock { ino, .. } | Op::CancelLock { ino, .. } =
            request.op
        {
            return request.replay.is_none().then_some(ino);
        }
        let Op::Yield { ino } = request.op else { return None };
        let goes_on = self.opens.is_becoming_shared(ino) || !self.opens.is_open(ino);
        (!goes_on).then_some(ino)
    }
}
