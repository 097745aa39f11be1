//! A metadata server as a value.
//!
//! [`Mds::handle`] takes an input (a message, a finished store operation, time to work) and fills
//! [`MdsEffects`] (messages to send, store operations to carry out). It performs no I/O, reads no
//! clock and starts no thread, so the same code runs under the daemon and in the simulator.
//!
//! Where to read on: `op` executes requests, `log` makes them durable, `recover` brings them back
//! (`chain` puts its segments in order, `resend` waits for clients), `checkpoint` moves them to the
//! metadata store, `trash` has trees that were removed at once, and `reap` removes their names,
//! `purge` deletes removed files, `fetch` brings directories in, `merge` applies
//! the journals of decoupled clients (Volatile Apply), `tables` holds the state that must survive
//! even without a journal. `opens` knows which clients have which files open, `locks` which they
//! have locked, `caps` which directories they cache, `leases` until when they may where the server
//! does not count them. `authority` knows which subtrees are other ranks', and `balance` which
//! should be, and `transfer` is the protocol of every move; `peers` sends messages to other ranks.
//! `watch` keeps changes for clients that ask for them. `private` restricts a server of a branch.
//!
//! Invariants:
//! * every change of the namespace is planned, journalled if its subtree streams, then applied;
//! * a reply says *applied*; *safe* is reported when the store confirmed the journal;
//! * one slice of background work takes a few milliseconds at most, and requests go first.

mod admission;
mod apply;
mod authority;
mod balance;
mod beacon;
mod caps;
mod chain;
mod checkpoint;
mod compaction;
mod contexts;
mod counters;
mod damage;
mod early_frames;
mod effects;
mod fetch;
mod figures;
mod files;
mod health;
mod inputs;
mod leases;
mod locks;
mod log;
mod merge;
mod merge_request;
mod notice;
mod op;
mod opens;
mod peers;
mod private;
mod purge;
mod quotas;
mod reap;
mod recent_inodes;
mod recover;
mod resend;
mod resume;
mod search;
mod session;
mod settings;
mod snapshot;
mod stop;
mod store;
mod tables;
mod transfer;
mod trash;
mod validate;
mod watch;

use metastore::request::{StoreFailure, StoreResult, Token};
use namespace::Namespace;
use types::{Clock, ConnId, Ino, Moment, Peer, Rank};
use wire::{ClusterMap, Identities, MdsState, Message};

pub use balance::{ResourceUse, SubtreeLoad};
pub use counters::Counters;
pub(crate) use effects::ReplyTo;
pub use effects::{MdsEffects, Observed};
pub use figures::{Figures, durable_up_to};
pub use health::Room;
pub use notice::MdsNotice;
pub use peers::PeerFrame;
pub use private::Private;
pub use settings::{CHOSEN, Settings};
pub use tables::{NextNumbers, RankTable};

use authority::Authority;
use balance::{Balance, BalanceCx};
use caps::{Caps, CapsCx};
use checkpoint::{Checkpoint, CheckpointCx};
use compaction::Compaction;
use damage::Damage;
use fetch::{FetchCx, Fetches};
use files::FilesCx;
use health::Health;
use leases::{Leases, Terms};
use locks::Locks;
use log::{Log, LogCx};
use merge::{MergeCx, Merges};
use merge_request::{MergeRequestCx, MergeRequests};
use notice::NoticeCx;
use opens::Opens;
use peers::Peers;
use purge::Purges;
use quotas::{QuotaCounter, QuotaCx};
use reap::{ReapCx, Reaper};
use recover::{Recovery, RecoveryInput};
use resend::Resend;
use search::Search;
use session::Sessions;
use snapshot::Snapshots;
use store::{StoreOps, Waiting};
use tables::{Tables, TablesCx};
use trash::Trash;
use watch::{WatchCx, Watches};

/// The inputs of a metadata server.
#[derive(Debug)]
pub enum MdsInput<'a> {
    /// It starts: recovery begins.
    Start,
    /// This peer connected.
    Opened(ConnId, Peer),
    /// A message arrived.
    Message(ConnId, Message<'a>),
    /// A connection is gone.
    Closed(ConnId),
    /// A message of the monitor.
    FromMonitor(Message<'a>),
    /// A store operation ended.
    Stored(Token, Result<StoreResult, Box<StoreFailure>>),
    /// How much of the machine the process takes.
    ResourceUse(ResourceUse),
    /// How much room the store has.
    Room(Room),
    /// A question of the balancer ([`MdsEffects::questions`]) was answered.
    Answered(Box<balancer::BalancerAnswer>),
    /// No message is waiting: time for a slice of background work, if there is any.
    Work,
    /// A few milliseconds passed.
    Tick,
    /// Stop: the next server of the rank goes on. `Message::Stop` ends the cluster.
    Terminate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Recovering,
    /// Replayed; waiting for the clients of the previous term to send unsafe requests again.
    Reconnecting {
        until: Moment,
        /// Not before that, even if all are back: other clients may still have leases.
        leased: Moment,
    },
    Active,
    Stopping,
    Stopped,
}

impl Phase {
    fn state(self) -> MdsState {
        match self {
            Self::Recovering | Self::Reconnecting { .. } => MdsState::Replaying,
            Self::Active => MdsState::Active,
            Self::Stopping | Self::Stopped => MdsState::Stopping,
        }
    }
}

/// See the crate documentation.
#[derive(Debug)]
pub struct Mds {
    rank: Rank,
    settings: Settings,
    phase: Phase,
    namespace: Namespace,
    authority: Authority,
    balance: Balance,
    log: Log,
    health: Health,
    tables: Tables,
    identities: Identities,
    sessions: Sessions,
    opens: Opens,
    caps: Caps,
    leases: Leases,
    locks: Locks<ReplyTo>,
    merge_requests: MergeRequests,
    fetches: Fetches,
    checkpoint: Checkpoint,
    purges: Purges,
    damage: Damage,
    trash: Trash,
    reaper: Reaper,
    quota_counter: QuotaCounter,
    compaction: Compaction,
    merges: Merges,
    watches: Watches,
    /// Changes of policy that wait until something is stored.
    changes: Vec<op::Change>,
    /// Subtrees of clients whose policy in force must be checked again after a crash.
    unrestored: Vec<Ino>,
    recovery: Recovery,
    resend: Resend,
    search: Option<Search>,
    snapshots: Snapshots,
    store: StoreOps,
    /// Requests that arrived before the server was active.
    early: early_frames::EarlyFrames,
    map: Option<ClusterMap>,
    peers: Peers,
    counters: Counters,
    /// Inputs since the invariants were checked, in debug builds.
    unvalidated: u64,
    last_beacon: Option<(Moment, MdsState)>,
    noticed: notice::Noticed,
    /// The latest civil time handed in, for work that no request caused.
    clock: Clock,
}

impl Mds {
    /// A server of a rank that knows nothing yet; [`MdsInput::Start`] makes it recover.
    #[must_use]
    pub fn new(rank: Rank, settings: Settings) -> Self {
        Self {
            rank,
            phase: Phase::Recovering,
            namespace: quotas::namespace_of(&settings),
            authority: Authority::new(rank),
            balance: Balance::new(settings.balance_half_life),
            log: Log::new(),
            health: Health::default(),
            tables: Tables::new(rank),
            identities: Identities::default(),
            sessions: Sessions::default(),
            opens: Opens::default(),
            caps: Caps::default(),
            leases: Leases::new(Terms {
                span: settings.dir_lease,
                slack: settings.dir_lease_slack,
                quiet: settings.quiet,
            }),
            locks: Locks::default(),
            merge_requests: MergeRequests::default(),
            fetches: Fetches::default(),
            checkpoint: Checkpoint::default(),
            purges: Purges::default(),
            damage: Damage::default(),
            trash: if settings.private.is_some() { Trash::none() } else { Trash::default() },
            reaper: Reaper::default(),
            quota_counter: QuotaCounter::default(),
            compaction: Compaction::default(),
            merges: Merges::default(),
            watches: Watches::new(settings.watch_bytes),
            changes: Vec::new(),
            unrestored: Vec::new(),
            recovery: Recovery::default(),
            resend: Resend::default(),
            search: None,
            snapshots: Snapshots::default(),
            store: StoreOps::new(rank),
            early: early_frames::EarlyFrames::default(),
            map: None,
            peers: Peers::default(),
            counters: Counters::default(),
            unvalidated: 0,
            last_beacon: None,
            noticed: notice::Noticed::default(),
            clock: Clock::default(),
            settings,
        }
    }

    /// The one entry point.
    pub fn handle(&mut self, clock: Clock, input: MdsInput<'_>, effects: &mut MdsEffects) {
        self.begin(clock, effects);
        match input {
            MdsInput::Start => self.recover(RecoveryInput::Start, effects),
            MdsInput::Opened(conn, peer) => self.identities.opened(conn, peer),
            MdsInput::Message(conn, message) => self.message(conn, message, effects),
            MdsInput::Closed(conn) => {
                // Not before: frames may still come from a connection that this server closes.
                self.identities.closed(conn);
                self.closed(conn, effects);
            }
            MdsInput::FromMonitor(message) => self.monitor_message(message, effects),
            MdsInput::Stored(token, result) => self.stored(token, result, effects),
            MdsInput::ResourceUse(vitals) => self.balance.note_vitals(vitals),
            MdsInput::Room(room) => self.health.note_room(room),
            MdsInput::Answered(answer) => BalanceCx::of(self).answered(&answer, effects),
            MdsInput::Work => self.work(effects),
            MdsInput::Tick => self.tick(effects),
            MdsInput::Terminate => self.terminate(true, effects),
        }
        if std::mem::take(&mut self.balance.is_news) {
            self.monitor_connected(effects);
        }
        loop {
            if self.fetches.is_any_woken() {
                self.resume_woken(effects);
            }
            if self.resend.is_busy() || !self.early.is_empty() {
                self.resend_on(effects);
            }
            if !self.authority.is_plain() {
                self.authority_step(effects);
            }
            if self.snapshots.is_any() {
                self.snapshot_step(effects);
            }
            if !self.fetches.is_any_woken() {
                break;
            }
        }
        for (tid, result) in std::mem::take(&mut effects.to_balancer) {
            BalanceCx::of(self).moved(tid, result, effects);
        }
        // The answer to a question of this rank itself may lead to another one.
        while !effects.to_askers.is_empty() {
            for (tid, result) in std::mem::take(&mut effects.to_askers) {
                self.answer_peer(tid, result, effects);
            }
        }
        if self.log.is_pending() {
            // A part of the server waits for the journal.
            let hurry = self.phase == Phase::Stopping
                || self.merges.wants_journal()
                || (!self.authority.is_plain() && self.authority.wants_journal())
                || self.checkpoint.wants_journal(self.log.safe());
            if hurry || self.log.is_due(self.clock.now, &self.settings) {
                LogCx::of(self).step(hurry, effects);
            }
        }
        if self.phase == Phase::Stopping {
            let has_work = self.has_work();
            if CheckpointCx::of(self).try_stop(has_work, effects) {
                self.phase = Phase::Stopped;
            }
        }
        // A server that gives up ends in the middle of what it does.
        if cfg!(debug_assertions)
            && effects.fatal.is_none()
            && validate::is_due(&mut self.unvalidated, &self.namespace, &self.sessions)
        {
            self.validate();
        }
    }

    /// An input begins.
    #[inline]
    fn begin(&mut self, clock: Clock, effects: &mut MdsEffects) {
        if self.watches.is_any() {
            // With the clock of the input that changed something.
            WatchCx::of(self).settle();
        }
        self.clock = clock;
        effects.safe = self.log.safe();
    }

    /// Whether [`MdsInput::Work`] would do something.
    #[must_use]
    pub fn has_work(&self) -> bool {
        self.fetches.has_work()
            || self.may_merge()
            || self.checkpoint.has_work()
            || self.authority.has_names_to_move()
            || self.may_reap()
    }

    /// Whether nothing will happen before the next message: time may pass in larger steps.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.log.is_idle()
            && self.tables.is_idle()
            && self.phase == Phase::Active
            && !self.watches.has_news()
    }

    /// Whether the server serves requests.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.phase == Phase::Active
    }

    /// Whether the server is about to end: optional work should be left out.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        matches!(self.phase, Phase::Stopping | Phase::Stopped)
    }

    /// Whether a merge is under way, or one that a crash interrupted is to be finished: other
    /// clients may see a part of it.
    #[must_use]
    pub fn is_merging(&self) -> bool {
        self.merges.is_any()
    }

    /// Whether there is something to be merged, and room for it.
    fn may_merge(&self) -> bool {
        self.merges.has_work()
            && !self.snapshots.is_frozen()
            && (self.phase != Phase::Active
                || !self.checkpoint.merge_lacks_room(&self.namespace, &self.merges, &self.settings))
    }

    /// Checks the invariants of the server, between two inputs. The time that this takes grows
    /// with the state of the server.
    ///
    /// # Panics
    /// If one of them does not hold. The message names the invariant.
    pub fn validate(&self) {
        validate::check(self);
    }

    /// The namespace, for inspection.
    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Figures about the work done so far.
    #[must_use]
    pub fn counters(&self) -> Vec<(String, u64)> {
        self.counters.list(self)
    }

    /// Bounded background work, the most urgent first.
    fn work(&mut self, effects: &mut MdsEffects) {
        if self.fetches.has_work() {
            self.fetch_step(effects);
        } else if self.may_merge() {
            self.merge_step(effects);
        } else if self.checkpoint.has_work() {
            CheckpointCx::of(self).step(effects);
        } else if self.may_reap() {
            ReapCx::of(self).step(effects);
        }
    }

    fn tick(&mut self, effects: &mut MdsEffects) {
        // Failed fetches are repeated.
        if self.search.as_ref().is_some_and(|search| !search.is_waiting()) {
            self.search_on(effects);
        }
        self.stop_waiting_if_complete(effects);
        FetchCx::of(self).tick(effects);
        LogCx::of(self).tick(effects);
        TablesCx::of(self).tick(effects);
        CheckpointCx::of(self).tick(effects);
        CheckpointCx::of(self).purge_tick(effects);
        // They got a recall of a file and did not answer.
        for client in self.opens.silent(self.clock.now) {
            effects.notices.push(MdsNotice::Silent { client });
            self.close(client, effects);
        }
        MergeRequestCx::of(self).tick();
        self.evict();
        CheckpointCx::of(self).compact_next(effects);
        ReapCx::of(self).tick(effects);
        if self.namespace.has_quotas() && QuotaCx::of(self).tick(effects) {
            CapsCx::of(self).revoke_near_quotas(effects);
        }
        self.authority_tick(effects);
        if self.watches.is_any() {
            WatchCx::of(self).tick(effects);
        }
        FilesCx::of(self).serve_deferred(effects);
        BalanceCx::of(self).tick(effects);
        self.begin_moves(effects);
        if self.is_active() && !self.resend.is_busy() {
            MergeCx::of(self).finish_interrupted(effects);
        }
        if self.is_active() {
            self.sessions.forget_gone(self.clock.now);
            files::LapseCx::of(self).forget_lapsed();
        }
        // A merge that is ended before the server stops may wait for clients, too.
        if matches!(self.phase, Phase::Active | Phase::Stopping) {
            CapsCx::of(self).tick(effects);
        }
        self.advance_stop(effects);
        self.beacon_tick(effects);
        NoticeCx::of(self).tick(effects);
    }
}

#[cfg(test)]
mod tests;
