//! Ranks that balance themselves: their policies decide the moves, at any load of the clients,
//! while servers are killed. The simulator is the monitor that passes heartbeats on, the thread
//! that answers questions, and the machine that is loaded at random.

use balancer::{DecisionRecord, Expired, Question, RecordedEvent};
use mds::{MdsInput, ResourceUse};
use objstore::{Expect, Memory, ObjectStore};
use types::{Span, Timestamp};
use wire::{BalancerEntry, Message};

use super::{Event, MS, RanksWorld};
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
    entry: BalancerEntry,
    pub(super) interval: Span,
    /// The vitals of each machine, and the time of the last report.
    vitals: (u64, ResourceUse),
}

impl Balancing {
    /// Only some runs have it. It draws from a generator of its own, so all other draws stay as
    /// they are.
    pub(super) fn of(seed: u64, memory: &Memory) -> Option<Self> {
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
        let stored = memory.put(&object_name, text.as_bytes(), Expect::Any);
        assert!(stored.is_ok(), "nothing fails yet");
        let name = name.to_owned();
        let entry = BalancerEntry { version: 2, object, name, ..BalancerEntry::default() };
        let interval = Span::from_millis(rng.pick(&[15, 40, 90]));
        Some(Self { rng, entry, interval, vitals: Default::default() })
    }
}

impl RanksWorld {
    /// The policy in force according to the map.
    pub(super) fn balancers(&self) -> Vec<BalancerEntry> {
        self.balancing.iter().map(|balancing| balancing.entry.clone()).collect()
    }

    /// The machine is as loaded as it is.
    pub(super) fn load_machine(&mut self, server: usize, term: u64) {
        let Some(Balancing { rng, vitals: (at, vitals), .. }) = &mut self.balancing else { return };
        if rng.below(20) != 0 {
            return;
        }
        let part = f64::from(u32::try_from(rng.below(101)).unwrap_or_default()) / 100.0;
        let passed = f64::from(u32::try_from((self.now - *at) / MS).unwrap_or_default()) / 1000.0;
        *at = self.now;
        vitals.mem_percent = 1.0;
        vitals.cpu_seconds += part * passed;
        vitals.found += 3;
        vitals.looks += 2;
        let vitals = *vitals;
        self.handle(server, term, MdsInput::ResourceUse(vitals));
    }

    /// A question goes to the thread that answers it.
    pub(super) fn think(&mut self, server: usize, term: u64, question: Box<Question>) {
        let after = self.delay();
        self.schedule(after, Event::Answer(server, term, question));
    }

    pub(super) fn answer(&mut self, server: usize, term: u64, question: Question) {
        let answer = question.answer(&Expired::never());
        self.handle(server, term, MdsInput::Answered(Box::new(answer)));
    }

    /// A server's message to the monitor: the other ranks receive its heartbeats, some late and
    /// some never.
    pub(super) fn to_monitor(&mut self, server: usize, frames: &[u8]) {
        let mut rest = frames;
        while let Ok(Some((frame, length))) = wire::frame::decode(rest) {
            rest = &rest[length..];
            match Message::decode(frame.payload) {
                Ok(Message::Heartbeat(bytes)) => {
                    for other in (0..self.servers.len()).filter(|other| *other != server) {
                        if self.faults && self.rng.percent(5) {
                            continue;
                        }
                        let after = self.delay();
                        self.schedule(after, Event::Beat(other, bytes.to_vec()));
                    }
                }
                Ok(Message::Balanced(bytes)) => self.balanced(bytes),
                Ok(_) | Err(_) => {}
            }
        }
    }

    fn balanced(&mut self, bytes: &[u8]) {
        let Ok(record) = DecisionRecord::decode(bytes) else {
            return self.fail("a record that cannot be read".into());
        };
        self.note(|| format!("{} balances {:?}", record.rank, record.what));
        match record.what {
            RecordedEvent::Tick(tick) => {
                self.report.faulty_ticks += u64::from(tick.ended == balancer::TickResult::Failed);
            }
            RecordedEvent::Move(done) => self.report.balanced += u64::from(done.failure.is_empty()),
        }
    }

    /// Nothing is to move any more.
    pub(super) fn end_balancing(&mut self) {
        let Some(Balancing { entry, .. }) = &mut self.balancing else { return };
        let name = "static".to_owned();
        let why = "the end".to_owned();
        let time = Timestamp(0);
        *entry = BalancerEntry { version: REST, object: 0, name, time, why, failed: false };
        for server in 0..self.servers.len() {
            let (term, map) = (self.servers[server].term, Box::new(self.map()));
            self.handle(server, term, MdsInput::FromMonitor(Message::Map(map)));
        }
    }

    /// A server dies during an export or import.
    pub(super) fn crash_mover(&mut self) {
        let moving = (0..self.servers.len())
            .filter(|server| self.servers[*server].mds.as_ref().is_some_and(mds::Mds::is_moving));
        let moving: Vec<usize> = moving.collect();
        if self.faults && !moving.is_empty() && self.rng.percent(30) {
            let server = self.rng.pick(&moving);
            self.servers[server].doomed = Some(self.rng.between(1, 25));
        }
        let after = self.rng.between(1, 30) * MS;
        self.schedule(after, Event::Move);
    }

    /// A heartbeat of another rank arrives.
    pub(super) fn beat(&mut self, server: usize, bytes: &[u8]) {
        let term = self.servers[server].term;
        self.handle(server, term, MdsInput::FromMonitor(Message::Heartbeat(bytes)));
    }
}
