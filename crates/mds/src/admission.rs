//! Admission: the ordered list of questions that a request must pass before it is executed.
//!
//! `steps!` has that list, one step a file. A step lets the request pass, lets it wait, answers it,
//! or refuses it. [`Admitted`] is the proof that a request has passed all of them: the functions
//! that plan a change take nothing else, so there is no other way to a change.
//!
//! A request that had to wait enters the list again ([`Entry`]), behind the steps with answers that
//! hold on.

mod astray;
mod asynchronous;
mod blocked;
mod duplicate;
mod expected;
mod frozen;
mod identity;
mod merge_request;
mod misplaced;
mod phase;
mod private;
mod read_only;
mod revoke;
mod rights;
mod room;
mod session;
mod stopping;
mod store_first;
mod trashed;
mod turn;
mod unreachable;

pub(crate) use blocked::is_blocked;

use types::{ClientId, ConnId, Ino, Tid};
use wire::{Op, Request};

use crate::op::Refused;
use crate::{Mds, MdsEffects, ReplyTo};
use identity::Identified;

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

/// Defines the list of steps: their names, and the function that asks them in this order. A step is
/// the function `check` of the module of its name, and can be inlined.
macro_rules! steps {
    ($($step:ident),+ $(,)?) => {
        /// All questions about a request of a known client, in their order. Before them,
        /// `identity` asks whether its sender may speak for this user, `phase` whether the server
        /// accepts requests, and `session` which client sent this one.
        #[derive(Clone, Copy, Debug)]
        #[allow(non_camel_case_types, reason = "the steps have the names of their modules")]
        enum Step {
            $($step),+
        }

        /// Asks every question from a step on, until one does not let the request pass. There is a
        /// copy of this function for each first step, so that a create pays for no comparison.
        #[inline]
        fn ask<const FIRST: usize>(
            mds: &mut Mds,
            from: Incoming<'_>,
            effects: &mut MdsEffects,
        ) -> Verdict {
            $(
                if FIRST <= Step::$step as usize {
                    match $step::check(mds, from, effects) {
                        Verdict::Pass => {}
                        verdict => return verdict,
                    }
                }
            )+
            Verdict::Pass
        }
    };
}

steps![
    // Does an earlier request of the client wait?
    turn,
    // Has the client executed it already, in a directory of its own?
    asynchronous,
    // Was it executed before?
    duplicate,
    // Does another rank serve its inodes?
    misplaced,
    // Is a snapshot being taken?
    frozen,
    // Do other clients cache the directories that it changes?
    revoke,
    // Must the owner of the subtree merge first?
    merge_request,
    // Must the store have a merge first, which only memory has?
    store_first,
    // Does the server stop?
    stopping,
    // Is its inode's place in the namespace known?
    astray,
    // Was the tree removed in which its inode is?
    trashed,
    // Does a path lead this user to its inode?
    unreachable,
    // Has the key of this peer the right to that?
    rights,
    // May a job on a branch do that?
    private,
    // Does the server accept changes at all?
    read_only,
    // Has another client the subtree for itself?
    blocked,
    // Has the store room for it?
    room,
    // Does the store know that the next server must wait for its client?
    expected,
];

/// The places in the list at which a request enters.
pub(crate) struct Entry;

impl Entry {
    /// The request has just arrived.
    pub(crate) const ARRIVED: usize = Step::turn as usize;
    /// The request waited for its turn.
    pub(crate) const WAITED: usize = Step::duplicate as usize;
    /// The request is known not to be a duplicate.
    pub(crate) const NEW: usize = Step::misplaced as usize;
    /// The client has executed the request.
    pub(crate) const EXECUTED: usize = Step::stopping as usize;
}

impl Mds {
    /// A request arrived: finds the client that sent it, and executes it if it is admitted.
    pub(crate) fn request(
        &mut self,
        conn: ConnId,
        request: &Request<'_>,
        effects: &mut MdsEffects,
    ) {
        self.counters.requests += 1;
        let as_sender;
        let request = match identity::of(&self.identities, conn, request, effects) {
            Identified::AsNamed => request,
            Identified::AsSender(cred) => {
                as_sender = Request { cred, ..request.clone() };
                &as_sender
            }
            Identified::Refused => return,
        };
        if phase::takes(self, conn, request, effects) {
            return;
        }
        let client = session::client(&mut self.sessions, conn, request.acked, self.clock.now);
        if let Some(client) = client {
            self.execute::<{ Entry::ARRIVED }>(Incoming { conn, client, request }, effects);
        } else if conn != ConnId::NOBODY {
            effects.close.push(conn);
        }
    }

    /// Asks every question from `ENTRY` on. Returns the admitted request, or why it is refused;
    /// `None` if it waits or is answered.
    #[inline]
    pub(crate) fn admit<'a, const ENTRY: usize>(
        &mut self,
        from: Incoming<'a>,
        effects: &mut MdsEffects,
    ) -> Option<Result<Admitted<'a>, Refused>> {
        match ask::<ENTRY>(self, from, effects) {
            Verdict::Pass => Some(Ok(Admitted(from))),
            Verdict::Taken => None,
            Verdict::Wait(dir) => {
                self.fetches.park_until_returned(&mut self.sessions, from, dir);
                None
            }
            Verdict::Refuse(refused) => Some(Err(refused)),
        }
    }
}
