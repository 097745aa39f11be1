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

use types::{ClientId, ConnId, Cred, Errno, Ino, Rank};
use wire::{Answer, ChangeOp, Failure, Op, RankOp, Request};

use super::place::InodeAuthority;
use super::{Authority, PlaceCx, Places};
use crate::MdsEffects;
use crate::admission::Incoming;
use crate::op::Refused;
use crate::peers::PeerLine;
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

impl Places<'_> {
    /// The rank of the second inode of a request, unless this rank may execute the request alone.
    pub(crate) fn second_rank(&self, request: &Request<'_>) -> Option<SecondRank> {
        let (first, second) = both(&request.op).filter(|_| request.replay.is_none())?;
        // The names of a directory that is split are not here.
        let is_here = self.place(first) == InodeAuthority::Here && !self.namespace.is_split(first);
        let found = self.authority.held.found.get(&second);
        match self.place(second) {
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
}

/// The work of another part that a request between ranks needs.
pub(crate) enum BetweenNeed {
    /// This rank is asked to give a directory away.
    Ask { number: u64, cred: Cred, op: RankOp<'static> },
    /// The request in this frame is executed, as if it had just arrived.
    Execute { conn: ConnId, frame: Vec<u8> },
}

/// The way in which a request between ranks goes on.
pub(crate) enum Between {
    /// It waits, perhaps for another part.
    Waits(Option<BetweenNeed>),
    /// The name of the rename goes to this rank.
    Departs { to: Rank, is_file: bool },
}

/// A request that waits, perhaps for another part.
type Holding = Result<Option<BetweenNeed>, Refused>;

/// Requests that need another rank, with all that they may touch.
pub(crate) struct BetweenCx<'a> {
    /// Their places.
    pub(crate) base: PlaceCx<'a>,
    pub(crate) line: PeerLine<'a>,
}

impl BetweenCx<'_> {
    /// Executes a request with another rank.
    pub(super) fn execute(
        &mut self,
        from: Incoming<'_>,
        second: SecondRank,
        effects: &mut MdsEffects,
    ) -> Result<Between, Refused> {
        // It may have come here since.
        let waits = match second {
            SecondRank::Known(_) => self.base.waits_for_list(from, effects),
            SecondRank::Unknown => {
                self.base.may_be_coming(from, effects) || self.waits_for_import(from)
            }
        };
        if waits {
            return Ok(Between::Waits(None));
        }
        let (cred, op) = (&from.request.cred, from.op());
        if let Op::Change(ChangeOp::Link { parent, name, .. }) = *op {
            types::check_name(name)?;
            self.base.namespace.access(cred, parent, WRITE_AND_SEARCH)?;
            if self.base.namespace.peek(parent, name)?.is_some() {
                return Err(Errno::Exists.into());
            }
            return self.find_second(from, second, effects).map(Between::Waits);
        }
        let Op::Change(ChangeOp::Rename { parent, name, new_parent, new_name, flags }) = *op else {
            return Err(Errno::Invalid.into());
        };
        let SecondRank::Known(rank) = second else {
            return self.find_second(from, second, effects).map(Between::Waits);
        };
        types::check_name(new_name)?;
        let named = self.base.namespace.peek(parent, name)?.ok_or(Errno::NotFound)?;
        if flags.exchange {
            self.base.namespace.access(cred, parent, WRITE_AND_SEARCH)?;
            let [comes, goes] = self.either_way(new_parent, parent, rank);
            let questions = [Question::Look(rank), comes, goes].into();
            return self.hold(from, questions, None, effects).map(Between::Waits);
        }
        self.postpone(from);
        let is_file = !self.base.namespace.is_dir(named);
        Ok(Between::Departs { to: rank, is_file })
    }

    /// The file cannot move alone: one of the two directories goes to the other's rank.
    pub(super) fn brings_together(
        &mut self,
        from: Incoming<'_>,
        rank: Rank,
        effects: &mut MdsEffects,
    ) -> Holding {
        let Op::Change(ChangeOp::Rename { parent, new_parent, .. }) = *from.op() else {
            return Err(Errno::Invalid.into());
        };
        let questions = self.either_way(new_parent, parent, rank);
        self.hold(from, questions.into(), None, effects)
    }

    /// Blocks a request with an unknown inode while a subtree arrives, which may have it.
    fn waits_for_import(&mut self, from: Incoming<'_>) -> bool {
        let root = self.base.authority.imports.first().map(|import| import.root);
        if let Some(root) = root {
            self.base.park(from, root);
        }
        root.is_some()
    }

    /// Moves of which one suffices: of the other rank's inode to this rank, and back.
    fn either_way(&self, theirs: Ino, ours: Ino, rank: Rank) -> [Question; 2] {
        let here = self.base.authority.rank;
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
    ) -> Holding {
        let Some(ino) = second_of(from.op()) else { return Err(Errno::Invalid.into()) };
        let first = match second {
            SecondRank::Known(rank) => rank,
            SecondRank::Unknown => ino.given_by(),
        };
        let map = self.base.map.iter().flat_map(|map| &map.mds);
        let others = map.map(|entry| entry.rank).filter(|rank| *rank != self.line.from);
        let mut others: Vec<Rank> = others.collect();
        others.sort_by_key(|rank| (*rank != first, *rank));
        if others.is_empty() {
            return Err(Errno::Stale.into());
        }
        self.hold(from, others.into_iter().map(Question::Find).collect(), None, effects)
    }

    /// Has a directory come whose name is here, because it is to be removed or renamed. No user has
    /// pinned it to the other rank: a client that linked a file into it must not leave a directory
    /// that stays for ever. `None` if the request does not wait for that.
    pub(super) fn brings_home(
        &mut self,
        from: Incoming<'_>,
        (dir, rank): (Ino, Rank),
        refused: &Failure,
        effects: &mut MdsEffects,
    ) -> Option<Option<BetweenNeed>> {
        if from.client == ClientId(0)
            || !matches!(from.op(), Op::Change(ChangeOp::Rmdir { .. } | ChangeOp::Rename { .. }))
        {
            return None;
        }
        let question = Question::Give { ino: dir, from: rank, to: self.line.from };
        self.hold(from, [question].into(), Some(refused.clone()), effects).ok()
    }

    /// A request is executed later than those that follow it: until then it counts as not executed,
    /// whatever its client sends in the meantime.
    fn postpone(&mut self, from: Incoming<'_>) {
        if from.client != ClientId(0) {
            self.base.sessions.get_mut(from.client).refuse(from.tid());
        }
    }
}

impl Authority {
    fn forget_place(&mut self, dir: Ino) {
        self.held.found.remove(&dir);
        self.moved.remove(&dir);
    }

    /// A rank does not serve the second directory of a rename, and referred to another one.
    pub(super) fn is_not_there(&mut self, dir: Ino, answer: &Result<Answer, Failure>) {
        match answer {
            Ok(Answer::Redirect(to)) if to.rank != self.rank => {
                self.held.note_found(dir, to.rank);
            }
            // Only a walk loads it.
            Ok(Answer::Redirect(_)) => self.forget_place(dir),
            // That rank may have given it to a third one: next time all are asked.
            Err(failure) if failure.errno == Errno::Stale => self.forget_place(dir),
            Ok(_) | Err(_) => drop(self.held.found.remove(&dir)),
        }
    }
}
