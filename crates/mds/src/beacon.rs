//! Beacons: the reports of this server to the monitor.

use wire::{MdsState, Message};

use crate::health::HealthCx;
use crate::{Mds, MdsEffects};

impl Mds {
    /// The state that the monitor hears of. A server that still serves after the order to stop is
    /// stopping: the monitor gives a server up that does not follow.
    pub(crate) fn state(&self) -> MdsState {
        if self.checkpoint.stop.is_some() { MdsState::Stopping } else { self.phase.state() }
    }

    pub(crate) fn beacon_tick(&mut self, effects: &mut MdsEffects) {
        let state = self.state();
        let due = self.last_beacon.is_none_or(|(at, last)| {
            last != state || self.clock.now.since(at) >= self.settings.beacon_interval
        });
        if !due {
            return;
        }
        self.last_beacon = Some((self.clock.now, state));
        let beacon = wire::Beacon {
            rank: self.rank,
            epoch: self.tables.epoch(),
            address: self.settings.address.clone(),
            state,
            pid: self.settings.pid,
            counters: self.counters.list(self),
            decoupled: self.tables.decoupled_list(&self.namespace),
            warnings: HealthCx::of(self).warnings(),
            given_up: self.balance.given_up(),
        };
        Message::Beacon(beacon).append_frame(&mut effects.to_monitor);
    }

    /// The monitor is connected again: it must hear of us at once.
    pub fn monitor_connected(&mut self, effects: &mut MdsEffects) {
        self.last_beacon = None;
        self.beacon_tick(effects);
    }
}
