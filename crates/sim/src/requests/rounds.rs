//! One simulation: a cluster is set up, works under faults for a few rounds, and is compared with
//! the model after each.

use std::panic::{AssertUnwindSafe, catch_unwind};

use types::{ClientId, Errno, Ino, Seq};
use wire::Answer;

use super::Requests;
use super::project::Project;
use crate::call::{Call, CallKind};
use crate::invariants::{applied_survives, linearizable, liveness, merges, removed, same_tree};
use crate::plan::Plan;
use crate::region::{Region, RegionKind};
use crate::tally::Report;
use crate::tree::{self, Tree};
use crate::world::{Drive, Event};
use types::rng::Rng;

/// Removed files are purged within so many nanoseconds of quiet.
const DELETED_WITHIN: u64 = 10_000_000_000;

/// Runs the simulation of a seed.
#[must_use]
pub fn run(seed: u64, trace: bool) -> Report {
    let mut rng = Rng::new(seed);
    let plan = Plan::draw(&mut rng);
    let mut run = Requests::new(plan, rng, trace);
    let ended = catch_unwind(AssertUnwindSafe(|| {
        run.set_up();
        for _ in 0..run.plan.rounds {
            run.round();
        }
    }));
    run.world.note_end(ended.is_err());
    let tally = &mut run.world.tally;
    tally.count("answers compared", run.oracle.checked);
    tally.count("requests judged together", run.history.judged);
    tally.count("servers", run.world.servers[0].term);
    run.world.report()
}

/// The policy of a region that only the server's memory has.
const VOLATILE: &str = "consistency: rpcs\ndurability: none\n";

impl Requests {
    /// Starts the cluster and makes its regions.
    pub fn set_up(&mut self) {
        self.oracle.regions =
            vec![Region { known: false, ..Region::new(Ino::ROOT, "", RegionKind::Strong) }];
        self.start(0);
        let mut regions = vec![("/s".to_owned(), RegionKind::Strong)];
        if self.plan.volatile {
            regions.push(("/v".into(), RegionKind::Volatile));
        }
        if self.plan.ack_safe {
            regions.push(("/q".into(), RegionKind::AckSafe));
        }
        for number in 0..self.plan.decoupled {
            regions.push((format!("/d{number}"), RegionKind::Decoupled));
        }
        let regions: Vec<_> =
            regions.into_iter().map(|(path, kind)| self.make_region(&path, kind)).collect();
        let _ = self.ask(CallKind::Sync);
        let tree = self.read_tree();
        self.oracle.learn(tree::to_model(&tree));
        self.oracle.regions = regions;
        for _ in 0..self.plan.clients {
            self.add_client();
        }
        let last = self.workers.len() - 1;
        self.workers[last].careful = self.plan.ack_safe;
        for number in 0..self.oracle.regions.len() {
            if self.oracle.regions[number].kind == RegionKind::Decoupled {
                let client = self.world.rng.index(self.plan.clients) + 1;
                let project =
                    Project::new(number, self.world.rng.percent(50), self.world.rng.percent(40));
                self.workers[client].project.get_or_insert(project);
            }
        }
    }

    fn make_region(&mut self, path: &str, kind: RegionKind) -> Region {
        let name = path.trim_start_matches('/').to_owned();
        let ino = self.make(Ino::ROOT, &name, 0o040_777);
        match kind {
            RegionKind::Volatile => self.set_policy(path, VOLATILE),
            RegionKind::AckSafe => self.set_policy(path, "ack: safe\n"),
            RegionKind::Decoupled => {
                if self.world.rng.percent(50) {
                    let dir = self.make(ino, "n0", 0o040_777);
                    self.make(ino, "n1", 0o100_644);
                    self.make(dir, "n1", 0o100_644);
                }
            }
            RegionKind::Strong => {
                let leases = if self.plan.leases { "cache: lease\n" } else { "" };
                let trash = if self.plan.trash { "trash: 1d\n" } else { "" };
                if self.plan.leases || self.plan.trash {
                    self.set_policy(path, &format!("{leases}{trash}"));
                }
            }
        }
        // Without a journal a crash may take the limits, or leave an inode in two directories.
        if self.plan.quotas && kind != RegionKind::Volatile {
            self.limit(ino, path);
        }
        Region::new(ino, path, kind)
    }

    pub(crate) fn make(&mut self, parent: Ino, name: &str, mode: u32) -> Ino {
        let name = name.to_owned();
        match self.ask(CallKind::Create { parent, name, mode, size: 0, data: Vec::new() }) {
            Ok(Answer::Attr(attr)) => attr.ino,
            other => {
                self.world.check(Err(format!("setting up: {other:?}")));
                Ino::ROOT
            }
        }
    }

    /// Sets a policy and waits until it is durable.
    pub fn set_policy(&mut self, path: &str, policy: &str) {
        let (path, policy, client) = (path.to_owned(), policy.to_owned(), ClientId(0));
        let tid = self.ask_monitor(&CallKind::SetPolicy { path, policy, client });
        self.run_until(10_000_000_000, |run| run.world.monitor.answers.contains_key(&tid));
        match self.world.monitor.answers.remove(&tid) {
            Some(Ok(Answer::Attr(_))) => {}
            other => self.world.check(Err(format!("setting a policy: {other:?}"))),
        }
    }

    /// Work under faults, then quiet, then a comparison, then a restart and another comparison.
    fn round(&mut self) {
        self.work_under_faults();
        self.quiesce();
        let when = "at the end of a round";
        self.compare(when);
        if self.plan.volatile && self.world.rng.percent(30) {
            self.promise_more();
        }
        match self.world.rng.below(4) {
            0 => {}
            1 => {
                self.crash(0);
                self.compare("after a crash in quiet");
            }
            2 => {
                self.stop_cleanly();
                self.compare("after a clean stop");
            }
            _ => {
                let _ = self.ask(CallKind::Checkpoint);
                self.harden();
                self.crash(0);
                self.compare("after a checkpoint and a crash");
            }
        }
    }

    /// A subtree without durability gets a policy that promises more: earlier updates become
    /// durable, too, from the moment of the answer (P-16). Then it gets its old policy back.
    fn promise_more(&mut self) {
        let Some(at) = self.oracle.regions.iter().position(|it| it.kind == RegionKind::Volatile)
        else {
            return;
        };
        let path = self.oracle.regions[at].path.clone();
        self.set_policy(&path, "consistency: rpcs\ndurability: stream\n");
        self.oracle.regions[at].soft = false;
        self.crash(0);
        self.compare("after a policy that promises more, and a crash");
        self.set_policy(&path, VOLATILE);
    }

    fn work_under_faults(&mut self) {
        if self.world.violation.is_some() {
            return;
        }
        self.oracle.late = false;
        self.oracle.store_fails = self.world.faults.errors_percent > 0;
        self.world.fail_store(self.world.faults.errors_percent);
        self.issuing = true;
        for client in 1..self.workers.len() {
            self.workers[client].left = self.world.rng.between(1, self.plan.requests);
            self.world.schedule(1, Event::Turn(client));
        }
        let span = self.plan.requests * self.world.delay_max / 8;
        let faults = self.world.faults.clone();
        for (count, make) in [
            (faults.crashes, (|_| Event::Crash) as fn(u64) -> Event),
            (faults.breaks, Event::Break),
            (faults.kills, Event::Kill),
            (faults.stops, |which| match which % 2 {
                0 => Event::Terminate(0),
                _ => Event::EndCluster(0),
            }),
            (self.plan.snapshots, |_| Event::Snapshot),
        ] {
            for _ in 0..self.world.rng.below(count + 1) {
                let (at, which) = (self.world.rng.between(1, span), self.world.rng.bits());
                self.world.schedule(at, make(which));
            }
        }
        self.run_until(span + 3_000_000_000, |run| {
            let mut all = run.world.clients.iter().zip(&run.workers).skip(1);
            all.all(|(client, worker)| !client.alive || worker.left == 0)
        });
    }

    /// Faults end; every request is answered, every change is durable.
    pub fn quiesce(&mut self) {
        self.issuing = false;
        self.world.fail_store(0);
        self.world.events.retain(|_, event| {
            let is_stop = matches!(event, Event::Terminate(_) | Event::EndCluster(_));
            !is_stop && !matches!(event, Event::Crash | Event::Break(_) | Event::Kill(_))
        });
        self.oracle.store_fails |= self.world.faults.errors_percent > 0;
        let within = liveness::ANSWERED_WITHIN.0;
        let quiet = self.run_until(within, Self::is_quiet);
        if quiet {
            for client in 1..self.workers.len() {
                if self.world.clients[client].alive {
                    self.call(client, Call::root(CallKind::Sync));
                }
            }
        }
        for _ in 0..20 {
            let end = self.run_until(within, Self::is_quiet);
            let mut waiting = !end;
            for client in 1..self.workers.len() {
                waiting |= self.finish_project(client);
            }
            if !waiting || self.world.violation.is_some() {
                break;
            }
        }
        // A merge continues without its client, between requests. Until it ends, any part of it may
        // be visible.
        self.run_until(within, |run| run.world.servers[0].is(|mds| !mds.is_merging()));
        // Nothing more of a dead client is carried out when the server knows that it is gone.
        self.run_until(within, Self::has_noticed_ends);
        // Changes of killed clients are promised to no client until the journal has them.
        let _ = self.ask_at("", &CallKind::Sync);
        // A server may end when it learns the result of a write to a failed store.
        self.run_until(within, Self::is_quiet);
        self.check_quiet();
    }

    /// Whether the server has noticed the end of every connection that ended.
    fn has_noticed_ends(&self) -> bool {
        !self.world.events.values().any(|event| matches!(event, Event::ServerSawClose(_)))
    }

    fn is_quiet(&self) -> bool {
        let quiet = |client: usize| {
            let connected = self.world.conn(client).is_some();
            self.is_idle(client) && (connected || !self.world.clients[client].alive)
        };
        self.world.servers[0].is(mds::Mds::is_active) && (1..self.workers.len()).all(quiet)
    }

    fn check_quiet(&mut self) {
        if self.world.violation.is_some() {
            return;
        }
        let left = (1..self.workers.len()).filter(|client| !self.is_idle(*client));
        let left = left.map(|client| format!("{client}: {:?}", self.world.clients[client].routed));
        let left: Vec<_> = left.collect();
        self.world.check(liveness::check(left.into_iter()));
        let dead: Vec<_> =
            self.world.clients.iter().filter(|it| !it.alive).map(|it| it.id).collect();
        let requests = self.oracle.requests.iter();
        let alive = requests.filter(|((client, _), _)| !dead.contains(client));
        let result = applied_survives::check(alive.map(|(_, issued)| issued));
        self.world.check(result);
        for client in 0..self.workers.len() {
            if let Some(region) = self.asked_in_vain(client) {
                // Whether a client got the subtree that died while it asked is not known.
                let subtree = self.oracle.regions[region].root;
                let _ = self.ask(CallKind::Release { subtree });
            }
        }
        for region in 0..self.oracle.regions.len() {
            self.oracle.regions[region].closed = false;
            let Region { root: subtree, owner, .. } = self.oracle.regions[region];
            if owner.is_some_and(|(owner, _)| dead.contains(&owner)) {
                let released = self.ask(CallKind::Release { subtree });
                // It may have merged and released it itself, without hearing of that.
                let gone = released.as_ref().is_err_and(|failure| failure.errno == Errno::Stale);
                if released != Ok(Answer::Done) && !gone {
                    self.world.check(Err(format!("releasing {subtree}: {released:?}")));
                }
                self.oracle.regions[region].owner = None;
            }
        }
    }

    /// Compares the server's tree with the model's, and learns unknown regions.
    pub fn compare(&mut self, when: &str) {
        if self.world.violation.is_some() {
            return;
        }
        if self.world.servers[0].mds.is_none() {
            self.start(0);
        }
        self.run_until(liveness::ANSWERED_WITHIN.0, Self::is_quiet);
        self.world.note(format_args!("$ compare {when}"));
        self.compare_snapshots(when);
        let mut actual = self.read_tree();
        if self.oracle.regions.iter().any(|region| !region.known) {
            // Where a crash undid changes without a journal, a moved inode may be stored in both
            // directories. Reading both shows the right one, so an inode of the first reading may
            // disappear.
            actual = self.read_tree();
        }
        if self.world.violation.is_some() {
            return;
        }
        self.check_removed(&actual, when);
        for region in 0..self.oracle.regions.len() {
            let Region { root, ref mut in_doubt, .. } = self.oracle.regions[region];
            if let Some(journal) = in_doubt.take() {
                let actual = tree::to_model(&actual);
                let before = &self.oracle.model;
                self.world.check(merges::all_or_nothing((before, &actual), root, &journal));
            }
        }
        if let Some(history) = self.history.end(&actual, &self.oracle.regions, self.world.now) {
            self.world.check(linearizable::check(&history));
        }
        let expected = tree::of_model(&self.oracle.model);
        let result = same_tree::check(&expected, &actual, &self.oracle.regions, when);
        self.world.check(result);
        let compared = self.compare_quotas(&actual, when);
        self.world.check(compared);

        if self.oracle.regions.iter().all(|region| region.known) {
            return self.oracle.mark_durable();
        }
        self.learn(&actual);
    }

    /// The model becomes the tree that was read.
    ///
    /// A server with little memory may have evicted the directory with one place of an inode before
    /// it loaded the directory with the other place: then the tree has both places. Which of them
    /// stays depends on later evictions, so their region stays unknown until it is read again.
    fn learn(&mut self, actual: &Tree) {
        let unknown = self.oracle.regions.iter().map(|region| !region.known).collect::<Vec<_>>();
        self.oracle.learn(tree::to_model(actual));
        for path in tree::doubled(actual) {
            self.world.tally.count("paths of inodes in two places", 1);
            let at = self.oracle.regions.iter().position(|region| region.holds(path));
            match at.filter(|at| unknown[*at]) {
                Some(at) => self.oracle.regions[at].known = false,
                None => self.world.check(Err(format!("{path} is an inode that has another path"))),
            }
        }
    }

    /// Checks that no inode in the tree was purged, and that removed files are.
    fn check_removed(&mut self, actual: &Tree, when: &str) {
        let regions = &self.oracle.regions;
        let kept = self.oracle.model.kept_inodes();
        let deleting = &self.world.servers[0].disk.deleting;
        let gone = match self.removed.see((actual, &kept), deleting, regions, when) {
            Ok(gone) => gone,
            Err(text) => return self.world.check(Err(text)),
        };
        // Removals in volatile subtrees are not journalled: a crash may lose the purge.
        if self.plan.volatile || gone.is_empty() {
            return;
        }
        self.run_until(DELETED_WITHIN, |run| gone.is_subset(&run.world.servers[0].disk.deleted));
        self.world.check(removed::check(&gone, &self.world.servers[0].disk.deleted, when));
    }

    /// Everything is in the metadata store: nothing may be lost from here on.
    fn harden(&mut self) {
        for region in &mut self.oracle.regions {
            region.soft = false;
        }
    }

    /// Tells the server to stop, and checks that it left no journal.
    pub fn stop_cleanly(&mut self) {
        if self.world.violation.is_some() {
            return;
        }
        self.harden();
        self.world.schedule(1, Event::EndCluster(0));
        if !self.run_until(liveness::ANSWERED_WITHIN.0, |run| run.world.servers[0].stopped) {
            return self.world.check(Err("told to stop, the server did not".into()));
        }
        use objstore::ObjectStore;
        let left = self.world.memory.list("journal/mds.").unwrap_or_default();
        if !left.is_empty() {
            self.world.check(Err(format!("a clean stop left {left:?}")));
        }
        self.oracle.safe = self.oracle.safe.max(Seq(0));
    }
}

#[cfg(test)]
mod tests;
