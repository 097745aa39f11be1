//! Ranks that balance themselves: their policies decide the moves, at any load of the clients,
//! while servers are killed, and machines are loaded at random.

use balancer::{DecisionRecord, RecordedEvent};
use mds::{MdsInput, ResourceUse};
use objstore::{Expect, ObjectStore};
use types::{Span, Timestamp};
use wire::{BalancerEntry, Message};

use super::{Drive, Event, MS, Ranks, World};
use types::rng::Rng;

/// Sends half of its load to the next rank in every second tick.
const RESTLESS: &str = "-- When policy
local n = RDState() + 1
WRState(n)
if n % 2 == 0 then
-- Where policy
targets[whoami % #MDSs + 1] = allmetaload/2
";
/// Fails now and then, on some ranks.
const FAULTY: &str = "-- When policy
local n = RDState() + 1
WRState(n)
if n % 3 == 0 then targets[99] = 1 end
if n % 2 == 0 then
-- Where policy
targets[whoami % #MDSs + 1] = allmetaload
";
/// The version that moves nothing, when everything is healed.
const REST: u64 = 3;

/// How the ranks of a run balance themselves.
#[derive(Debug)]
pub(super) struct Balancing {
    rng: Rng,
    /// The vitals of each machine, and the time of the last report.
    vitals: (u64, ResourceUse),
}

impl Balancing {
    /// Only some runs have it. It draws from a generator of its own, so all other draws stay as
    /// they are.
    pub(super) fn of(seed: u64, world: &mut World) -> Option<Self> {
        if !seed.is_multiple_of(3) {
            return None;
        }
        let mut rng = Rng::new(seed ^ 0x6261_6c61_6e63);
        let shipped = ["greedy-spill", "adaptable-too-aggressive", "hash", "cephfs"];
        let choice = rng.index(shipped.len() + 4);
        let (object, name) = match shipped.get(choice) {
            Some(name) => (0, *name),
            None => (2, "of the run"),
        };
        let text = if choice + 1 == shipped.len() + 4 { FAULTY } else { RESTLESS };
        let object_name = BalancerEntry::object_name(2);
        let stored = world.memory.put(&object_name, text.as_bytes(), Expect::Any);
        assert!(stored.is_ok(), "nothing fails yet");
        let name = name.to_owned();
        let entry = BalancerEntry { version: 2, object, name, ..BalancerEntry::default() };
        world.monitor.balancers = vec![entry];
        world.settings.balance_interval = Span::from_millis(rng.pick(&[15, 40, 90]));
        Some(Self { rng, vitals: Default::default() })
    }
}

impl Ranks {
    /// The machine is as loaded as it is.
    pub(super) fn load_machine(&mut self, server: usize) {
        let Some(Balancing { rng, vitals: (at, vitals), .. }) = &mut self.balancing else { return };
        if rng.below(20) != 0 {
            return;
        }
        let part = f64::from(u32::try_from(rng.below(101)).unwrap_or_default()) / 100.0;
        let passed =
            f64::from(u32::try_from((self.world.now - *at) / MS).unwrap_or_default()) / 1000.0;
        *at = self.world.now;
        vitals.mem_percent = 1.0;
        vitals.cpu_seconds += part * passed;
        vitals.found += 3;
        vitals.looks += 2;
        let vitals = *vitals;
        self.handle(server, MdsInput::ResourceUse(vitals));
    }

    /// A balancer has decided something.
    pub(super) fn balanced(&mut self, bytes: &[u8]) {
        let Ok(record) = DecisionRecord::decode(bytes) else {
            return self.world.fail("a record that cannot be read".into());
        };
        self.world.note(format_args!("{} balances {:?}", record.rank, record.what));
        match record.what {
            RecordedEvent::Tick(tick) => {
                self.world.tally.count(
                    "ticks in which a policy failed",
                    u64::from(tick.ended == balancer::TickResult::Failed),
                );
            }
            RecordedEvent::Move(done) => self
                .world
                .tally
                .count("subtrees moved by a balancer", u64::from(done.failure.is_empty())),
        }
    }

    /// Nothing is to move any more.
    pub(super) fn end_balancing(&mut self) {
        let Some(entry) = self.world.monitor.balancers.first_mut() else { return };
        let name = "static".to_owned();
        let why = "the end".to_owned();
        let time = Timestamp(0);
        *entry = BalancerEntry { version: REST, object: 0, name, time, why, failed: false };
        for server in 0..self.world.servers.len() {
            let map = Box::new(self.world.map());
            self.handle(server, MdsInput::FromMonitor(Message::Map(map)));
        }
    }

    /// A server dies during an export or import.
    pub(super) fn crash_mover(&mut self) {
        let moving = (0..self.world.servers.len()).filter(|server| {
            self.world.servers[*server].mds.as_ref().is_some_and(mds::Mds::is_moving)
        });
        let moving: Vec<usize> = moving.collect();
        if self.is_faulty() && !moving.is_empty() && self.world.rng.percent(30) {
            let server = self.world.rng.pick(&moving);
            self.world.servers[server].doomed = Some(self.world.rng.between(1, 25));
        }
        let after = self.world.rng.between(1, 30) * MS;
        self.world.schedule(after, Event::Move);
    }
}
