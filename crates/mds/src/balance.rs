//! Balancing: this rank reports its load, receives the loads of the other ranks, and lets its
//! policy decide which subtrees move where (B-01, B-05, B-14, B-24).
//!
//! Every interval:
//! 1. `load` counts the hits (more often than once per interval: hits fade), `view` collects
//!    everything that the rank knows, and a question goes out: [`crate::MdsEffects::questions`]. A
//!    policy is a user's program, so it runs beside the rank's work, and requests continue during
//!    it.
//! 2. With the answer the heartbeat goes to the other ranks, through the monitor.
//! 3. The policy's state is stored (`policy`), then its decisions are executed (`moves`), several
//!    exports side by side.
//!
//! A single rank neither asks nor reports under the default policy: no other rank could take a
//! subtree. A user that has set another policy wants to see its results.
//!
//! The policy decides nothing unless all ranks are active, have reported lately, and have the same
//! version of the policy: other loads are not comparable.
//!
//! Invariant: requests are served with every policy; and a policy that failed moves nothing.

mod load;
mod moves;
mod policy;
mod subtrees;
mod validate;
mod view;

use std::collections::BTreeMap;

use balancer::{
    BalancerAnswer, DecayingCounts, DecisionRecord, Fault, Heartbeat, LoadTable, RecordedEvent,
    State, TickRecord, Versions,
};
use namespace::Namespace;
use types::{Clock, Ino, Map, Moment, Rank, Span};
use wire::{BalancerEntry, ClusterMap, Message, Warning};

use crate::authority::Authority;
use crate::store::StoreOps;
use crate::tables::Tables;
use crate::{Counters, MdsEffects, Phase, Settings};
pub(crate) use load::note_use;

use moves::Move;
pub(crate) use policy::Object;
use policy::Reading;
pub use subtrees::SubtreeLoad;
pub(crate) use subtrees::subtree_loads;

/// How many ticks a rank may be silent before nothing is decided any more.
const SILENT_TICKS: u64 = 3;
/// How many ticks a directory is left alone that could not be moved.
const REFUSED_TICKS: u64 = 6;

/// The process's use of the machine, as its driver measures it. Counts are totals since the process
/// began: a tick reports their growth, so that all its figures are of the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ResourceUse {
    /// Memory in per cent of the process's limit.
    pub mem_percent: f64,
    /// CPU time used, in seconds at the process's limit: with a share of a processor they are
    /// longer in proportion.
    pub cpu_seconds: f64,
    /// Requests that it found waiting when it looked for them.
    pub found: u64,
    /// How often it looked and found some.
    pub looks: u64,
}

/// The last heartbeat of another rank.
#[derive(Clone, Copy, Debug)]
struct RankHeartbeat {
    beat: Heartbeat,
    at: Moment,
    count: u64,
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Balance {
    table: LoadTable,
    /// Requests for inodes of other ranks.
    foreign: DecayingCounts,
    forwards: u64,
    /// When hits were counted last, and whether some are left.
    counted: Moment,
    counting: bool,
    /// Hits from before the rank served requests are not load.
    begun: bool,
    vitals: ResourceUse,
    /// Requests, vitals and time at the last tick.
    before: (u64, ResourceUse, Moment),
    heartbeats: BTreeMap<Rank, RankHeartbeat>,
    sent: u64,
    versions: Versions,
    /// The policy in force by the map, and whether the rank has it.
    entry: BalancerEntry,
    reading: Reading,
    state: State,
    /// As the store has it, with the version of the policy that saved it.
    saved: Option<(u64, State)>,
    ticks: u64,
    next_tick: Option<Moment>,
    /// A question is under way since then.
    asked: Option<Moment>,
    /// An answer that waits for the state to be stored.
    storing: Option<Vec<Move>>,
    moves: moves::Moves,
    /// Until which tick directories are left alone that could not be moved.
    refused: Map<Ino, u64>,
    fault: Option<(Fault, u32)>,
    faults: u64,
    given_up: (u64, String),
    /// The monitor is to be notified at once.
    pub(crate) is_news: bool,
}

/// Balancing, with all that it may touch.
pub(crate) struct BalanceCx<'a> {
    pub(crate) balance: &'a mut Balance,
    pub(crate) namespace: &'a mut Namespace,
    pub(crate) counters: &'a mut Counters,
    pub(crate) store: &'a mut StoreOps,
    pub(crate) authority: &'a Authority,
    pub(crate) tables: &'a Tables,
    pub(crate) map: Option<&'a ClusterMap>,
    pub(crate) settings: &'a Settings,
    pub(crate) phase: Phase,
    pub(crate) rank: Rank,
    pub(crate) clock: Clock,
}

impl Balance {
    pub(crate) fn new(half_life: Span) -> Self {
        Self {
            table: LoadTable::new(half_life),
            foreign: DecayingCounts::default(),
            forwards: 0,
            counted: Moment(0),
            counting: false,
            begun: false,
            vitals: ResourceUse::default(),
            before: (0, ResourceUse::default(), Moment(0)),
            heartbeats: BTreeMap::new(),
            sent: 0,
            versions: Versions::new(0, balancer::default_policy()),
            entry: BalancerEntry::default(),
            reading: Reading::default(),
            state: State::Nothing,
            saved: None,
            ticks: 0,
            next_tick: None,
            asked: None,
            storing: None,
            moves: moves::Moves::default(),
            refused: Map::default(),
            fault: None,
            faults: 0,
            given_up: (0, String::new()),
            is_news: false,
        }
    }

    /// How the machine is used.
    pub(crate) fn note_vitals(&mut self, vitals: ResourceUse) {
        self.vitals = vitals;
    }

    /// The directories that moves waited for are here, or cannot be read.
    pub(crate) fn retry_fetched(&mut self) {
        self.moves.retry_fetched();
    }

    /// Figures for status output.
    pub(crate) fn counters(&self) -> Vec<(String, u64)> {
        let named = [
            ("balancer_version", self.versions.current().0),
            ("balancer_ticks", self.ticks),
            ("balancer_faults", self.faults),
            ("balancer_moves", self.moves.executed),
            ("balancer_moves_refused", self.moves.refused),
            ("heartbeats_sent", self.sent),
        ];
        let named = named.into_iter().map(|(name, value)| (name.to_owned(), value));
        let heartbeats = self.heartbeats.iter();
        named
            .chain(
                heartbeats.map(|(rank, heartbeat)| {
                    (format!("heartbeats_from_{}", rank.0), heartbeat.count)
                }),
            )
            .collect()
    }

    /// Warnings for the user.
    pub(crate) fn warnings(&self) -> Vec<Warning> {
        let mut warnings = Vec::new();
        let BalancerEntry { version, name, .. } = &self.entry;
        if let Some((fault, failures)) = &self.fault {
            warnings.push(Warning {
                code: "BALANCER_FAULT".into(),
                text: format!(
                    "balancer policy {name} (version {version}) failed in {failures} ticks in a row, \
                     and nothing moves: {fault}"
                ),
                remedy: format!("{}, or `cudele balancer revert`", fault.remedy()),
            });
        }
        if let Some(cause) = self.reading.failure() {
            warnings.push(Warning {
                code: "BALANCER_UNREADABLE".into(),
                text: format!(
                    "balancer policy {name} (version {version}) is not in force here: {cause}"
                ),
                remedy: "`cudele balancer set` it again, or `cudele balancer revert`".into(),
            });
        }
        warnings
    }

    /// The report to the monitor until the ranks have another version.
    pub(crate) fn given_up(&self) -> (u64, String) {
        if self.given_up.0 < self.entry.version {
            (0, String::new())
        } else {
            self.given_up.clone()
        }
    }
}

impl BalanceCx<'_> {
    /// Does the part of balancing that is due.
    pub(crate) fn tick(&mut self, effects: &mut MdsEffects) {
        if self.phase != Phase::Active || self.balance.entry.version == 0 {
            // The monitor's map with the policy in force comes first.
            return;
        }
        let now = self.clock.now;
        self.count_hits(now);
        self.read_policy(effects);
        let interval = self.settings.balance_interval;
        let next = *self.balance.next_tick.get_or_insert(now + interval);
        // An unanswered question is repeated after an interval.
        if now < next || self.balance.asked.is_some_and(|at| now.since(at) < interval) {
            return;
        }
        // Ticks that were missed while the process stood still are skipped.
        let on_time = now.since(next) < interval;
        self.balance.next_tick = Some(if on_time { next + interval } else { now + interval });
        if self.rank_count() < 2 && self.balance.entry.name == balancer::DEFAULT_POLICY {
            return;
        }
        self.balance.ticks += 1;
        self.balance.asked = Some(now);
        let question = self.question_now(now);
        effects.questions.push(Box::new(question));
    }

    /// Receives another rank's load.
    pub(crate) fn note_heartbeat(&mut self, bytes: &[u8]) {
        let Ok(beat) = Heartbeat::decode(bytes) else { return };
        let at = self.clock.now;
        let known = self.balance.heartbeats.get(&beat.rank);
        if beat.rank == self.rank || usize::from(beat.rank.0) >= balancer::RANKS_MAX {
            return;
        }
        // Drop late heartbeats. A restarted rank begins to count from zero, in a higher epoch.
        let is_late = |heartbeat: &RankHeartbeat| {
            (beat.epoch, beat.tick) <= (heartbeat.beat.epoch, heartbeat.beat.tick)
        };
        if known.is_some_and(is_late) {
            return;
        }
        let count = known.map_or(0, |heartbeat| heartbeat.count) + 1;
        self.balance.heartbeats.insert(beat.rank, RankHeartbeat { beat, at, count });
        let heartbeat = self.balance.heartbeats.len();
        assert!(heartbeat <= balancer::RANKS_MAX, "{heartbeat} other ranks are heard");
    }

    /// A question was answered: sends the load to the other ranks, and executes the decision.
    pub(crate) fn answered(&mut self, answer: &BalancerAnswer, effects: &mut MdsEffects) {
        self.balance.asked = None;
        if self.phase != Phase::Active {
            return;
        }
        self.send_heartbeat(answer, effects);
        let tick = self.balance.ticks;
        let path = |ino| self.namespace.path_of(ino).map_or_else(Vec::new, |path| path.to_bytes());
        self.notify_balanced(RecordedEvent::Tick(TickRecord::of(answer, tick, path)), effects);
        let Some(decision) = &answer.decision else { return };
        if answer.question.version != self.balance.versions.current().0 {
            // Another one is in force by now.
            return;
        }
        self.judge(decision);
        let moves: Vec<Move> =
            decision.exports.iter().map(|export| self.planned(export, answer)).collect();
        if decision.fault().is_none() {
            self.remember(decision.state.clone(), moves, effects);
        }
    }

    /// Evaluates the policy by its decision.
    fn judge(&mut self, decision: &balancer::Decision) {
        let before = self.balance.fault.take();
        match self.balance.versions.observe(decision) {
            balancer::VersionVerdict::Fine => {}
            balancer::VersionVerdict::Warn { fault, failures } => {
                self.balance.faults += 1;
                self.balance.fault = Some((fault, failures));
            }
            balancer::VersionVerdict::Reverted { fault, from, .. } => {
                self.balance.faults += 1;
                self.balance.given_up = (from, fault.to_string());
                self.forget_state();
            }
        }
        let given_up = self.balance.given_up.0 == self.balance.entry.version;
        if before != self.balance.fault || given_up {
            self.balance.is_news = true;
        }
    }

    fn send_heartbeat(&mut self, answer: &BalancerAnswer, effects: &mut MdsEffects) {
        let view = &answer.question.view;
        if view.ranks.len() < 2 {
            return;
        }
        let Some(metrics) = view.ranks.get(usize::from(self.rank.0)) else { return };
        let beat = Heartbeat {
            rank: self.rank,
            epoch: self.tables.epoch(),
            policy: answer.question.version,
            tick: self.balance.ticks,
            metrics: *metrics,
        };
        self.balance.sent += 1;
        Message::Heartbeat(&beat.encode()).append_frame(&mut effects.to_monitor);
    }

    fn notify_balanced(&self, what: RecordedEvent, effects: &mut MdsEffects) {
        let record = DecisionRecord { rank: self.rank, time: self.clock.time, what };
        Message::Balanced(&record.encode()).append_frame(&mut effects.to_monitor);
    }
}
