//! The files that clients have open or locked in a subtree that moves to another rank (F-13); and
//! the subtrees that they have decoupled in it with `merge: on_demand`, because the rank that
//! serves such a subtree sends its client the merge requests.
//!
//! Only the rank's memory and the clients themselves have this state. So the exporting rank
//! sends the clients the new rank ([`Message::Moved`]), and each client reports its state to
//! that rank, as it would to a restarted server. The list of subtrees names the clients and files
//! whose reports the new rank needs before it serves the subtree: otherwise one client could get
//! exclusive access to a file, or a lock, that another client has.
//!
//! The rank waits for a silent client as long as after a restart. The client may report later: a
//! file that another client writes by then is shared from then on.

use std::collections::{BTreeMap, BTreeSet};

use types::{ClientId, Ino, Moment, Rank, Seq, Span};
use wire::{Answer, Message, Op, Redirect, Request, SessionOp};

use super::export::ExportCx;
use super::import::ImportCx;
use super::place::InodeAuthority;
use super::preload::Goal;
use super::view::Places;
use super::{Authority, Import};
use crate::MdsEffects;
use crate::session::Sessions;

/// Open files, and offers to merge, that may move with a subtree, counted for each client that has
/// them.
const OPEN_MAX: usize = 16_384;

impl Import {
    /// Whether reports about open files in it are missing, and the wait for them is not too long
    /// yet.
    pub(super) fn awaits(&mut self, now: Moment, patience: Span) -> bool {
        let since = *self.asks_since.get_or_insert(now);
        !self.awaited.is_empty() && now.since(since) < patience
    }
}

impl Places<'_> {
    /// The files in a subtree, or with names in it only, that clients have open or locked.
    fn held_below(&self, root: Ino, linked: &[Ino]) -> BTreeSet<Ino> {
        let goes =
            |ino: &Ino| self.namespace.is_within(*ino, root) || linked.binary_search(ino).is_ok();
        self.opens.files().chain(self.locks.files()).filter(goes).collect()
    }

    /// Pairs of a client and a file or decoupled directory that it has, in order.
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

    /// How many files in a subtree clients have to give up for other clients, and have not yet.
    pub(super) fn contested_below(&self, root: Ino, linked: &[Ino]) -> usize {
        let held = self.held_below(root, linked);
        held.into_iter().filter(|ino| self.opens.is_becoming_shared(*ino)).count()
    }

    /// The reason if too many open files keep a subtree where it is.
    pub(super) fn too_many_open(&self, root: Ino, linked: &[Ino]) -> Option<String> {
        let count = self.holders_below(root, linked).len();
        let text = || format!("clients have {count} files open in it; {OPEN_MAX} may go with it");
        (count > OPEN_MAX).then(text)
    }

    /// Whether clients have reported files as open or locked of which this rank does not know all
    /// directories above: they may be in any of its subtrees.
    pub(super) fn has_unfound_files(&self) -> bool {
        let is_unfound = |ino: Ino| {
            !self.namespace.is_anchored(ino)
                && !matches!(self.place(ino), InodeAuthority::Other(_))
                && !self.opens.is_nameless(ino)
                && self.tables.holder_of(ino).is_none()
        };
        self.opens.files().chain(self.locks.files()).any(is_unfound)
    }

    /// Whether a request is about a lock, or the cache, of a file that this rank does not know, so
    /// that another rank may serve it, also if a client reported the file here after a restart: the
    /// file may have moved since. No rank knows the files in a decoupled subtree; the rank that
    /// granted their numbers has their locks.
    pub(crate) fn is_held_elsewhere(&self, ino: Ino, request: &Request<'_>) -> bool {
        request.replay.is_none() && self.may_be_elsewhere(ino)
    }

    /// Whether another rank may serve a file, or have its locks, as far as this rank knows.
    pub(super) fn may_be_elsewhere(&self, ino: Ino) -> bool {
        let is_known = self.authority.is_plain()
            || self.namespace.knows(ino)
            || self.opens.is_nameless(ino)
            || self.tables.holder_of(ino).is_some();
        !is_known && self.has_ranks()
    }

    /// The file of a request that does not depend on the file's name: its open and lock state moves
    /// with it. A request that makes a file shared continues at the rank where it began.
    pub(super) fn held_by(&self, request: &Request<'_>) -> Option<Ino> {
        if let Op::Session(
            SessionOp::Lock { ino, .. }
            | SessionOp::GetLock { ino, .. }
            | SessionOp::CancelLock { ino, .. },
        ) = request.op
        {
            return request.replay.is_none().then_some(ino);
        }
        let Op::Session(SessionOp::Yield { ino }) = request.op else { return None };
        let goes_on = self.opens.is_becoming_shared(ino) || !self.opens.is_open(ino);
        (!goes_on).then_some(ino)
    }
}

/// Announces the rank of files that a client has open.
pub(super) fn send_moved(
    sessions: &Sessions,
    client: ClientId,
    to: Rank,
    files: Vec<Ino>,
    effects: &mut MdsEffects,
) {
    if let Some(conn) = sessions.conn_of(client) {
        effects.outbox.send(conn, &Message::Moved { to, files });
    }
}

impl ExportCx<'_> {
    /// Whether all files that clients have open or locked in a subtree are known to be in it. After
    /// a restart clients report files by numbers, and a number does not say where a file is: then
    /// this rank reads the subtree, once. Files of the subtree that are reported later are in
    /// memory, and reports of files that do not exist cannot make this rank read without end.
    pub(super) fn has_found_files(&mut self, root: Ino) -> bool {
        let is_unfound = self.places().has_unfound_files();
        let Some(export) = self.export_mut(root) else { return true };
        if is_unfound && !std::mem::replace(&mut export.is_searched, true) {
            self.base.authority.preload(Goal::All(root));
        }
        !self.base.authority.is_preloading(Goal::All(root))
    }

    /// Announces the new rank of a subtree that left to the clients with open files in it. To be
    /// called before the subtree is forgotten.
    pub(super) fn send_opens_after(
        &mut self,
        root: Ino,
        to: Rank,
        linked: &[Ino],
        effects: &mut MdsEffects,
    ) {
        let mut files: BTreeMap<ClientId, Vec<Ino>> = BTreeMap::new();
        for (client, ino) in self.places().holders_below(root, linked) {
            files.entry(client).or_default().push(ino);
        }
        for ino in self.places().held_below(root, linked) {
            self.base.counters.exported_open += 1;
            let mut waiting = self.locks.remove(ino);
            waiting.extend(self.base.opens.remove(ino));
            for at in waiting {
                let elsewhere = Redirect { rank: to, ..Redirect::default() };
                let answer = Answer::Redirect(Box::new(elsewhere));
                effects.reply_with(at, Seq(0), answer);
            }
        }
        for (client, files) in files {
            send_moved(self.base.sessions, client, to, files, effects);
        }
    }

    /// Clients with open files in a subtree that is about to leave connect to the other rank ahead
    /// of time: if this rank crashes right after the move, the other one can ask them.
    pub(super) fn announce_move(&self, root: Ino, to: Rank, effects: &mut MdsEffects) {
        let holders = self.places().holders_below(root, &[]);
        let clients: BTreeSet<ClientId> = holders.into_iter().map(|(client, _)| client).collect();
        for client in clients {
            send_moved(self.base.sessions, client, to, Vec::new(), effects);
        }
    }
}

impl Authority {
    /// The root of a subtree that comes with a file that clients have open or locked, and whether
    /// the list names this client among them.
    pub(super) fn comes_open(&self, client: ClientId, ino: Ino) -> Option<(Ino, bool)> {
        let of_file = (ino, ClientId(0))..=(ino, ClientId(u64::MAX));
        let is_in = |import: &&Import| import.opened.range(of_file.clone()).next().is_some();
        let import = self.imports.iter().find(is_in)?;
        Some((import.root, import.opened.contains(&(ino, client))))
    }

    /// A client has reported its state of a file.
    pub(crate) fn note_reported(&mut self, client: ClientId, ino: Ino) {
        for import in &mut self.imports {
            import.awaited.remove(&(client, ino));
        }
    }
}

impl ImportCx<'_> {
    /// Asks each connected client once for its open files in the arriving subtree, even if it
    /// reported them: earlier notices about the place of the subtree are older than this one, and
    /// clients receive them in this order.
    pub(super) fn ask_for_opens(&mut self, effects: &mut MdsEffects) {
        self.drop_unnamed();
        let mut asked = BTreeSet::new();
        for import in self.authority.imports.iter_mut().filter(|import| !import.asked) {
            import.asked = true;
            asked.extend(import.opened.iter().map(|(_, client)| *client));
        }
        for client in asked {
            self.ask_for_opens_of(client, effects);
        }
    }

    /// Drops the state that other clients than those in the list have of files that come: such a
    /// client may have reported a file here after a restart, when another rank had the file. To be
    /// called before the first report of a client that the list names is executed.
    pub(super) fn drop_unnamed(&mut self) {
        for import in self.authority.imports.iter().filter(|import| !import.asked) {
            for (ino, _) in &import.opened {
                let is_named = |client| import.opened.contains(&(*ino, client));
                self.opens.keep_only(*ino, is_named);
                self.locks.keep_only(*ino, is_named);
            }
        }
    }

    /// Asks a client for its open files in arriving subtrees.
    pub(crate) fn ask_for_opens_of(&self, client: ClientId, effects: &mut MdsEffects) {
        let opened = self.authority.imports.iter().flat_map(|import| &import.opened);
        let files = opened.filter(|(_, of)| *of == client).map(|(ino, _)| *ino);
        let files: Vec<Ino> = files.collect();
        if !files.is_empty() {
            send_moved(self.sessions, client, self.authority.rank, files, effects);
        }
    }
}
