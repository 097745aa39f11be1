//! The place of a request: this rank, another rank, or neither before a subtree has moved.

use metastore::MovedSubtree;
use namespace::Namespace;
use namespace::Refusal;
use types::{Errno, Ino, Path, Rank, Span, Timestamp};
use wire::{AdminOp, Answer, ChangeOp, Failure, JobOp, Op, RankOp, ReadOp, Redirect};

use super::Authority;
use super::between::second_of;
use super::decoupled::decoupled_of;
use super::preload::Goal;
use super::{LIST, Preload, READ_LATELY};
use crate::admission::Incoming;
use crate::op::{Refused, touched};
use crate::{Mds, MdsEffects, Phase, ReplyTo};

/// Why something cannot be done with a directory as a whole.
const FRAGMENTED: &str = "a directory is split; put it together first with `cudele mds join PATH`; `cudele mds ls` shows it";

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
        if let Some(import) = self.imports.iter().find(|it| it.decoupled.contains(&ino)) {
            return InodeAuthority::Moving(import.root);
        }
        if let Some(root) = self.linked_on_its_way(ino) {
            return InodeAuthority::Moving(root);
        }
        if let Some(dir) = self.cross_renames.holds(ino) {
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
            if self.is_on_its_way(above) {
                return InodeAuthority::Moving(above);
            }
            if !self.cross_renames.is_empty()
                && let Some(dir) = self.cross_renames.holds_below(namespace, above, child)
            {
                return InodeAuthority::Moving(dir);
            }
            child = Some(above);
            // Only rank 0 splits and joins: on another rank the requests that wait for that would
            // never continue.
            if self.rank == Rank(0)
                && let Some(dir) = self.reshaping(above)
            {
                return InodeAuthority::Moving(dir);
            }
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

    /// Whether nothing may be done in the subtree with this root.
    fn is_on_its_way(&self, root: Ino) -> bool {
        self.roots_on_their_way().any(|it| it == root)
    }

    /// The roots of the subtrees in which nothing may be done.
    fn roots_on_their_way(&self) -> impl Iterator<Item = Ino> {
        let frozen = self.exports.iter().filter(|export| export.is_frozen());
        let imports = self.imports.iter().map(|import| import.root);
        frozen.map(|export| export.root).chain(imports)
    }
}

impl Mds {
    /// Blocks or redirects a request that this rank must not execute now. Returns whether it did.
    /// Not called if this rank serves everything.
    #[cold]
    pub(crate) fn is_misplaced(
        &mut self,
        from @ Incoming { request, .. }: Incoming<'_>,
        effects: &mut MdsEffects,
    ) -> bool {
        let op = &request.op;
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
        for ino in touched(op).inodes().chain(whole).chain(self.held_by(request)) {
            match self.authority.place(&self.namespace, ino) {
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
                    self.fetches.park_until_returned(&mut self.sessions, from, root);
                    return true;
                }
                InodeAuthority::Other(_) if second == Some(ino) => {}
                InodeAuthority::Other(rank) => other = Some(rank),
            }
        }
        if let Op::Read(ReadOp::Walk { base, path }) = *op
            && let Some(root) = self.moving_on_way(base, path)
        {
            self.fetches.park_until_returned(&mut self.sessions, from, root);
            return true;
        }
        if let Some(dir) = self.held_by_name(op) {
            self.fetches.park_until_returned(&mut self.sessions, from, dir);
            return true;
        }
        match other {
            None => false,
            Some(rank) => {
                if matches!(op, Op::Job(JobOp::Merge { .. })) {
                    // The journal behind a merge request does not wait for the list; the client
                    // sends both again if the redirect was wrong.
                    self.read_list(effects);
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
            self.read_list(effects);
            return false;
        }
        self.waits_for_list(from, effects)
    }

    /// The directory that a request would remove, move or replace, if a name is moving into it, or
    /// it moves itself.
    fn held_by_name(&self, op: &Op<'_>) -> Option<Ino> {
        let authority = &self.authority;
        let moves = authority.is_exporting() || !authority.imports.is_empty();
        if (authority.cross_renames.is_empty() && !moves) || !op.is_change() {
            return None;
        }
        let names = touched(op).names();
        let mut named = names.filter_map(|at| self.namespace.peek(at.dir, at.name).ok()?);
        // A recovery that searches a directory would miss it if a rename moved the directories
        // around it to a place that the search has already visited.
        let is_lost = |dir: &Ino| !self.namespace.is_anchored(*dir);
        let moves = matches!(*op, Op::Change(ChangeOp::Rename { parent, new_parent, .. }) if parent != new_parent);
        let lost = if moves && self.phase == Phase::Active {
            authority.cross_renames.ends().find(is_lost)
        } else {
            None
        };
        named.find_map(|ino| {
            if lost.is_some() && self.namespace.is_dir(ino) {
                return lost;
            }
            let on_its_way = self.authority.is_on_its_way(ino).then_some(ino);
            // A directory to or from which a name moves stays at its place until the decision, and
            // so does one with a moving subtree in it: the list names the subtree that has its
            // name.
            let mut passing =
                authority.cross_renames.ends().chain(self.authority.roots_on_their_way());
            let around = || passing.find(|dir| self.namespace.is_within(*dir, ino));
            authority.cross_renames.holds(ino).or(on_its_way).or_else(around)
        })
    }

    /// The root of a moving subtree through which a path leads.
    fn moving_on_way(&self, base: Ino, path: &[u8]) -> Option<Ino> {
        let path = Path::parse(path).ok()?;
        let mut at = base;
        for name in path.components() {
            at = self.namespace.peek(at, name).ok()??;
            if let InodeAuthority::Moving(root) = self.authority.place(&self.namespace, at) {
                return Some(root);
            }
        }
        None
    }

    /// Whether a directory that a request needs is another rank's; then the request is answered so.
    #[cold]
    pub(crate) fn leads_elsewhere(
        &mut self,
        from @ Incoming { request, .. }: Incoming<'_>,
        dir: Ino,
        effects: &mut MdsEffects,
    ) -> bool {
        if self.namespace.is_split(dir) {
            return self.refuses_fragmented(from, effects)
                || self.send_fragments(from, dir, effects);
        }
        let rank = match self.authority.place(&self.namespace, dir) {
            InodeAuthority::Other(rank) => rank,
            InodeAuthority::Moving(root) if self.authority.is_coming(root) => {
                self.fetches.park_until_returned(&mut self.sessions, from, root);
                return true;
            }
            InodeAuthority::Moving(_) | InodeAuthority::Here | InodeAuthority::Unknown => {
                return false;
            }
        };
        if self.waits_for_list(from, effects) {
            return true;
        }
        let elsewhere = if let Op::Read(ReadOp::Walk { base, path }) = request.op {
            self.rest_of_walk(base, path, dir)
        } else if let Op::Read(ReadOp::Lookup { parent, .. }) = request.op {
            Some((parent, Vec::new()))
        } else {
            None
        };
        if let Some((parent, rest)) = elsewhere {
            let elsewhere = Redirect { rank, root: dir, parent, rest };
            self.send_elsewhere(from, elsewhere, effects);
            return true;
        }
        let path = self.authority.list.get(dir).map(|subtree| &subtree.path[..]);
        let path = String::from_utf8_lossy(path.unwrap_or_default());
        let here = self.rank.0;
        let text = format!(
            "{rank} serves {path}; `cudele mds pin {path} {here}` brings it back to where its name is"
        );
        let failure = Failure { errno: Errno::Busy, text };
        if !self.brings_home(from, (dir, rank), &failure, effects) {
            self.refuse(from, failure, effects);
        }
        true
    }

    /// For a path that leads through a directory: the directory that has its name, and the rest of
    /// the path.
    fn rest_of_walk(&self, base: Ino, path: &[u8], through: Ino) -> Option<(Ino, Vec<u8>)> {
        let path = Path::parse(path).ok()?;
        let mut at = base;
        let mut names = path.components();
        while let Some(name) = names.next() {
            let parent = at;
            at = self.namespace.peek(at, name).ok()??;
            if at == through {
                let rest: Vec<&[u8]> = names.collect();
                return Some((parent, rest.join(&b'/')));
            }
        }
        None
    }

    fn send_elsewhere(
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
        let at = ReplyTo { conn, tid: request.tid };
        let none = (types::Seq(0), Timestamp(0));
        effects.reply(at, none.0, none.1, Ok(answer));
    }

    /// Refuses a request about a whole subtree through a split directory.
    fn refuses_fragmented(
        &mut self,
        from @ Incoming { request, .. }: Incoming<'_>,
        effects: &mut MdsEffects,
    ) -> bool {
        let whole = matches!(
            request.op,
            Op::Change(ChangeOp::SetPolicy { .. })
                | Op::Job(JobOp::Decouple { .. } | JobOp::Adopt { .. })
                | Op::Admin(AdminOp::Snapshot { .. })
        );
        if whole {
            let failure = Failure { errno: Errno::Busy, text: FRAGMENTED.into() };
            self.refuse(from, failure, effects);
        }
        whole
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
        let named: Vec<Ino> = named.chain(self.held_by(request)).collect();
        if !self.has_ranks() || named.iter().all(|ino| self.namespace.knows(*ino)) {
            return false;
        }
        let all = |preload: &&Preload| matches!(preload.goal, Goal::All(_));
        if let Some(preload) = self.authority.preloads.iter().find(all) {
            let key = preload.key();
            self.fetches.park_until_returned(&mut self.sessions, from, key);
            return true;
        }
        let mut unfound = named.into_iter().filter(|ino| self.is_unfound_part(*ino));
        if let Some(part) = unfound.next() {
            self.fetches.park_until_returned(&mut self.sessions, from, part);
            self.preload(Goal::Find(part));
            self.authority_step(effects);
            return true;
        }
        self.waits_for_list(from, effects)
    }

    /// Whether the list is known as it was a moment ago.
    pub(super) fn has_read_lately(&self) -> bool {
        self.has_read_since(READ_LATELY)
    }

    fn has_read_since(&self, span: Span) -> bool {
        let lately = |at| self.clock.now.since(at) < span;
        self.authority.read_at.is_some_and(lately) && !self.authority.is_busy()
    }

    /// Blocks a request until the list was read, unless that happened lately: its inode may have
    /// come here since.
    pub(super) fn waits_for_list(
        &mut self,
        from @ Incoming { request, .. }: Incoming<'_>,
        effects: &mut MdsEffects,
    ) -> bool {
        // A client that makes a link has just learned that the file came here.
        let came = matches!(request.op, Op::Change(ChangeOp::Link { .. }));
        if self.has_read_since(if came { Span(1) } else { READ_LATELY }) {
            return false;
        }
        self.fetches.park_until_returned(&mut self.sessions, from, LIST);
        self.read_list(effects);
        true
    }

    /// `EBUSY` if a directory is in a moving subtree, or has one below it that another rank serves:
    /// for policies and decouplings, which concern everything below a directory.
    pub(crate) fn check_all_here(&self, dir: Ino) -> Result<(), Refused> {
        if self.authority.is_plain() {
            return Ok(());
        }
        let busy = |text: String| Err(Refused::Failure(Failure { errno: Errno::Busy, text }));
        let mut exports = self.authority.exports.iter();
        if let Some(export) = exports.find(|export| self.overlap(dir, export.root)) {
            return busy(format!("it is on its way to {}; try again when it is there", export.to));
        }
        // The list would undo a change made before the import ends.
        let mut imports = self.authority.imports.iter().map(|import| import.root);
        if imports.any(|root| self.overlap(dir, root) || !self.namespace.is_anchored(root)) {
            return busy("it comes from another rank; try again when it is here".into());
        }
        let mut passing = self.authority.cross_renames.directories();
        let mut leaving = self.authority.cross_renames.leaving();
        if passing.any(|it| self.namespace.is_within(it, dir))
            || leaving.any(|it| self.overlap(dir, it))
        {
            return busy("a name is on its way between two ranks; try again in a moment".into());
        }
        if self.authority.reshape.is_some() {
            return busy(
                "a directory is being split or joined; try again when that is done".into(),
            );
        }
        let mut splits = self.authority.splits.keys();
        if splits.any(|split| self.overlap(dir, *split) || !self.namespace.is_anchored(*split)) {
            return busy(FRAGMENTED.into());
        }
        for subtree in self.authority.list.unjoined() {
            let MovedSubtree { root, rank, path, .. } = subtree;
            if *rank != self.rank
                && self.is_named_here(subtree)
                && (self.overlap(dir, *root) || !self.namespace.is_anchored(*root))
            {
                let path = String::from_utf8_lossy(path);
                return busy(format!(
                    "{rank} serves {path}; bring it back first with `cudele mds pin {path} 0`"
                ));
            }
        }
        Ok(())
    }

    pub(super) fn overlap(&self, one: Ino, other: Ino) -> bool {
        self.namespace.is_within(one, other) || self.namespace.is_within(other, one)
    }

    /// The answer to a request that a subtree move.
    pub(super) fn answer_export(
        &mut self,
        ReplyTo { conn, tid }: ReplyTo,
        result: Result<(), Failure>,
        effects: &mut MdsEffects,
    ) {
        let zero = (types::Seq(0), Timestamp(0));
        effects.reply(ReplyTo { conn, tid }, zero.0, zero.1, result.map(|()| Answer::Done));
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
