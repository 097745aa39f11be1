//! Requests for which one rank must serve two inodes that two ranks serve: a link to a file of
//! another rank, an exchange, a rename of a file that cannot move alone; and the removal or rename
//! of a directory that another rank serves. All names of a file are on one rank, so a directory
//! moves first (B-02, F-13). A plain rename begins here, too: `cross_rename` moves the name alone.
//!
//! The client has one request under way, and this rank, which serves the first directory, asks the
//! other one: who serves the other inode, whether the request can succeed, and to give a directory
//! away. The rank that gives a directory exports it like any other. Then the request is executed
//! here or redirected, as if it had just arrived.
//!
//! Nothing is remembered of such a request: after a crash its client sends it again, and finds the
//! directories as they are then.

mod held;

use types::{ClientId, Errno, Ino, Rank};
use wire::{Answer, ChangeOp, Failure, Op, Request};

use super::place::InodeAuthority;
use crate::admission::Incoming;
use crate::authority::PlaceCx;
use crate::op::{Performed, Performing};
use crate::{Mds, MdsEffects};
pub(super) use held::HeldRequests;
use held::Question;

/// Bits of a mode: to make names in a directory.
pub(super) const WRITE_AND_SEARCH: u32 = 3;

/// The rank of the second inode of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SecondRank {
    Known(Rank),
    /// This rank has not heard of the inode.
    Unknown,
}

/// The two inodes of a request.
fn both(op: &Op<'_>) -> Option<(Ino, Ino)> {
    if let Op::Change(ChangeOp::Link { ino, parent, .. }) = *op {
        Some((parent, ino))
    } else if let Op::Change(ChangeOp::Rename { parent, new_parent, .. }) = *op {
        (parent != new_parent).then_some((parent, new_parent))
    } else {
        None
    }
}

/// The second inode of a request that two ranks may execute together.
pub(super) fn second_of(op: &Op<'_>) -> Option<Ino> {
    both(op).map(|(_, second)| second)
}

impl Mds {
    /// The rank of the second inode of a request, unless this rank may execute the request alone.
    pub(crate) fn second_rank(&self, request: &Request<'_>) -> Option<SecondRank> {
        let (first, second) = both(&request.op).filter(|_| request.replay.is_none())?;
        let place = |ino| self.authority.place(&self.namespace, ino);
        // The names of a directory that is split are not here.
        let is_here = place(first) == InodeAuthority::Here && !self.namespace.is_split(first);
        let found = self.authority.held.found.get(&second);
        match place(second) {
            _ if !is_here => None,
            // Another rank may have referred to a third one: a subtree in the subtree has moved.
            InodeAuthority::Other(_) | InodeAuthority::Unknown if let Some(rank) = found => {
                Some(SecondRank::Known(*rank))
            }
            InodeAuthority::Other(rank) => Some(SecondRank::Known(rank)),
            InodeAuthority::Unknown => Some(SecondRank::Unknown),
            InodeAuthority::Here | InodeAuthority::Moving(_) => None,
        }
    }

    /// Executes a request with another rank.
    pub(crate) fn between_ranks(
        &mut self,
        from: Incoming<'_>,
        second: SecondRank,
        effects: &mut MdsEffects,
    ) -> Performing {
        // It may have come here since.
        let waits = match second {
            SecondRank::Known(_) => PlaceCx::of(self).waits_for_list(from, effects),
            SecondRank::Unknown => {
                PlaceCx::of(self).may_be_coming(from, effects) || self.waits_for_import(from)
            }
        };
        if waits {
            return Ok(Performed::Later);
        }
        let (cred, op) = (&from.request.cred, from.op());
        if let Op::Change(ChangeOp::Link { parent, name, .. }) = *op {
            types::check_name(name)?;
            self.namespace.access(cred, parent, WRITE_AND_SEARCH)?;
            if self.namespace.peek(parent, name)?.is_some() {
                return Err(Errno::Exists.into());
            }
            return self.find_second(from, second, effects);
        }
        let Op::Change(ChangeOp::Rename { parent, name, new_parent, new_name, flags }) = *op else {
            return Err(Errno::Invalid.into());
        };
        let SecondRank::Known(rank) = second else {
            return self.find_second(from, second, effects);
        };
        types::check_name(new_name)?;
        let named = self.namespace.peek(parent, name)?.ok_or(Errno::NotFound)?;
        if flags.exchange {
            self.namespace.access(cred, parent, WRITE_AND_SEARCH)?;
            let [comes, goes] = self.either_way(new_parent, parent, rank);
            return self.hold(from, [Question::Look(rank), comes, goes].into(), None, effects);
        }
        let is_file = !self.namespace.is_dir(named);
        self.postpone(from);
        match self.depart(from, rank, effects) {
            Err(refused) if is_file && refused.errno() == Some(Errno::CrossDevice) => {
                let questions = self.either_way(new_parent, parent, rank);
                self.hold(from, questions.into(), None, effects)
            }
            performed => performed,
        }
    }

    /// Blocks a request with an unknown inode while a subtree arrives, which may have it.
    fn waits_for_import(&mut self, from: Incoming<'_>) -> bool {
        let Some(root) = self.authority.imports.first().map(|import| import.root) else {
            return false;
        };
        self.fetches.park_until_returned(&mut self.sessions, from, root);
        true
    }

    /// Moves of which one suffices: of the other rank's inode to this rank, and back.
    fn either_way(&self, theirs: Ino, ours: Ino, rank: Rank) -> [Question; 2] {
        let here = self.rank;
        [
            Question::Give { ino: theirs, from: rank, to: here },
            Question::Give { ino: ours, from: here, to: rank },
        ]
    }

    /// Asks other ranks for the second inode of a request, its probable rank first.
    fn find_second(
        &mut self,
        from: Incoming<'_>,
        second: SecondRank,
        effects: &mut MdsEffects,
    ) -> Performing {
        let Some(ino) = second_of(from.op()) else { return Err(Errno::Invalid.into()) };
        let first = match second {
            SecondRank::Known(rank) => rank,
            SecondRank::Unknown => ino.given_by(),
        };
        let map = self.map.iter().flat_map(|map| &map.mds);
        let others = map.map(|entry| entry.rank).filter(|rank| *rank != self.rank);
        let mut others: Vec<Rank> = others.collect();
        others.sort_by_key(|rank| (*rank != first, *rank));
        if others.is_empty() {
            return Err(Errno::Stale.into());
        }
        self.hold(from, others.into_iter().map(Question::Find).collect(), None, effects)
    }

    /// Has a directory come whose name is here, because it is to be removed or renamed. No user has
    /// pinned it to the other rank: a client that linked a file into it must not leave a directory
    /// that stays for ever. Returns whether the request waits for that.
    pub(super) fn brings_home(
        &mut self,
        from: Incoming<'_>,
        (dir, rank): (Ino, Rank),
        refused: &Failure,
        effects: &mut MdsEffects,
    ) -> bool {
        if from.client == ClientId(0)
            || !matches!(from.op(), Op::Change(ChangeOp::Rmdir { .. } | ChangeOp::Rename { .. }))
        {
            return false;
        }
        let question = Question::Give { ino: dir, from: rank, to: self.rank };
        self.hold(from, [question].into(), Some(refused.clone()), effects).is_ok()
    }

    /// A request is executed later than those that follow it: until then it counts as not executed,
    /// whatever its client sends in the meantime.
    fn postpone(&mut self, from: Incoming<'_>) {
        if from.client != ClientId(0) {
            self.sessions.get_mut(from.client).refuse(from.tid());
        }
    }

    /// A rank does not serve the second directory of a rename, and referred to another one.
    pub(super) fn is_not_there(&mut self, dir: Ino, answer: &Result<Answer, Failure>) {
        match answer {
            Ok(Answer::Redirect(to)) if to.rank != self.rank => {
                self.authority.held.note_found(dir, to.rank);
            }
            // Only a walk loads it.
            Ok(Answer::Redirect(_)) => {
                self.authority.held.found.remove(&dir);
                self.authority.moved.remove(&dir);
            }
            Ok(_) | Err(_) => drop(self.authority.held.found.remove(&dir)),
        }
    }
}
