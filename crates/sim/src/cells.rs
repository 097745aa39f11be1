//! All nine cells of Table II under faults, and every change from one to another.
//!
//! A second cluster of the same seed. Each of its subtrees is under one of the nine policies; a
//! client with a disk of its own works there, changes the policy, and is struck by faults at any
//! step, as is the server. After each step the `ledger` decides which updates must and which may
//! exist.
//!
//! A process here is a function that waits, like the library: `Stop` ends it at any point. Further
//! clients work in a strong subtree at the same time, and the `crate::oracle` judges them.

pub mod ace;
mod change;
mod fault;
mod job;
mod ledger;
mod machine;
mod mechanism;
mod process;
mod resume;
mod strong;
mod sync;
mod tally;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use policy::{Cell, Consistency, Policy};
use types::{ClientId, Errno, Ino};

use crate::call::CallKind;
use crate::invariants::liveness;
use crate::plan::Plan;
use crate::region::{Region, RegionKind};
use crate::requests::Requests;
use crate::tally::Report;
use crate::world::Event;
use fault::{Fault, Fuse};
use job::Job;
use ledger::Ledger;
use machine::Machine;
pub use tally::{has_every_cell, table};
use types::rng::Rng;

/// Tells the random numbers of this cluster from those of the other one of the same seed.
const SALT: u64 = 0xce11_ce11_ce11_ce11;
/// The longest time for background work without a waiting client, in nanoseconds.
const CALM: u64 = 400_000_000;
/// Draws of a cell before a turn is left out.
const TRIES_MAX: usize = 20;

/// Why a process does not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// It is dead.
    Killed,
    /// It was told that something failed.
    Failed(Errno),
    /// A promise was found broken: the simulation ends.
    Broken,
}

/// The result of a step of a process.
type Done<T> = Result<T, Stop>;

/// See the module documentation.
#[derive(Debug)]
struct Cells {
    requests: Requests,
    jobs: Vec<Job>,
    /// The job that is being worked on.
    current: usize,
    fuse: Option<Fuse>,
    /// Whether a fault struck since this was set to false.
    struck: bool,
    /// Crashes of the server that the ledgers know of, and whether it had stopped at the last look.
    crashes: u64,
    was_stopped: bool,
    /// How long background work may take without a waiting client, in nanoseconds.
    calm: u64,
    points: ace::Points,
    /// The policies that were read, by their texts.
    policies: BTreeMap<String, Policy>,
    rng: Rng,
}

/// Runs the simulation of a seed.
#[must_use]
pub fn run(seed: u64, trace: bool) -> Report {
    let mut cells = Cells::new(seed, trace);
    let ended = catch_unwind(AssertUnwindSafe(|| {
        let turns = cells.rng.between(6, 24);
        for _ in 0..turns {
            if cells.requests.world.violation.is_some() {
                break;
            }
            cells.turn();
        }
        cells.finish();
    }));
    cells.requests.world.note_end(ended.is_err());
    let world = &mut cells.requests.world;
    world.tally.count("servers", world.servers[0].term);
    world.report()
}

impl Cells {
    fn new(seed: u64, trace: bool) -> Self {
        let mut rng = Rng::new(seed ^ SALT);
        let mut plan = Plan::draw(&mut rng);
        (plan.volatile, plan.ack_safe, plan.decoupled) = (false, false, 0);
        (plan.clients, plan.faults.crashes, plan.faults.kills) = (1, 0, 0);
        // A client that stays away for longer than the server waits may lose answered changes.
        plan.faults.away_max = plan.faults.away_max.min(50_000_000);
        let own = rng.fork();
        let mut requests = Requests::new(plan, rng, trace);
        requests.set_up();
        let mut cells = Self::over(requests, own);
        if cells.requests.plan.quotas {
            cells.requests.limit(Ino::ROOT, "");
        }
        for number in 0..cells.rng.between(1, 2) {
            let cell = any_cell(&mut cells.rng);
            cells.add_job(number, cell);
        }
        let _ = cells.requests.ask(CallKind::Sync);
        let tree = cells.requests.read_tree();
        cells.requests.oracle.learn(crate::tree::to_model(&tree));
        let paths: Vec<_> = cells.jobs.iter().map(|job| job.path.clone()).collect();
        for region in &mut cells.requests.oracle.regions {
            region.known &= !paths.contains(&region.path);
        }
        let errors = cells.requests.world.faults.errors_percent;
        cells.requests.oracle.store_fails = errors > 0;
        cells.requests.world.fail_store(errors);
        cells
    }

    /// Cells of a cluster, without a subtree.
    fn over(requests: Requests, rng: Rng) -> Self {
        Self {
            requests,
            jobs: Vec::new(),
            current: 0,
            fuse: None,
            struck: false,
            crashes: 0,
            was_stopped: false,
            calm: CALM,
            points: ace::Points::default(),
            policies: BTreeMap::new(),
            rng,
        }
    }

    fn add_job(&mut self, number: u64, cell: Cell) {
        let path = format!("/c{number}");
        let root = self.requests.make(Ino::ROOT, &path[1..], 0o040_777);
        self.requests.set_policy(&path, &Policy::of_cell(cell).to_yaml());
        let region = Region { known: false, ..Region::new(root, &path, RegionKind::Decoupled) };
        self.requests.oracle.regions.push(region);
        self.jobs.push(Job {
            path,
            root,
            cell,
            doubt: Vec::new(),
            question: None,
            next: vec![None],
            releasing: false,
            granted: None,
            machine: Machine::default(),
            process: None,
            ledger: Ledger::default(),
        });
    }

    /// One step of a client, perhaps a fault, and perhaps a comparison of everything.
    fn turn(&mut self) {
        self.current = self.rng.index(self.jobs.len());
        self.let_others_work();
        self.fuse = self.rng.percent(45).then(|| Fuse::draw(&mut self.rng));
        self.struck = false;
        let done = self.act();
        let struck = std::mem::take(&mut self.struck) || done.is_err();
        self.fuse = None;
        if struck || self.rng.percent(30) {
            self.check("after a turn");
        }
    }

    fn let_others_work(&mut self) {
        self.requests.issuing = true;
        self.requests.workers[1].left = self.rng.below(4);
        self.requests.world.schedule(1, Event::Turn(1));
        if self.requests.world.faults.breaks > 0 && self.rng.percent(30) {
            let (at, which) = (self.rng.between(1, 30_000_000), self.rng.bits());
            self.requests.world.schedule(at, Event::Break(which));
        }
    }

    fn act(&mut self) -> Done<()> {
        if let Err(stop) = self.boot() {
            // The next one tries again.
            self.end_process();
            return Err(stop);
        }
        if self.holding().is_ok() && self.job().releasing {
            // The subtree may be shared again by now.
            return self.merge();
        }
        if self.holding().is_err() && !self.job().doubt.is_empty() {
            // The promise of the next updates depends on it.
            self.check_policy(self.current);
        }
        let (kind, count, to) =
            (self.rng.below(100), self.rng.between(1, 8), any_cell(&mut self.rng));
        if self.holding().is_ok() {
            return match kind {
                0..35 => {
                    self.append(count)?;
                    self.sync_sometimes(count)?;
                    self.complete()
                }
                35..42 => self.append(count),
                42..76 => self.change(to),
                76..80 => self.change_by_another(to),
                80..90 => self.merge(),
                _ => self.strike_at_rest(),
            };
        }
        let (cell, strong) = {
            let cell = self.job().cell;
            (cell, cell.consistency == Consistency::Strong)
        };
        match kind {
            0..40 if strong => self.work_by_requests(count),
            0..40 => self.decouple(cell),
            40..80 => self.change(to),
            80..86 => {
                let cell = std::iter::repeat_with(|| any_cell(&mut self.rng));
                let decoupled = |cell: &Cell| cell.consistency != Consistency::Strong;
                match cell.take(TRIES_MAX).find(decoupled) {
                    Some(cell) => self.decouple(cell),
                    None => Ok(()),
                }
            }
            86..90 => self.work_by_requests(count),
            _ => self.strike_at_rest(),
        }
    }

    /// Records a step on the current job's subtree in the trace.
    fn note(&mut self, what: &str, cell: Cell) {
        let Job { path, cell: before, .. } = &self.jobs[self.current];
        self.requests.world.note(format_args!("$ {path} under {before} {what} ({cell})"));
    }

    fn strike_at_rest(&mut self) -> Done<()> {
        let fault = self.rng.pick(&Fault::ALL);
        self.fuse = None;
        self.strike(fault);
        Ok(())
    }

    /// Lets the cluster come to rest: the server is active, and living clients are welcome.
    fn calm_down(&mut self) -> Done<()> {
        for at in 0..self.jobs.len() {
            if let Some(client) = self.jobs[at].process.as_ref().map(|process| process.client) {
                self.ready(client)?;
            }
        }
        // A journal that cannot be written is tried again a little later.
        let calm = if self.requests.oracle.store_fails { 4 * self.calm } else { self.calm };
        let end = self.requests.world.now + calm;
        let at_rest = |cells: &Self| {
            let world = &cells.requests.world;
            let resent = |job: &Job| {
                let process = job.process.as_ref();
                process.is_some_and(|it| world.session(it.client).resent_count() > 0)
            };
            // During a merge any part of it may be visible.
            let rests = |mds: &mds::Mds| mds.is_active() && !mds.has_work() && !mds.is_merging();
            world.servers[0].is(rests) && !cells.jobs.iter().any(resent)
        };
        let limit = self.requests.world.now + liveness::ANSWERED_WITHIN.0;
        while self.requests.world.now < end || !at_rest(self) {
            self.step(0)?;
            for at in 0..self.jobs.len() {
                if let Some(client) = self.jobs[at].process.as_ref().map(|it| it.client) {
                    self.ready(client)?;
                }
            }
            if self.requests.world.now > limit {
                self.requests.world.check(Err("it does not come to rest".into()));
                return Err(Stop::Broken);
            }
        }
        Ok(())
    }

    /// Compares the content of each subtree with its ledger, and its policy with the last one that
    /// was set.
    fn check(&mut self, when: &str) {
        self.requests.world.note(format_args!("$ check {when}"));
        self.requests.issuing = false;
        self.requests.world.fail_store(0);
        if self.calm_down().is_ok() {
            for at in 0..self.jobs.len() {
                self.check_policy(at);
                let crashes = self.crashes;
                let seen = self.listing(at);
                if self.requests.world.violation.is_some() || crashes != self.requests.world.crashes
                {
                    break;
                }
                let job = &mut self.jobs[at];
                let compared = job.ledger.compare(&seen);
                let about = |text| format!("{} under {} {when}: {text}", job.path, job.cell);
                let result = compared.map_err(about);
                self.requests.world.check(result);
                self.requests.world.tally.count("subtrees compared", 1);
            }
        }
        self.check_quotas(when);
        self.requests.world.fail_store(self.requests.world.faults.errors_percent);
    }

    /// Compares the use of quotas with the tree, unless the server crashes or a job merges
    /// meanwhile: the tree and the use are read one after the other.
    fn check_quotas(&mut self, when: &str) {
        let crashes = self.requests.world.crashes;
        if !self.requests.plan.quotas || self.requests.world.violation.is_some() {
            return;
        }
        let tree = self.requests.read_tree();
        if self.requests.world.crashes != crashes {
            return;
        }
        let differs = self.requests.compare_quotas(&tree, when);
        if differs.is_ok() || self.requests.read_tree() == tree {
            self.requests.world.check(differs);
        }
    }

    /// The policy in force is the one that was set, or the one that may have been.
    fn check_policy(&mut self, at: usize) {
        let Some((policy, owner)) = self.in_force(at) else { return };
        let found = job::cell_of(&policy);
        // A pending change of a dead client takes effect when its time comes.
        let world = &self.requests.world;
        let waits = self.jobs[at].question.is_some_and(|tid| world.is_unanswered(tid));
        let job = &mut self.jobs[at];
        if owner == ClientId(0) {
            job.given_back();
        }
        let Job { path, cell, doubt, ledger, .. } = job;
        if *cell != found && !doubt.contains(&found) {
            let text = format!("{path} is under {found}, not under {cell}, or one of {doubt:?}");
            return self.requests.world.check(Err(text));
        }
        *cell = found;
        if !waits {
            doubt.clear();
        }
        if !job::logs(found) {
            // A log of requests is no longer needed.
            ledger.updates.iter_mut().for_each(|update| update.kept.log = false);
        }
    }

    /// Brings all work to its end and compares everything again.
    fn finish(&mut self) {
        for at in 0..self.jobs.len() {
            self.current = at;
            self.check("before the end");
            self.requests.world.fail_store(0);
            let done = self.finish_job(2);
            if let Err(Stop::Failed(errno)) = done
                && !self.requests.oracle.store_fails
            {
                let text = format!("{}: {}", self.jobs[at].path, errno.symbol());
                self.requests
                    .world
                    .check(Err(format!("work cannot be brought to its end: {text}")));
            }
            self.check("at the end");
        }
        for at in 0..self.jobs.len() {
            self.current = at;
            self.end_process();
        }
        if self.requests.world.violation.is_some() {
            return;
        }
        self.requests.world.faults.errors_percent = 0;
        self.requests.quiesce();
        self.requests.compare("at the end");
    }

    /// Merges the work of the job, with so many more updates, in a new process if need be.
    fn finish_job(&mut self, more: u64) -> Done<()> {
        let mut done = Ok(());
        for _ in 0..4 {
            done = self.boot().and_then(|()| {
                if self.holding().is_err() {
                    return Ok(());
                }
                if more > 0 && !self.job().releasing {
                    self.append(more)?;
                }
                self.merge()
            });
            match done {
                Err(Stop::Failed(_)) => self.end_process(),
                Ok(()) | Err(_) => break,
            }
            self.calm_down()?;
        }
        done
    }
}

fn any_cell(rng: &mut Rng) -> Cell {
    let cells: Vec<Cell> = Cell::all().collect();
    cells[rng.index(cells.len())]
}
