//! The kernels of clients that lend their answers to one (`Session::lend_to_kernel`): an answer
//! that a client gave from its cache is given again, for as long as the session said and the delays
//! of a kernel allow, without another look at the session. It is judged like an answer of the
//! server.

use types::{Errno, Moment, Span, Tid};
use wire::{Answer, Failure};

use super::Requests;
use super::worker::ITS_OWN;
use crate::call::{Call, CallKind};
use crate::world::{Event, Link};

/// The longest time from an answer until the kernel begins to count: the age of a reply that still
/// lends something, and the delay until the thread that asked runs.
const DELAY_MAX: u64 = 190_000_000;
/// Answers that a kernel keeps.
const KEPT_MAX: usize = 64;
/// By so much more in a million does a client's slowest clock need for the same span.
const SLOWEST_PPM: u64 = 10_000;

#[derive(Debug)]
struct Kept {
    call: Call,
    result: Result<Answer, Failure>,
    until: Moment,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Kernel {
    kept: Vec<Kept>,
    /// The directories of the session that wait for their return are looked at, at this time.
    wakes: Option<u64>,
}

impl Requests {
    /// Whether the kernel of a client answers a question.
    pub(super) fn kernel_answers(&mut self, client: usize, call: &Call) -> bool {
        let now = self.moment_at(client);
        let Some(kernel) = &mut self.workers[client].kernel else { return false };
        kernel.kept.retain(|kept| now < kept.until);
        let known = kernel.kept.iter().find(|kept| kept.call == *call);
        let Some(result) = known.map(|kept| kept.result.clone()) else { return false };
        let tid = Tid(ITS_OWN + self.workers[client].answered_here);
        self.workers[client].answered_here += 1;
        self.world.tally.count("answers from kernels", 1);
        self.knows(client, call, tid, result);
        true
    }

    /// The client has given an answer from its cache, and nothing of its own is under way.
    pub(super) fn lend(&mut self, client: usize, call: &Call, result: &Result<Answer, Failure>) {
        let now = self.moment_at(client);
        if self.workers[client].kernel.is_none() || !self.world.clients[client].routed.is_empty() {
            return;
        }
        let Link { session, .. } = self.world.home(client);
        let span = match (&call.what, result) {
            (CallKind::Lookup { parent, name }, Ok(Answer::Attr(attr))) => {
                let of_name = session.lend_name(now, *parent, name.as_bytes(), Some(attr.ino));
                of_name.min(session.lend_attr(now, attr))
            }
            (CallKind::Lookup { parent, name }, Err(failure))
                if failure.errno == Errno::NotFound =>
            {
                session.lend_name(now, *parent, name.as_bytes(), None)
            }
            (CallKind::GetAttr { .. }, Ok(Answer::Attr(attr))) => session.lend_attr(now, attr),
            _ => Span(0),
        };
        if span == Span(0) {
            return;
        }
        let until = now + span + Span(self.world.rng.below(DELAY_MAX));
        let Some(kernel) = &mut self.workers[client].kernel else { return };
        kernel.kept.truncate(KEPT_MAX - 1);
        kernel.kept.insert(0, Kept { call: call.clone(), result: result.clone(), until });
    }

    /// The client asks for something. A kernel drops what a change of its own changes. This one
    /// drops all, whatever it is, unless it looks only.
    pub(super) fn begins(&mut self, client: usize, call: &Call) {
        let looks = matches!(call.what, CallKind::Lookup { .. } | CallKind::GetAttr { .. });
        if let Some(kernel) = &mut self.workers[client].kernel
            && !looks
        {
            kernel.kept.clear();
        }
    }

    /// Looks at the directories that wait for their return when the first one is due.
    pub(super) fn wake_for_returns(&mut self, client: usize) {
        let Some(due) = self.world.session(client).lapse_due() else { return };
        let Span(nanos) = due.since(self.moment_at(client));
        let at = self.world.now + nanos + nanos / 1_000_000 * SLOWEST_PPM + 1;
        let Some(kernel) = &mut self.workers[client].kernel else { return };
        if kernel.wakes.is_none_or(|wakes| at < wakes) {
            kernel.wakes = Some(at);
            self.world.schedule(at - self.world.now, Event::ReturnLapsed(client));
        }
    }

    /// Returns the directories that the kernel does not use any more.
    pub(super) fn return_lapsed(&mut self, client: usize) {
        let now = self.moment_at(client);
        if let Some(kernel) = &mut self.workers[client].kernel {
            kernel.wakes = None;
        }
        if !self.world.clients[client].alive {
            return;
        }
        let Link { session, effects, .. } = self.world.home(client);
        session.return_lapsed(now, effects);
        self.send(client);
        self.wake_for_returns(client);
    }

    /// The time until no kernel uses the answers of a client, by the clock of the world.
    pub(super) fn lent_for(&self, client: usize) -> u64 {
        let until = self.world.session(client).lent_until();
        let Span(nanos) = until.map_or(Span(0), |until| until.since(self.moment_at(client)));
        nanos + nanos / 1_000_000 * SLOWEST_PPM
    }
}
