//! The end: every metadata server writes everything down, then the monitor stores its map, then
//! whoever asked is told.
//!
//! Not for a monitor that is alone to end: the cluster goes on without one, so killing it is
//! enough.
//!
//! Invariant: it comes to an end. A server that neither stops nor says that it is stopping is
//! given up after the beacon grace, and so is a store that does not answer.

use types::{Clock, ConnId, Errno, Moment};
use wire::{Message, MonAnswer};

use crate::effects::Asker;
use crate::{Effects, Mon, Phase, failure};

/// The cluster is stopping.
#[derive(Debug)]
pub(crate) struct Stop {
    /// When the servers were told.
    pub(crate) since: Moment,
    /// When the last server was gone.
    alone: Option<Moment>,
    /// Who asked and wants to know.
    askers: Vec<Asker>,
}

impl Stop {
    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        self.askers.len()
    }

    /// Answers nobody at this connection any more.
    pub(crate) fn forget(&mut self, conn: ConnId) {
        self.askers.retain(|asker| asker.conn != conn);
    }

    /// Who is still to be answered.
    pub(crate) fn into_askers(self) -> Vec<Asker> {
        self.askers
    }
}

impl Mon {
    /// Tells the servers to stop. Asking again changes nothing.
    pub(crate) fn begin_stop(&mut self, clock: Clock, asker: Option<Asker>, effects: &mut Effects) {
        if self.stop.is_none() {
            for (_, conn) in self.servers.connected() {
                effects.send(conn, &Message::Stop);
            }
        }
        let begin = || Stop { since: clock.now, alone: None, askers: Vec::new() };
        self.stop.get_or_insert_with(begin).askers.extend(asker);
    }

    /// Ends when everything is written down.
    pub(crate) fn advance_stop(&mut self, clock: Clock, effects: &mut Effects) {
        let Some(stop) = &mut self.stop else { return };
        if matches!(self.phase, Phase::Serving) {
            if self.servers.connected().next().is_some() {
                stop.alone = None;
                return;
            }
            let alone = *stop.alone.get_or_insert(clock.now);
            let patient = clock.now.since(alone) < self.settings.beacon_grace;
            let is_quiet = self.ledger.is_quiet() && self.balancing.log.is_quiet();
            if !is_quiet && patient {
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
