//! The phase of the server: before it is active it keeps requests for later, or resent ones for
//! recovery; while it stops it answers only the changes that it has executed.

use types::ConnId;
use wire::{Message, Request};

use super::{Entry, Incoming, duplicate, stopping};
use crate::files::LapseCx;
use crate::resend::{EarlyCourse, ResendCx};
use crate::session::Fate;
use crate::{Mds, MdsEffects, Phase, ReplyTo};

/// The course of a request in a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Course {
    /// It is executed now.
    Now,
    /// It waits until the requests from before a restart are done.
    Later,
    /// It arrived before the server was active.
    EarlyFrames,
    /// It arrived while the server was stopping.
    Late,
}

fn course(phase: Phase, must_wait: impl FnOnce() -> bool) -> Course {
    match phase {
        Phase::Active if must_wait() => Course::Later,
        Phase::Active => Course::Now,
        Phase::Recovering | Phase::Reconnecting { .. } => Course::EarlyFrames,
        Phase::Stopping | Phase::Stopped => Course::Late,
    }
}

/// Whether the phase decides about a request.
#[inline]
pub(super) fn takes(
    mds: &mut Mds,
    conn: ConnId,
    request: &Request<'_>,
    effects: &mut MdsEffects,
) -> bool {
    let is_usual = mds.phase == Phase::Active && !mds.resend.is_busy();
    !is_usual && is_taken(mds, conn, request, effects)
}

#[cold]
fn is_taken(mds: &mut Mds, conn: ConnId, request: &Request<'_>, effects: &mut MdsEffects) -> bool {
    match course(mds.phase, || mds.resend.must_wait(&mds.sessions, conn, request)) {
        Course::Now => return false,
        Course::Later => {
            let frame = Message::Request(request.clone()).to_frame();
            mds.early.keep(conn, frame, effects);
        }
        Course::EarlyFrames => match ResendCx::of(mds).take_early(conn, request, effects) {
            EarlyCourse::Complete { is_believed } => {
                if is_believed && let Some(client) = mds.sessions.client(conn) {
                    LapseCx::of(mds).has_reported(client, effects);
                }
                mds.stop_waiting_if_complete(effects);
            }
            EarlyCourse::Now => {
                if let Some(client) = mds.sessions.client(conn) {
                    mds.execute::<{ Entry::NEW }>(Incoming { conn, client, request }, effects);
                }
            }
            EarlyCourse::Resent | EarlyCourse::Later => {}
        },
        Course::Late => late(mds, conn, request, effects),
    }
    true
}

/// A request that came while the server is stopping: only executed changes are answered.
fn late(mds: &mut Mds, conn: ConnId, request: &Request<'_>, effects: &mut MdsEffects) {
    if request.op.is_mutation()
        && let Some(client) = mds.sessions.client(conn)
        && let Fate::Done(known) = mds.sessions.get_mut(client).fate(request.tid)
    {
        return duplicate::answer(mds, Incoming { conn, client, request }, known, effects);
    }
    if let Some(failure) = stopping::leave_to_next(conn) {
        effects.reply_error(ReplyTo { conn, tid: request.tid }, failure);
    }
}

#[cfg(test)]
mod tests {
    use types::Moment;

    use super::*;

    #[test]
    fn an_active_server_executes_requests_unless_resent_ones_go_first() {
        assert_eq!(course(Phase::Active, || false), Course::Now);
        assert_eq!(course(Phase::Active, || true), Course::Later);
    }

    #[test]
    fn a_request_that_comes_before_the_server_is_active_is_early() {
        let until = Moment::default();
        let reconnecting = Phase::Reconnecting { until, leased: until };
        for phase in [Phase::Recovering, reconnecting] {
            assert_eq!(
                course(phase, || unreachable!("nothing was resent yet")),
                Course::EarlyFrames
            );
        }
    }

    #[test]
    fn a_request_that_comes_while_the_server_stops_is_late() {
        for phase in [Phase::Stopping, Phase::Stopped] {
            assert_eq!(course(phase, || false), Course::Late);
        }
    }
}
