//! The outcomes of a run: a line for each failure at once, a table at the end, a file for programs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;

use super::case::{Case, Verdict};
use super::catalog::Suite;
use super::cell::Cell;
use super::expected::{Expectations, Meaning};
use super::options::Options;
use crate::run::Failure;

/// The suite of the checks at the end of a cell.
const ENDING: &str = "ending";

/// One case on one cell.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) cell: String,
    pub(super) suite: String,
    version: String,
    pub(super) case: String,
    pub(super) verdict: Verdict,
    took: Duration,
    is_ours: bool,
}

impl Record {
    pub(super) fn new(
        cell: &Cell,
        suite: &Suite,
        case: &Case,
        verdict: Verdict,
        took: Duration,
    ) -> Record {
        Record {
            cell: cell.name().into(),
            suite: suite.name.clone(),
            version: suite.version.clone(),
            case: case.name.clone(),
            verdict,
            took,
            is_ours: cell.is_ours(),
        }
    }

    /// The checks at the end of a cell.
    pub(super) fn of_cell(cell: &str, verdict: Verdict, took: Duration) -> Record {
        let case = (ENDING, "merge, umount, health, down, fsck, logs");
        Record { took, ..Record::of(cell, case, verdict) }
    }

    /// The outcome of a suite's case on a cell of Cudele.
    pub(super) fn of(cell: &str, (suite, case): (&str, &str), verdict: Verdict) -> Record {
        Record {
            cell: cell.into(),
            suite: suite.into(),
            version: String::new(),
            case: case.into(),
            verdict,
            took: Duration::ZERO,
            is_ours: true,
        }
    }

    fn reason(&self) -> &str {
        match &self.verdict {
            Verdict::Passed => "",
            Verdict::Skipped(reason) | Verdict::Failed(reason) | Verdict::NotRun(reason) => reason,
        }
    }
}

/// All outcomes, in order.
#[derive(Debug)]
pub(super) struct Report {
    place: PathBuf,
    records: Vec<Record>,
}

impl Report {
    /// A report in this directory. Logs of an earlier run are removed.
    pub(super) fn new(place: &Path) -> Result<Report, Failure> {
        let logs = place.join("logs");
        let _ = fs::remove_dir_all(&logs);
        let failed = |error| Failure::Failed(format!("cannot make {}: {error}", logs.display()));
        fs::create_dir_all(&logs).map_err(failed)?;
        Ok(Report { place: place.into(), records: Vec::new() })
    }

    /// The file for the output of a case.
    pub(super) fn log_of(&self, cell: &str, suite: &str, case: &str) -> PathBuf {
        let case = case.replace('/', "_");
        self.place.join("logs").join(format!("{cell}.{suite}.{case}.log"))
    }

    /// Takes an outcome in, and shows it if it is a failure.
    pub(super) fn add(&mut self, record: Record) {
        let Record { cell, suite, case, took, .. } = &record;
        if let Verdict::Failed(reason) = &record.verdict {
            let seconds = took.as_secs_f64();
            eprintln!("{cell} {suite} {case} failed ({seconds:.1} s): {reason}");
        }
        self.records.push(record);
    }

    /// The cases that fail on a file system of the machine.
    fn failing_there(&self) -> BTreeSet<(&str, &str)> {
        let others = self.records.iter().filter(|record| !record.is_ours);
        let failed = others.filter(|record| matches!(record.verdict, Verdict::Failed(_)));
        failed.map(|record| (record.suite.as_str(), record.case.as_str())).collect()
    }

    /// The meaning of each outcome.
    fn meanings(&self, expectations: &Expectations) -> Vec<Meaning> {
        let there = self.failing_there();
        let meaning = |record: &Record| {
            let fails = there.contains(&(record.suite.as_str(), record.case.as_str()));
            expectations.meaning(record, fails)
        };
        self.records.iter().map(meaning).collect()
    }

    /// Whether all failures are expected, and all expected failures fail.
    pub(super) fn is_as_expected(&self, expectations: &Expectations) -> bool {
        let is_well = |meaning: &Meaning| !matches!(meaning, Meaning::Failed | Meaning::Surprise);
        self.meanings(expectations).iter().all(is_well)
    }

    /// Writes `results.json`, also of a run that has not ended.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn save(&self, expectations: &Expectations) -> Result<(), Failure> {
        let path = self.results();
        let value = self.json(&self.meanings(expectations), expectations);
        fs::write(&path, format!("{value:#}\n"))
            .map_err(|error| Failure::Failed(format!("cannot write {}: {error}", path.display())))
    }

    fn results(&self) -> PathBuf {
        self.place.join("results.json")
    }

    /// Prints the table, or JSON.
    pub(super) fn print(&self, options: &Options, expectations: &Expectations) {
        let meanings = self.meanings(expectations);
        if options.json {
            println!("{:#}", self.json(&meanings, expectations));
        } else {
            let (results, logs) = (self.results(), self.place.join("logs"));
            print!("{}", self.table(&meanings, expectations));
            println!("all outcomes: {}; outputs: {}", results.display(), logs.display());
        }
    }

    fn json(&self, meanings: &[Meaning], expectations: &Expectations) -> serde_json::Value {
        let row = |(record, meaning): (&Record, &Meaning)| {
            json!({
                "cell": record.cell,
                "suite": record.suite,
                "version": record.version,
                "case": record.case,
                "outcome": word(*meaning),
                "output": record.reason(),
                "reason": expectations.find(record).map(|entry| entry.reason.as_str()),
                "seconds": (record.took.as_secs_f64() * 1000.0).round() / 1000.0,
            })
        };
        self.records.iter().zip(meanings).map(row).collect()
    }

    fn table(&self, meanings: &[Meaning], expectations: &Expectations) -> String {
        let mut rows: BTreeMap<(usize, &str), (Vec<Meaning>, Duration)> = BTreeMap::new();
        let mut cells: Vec<&str> = Vec::new();
        for (record, meaning) in self.records.iter().zip(meanings) {
            let cell = cells.iter().position(|cell| *cell == record.cell).unwrap_or_else(|| {
                cells.push(&record.cell);
                cells.len() - 1
            });
            let row = rows.entry((cell, &record.suite)).or_default();
            row.0.push(*meaning);
            row.1 += record.took;
        }
        let mut out = format!(
            "\n{:<10} {:<18} {:>6} {:>7} {:>8} {:>9} {:>6} {:>6} {:>8}\n",
            "cell", "suite", "passed", "skipped", "expected", "reference", "notrun", "FAILED", "s"
        );
        for ((cell, suite), (meanings, took)) in &rows {
            let count = |wanted| meanings.iter().filter(|meaning| **meaning == wanted).count();
            out += &format!(
                "{:<10} {:<18} {:>6} {:>7} {:>8} {:>9} {:>6} {:>6} {:>8.1}\n",
                cells[*cell],
                suite,
                count(Meaning::Passed),
                count(Meaning::Skipped),
                count(Meaning::Expected),
                count(Meaning::Reference),
                count(Meaning::NotRun),
                count(Meaning::Failed) + count(Meaning::Surprise),
                took.as_secs_f64()
            );
        }
        for (record, meaning) in self.records.iter().zip(meanings) {
            let Record { cell, suite, case, .. } = record;
            let reason = expectations.find(record).map_or("", |entry| entry.reason.as_str());
            match meaning {
                Meaning::Failed => {
                    out += &format!("FAILED {cell} {suite} {case}: {}\n", record.reason());
                }
                Meaning::Surprise => {
                    out += &format!(
                        "FAILED {cell} {suite} {case}: passed, but xtask/suites.toml expects a \
                         failure: {reason}\n"
                    );
                }
                Meaning::Expected => out += &format!("expected {cell} {suite} {case}: {reason}\n"),
                Meaning::Passed | Meaning::Skipped | Meaning::Reference | Meaning::NotRun => {}
            }
        }
        out
    }
}

fn word(meaning: Meaning) -> &'static str {
    match meaning {
        Meaning::Passed => "passed",
        Meaning::Skipped => "skipped",
        Meaning::Expected => "expected failure",
        Meaning::Reference => "fails on the machine's file system, too",
        Meaning::NotRun => "not run",
        Meaning::Failed => "failed",
        Meaning::Surprise => "passed in spite of an expected failure",
    }
}
