//! The numbers of cases, and the runs of a workload: one without a fault, and one for each fault
//! after each persistence point.

use policy::{Cell, Durability};

use super::workload::operations;
use super::{AceOp, AceRun, Fault, run_caught};
use crate::tally::Report;

/// A fault after a persistence point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strike {
    /// How many persistence points pass before it, at least 1.
    pub point: u64,
    /// Its place among all faults.
    fault: usize,
}

impl Strike {
    /// The fault with this place, after so many persistence points.
    #[must_use]
    pub fn of(point: u64, fault: usize) -> Self {
        Self { point, fault }
    }
}

/// A workload in a cell, and the fault that strikes it, if one does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AceCase {
    /// Operations of the workload, without those that they need.
    pub length: u32,
    /// Its number among those of this length.
    pub workload: u64,
    /// The place of the cell in Table II.
    pub cell: usize,
    /// The fault.
    pub strike: Option<Strike>,
}

/// The figures of some workloads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AceCounts {
    /// Workloads that are possible in a cell, each with its cell.
    pub workloads: u64,
    /// Workloads with an operation that is impossible in the cell.
    pub left_out: u64,
    /// Persistence points of all workloads.
    pub points: u64,
    /// Runs, with those without a fault.
    pub runs: u64,
    /// Runs that broke a promise.
    pub failures: u64,
}

/// A run that broke a promise.
#[derive(Clone, Debug)]
pub struct AceFailure {
    /// Which.
    pub case: AceCase,
    /// The promise, in words.
    pub violation: String,
}

impl AceCounts {
    /// Adds the figures of other workloads.
    pub fn add(&mut self, other: &Self) {
        self.workloads += other.workloads;
        self.left_out += other.left_out;
        self.points += other.points;
        self.runs += other.runs;
        self.failures += other.failures;
    }
}

/// Bits of the parts of a number, from the lowest.
const POINT_BITS: u32 = 16;
const FAULT_BITS: u32 = 4;
const CELL_BITS: u32 = 4;
const LENGTH_BITS: u32 = 4;

impl AceCase {
    /// The number of the case. Without a fault its point is 0.
    #[must_use]
    pub fn number(&self) -> u64 {
        let (point, fault) = self.strike.map_or((0, 0), |it| (it.point, it.fault as u64));
        let number = self.workload << LENGTH_BITS | u64::from(self.length);
        let number = number << CELL_BITS | self.cell as u64;
        (number << FAULT_BITS | fault) << POINT_BITS | point
    }

    /// The case of a number, if there is one.
    #[must_use]
    pub fn of_number(number: u64) -> Option<Self> {
        let mut rest = number;
        let mut take = |bits: u32| {
            let part = rest & ((1 << bits) - 1);
            rest >>= bits;
            part
        };
        let (point, fault) = (take(POINT_BITS), take(FAULT_BITS) as usize);
        let (cell, length) = (take(CELL_BITS) as usize, take(LENGTH_BITS) as u32);
        let strike = (point > 0).then_some(Strike { point, fault });
        let case = Self { length, workload: rest, cell, strike };
        let exists = rest < super::workloads(length) && fault < Fault::ALL.len();
        (exists && cell < Cell::all().count()).then_some(case)
    }

    /// The cell.
    #[must_use]
    pub fn cell(&self) -> Option<Cell> {
        Cell::all().nth(self.cell)
    }

    fn operations(&self) -> Option<Vec<AceOp>> {
        operations(self.length, self.workload, self.cell()?)
    }

    /// The operations of the workload, in words.
    #[must_use]
    pub fn words(&self) -> String {
        let cell = self.cell().map(|cell| cell.to_string()).unwrap_or_default();
        let Some(all) = self.operations() else { return format!("{cell}: impossible") };
        let all: Vec<String> = all.iter().map(AceOp::to_string).collect();
        let strike = self
            .strike
            .map(|it| format!("; {} after point {}", Fault::ALL[it.fault].name(), it.point));
        format!("{cell}: {}{}", all.join("; "), strike.unwrap_or_default())
    }

    /// All runs of a workload with a fault have the messages of the run without one, up to the
    /// fault.
    fn seed(&self) -> u64 {
        AceCase { strike: None, ..*self }.number()
    }
}

/// The faults that differ in a cell: where the machine of a client keeps nothing, a kill of the
/// client costs as much as the loss of the machine.
fn faults(cell: Cell) -> &'static [Fault] {
    match cell.durability {
        Durability::None => &[Fault::Server, Fault::Kill, Fault::KillServer],
        Durability::Global => {
            &[Fault::Server, Fault::Kill, Fault::KillServer, Fault::Gone, Fault::GoneServer]
        }
        Durability::Local => &[
            Fault::Server,
            Fault::Kill,
            Fault::KillServer,
            Fault::Gone,
            Fault::GoneServer,
            Fault::Power,
            Fault::PowerServer,
        ],
    }
}

/// Runs a case. Nothing if it is impossible in its cell.
#[must_use]
pub fn run_case(case: AceCase, trace: bool) -> Option<Report> {
    run(case, trace).map(|(_, report)| report)
}

fn run(case: AceCase, trace: bool) -> Option<(u64, Report)> {
    let all = case.operations()?;
    let strike = case.strike.map(|it| (it.point, Fault::ALL[it.fault]));
    let mut run = AceRun::new(case.cell()?, case.seed(), trace);
    Some(run_caught(&mut run, &all, strike))
}

/// The faults that strike after a persistence point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PointFaults {
    /// Each fault of the cell, in a run of its own.
    All,
    /// One, in turn: a sample for every run of the tests.
    Next,
}

/// Runs the workload of a case: without a fault, and with faults after each persistence point.
/// Failures are handed to `failed`.
pub fn run_workload(
    case: AceCase,
    each: PointFaults,
    failed: &mut dyn FnMut(AceFailure),
) -> AceCounts {
    let case = AceCase { strike: None, ..case };
    let Some((points, report)) = run(case, false) else {
        return AceCounts { left_out: 1, ..AceCounts::default() };
    };
    let mut counts = AceCounts { workloads: 1, points, runs: 1, ..AceCounts::default() };
    note_end(case, report, &mut counts, failed);
    let known = case.cell().map_or(&[][..], faults);
    for (at, fault) in known.iter().enumerate() {
        let fault = Fault::ALL.iter().position(|it| it == fault).unwrap_or(0);
        for point in 1..=points {
            let next = (case.workload + point) % known.len() as u64;
            if each == PointFaults::Next && next != at as u64 {
                continue;
            }
            let case = AceCase { strike: Some(Strike { point, fault }), ..case };
            if let Some((_, report)) = run(case, false) {
                counts.runs += 1;
                note_end(case, report, &mut counts, failed);
            }
        }
    }
    counts
}

/// Counts the failure of a run, if it failed.
fn note_end(
    case: AceCase,
    report: Report,
    counts: &mut AceCounts,
    failed: &mut dyn FnMut(AceFailure),
) {
    let Some(violation) = report.violation else { return };
    counts.failures += 1;
    failed(AceFailure { case, violation });
}
