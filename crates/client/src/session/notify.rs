//! Registers the client's open files and locks at a server that does not know them.

use types::{Cred, Ino, Lock, LockMode, Tid};
use wire::{Message, Op, Replay, Request, SessionOp};

use super::mark::Mark;
use super::{Session, SessionEffects};
use crate::held::FileState;

/// A report of state that the server may reject.
#[derive(Clone, Copy, Debug)]
pub(super) enum Report {
    Lock(Ino, Lock),
    Open(Ino),
}

impl Report {
    fn of(op: &Op<'_>) -> Option<Self> {
        match *op {
            Op::Session(SessionOp::Lock { ino, lock, .. }) if lock.mode != LockMode::Unlock => {
                Some(Self::Lock(ino, lock))
            }
            Op::Session(SessionOp::Reopen { ino, access }) if access.read || access.write => {
                Some(Self::Open(ino))
            }
            Op::Session(_)
            | Op::Read(_)
            | Op::Change(_)
            | Op::Job(_)
            | Op::Rank(_)
            | Op::Admin(_) => None,
        }
    }

    fn file(self) -> Ino {
        let (Self::Lock(ino, _) | Self::Open(ino)) = self;
        ino
    }
}

impl Session {
    /// Registers the client's state at the server. The server needs nothing of the namespace for
    /// it.
    pub(super) fn notify_held(&mut self, effects: &mut SessionEffects) {
        self.reports.clear();
        self.has_rejected = false;
        let ending = |mark: &Mark| match *mark {
            Mark::Lock { ino, lock } if lock.mode == LockMode::Unlock => Some((ino, lock)),
            Mark::Lock { .. }
            | Mark::Open { .. }
            | Mark::Create
            | Mark::Yield { .. }
            | Mark::Length => None,
        };
        let ends: Vec<_> = self.marks.values().filter_map(ending).collect();
        // The server ends a lock that the client does not report, and another client may get it, so
        // the lock has ended for this client even if the resent request is refused.
        for (ino, end) in ends {
            self.held.locked(ino, end);
        }
        let held: Vec<_> = self.held.reclaim_ops().collect();
        self.notify_ops(held, effects);
    }

    fn notify_ops(&mut self, ops: Vec<Op<'_>>, effects: &mut SessionEffects) {
        for op in ops {
            let tid = Tid(self.next_tid);
            self.next_tid += 1;
            self.reports.extend(Report::of(&op).map(|report| (tid, report)));
            let request = Request::new(tid, self.acked(tid), Cred::root(), op);
            let request = Request { replay: Some(Replay::default()), ..request };
            Message::Request(request).append_frame(&mut effects.frames);
        }
    }

    /// The server answered a report. A rejected lock is lost. A file that the server does not have
    /// as open is given up like a recalled one: the client finds the server of the file for that,
    /// and registers the file there. The server keeps in mind what it rejected until the client
    /// sends its marker again.
    pub(super) fn report_answered(
        &mut self,
        report: Report,
        is_rejected: bool,
        effects: &mut SessionEffects,
    ) {
        match report {
            Report::Lock(ino, lock) if is_rejected => {
                if self.held.lost(ino, lock) {
                    effects.locks_lost.push(ino);
                }
            }
            Report::Open(ino) if is_rejected => {
                if self.held.rejected(ino) {
                    effects.recalled.push(ino);
                }
            }
            Report::Lock(..) | Report::Open(_) => {}
        }
        self.has_rejected |= is_rejected;
        if self.reports.is_empty() && std::mem::take(&mut self.has_rejected) {
            self.end_of_resent(effects);
        }
    }

    /// Whether a file is open, as far as is known, or locked, or the root of a subtree that is
    /// merged on demand.
    #[must_use]
    pub fn has(&self, ino: Ino) -> bool {
        self.held.has(ino)
    }

    /// Whether the server will answer a report about a file. Before that, another client may have
    /// a lock that this client has reported.
    #[must_use]
    pub fn awaits_report(&self, ino: Ino) -> bool {
        self.connected && self.reports.values().any(|report| report.file() == ino)
    }

    /// Takes out the state of a file that another rank serves, for the session with that rank. A
    /// lock whose report this server has not answered is lost: another client may have the lock
    /// ([`Session::awaits_report`]). A pending open, or a pending end of a lock, gets a redirect
    /// from this server, and goes to the other rank. This server may have restarted and received
    /// the registration since: so the session notifies the server of the end.
    pub fn take_out(&mut self, ino: Ino, effects: &mut SessionEffects) -> FileState {
        let opening = |writes: bool| {
            let of = |mark: &&Mark| matches!(mark, Mark::Open { ino: of, write } if *of == ino && *write == writes);
            u32::try_from(self.marks.values().filter(of).count()).unwrap_or(u32::MAX)
        };
        let (reading, writing) = (opening(false), opening(true));
        let mut ends = Vec::new();
        for mark in self.marks.values() {
            if let Mark::Lock { ino: of, lock } = *mark
                && of == ino
                && lock.mode == LockMode::Unlock
            {
                ends.push(lock);
            }
        }
        let mut file_state = self.held.take_out(ino, reading, writing, &ends);
        if self.connected {
            self.notify_ops(file_state.given_up(ino), effects);
        }
        let mut is_lost = false;
        for report in self.reports.values() {
            if let Report::Lock(of, lock) = *report
                && of == ino
            {
                is_lost |= file_state.lose(lock);
            }
        }
        if is_lost {
            effects.locks_lost.push(ino);
        }
        file_state
    }

    /// Puts in the state from the session with the rank that served a file before, and registers it
    /// at the server, or reports that the file is not open. The session was connected; if the
    /// connection is lost, the registration follows with the next one.
    pub fn put_in(
        &mut self,
        ino: Ino,
        file_state: Option<FileState>,
        effects: &mut SessionEffects,
    ) {
        let ops = self.held.put_in(ino, file_state.unwrap_or_default());
        if self.connected {
            self.notify_ops(ops, effects);
        }
    }
}
