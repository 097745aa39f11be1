//! The place of a request: this rank, another rank, or neither before a subtree has moved.

use namespace::Namespace;
use namespace::Refusal;
use types::{Errno, Ino, Moment, Rank, Span};
use wire::{AdminOp, Answer, ChangeOp, ClusterMap, Failure, JobOp, Op, RankOp, ReadOp, Redirect};

use super::Authority;
use super::between::second_of;
use super::decoupled::decoupled_of;
use super::preload::Goal;
use super::reports::{follows_report, open_file, reported};
use super::view::Places;
use super::{LIST, Preload, READ_LATELY};
use crate::admission::Incoming;
use crate::contexts::lend;
use crate::fetch::Fetches;
use crate::locks::Locks;
use crate::op::{Refused, touched};
use crate::opens::Opens;
use crate::session::Sessions;
use crate::store::StoreOps;
use crate::tables::Tables;
use crate::{Counters, MdsEffects, Phase, ReplyTo};

/// Why something cannot be done with a directory as a whole.
pub(super) const FRAGMENTED: &str = "a directory is split; put it together first with `cudele mds join PATH`; `cudele mds ls` shows it";

/// The rank that has an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InodeAuthority {
    Here,
    /// In a moving subtree with this root.
    Moving(Ino),
    Other(Rank),
    /// Not in memory, and not remembered as moved to another rank.
    Unknown,
}

impl Authority {
    pub(super) fn place(&self, namespace: &Namespace, ino: Ino) -> InodeAuthority {
        if let Some(dir) = self.frozen.apart(ino) {
            return InodeAuthority::Moving(dir);
        }
        if !namespace.knows(ino)
            && let Some(root) = self.moved.get(&ino)
        {
            let rank = self.list.get(*root).map_or(Rank(0), |subtree| subtree.rank);
            // A fragment that is not listed any more is gone: its names are rank 0's.
            let gone = *root == ino && self.list.get(*root).is_none();
            if rank != self.rank && !gone {
                return InodeAuthority::Other(rank);
            }
        }
        // A subtree of this rank takes the subtrees inside it that this rank serves along when it
        // moves.
        let (mut here, mut child) = (false, None);
        for above in namespace.ancestors(ino) {
            if let Some(dir) = self.frozen.below(namespace, above, child) {
                return InodeAuthority::Moving(dir);
            }
            child = Some(above);
            match self.list.unjoined_at(above) {
                Some(subtree) if subtree.rank != self.rank && !here => {
                    return InodeAuthority::Other(subtree.rank);
                }
                Some(_) => here = true,
                None => {}
            }
        }
        if namespace.knows(ino) { InodeAuthority::Here } else { InodeAuthority::Unknown }
    }

    /// Whether no other rank serves an inode, or is about to.
    pub(crate) fn is_served_here(&self, namespace: &Namespace, ino: Ino) -> bool {
        match self.place(namespace, ino) {
            InodeAuthority::Here | InodeAuthority::Unknown => true,
            InodeAuthority::Other(_) | InodeAuthority::Moving(_) => false,
        }
    }

    /// Whether the list is known as it was a moment ago.
    pub(super) fn has_read_lately(&self, now: Moment) -> bool {
        self.has_read_since(now, READ_LATELY)
    }

    fn has_read_since(&self, now: Moment, span: Span) -> bool {
        self.read_at.is_some_and(|at| now.since(at) < span) && !self.is_busy()
    }
}

/// The way of a request that this rank may not execute.
pub(crate) enum Placed {
    /// This rank executes it all the same.
    Here,
    /// It waits, or is answered.
    Taken,
    /// It is refused.
    Refused(Failure),
    /// It is refused, unless this rank brings the directory home from another one.
    Away { rank: Rank, failure: Failure },
}

/// The place of requests, with all that it may touch.
pub(crate) struct PlaceCx<'a> {
    pub(crate) authority: &'a mut Authority,
    pub(crate) fetches: &'a mut Fetches,
    pub(crate) sessions: &'a mut Sessions,
    pub(crate) store: &'a mut StoreOps,
    pub(crate) counters: &'a mut Counters,
    pub(crate) namespace: &'a Namespace,
    pub(crate) tables: &'a Tables,
    pub(crate) opens: &'a Opens,
    pub(crate) locks: &'a Locks<ReplyTo>,
    pub(crate) map: Option<&'a ClusterMap>,
    pub(crate) phase: Phase,
    pub(crate) now: Moment,
}

impl PlaceCx<'_> {
    pub(super) fn places(&self) -> Places<'_> {
        lend!(self => Places {
            mut:;
            ref: authority, namespace, tables, opens, locks;
            copy: map;
        })
    }

    pub(super) fn park(&mut self, from: Incoming<'_>, key: Ino) {
        self.fetches.park_until_returned(self.sessions, from, key);
    }

    /// Blocks or redirects a request that this rank must not execute now. Returns whether it did.
    /// Not called if this rank serves everything.
    #[cold]
    pub(crate) fn is_misplaced(
        &mut self,
        from @ Incoming { request, .. }: Incoming<'_>,
        effects: &mut MdsEffects,
    ) -> bool {
        let op = &request.op;
        if let Some(is_misplaced) = self.is_state_misplaced(from, effects) {
            return is_misplaced;
        }
        // Whether a subtree may move is judged by where everything is now.
        let moves = matches!(
            op,
            Op::Rank(
                RankOp::Export { .. }
                    | RankOp::Colocate { .. }
                    | RankOp::Split { .. }
                    | RankOp::Join { .. }
            )
        );
        if moves && self.waits_for_list(from, effects) {
            return true;
        }
        let mut other = None;
        let whole = decoupled_of(op);
        // The rank of the first inode executes a link or rename, with the rank of the second one.
        let second = second_of(op);
        for ino in touched(op).inodes().chain(whole).chain(self.places().held_by(request)) {
            match self.authority.place(self.namespace, ino) {
                InodeAuthority::Unknown if whole == Some(ino) => {
                    if !self.tables.decoupled.contains_key(&ino)
                        && self.may_be_coming_as_whole(from, effects)
                    {
                        return true;
                    }
                }
                InodeAuthority::Here | InodeAuthority::Unknown => {}
                // Its journal follows, and is held.
                InodeAuthority::Moving(_) if matches!(op, Op::Job(JobOp::Merge { .. })) => {
                    return false;
                }
                InodeAuthority::Moving(root) => {
                    self.park(from, root);
                    return true;
                }
                InodeAuthority::Other(_) if second == Some(ino) => {}
                InodeAuthority::Other(rank) => other = Some(rank),
            }
        }
        if let Op::Read(ReadOp::Walk { base, path }) = *op
            && let Some(root) = self.places().moving_on_way(base, path)
        {
            self.park(from, root);
            return true;
        }
        if let Some(dir) = self.places().held_by_name(op, self.phase) {
            self.park(from, dir);
            return true;
        }
        match other {
            None => false,
            Some(rank) => {
                if matches!(op, Op::Job(JobOp::Merge { .. })) {
                    // The journal behind a merge request does not wait for the list; the client
                    // sends both again if the redirect was wrong.
                    self.authority.read_list(self.store, effects);
                } else if self.waits_for_list(from, effects) {
                    return true;
                }
                let elsewhere = Redirect { rank, ..Redirect::default() };
                self.send_elsewhere(from, elsewhere, effects);
                true
            }
        }
    }

    /// A client asks for a decoupled subtree that this rank does not know: it may have come here,
    /// and the list is read. Returns whether the request waits for that.
    fn may_be_coming_as_whole(
        &mut self,
        from @ Incoming { request, .. }: Incoming<'_>,
        effects: &mut MdsEffects,
    ) -> bool {
        if matches!(request.op, Op::Job(JobOp::Merge { .. })) {
            // The server refuses it, and the client resends it.
            self.authority.read_list(self.store, effects);
            return false;
        }
        self.waits_for_list(from, effects)
    }

    /// The place of a request that needs a directory which is not in memory.
    #[cold]
    pub(crate) fn of_directory(
        &mut self,
        from @ Incoming { request, .. }: Incoming<'_>,
        dir: Ino,
        effects: &mut MdsEffects,
    ) -> Placed {
        if self.namespace.is_split(dir) {
            return self.of_fragments(from, dir, effects);
        }
        let rank = match self.authority.place(self.namespace, dir) {
            InodeAuthority::Other(rank) => rank,
            InodeAuthority::Moving(root) if self.authority.is_coming(root) => {
                self.park(from, root);
                return Placed::Taken;
            }
            InodeAuthority::Moving(_) | InodeAuthority::Here | InodeAuthority::Unknown => {
                return Placed::Here;
            }
        };
        if self.waits_for_list(from, effects) {
            return Placed::Taken;
        }
        let elsewhere = if let Op::Read(ReadOp::Walk { base, path }) = request.op {
            self.places().rest_of_walk(base, path, dir)
        } else if let Op::Read(ReadOp::Lookup { parent, .. }) = request.op {
            Some((parent, Vec::new()))
        } else {
            None
        };
        if let Some((parent, rest)) = elsewhere {
            let elsewhere = Redirect { rank, root: dir, parent, rest };
            self.send_elsewhere(from, elsewhere, effects);
            return Placed::Taken;
        }
        let path = self.authority.list.get(dir).map(|subtree| &subtree.path[..]);
        let path = String::from_utf8_lossy(path.unwrap_or_default());
        let here = self.authority.rank.0;
        let text = format!(
            "{rank} serves {path}; `cudele mds pin {path} {here}` brings it back to where its name is"
        );
        let failure = Failure { errno: Errno::Busy, text };
        Placed::Away { rank, failure }
    }

    pub(super) fn send_elsewhere(
        &mut self,
        from: Incoming<'_>,
        elsewhere: Redirect,
        effects: &mut MdsEffects,
    ) {
        let answer = Answer::Redirect(Box::new(elsewhere));
        self.send_on(from, answer, effects);
    }

    /// Answers a request that this rank does not execute with the other ranks to ask.
    pub(super) fn send_on(
        &mut self,
        Incoming { conn, client, request }: Incoming<'_>,
        answer: Answer,
        effects: &mut MdsEffects,
    ) {
        self.counters.forwards += 1;
        if request.op.is_mutation() && client.0 != 0 {
            self.sessions.get_mut(client).refuse(request.tid);
        }
        effects.answer(ReplyTo { conn, tid: request.tid }, Ok(answer));
    }

    /// The place of a request that needs a name of a split directory.
    fn of_fragments(&mut self, from: Incoming<'_>, dir: Ino, effects: &mut MdsEffects) -> Placed {
        let whole = matches!(
            from.op(),
            Op::Change(ChangeOp::SetPolicy { .. })
                | Op::Job(JobOp::Decouple { .. } | JobOp::Adopt { .. })
                | Op::Admin(AdminOp::Snapshot { .. })
        );
        if whole {
            return Placed::Refused(Failure { errno: Errno::Busy, text: FRAGMENTED.into() });
        }
        if self.send_fragments(from, dir, effects) { Placed::Taken } else { Placed::Here }
    }

    /// A request names an inode that is not in memory. It waits if its subtree may have come a
    /// moment ago, or may be about to come.
    #[cold]
    pub(crate) fn may_be_coming(
        &mut self,
        from @ Incoming { request, .. }: Incoming<'_>,
        effects: &mut MdsEffects,
    ) -> bool {
        let named = touched(&request.op).inodes();
        let named: Vec<Ino> = named.chain(self.places().held_by(request)).collect();
        if !self.places().has_ranks() || named.iter().all(|ino| self.namespace.knows(*ino)) {
            return false;
        }
        let all = |preload: &&Preload| matches!(preload.goal, Goal::All(_));
        if let Some(preload) = self.authority.preloads.iter().find(all) {
            let key = preload.key();
            self.park(from, key);
            return true;
        }
        let mut unfound = named.into_iter().filter(|ino| self.places().is_unfound_part(*ino));
        if let Some(part) = unfound.next() {
            self.park(from, part);
            self.authority.preload(Goal::Find(part));
            return true;
        }
        self.waits_for_list(from, effects)
    }

    /// Blocks a request until the list was read, unless that happened lately: its inode may have
    /// come here since.
    pub(super) fn waits_for_list(
        &mut self,
        from @ Incoming { request, .. }: Incoming<'_>,
        effects: &mut MdsEffects,
    ) -> bool {
        // A client that makes a link, or reports its state of a file, has just learned that the
        // file came here.
        let came = matches!(request.op, Op::Change(ChangeOp::Link { .. }))
            || reported(request).is_some()
            || follows_report(request).is_some();
        if self.authority.has_read_since(self.now, if came { Span(1) } else { READ_LATELY }) {
            return false;
        }
        // A read that is under way began before the request came.
        if came && self.authority.is_busy() && self.authority.read_at != Some(self.now) {
            self.authority.reservations.is_list_old = true;
        }
        if let Some(ino) = open_file(&request.op) {
            self.authority.reports_waiting.insert((from.client, ino));
        }
        self.park(from, LIST);
        self.authority.read_list(self.store, effects);
        true
    }
}

/// A refusal with words.
pub(super) fn busy(text: impl Into<String>) -> Refused {
    Refused::Failure(Failure { errno: Errno::Busy, text: text.into() })
}

/// A directory that must be fetched first.
pub(super) fn cold(dir: Ino) -> Refused {
    Refused::Refusal(Refusal::Cold(dir))
}
