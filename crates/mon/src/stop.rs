//! The end: every metadata server writes its checkpoint, then the monitor stores its map, then the
//! requester gets the reply.
//!
//! Not for ending a monitor alone: the cluster works without one, so killing it is enough.
//!
//! Invariant: it comes to an end. A server that neither stops nor says that it is stopping is
//! given up after the beacon grace, and so is a store that does not answer, or a server of the map
//! that a monitor which has just started has not heard of.

use types::{Clock, ConnId, Errno, Moment};
use wire::{Message, MonAnswer};

use crate::effects::Asker;
use crate::notice::MonNotice;
use crate::{Mon, MonEffects, Phase, failure};

/// The cluster is stopping.
#[derive(Debug)]
pub(crate) struct Stop {
    /// When the servers were told.
    pub(crate) since: Moment,
    /// When the last server was gone.
    idle_since: Option<Moment>,
    /// The requesters that wait for the end.
    askers: Vec<Asker>,
}

impl Stop {
    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        self.askers.len()
    }

    /// Drops requesters at this connection.
    pub(crate) fn forget(&mut self, conn: ConnId) {
        self.askers.retain(|asker| asker.conn != conn);
    }

    /// The requesters without an answer yet.
    pub(crate) fn into_askers(self) -> Vec<Asker> {
        self.askers
    }
}

impl Mon {
    /// Tells the servers to stop. Asking again changes nothing.
    pub(crate) fn begin_stop(
        &mut self,
        clock: Clock,
        asker: Option<Asker>,
        effects: &mut MonEffects,
    ) {
        if self.stop.is_none() {
            self.servers.note_lost(self.ledger.map(), clock.now);
            // Said here: without a server the monitor ends before the next look at its state.
            effects.notices.push(MonNotice::Stopping);
            for conn in self.servers.all_connected() {
                effects.send(conn, &Message::Stop);
            }
        }
        let begin = || Stop { since: clock.now, idle_since: None, askers: Vec::new() };
        self.stop.get_or_insert_with(begin).askers.extend(asker);
    }

    /// Ends when everything is written down.
    pub(crate) fn advance_stop(&mut self, clock: Clock, effects: &mut MonEffects) {
        let Some(stop) = &mut self.stop else { return };
        if matches!(self.phase, Phase::Serving) {
            let expects = self.servers.is_any_expected(self.ledger.map());
            if expects || self.servers.connected().next().is_some() {
                stop.idle_since = None;
                return;
            }
            let idle_since = *stop.idle_since.get_or_insert(clock.now);
            let patient = clock.now.since(idle_since) < self.settings.beacon_grace;
            let is_quiet = self.ledger.is_quiet() && self.balancing.log.is_quiet();
            // A standby that is taking a rank over would go on without a monitor.
            let is_awaited = self.servers.may_be_taken_over(clock.now);
            if is_awaited || (!is_quiet && patient) {
                return;
            }
        }
        let reply = failure(Errno::Io, "the monitor stopped before the store took the cluster map");
        self.ledger.fail_waiting(&reply, effects);
        for asker in self.stop.take().into_iter().flat_map(Stop::into_askers) {
            effects.reply(asker, Ok(MonAnswer::Done));
        }
        self.phase = Phase::Stopped;
    }
}
