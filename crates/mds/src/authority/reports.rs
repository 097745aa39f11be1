//! Requests about the open and lock state of files, with several ranks: clients report their state
//! to the rank that serves a file, also before that rank knows that the file came, and after the
//! file has left. [Decision 21](../../../../docs/decisions/0021-open-files-follow-a-subtree.md) has
//! the rules.

use types::{ClientId, Errno, Ino, LockMode, Seq};
use wire::{Answer, Op, Redirect, Request, SessionOp};

use super::LIST;
use super::Preload;
use super::place::{InodeAuthority, PlaceCx};
use super::preload::Goal;
use super::reclaim::send_moved;
use crate::admission::Incoming;
use crate::session::Session;
use crate::{MdsEffects, Phase};

/// The file that a client reports as open or locked, and whether the report is that the client has
/// reported its lock to another rank.
pub(super) fn reported(request: &Request<'_>) -> Option<(Ino, bool)> {
    let _ = request.replay?;
    if let Op::Session(SessionOp::Lock { ino, lock, .. }) = request.op {
        return Some((ino, lock.mode == LockMode::Unlock));
    }
    let Op::Session(SessionOp::Reopen { ino, .. }) = request.op else { return None };
    Some((ino, false))
}

/// The file whose open and lock state a request is about: no such request of a client may overtake
/// another one about the same file.
pub(super) fn open_file(op: &Op<'_>) -> Option<Ino> {
    if let Op::Session(op) = op { op.open_file() } else { None }
}

/// The file that a client gives up or closes: the request must not overtake a report of the file.
pub(super) fn follows_report(request: &Request<'_>) -> Option<Ino> {
    let (Op::Session(SessionOp::Close { ino, .. } | SessionOp::Yield { ino }), None) =
        (request.op, request.replay)
    else {
        return None;
    };
    Some(ino)
}

impl PlaceCx<'_> {
    /// Whether a request about the open and lock state of a file waits, or is answered; `None` if
    /// that depends on the place of the file alone.
    pub(super) fn is_state_misplaced(
        &mut self,
        from @ Incoming { client, request, .. }: Incoming<'_>,
        effects: &mut MdsEffects,
    ) -> Option<bool> {
        let ino = open_file(&request.op)?;
        if self.authority.reports_waiting.contains(&(client, ino)) {
            self.park(from, LIST);
            return Some(true);
        }
        if let Some(report) = reported(request) {
            return Some(self.is_report_misplaced(from, report, effects));
        }
        let ino = follows_report(request).filter(|ino| !self.is_held_by(client, *ino))?;
        Some(self.may_overtake_report(from, ino, effects))
    }

    /// A client closes or gives up a file that this rank does not have as open: the report of the
    /// file may wait for the list, or for the file. Returns whether the request waits, too, or is
    /// answered.
    fn may_overtake_report(
        &mut self,
        from: Incoming<'_>,
        ino: Ino,
        effects: &mut MdsEffects,
    ) -> bool {
        let gives_up = matches!(from.op(), Op::Session(SessionOp::Yield { .. }));
        match self.authority.place(self.namespace, ino) {
            InodeAuthority::Here => false,
            InodeAuthority::Moving(root) => {
                self.park(from, root);
                true
            }
            InodeAuthority::Unknown => self.waits_for_list(from, effects),
            InodeAuthority::Other(_) if self.waits_for_list(from, effects) => true,
            InodeAuthority::Other(rank) if gives_up => {
                self.send_elsewhere(from, Redirect { rank, ..Redirect::default() }, effects);
                true
            }
            InodeAuthority::Other(_) => false,
        }
    }

    /// Whether a client has a file open or locked, as far as this rank knows.
    fn is_held_by(&self, client: ClientId, ino: Ino) -> bool {
        self.opens.has(client, ino) || self.locks.clients(ino).any(|holder| holder == client)
    }

    /// A client reports a file that it has open or locked, or the end of a lock that it reported to
    /// another rank (`is_end`). The report waits while the file comes here, unless the list of
    /// subtrees names this client: until those clients have reported, no other one gets the lock.
    /// The report of a file of another rank goes there. The end of a lock waits while the file
    /// leaves: no client that waits here may get the lock. Returns whether the report is not to be
    /// executed now.
    fn is_report_misplaced(
        &mut self,
        from: Incoming<'_>,
        (ino, is_end): (Ino, bool),
        effects: &mut MdsEffects,
    ) -> bool {
        let coming = self.authority.comes_open(from.client, ino);
        if let Some((root, false)) = coming
            && !is_end
        {
            self.park(from, root);
            return true;
        }
        if self.phase != Phase::Active {
            return false;
        }
        if is_end {
            let place = self.authority.place(self.namespace, ino);
            let leaving = match place {
                InodeAuthority::Moving(root) => Some(root),
                InodeAuthority::Here | InodeAuthority::Other(_) | InodeAuthority::Unknown => None,
            };
            let leaving = leaving.filter(|_| coming.is_none());
            if let Some(root) = leaving {
                self.park(from, root);
            }
            return leaving.is_some();
        }
        if coming.is_some() {
            return false;
        }
        match self.authority.place(self.namespace, ino) {
            InodeAuthority::Here | InodeAuthority::Moving(_) => false,
            // A later request of the client must not overtake the repetition of a report.
            InodeAuthority::Unknown if self.is_held_by(from.client, ino) => false,
            InodeAuthority::Unknown if self.waits_for_list(from, effects) => true,
            InodeAuthority::Unknown => self.is_refused(from, ino, effects),
            InodeAuthority::Other(_) if self.waits_for_list(from, effects) => true,
            InodeAuthority::Other(rank) => {
                send_moved(self.sessions, from.client, rank, vec![ino], effects);
                effects.reply_with(from.at(), Seq(0), Answer::Done);
                true
            }
        }
    }

    /// A client that lost its connection reports a file that this rank does not know: another rank
    /// may serve the file, and have given the lock to another client. Refuses the report, because
    /// the client finds the file by its path. Returns whether it did.
    fn is_refused(
        &mut self,
        from @ Incoming { client, request, .. }: Incoming<'_>,
        ino: Ino,
        effects: &mut MdsEffects,
    ) -> bool {
        let all = |preload: &&Preload| matches!(preload.goal, Goal::All(_));
        if let Some(preload) = self.authority.preloads.iter().find(all) {
            let key = preload.key();
            self.park(from, key);
            return true;
        }
        let is_end = if let Op::Session(SessionOp::Reopen { access, .. }) = request.op {
            !access.read && !access.write
        } else {
            false
        };
        let is_reporting = self.sessions.get(client).is_some_and(Session::is_reporting);
        if is_end || !is_reporting || !self.places().may_be_elsewhere(ino) {
            return false;
        }
        self.sessions.get_mut(client).reject_report();
        effects.reply_error(from.at(), Errno::Stale.into());
        true
    }
}
