//! Admission: the ordered list of questions that a request must pass before it is executed.
//!
//! [`STEPS`] is that list, one step a file. A step lets the request pass, lets it wait, answers it,
//! or refuses it. [`Admitted`] is the proof that a request has passed all of them: the functions
//! that plan a change take nothing else, so there is no other way to a change.
//!
//! A request that had to wait enters the list again ([`Entry`]), behind the steps with answers that
//! hold on.

mod astray;
mod asynchronous;
mod blocked;
mod duplicate;
mod frozen;
mod merge_request;
mod misplaced;
mod phase;
mod private;
mod read_only;
mod revoke;
mod room;
mod session;
mod store_first;
mod turn;

pub(crate) use blocked::is_blocked;

use types::{ClientId, ConnId, Ino, Tid};
use wire::{Op, Request};

use crate::op::Refused;
use crate::{Mds, MdsEffects, ReplyTo};

/// A request, and the session in which it came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Incoming<'a> {
    /// The connection.
    pub(crate) conn: ConnId,
    /// The client; 0 for the monitor.
    pub(crate) client: ClientId,
    /// The request.
    pub(crate) request: &'a Request<'a>,
}

impl<'a> Incoming<'a> {
    /// Where its reply goes.
    pub(crate) fn at(&self) -> ReplyTo {
        ReplyTo { conn: self.conn, tid: self.request.tid }
    }

    /// Its number in the session.
    pub(crate) fn tid(&self) -> Tid {
        self.request.tid
    }

    /// The operation.
    pub(crate) fn op(&self) -> &'a Op<'a> {
        &self.request.op
    }
}

/// A request that has passed every step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Admitted<'a>(Incoming<'a>);

impl<'a> Admitted<'a> {
    /// The request.
    pub(crate) fn incoming(self) -> Incoming<'a> {
        self.0
    }
}

/// The answer of a step.
pub(crate) enum Verdict {
    /// The next step decides.
    Pass,
    /// The request was answered, or waits, or is executed by the step.
    Taken,
    /// The request waits until this directory is returned, merged, stored or thawed.
    Wait(Ino),
    /// The request is refused.
    Refuse(Refused),
}

/// One question.
type Step = fn(&mut Mds, Incoming<'_>, &mut MdsEffects) -> Verdict;

/// All questions about a request of a known client, in their order. Before them, `phase` asks
/// whether the server accepts requests, and `session` which client sent this one.
const STEPS: [Step; 13] = [
    // Does an earlier request of the client wait?
    turn::check,
    // Has the client executed it already, in a directory of its own?
    asynchronous::check,
    // Was it executed before?
    duplicate::check,
    // Does another rank serve its inodes?
    misplaced::check,
    // Is a snapshot being taken?
    frozen::check,
    // Do other clients cache the directories that it changes?
    revoke::check,
    // Must the owner of the subtree merge first?
    merge_request::check,
    // Must the store have a merge first, which only memory has?
    store_first::check,
    // Is its inode's place in the namespace known?
    astray::check,
    // May a job on a branch do that?
    private::check,
    // Does the server accept changes at all?
    read_only::check,
    // Has another client the subtree for itself?
    blocked::check,
    // Has the store room for it?
    room::check,
];

/// The place in the list at which a request enters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// It has just arrived.
    Arrived,
    /// It waited for its turn.
    Waited,
    /// It is known not to be a duplicate.
    New,
    /// Its client has executed it.
    Executed,
}

impl Entry {
    const fn first(self) -> usize {
        match self {
            Self::Arrived => 0,
            Self::Waited => 2,
            Self::New => 3,
            Self::Executed => 8,
        }
    }
}

impl Mds {
    /// A request arrived: asks which client sent it. `None` if it waits or is answered.
    #[inline]
    pub(crate) fn identify<'a>(
        &mut self,
        conn: ConnId,
        request: &'a Request<'a>,
        effects: &mut MdsEffects,
    ) -> Option<Incoming<'a>> {
        if phase::takes(self, conn, request, effects) {
            return None;
        }
        let client = session::client(&mut self.sessions, conn, request.heard, self.clock.now);
        if client.is_none() && conn != ConnId::NOBODY {
            effects.close.push(conn);
        }
        Some(Incoming { conn, client: client?, request })
    }

    /// Asks every question from `entry` on. Returns the admitted request, or why it is refused;
    /// `None` if it waits or is answered.
    #[inline]
    pub(crate) fn admit<'a>(
        &mut self,
        entry: Entry,
        from: Incoming<'a>,
        effects: &mut MdsEffects,
    ) -> Option<Result<Admitted<'a>, Refused>> {
        for step in &STEPS[entry.first()..] {
            match step(self, from, effects) {
                Verdict::Pass => {}
                Verdict::Taken => return None,
                Verdict::Wait(dir) => {
                    self.fetches.park_until_returned(&mut self.sessions, from, dir);
                    return None;
                }
                Verdict::Refuse(refused) => return Some(Err(refused)),
            }
        }
        Some(Ok(Admitted(from)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_enters_the_list_at_the_step_that_its_entry_names() {
        let is = |entry: Entry, step: Step| std::ptr::fn_addr_eq(STEPS[entry.first()], step);
        assert!(is(Entry::Arrived, turn::check));
        assert!(is(Entry::Waited, duplicate::check));
        assert!(is(Entry::New, misplaced::check));
        assert!(is(Entry::Executed, astray::check));
    }
}
