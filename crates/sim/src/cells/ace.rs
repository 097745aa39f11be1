//! ACE for cells: every workload of a few operations, in every cell of Table II, with a fault after
//! every persistence point.
//!
//! ACE, the Automatic Crash Explorer of CrashMonkey (OSDI 2018), tests file systems by all small
//! workloads of a grammar, and crashes them after each `fsync`. Here a *persistence point* is each
//! change of the store by a server, each change of the disk or of the store by the client, and the
//! end of each operation. A run without a fault counts the points of a workload; then each point
//! gets one run for each fault of the cell. After the fault the survivors must be those of the
//! promise (`judge`), again when a later process has taken the work up, and again when the work is
//! merged.
//!
//! `grammar` has the operations, and says which of them the core lacks; `workload` puts the needed
//! operations before each; `perform` and `request` perform them.
//!
//! Invariant: a number gives the same case again, message by message.

mod case;
mod fetch;
mod grammar;
mod judge;
mod perform;
mod request;
mod step;
#[cfg(test)]
mod tests;
mod workload;

use std::panic::{AssertUnwindSafe, catch_unwind};

use mds::Settings;
use model::Model;
use policy::{Cell, Consistency};
use types::rng::Rng;
use types::{Attr, Errno, Span, Timestamp};
use wire::Answer;

use super::fault::Fault;
use super::ledger::Shown;
use super::{Cells, Done, Stop};
use crate::call::CallKind;
use crate::oracle::Violation;
use crate::plan::{Faults, Plan};
use crate::requests::Requests;
use crate::tally::Report;
use crate::tree::{self, Item};
pub use case::{AceCase, AceCounts, AceFailure, PointFaults, Strike, run_case, run_workload};
use grammar::AceOp;
use judge::{Judge, Learned, StepStatus, Survivors};
use step::{AceStep, StepWay};
pub use workload::workloads;

/// The time for background work without a waiting client, in nanoseconds.
const CALM: u64 = 40_000_000;

/// Servers check their invariants after so many inputs: a run has hundreds, and the runs of a
/// workload are many.
const VALIDATED_EVERY: u64 = 32;

/// The persistence points that passed, and the fault that strikes after one of them.
#[derive(Debug, Default)]
pub(super) struct Points {
    /// Changes by the client, and ends of operations.
    pub(super) of_client: u64,
    /// Store operations of servers before the workload began.
    begun: u64,
    pub(super) armed: Option<(u64, Fault)>,
    pub(super) struck: bool,
}

impl Points {
    /// The points so far, with the store operations of servers.
    pub(super) fn passed(&self, store_writes: u64) -> u64 {
        self.of_client + store_writes - self.begun
    }
}

/// A workload in a cell.
#[derive(Debug)]
struct AceRun {
    cells: Cells,
    /// The namespace before the workload.
    base: Model,
    /// The namespace as the client sees it.
    view: Model,
    steps: Vec<AceStep>,
    /// The steps before this one may be merged.
    merged: usize,
    branches: Vec<TakenBranch>,
    /// The time of the last change.
    time: Timestamp,
}

/// A snapshot, and the promise for each step when the server had taken the snapshot.
#[derive(Clone, Debug)]
struct TakenBranch {
    id: u64,
    statuses: Vec<StepStatus>,
    /// So many changes the servers had executed.
    executed: usize,
}

impl AceRun {
    /// A cluster with an empty subtree in a cell.
    fn new(cell: Cell, seed: u64, trace: bool) -> Self {
        let mut rng = Rng::new(seed);
        let own = rng.fork();
        let mut requests = Requests::new(plan(), rng, trace);
        requests.set_up();
        let mut cells = Cells { calm: CALM, ..Cells::over(requests, own) };
        cells.add_job(0, cell);
        let _ = cells.requests.ask(CallKind::Sync);
        let tree = cells.requests.read_tree();
        cells.requests.oracle.learn(tree::to_model(&tree));
        for region in &mut cells.requests.oracle.regions {
            region.known &= region.path != cells.jobs[0].path;
        }
        let base = tree::to_model(&tree);
        cells.requests.world.validated_every = VALIDATED_EVERY;
        cells.points = Points { begun: cells.requests.store_writes, ..Points::default() };
        let time = cells.requests.world.clock().time;
        let (view, steps, branches) = (base.clone(), Vec::new(), Vec::new());
        Self { cells, base, view, steps, merged: 0, branches, time }
    }

    /// Performs the operations, lets the fault strike, and judges the survivors. Returns the number
    /// of persistence points.
    fn run(&mut self, operations: &[AceOp], strike: Option<(u64, Fault)>) -> u64 {
        self.cells.points.armed = strike;
        let worked = self.work(operations);
        self.must_not_fail(worked);
        let checked = self.check("after the workload");
        let points = self.cells.points.passed(self.cells.requests.store_writes);
        self.cells.points.armed = None;
        if checked.is_err() {
            return points;
        }
        if self.cells.jobs[0].process.is_none() {
            let booted = self.cells.boot();
            let checked = booted.and_then(|()| self.check("after the next process"));
            self.must_not_fail(checked);
        }
        if self.cells.jobs[0].process.is_some() && self.cells.holding().is_err() {
            // Everything is merged, and was judged.
            return points;
        }
        let merged = self.cells.finish_job(0);
        if let Err(Stop::Failed(errno)) = merged {
            let text = format!("work cannot be brought to its end: {}", errno.symbol());
            self.cells.requests.world.check(Err(text));
        }
        let _ = self.check("after the merge");
        points
    }

    fn work(&mut self, operations: &[AceOp]) -> Done<()> {
        self.cells.boot()?;
        if self.cells.job().cell.consistency != Consistency::Strong {
            self.decouple()?;
        }
        for op in operations {
            self.perform(*op)?;
        }
        self.sync()
    }

    /// Only a fault excuses a failure.
    fn must_not_fail(&mut self, done: Done<()>) {
        if let Err(Stop::Failed(errno)) = done
            && !self.cells.points.struck
        {
            let text = format!("without a fault, an operation failed: {}", errno.symbol());
            self.cells.requests.world.check(Err(text));
        }
    }

    /// The promises for the steps now.
    fn statuses(&mut self) -> Vec<StepStatus> {
        let updates = &self.cells.jobs[0].ledger.updates;
        self.steps.iter().map(|step| StepStatus::of(&updates[step.place])).collect()
    }

    /// Lets the cluster come to rest, and judges the survivors.
    fn check(&mut self, when: &str) -> Done<()> {
        self.cells.calm_down()?;
        self.cells.requests.world.note(format_args!("$ ace: check {when}"));
        self.cells.check_policy(0);
        let crashes = self.cells.requests.world.crashes;
        let seen = self.read();
        self.cells.notice_crashes();
        if self.cells.requests.world.violation.is_some()
            || crashes != self.cells.requests.world.crashes
        {
            return Err(Stop::Broken);
        }
        let statuses = self.statuses();
        let executed = self.cells.requests.executed.len();
        let judged = self.judge(&statuses, executed, &seen).and_then(|learned| {
            self.judge_branches()?;
            Ok(learned)
        });
        match judged {
            Ok(learned) => {
                // The server's journal has a second name, and later changes of the file, also where
                // the directory is lost; the log of the client brings the directory back.
                let is_lost = |(step, is_there): (&usize, &bool)| {
                    !is_there && self.steps[*step].call.makes_directory()
                };
                let hides = learned.iter().any(is_lost);
                for (step, is_there) in learned {
                    let AceStep { place, call, way, .. } = &self.steps[step];
                    let (place, is_asked) = (*place, matches!(way, StepWay::Request { .. }));
                    let shown = match (is_there, call) {
                        (true, _) => Shown::Memory,
                        (false, call) if hides && is_asked && self.is_of_linked(call) => {
                            Shown::Perhaps
                        }
                        (false, _) => Shown::No,
                    };
                    self.cells.jobs[0].ledger.updates[place].shown = shown;
                }
                Ok(())
            }
            Err(text) => {
                let cell = self.cells.jobs[0].cell;
                let text = format!("under {cell} {when}: {text}\n  of {statuses:?}");
                self.cells.requests.world.check(Err(text));
                Err(Stop::Broken)
            }
        }
    }

    /// Whether a change is of a file to which the workload gave a second name.
    fn is_of_linked(&self, call: &CallKind) -> bool {
        let (CallKind::Link { ino, .. }
        | CallKind::SetAttr { ino, .. }
        | CallKind::SetData { ino, .. }
        | CallKind::SetXattr { ino, .. }) = call
        else {
            return false;
        };
        let links =
            |step: &AceStep| matches!(&step.call, CallKind::Link { ino: of, .. } if of == ino);
        self.steps.iter().any(links)
    }

    fn judge(
        &self,
        statuses: &[StepStatus],
        executed: usize,
        seen: &Survivors,
    ) -> Result<Learned, Violation> {
        let job = &self.cells.jobs[0];
        let judge = Judge {
            base: &self.base,
            steps: &self.steps[..statuses.len()],
            statuses,
            executed: &self.cells.requests.executed[..executed],
            root: job.root,
            path: &job.path,
            crashed: self.cells.requests.world.crashes > 0,
        };
        judge.judge(seen)
    }

    /// Each snapshot has the changes that were visible when it was taken.
    fn judge_branches(&mut self) -> Result<(), Violation> {
        let path = self.cells.jobs[0].path.clone();
        for TakenBranch { id, statuses, executed } in self.branches.clone() {
            let tree = self.cells.requests.snapshot_of(id, &path)?;
            let seen = Survivors { tree, ..Survivors::default() };
            let about = |text| format!("snapshot {id}: {text}");
            self.judge(&statuses, executed, &seen).map_err(about)?;
        }
        Ok(())
    }

    /// The subtree as another client sees it.
    fn read(&mut self) -> Survivors {
        let (root, path) = (self.cells.jobs[0].root, self.cells.jobs[0].path.clone());
        let requests = &mut self.cells.requests;
        let (mut seen, mut todo) = (Survivors::default(), vec![(path, root, None)]);
        while let Some((path, ino, listed)) = todo.pop() {
            let attr = match listed.map_or_else(
                || requests.ask_at(&path, &CallKind::GetAttr { ino }),
                |attr| Ok(Answer::Attr(attr)),
            ) {
                Ok(Answer::Attr(attr)) => attr,
                Err(error) if matches!(error.errno, Errno::Io | Errno::Stale | Errno::NotFound) => {
                    seen.dangling.insert(path);
                    continue;
                }
                other => {
                    requests.world.check(Err(format!("{path} is listed, and is {other:?}")));
                    break;
                }
            };
            let mut item = Item { attr, ..Item::default() };
            if attr.is_dir() {
                let entries = requests.read_entries(&path, ino).into_iter();
                // A listing has the attributes of a file with one name.
                let is_whole = |attr: &Attr| !attr.is_dir() && attr.nlink == 1;
                todo.extend(entries.map(|(name, attr)| {
                    (format!("{path}/{name}"), attr.ino, Some(attr).filter(is_whole))
                }));
            } else if attr.size > 0
                && let Ok(Answer::Data(data)) = requests.ask_at(&path, &CallKind::GetData { ino })
            {
                item.data = data;
            }
            item.xattrs = requests.read_xattrs(&path, ino);
            seen.tree.insert(path, item);
        }
        seen
    }
}

/// Small and quick, so that every store operation is one of few.
fn plan() -> Plan {
    let ms = Span::from_millis;
    let settings = Settings {
        about_bytes: u64::MAX,
        segment_bytes_max: 2048,
        dispatch: 1,
        commit_interval: ms(1),
        commit_bytes: 4096,
        segments_max: 2,
        capture_rows: 16,
        merge_events: 2,
        inodes_max: 100_000,
        observe: true,
        quiet: ms(2),
        evict: ms(2000),
        reconnect: ms(100),
        ..Settings::default()
    };
    let mut plan = Plan::draw(&mut Rng::new(0));
    plan.settings = settings;
    plan.faults = Faults::default();
    (plan.clients, plan.delay_max) = (0, 100_000);
    (plan.volatile, plan.ack_safe, plan.decoupled) = (false, false, 0);
    (plan.exclusive, plan.leases, plan.trash, plan.quotas) = (false, false, false, false);
    plan
}

/// Catches a panic of a run: the trace before it helps to explain it.
fn run_caught(
    run: &mut AceRun,
    operations: &[AceOp],
    strike: Option<(u64, Fault)>,
) -> (u64, Report) {
    let ended = catch_unwind(AssertUnwindSafe(|| run.run(operations, strike)));
    let world = &mut run.cells.requests.world;
    world.note_end(ended.is_err());
    (ended.unwrap_or(0), world.report())
}
