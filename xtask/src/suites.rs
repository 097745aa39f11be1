//! Suites of other projects, each on several kinds of directories of a mount: `cargo xtask suites`.
//!
//! A *cell* is a kind of directory: on the default mount, decoupled, of several servers, and so on;
//! two cells are file systems of the machine, and show whether a test fails without Cudele, too. A
//! *case* is one test of a suite, which is a process with a time limit in a directory of its own.
//!
//! Not here: suites that no distribution packages. Their users build them, and name the directory.
//!
//! Invariants: a run changes nothing but its own directories; its processes and mounts end with it,
//! also if it is killed; a failure without an entry in `xtask/suites.toml` fails the run, as does
//! the success of a case with an entry.

mod case;
mod catalog;
mod cell;
mod cluster;
mod expected;
mod ltp;
mod options;
mod report;
#[cfg(test)]
mod tests;
mod xfstests;

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::run::{Cargo, Failure, Outcome};
use case::{Case, Verdict};
use catalog::Suite;
use cell::Cell;
use expected::Expectations;
use options::Options;
use report::{Record, Report};

/// Set for the process that runs the suites.
const INSIDE: &str = "CUDELE_SUITES_INSIDE";
/// The first process of the run's namespaces: the run ends with its terminal's signals.
const FIRST: &str = "trap 'exit 130' INT TERM HUP; \"$@\" & wait $!";

/// Runs the suites that the options name, on the cells that they name.
pub(crate) fn run(root: &Path, arguments: &[&str]) -> Outcome {
    let options = Options::parse(arguments)?;
    let expectations = Expectations::read(&root.join("xtask/suites.toml"))?;
    let suites = catalog::suites(root, &options)?;
    if options.list {
        print!("{}", catalog::listing(&suites));
        return Ok(());
    }
    if std::env::var_os(INSIDE).is_none() {
        return Err(enter(arguments));
    }
    let target = crate::tools::target(root);
    let program = match &options.program {
        Some(program) => program.clone(),
        None => build(root).map(|()| target.join("debug/cudele"))?,
    };
    let place = options.results.clone().unwrap_or_else(|| target.join("suites"));
    let mut run = Run { options: &options, start: Instant::now(), report: Report::new(&place)? };
    for name in &options.cells {
        run.cell(&program, name, &suites)?;
        run.report.save(&expectations)?;
    }
    let report = run.report;
    report.print(&options, &expectations);
    if report.is_as_expected(&expectations) { Ok(()) } else { Err(Failure::Reported) }
}

/// Runs this program again in namespaces of its own, so that the kernel ends all daemons, mounts
/// and cases of a run that is killed. Returns only if that fails.
fn enter(arguments: &[&str]) -> Failure {
    let error = std::env::current_exe().map(|program| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc", "--"]);
        command.args(["sh", "-c", FIRST, "sh"]).arg(program).arg("suites").args(arguments);
        command.env(INSIDE, "1").exec()
    });
    let error = error.unwrap_or_else(|error| error);
    Failure::Failed(format!("cannot enter namespaces (as root, with unshare): {error}"))
}

/// Builds the program in the form in which the tests of the workspace use it, with assertions.
fn build(root: &Path) -> Outcome {
    Cargo::new(&["test", "--quiet", "--workspace", "--test", "mount", "--no-run"]).run(root)
}

/// A run with its outcomes.
struct Run<'a> {
    options: &'a Options,
    start: Instant,
    report: Report,
}

impl Run<'_> {
    /// Runs all suites on one cell. A cell that cannot be used any more ends, and is a failure.
    fn cell(&mut self, program: &Path, name: &str, suites: &[Suite]) -> Outcome {
        let mut cell = match Cell::begin(name, program, self.options) {
            Ok(cell) => cell,
            Err(failure) => {
                let verdict = Verdict::Failed(failure.text());
                self.report.add(Record::of_cell(name, verdict, Duration::ZERO));
                return Ok(());
            }
        };
        for suite in suites {
            if !suite.suits(&cell) {
                continue;
            }
            for case in &suite.cases {
                let start = Instant::now();
                let verdict = self.case(&mut cell, suite, case)?;
                self.report.add(Record::new(&cell, suite, case, verdict, start.elapsed()));
            }
        }
        let start = Instant::now();
        let verdict = cell.end();
        self.report.add(Record::of_cell(name, verdict, start.elapsed()));
        Ok(())
    }

    fn case(&self, cell: &mut Cell, suite: &Suite, case: &Case) -> Result<Verdict, Failure> {
        if self.options.minutes.is_some_and(|all| self.start.elapsed() > all) {
            return Ok(Verdict::NotRun("the time of the run is over".into()));
        }
        if !cell.is_alive() {
            return Ok(Verdict::NotRun("the cell ended before".into()));
        }
        let log = self.report.log_of(cell.name(), &suite.name, &case.name);
        cell.carry_out(case, &log)
    }
}
