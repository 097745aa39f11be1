//! The checks that every change must pass, in one list: a developer, the hook of a build machine
//! and `scripts/test` all run this list.
//!
//! A failed step does not stop the later steps: one run reports all faults.
//!
//! Invariants: cheapest step first; the last line printed is `N passed, N failed`, counting steps;
//! the run fails if any step does.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::run::{Cargo, Failure, Outcome};

/// Simulations in every run; `cargo xtask sim` runs as many as there is time for.
const SEEDS: &str = "300";
/// Those with several servers that pass subtrees, files and directories to one another.
const SEEDS_OF_RANKS: &str = "200";

/// The simulator, with options of its own after this. Cargo selects it among the whole workspace,
/// as a test, so that the simulator has the features of all crates and links the crates of the
/// tests; with `run -p sim`, and with the optimised profile of `cargo xtask sim`, cargo would build
/// most of the tree again.
const SIM: [&str; 6] = ["test", "--quiet", "--workspace", "--bin", "sim", "--"];

/// How many tests of a program run at once. Tests of daemons wait for most of their time: for a
/// server to start, to notice a loss, to end.
const TEST_THREADS: &str = "RUST_TEST_THREADS";
/// Tests at once for each processor.
const TESTS_PER_CORE: usize = 2;

/// Where the property tests take their seed from.
const PROPERTY_SEED: &str = "PROPTEST_RNG_SEED";

/// One thing a change must pass.
#[derive(Debug)]
struct Step {
    name: &'static str,
    /// Run in order; the first that fails fails the step.
    commands: Vec<Cargo>,
}

/// How one step went.
#[derive(Debug)]
struct Record {
    name: &'static str,
    took: Duration,
    passed: bool,
}

/// Which optional tools this machine has. Neither is needed: both take longer to build than the
/// rest of the run.
#[derive(Clone, Copy, Debug)]
struct Tools {
    nextest: bool,
    deny: bool,
}

fn step(name: &'static str, commands: impl IntoIterator<Item = Cargo>) -> Step {
    Step { name, commands: commands.into_iter().collect() }
}

/// The list. Add a step where its cost places it.
fn steps(tools: Tools) -> Vec<Step> {
    let cargo = Cargo::new;
    let mut steps = vec![
        step("format", [cargo(&["fmt", "--all", "--check"])]),
        step("tidy", [cargo(&["run", "--quiet", "-p", "xtask", "--", "tidy"])]),
    ];
    if tools.deny {
        let deny = ["deny", "--offline", "check", "bans", "licenses", "sources"];
        steps.push(step("licences", [cargo(&deny)]));
    }
    let lint = ["clippy", "--quiet", "--workspace", "--all-targets", "--", "-Dwarnings"];
    let doc = ["doc", "--quiet", "--workspace", "--no-deps"];
    steps.extend([
        step("lint", [cargo(&lint)]),
        step("tests", tests(tools)),
        step(
            "simulation",
            [
                cargo(&[&SIM[..], &["--seeds", SEEDS]].concat()),
                cargo(
                    &[&SIM[..], &["--ranks", "--directories", "--seeds", SEEDS_OF_RANKS]].concat(),
                ),
            ],
        ),
        step("rados", [rados()]),
    ]);
    steps.extend(suites());
    steps.extend(python());
    steps.extend([
        step("package", [cargo(&["run", "--quiet", "-p", "xtask", "--", "package", "test"])]),
        step("book", [cargo(&["run", "--quiet", "-p", "xtask", "--", "book"])]),
        step("docs", [cargo(&doc).with("RUSTDOCFLAGS", "-Dwarnings")]),
        step("instructions", [cargo(&["run", "--quiet", "-p", "xtask", "--", "instructions"])]),
    ]);
    steps
}

/// nextest runs each test in its own process, and several binaries at once, but no doc tests.
///
/// Property tests draw the same cases in every run, so that a failure comes from the change and not
/// from chance; `cargo xtask properties` draws other cases.
///
/// The tests of all crates run, also after one has failed: one run shows all faults.
fn tests(tools: Tools) -> Vec<Cargo> {
    let threads = std::env::var(TEST_THREADS).unwrap_or_else(|_| {
        let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        (cores * TESTS_PER_CORE).to_string()
    });
    let seeded = |arguments: &[&str]| {
        Cargo::new(arguments).with(PROPERTY_SEED, "1").with(TEST_THREADS, threads.clone())
    };
    // The tests of the mount run these programs, so they are built first.
    let built = Cargo::new(&["run", "--quiet", "-p", "xtask", "--", "tools"]);
    if tools.nextest {
        let doc = ["test", "--quiet", "--workspace", "--doc"];
        vec![built, seeded(&["nextest", "run", "--workspace", "--no-fail-fast"]), Cargo::new(&doc)]
    } else {
        vec![built, seeded(&["test", "--quiet", "--workspace", "--no-fail-fast"])]
    }
}

/// The tests that need a real Ceph cluster: they bring it up themselves, and fail where Ceph is not
/// installed unless `CUDELE_TEST_RADOS=skip`. The tests run one at a time: each has daemons of its
/// own. One command has the tests of all crates, because the features of one crate alone would need
/// another build.
fn rados() -> Cargo {
    let all = ["test", "--quiet", "--workspace", "--test", "rados", "--"];
    Cargo::new(&all).and(&["--ignored", "--test-threads", "1"])
}

/// The tests of the Python package, in a virtual environment. They fail on a machine without
/// Python's venv or without PyPI, unless `CUDELE_TEST_PYTHON=skip`.
fn python() -> Option<Step> {
    if std::env::var("CUDELE_TEST_PYTHON").is_ok_and(|wish| wish == "skip") {
        println!("--- python: left out, as CUDELE_TEST_PYTHON=skip says");
        return None;
    }
    Some(step("python", [crate::python::tests("")]))
}

/// The suites of other projects, in a short form: stress-ng, fio and dbench (Debian packages). They
/// mount, so they need `/dev/fuse` and root.
fn suites() -> Option<Step> {
    for (variable, wish) in [("CUDELE_TEST_SUITES", "skip"), ("CUDELE_TESTS_WITHOUT_FUSE", "1")] {
        if std::env::var(variable).is_ok_and(|value| value == wish) {
            println!("--- suites: left out, as {variable}={wish} says");
            return None;
        }
    }
    let short = ["run", "--quiet", "-p", "xtask", "--", "suites", "--quick"];
    Some(step("suites", [Cargo::new(&short)]))
}

/// Runs the property tests of all crates with this many other seeds, each of which is printed.
pub(crate) fn properties(root: &Path, runs: u64) -> Outcome {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let first = now.map_or(2, |now| now.as_secs());
    for seed in first..first + runs {
        let seed = seed.to_string();
        println!("--- {PROPERTY_SEED}={seed}");
        Cargo::new(&["test", "--quiet", "--workspace", "--lib"])
            .with(PROPERTY_SEED, seed)
            .run(root)?;
    }
    Ok(())
}

/// Runs the steps named in `only`, or all of them when it is empty.
pub(crate) fn run(root: &Path, only: &[&str]) -> Outcome {
    let tools = Tools {
        nextest: Cargo::new(&["nextest", "--version"]).succeeds(root),
        deny: Cargo::new(&["deny", "--version"]).succeeds(root),
    };
    let records: Vec<Record> =
        choose(steps(tools), only)?.iter().map(|step| execute(root, step)).collect();
    print!("{}", summary(&records));
    if records.iter().all(|record| record.passed) { Ok(()) } else { Err(Failure::Reported) }
}

fn choose(steps: Vec<Step>, only: &[&str]) -> Result<Vec<Step>, Failure> {
    let names: Vec<&str> = steps.iter().map(|step| step.name).collect();
    if let Some(unknown) = only.iter().find(|name| !names.contains(name)) {
        let known = names.join(", ");
        return Err(Failure::Usage(format!("there is no step {unknown:?}; the steps: {known}")));
    }
    Ok(steps.into_iter().filter(|step| only.is_empty() || only.contains(&step.name)).collect())
}

fn execute(root: &Path, step: &Step) -> Record {
    let start = Instant::now();
    let passed = step.commands.iter().all(|command| {
        println!("--- {}: {command}", step.name);
        match command.run(root) {
            Ok(()) => true,
            Err(Failure::Failed(message) | Failure::Usage(message)) => {
                println!("--- {}: {message}", step.name);
                false
            }
            Err(Failure::Reported) => false,
        }
    });
    Record { name: step.name, took: start.elapsed(), passed }
}

fn summary(records: &[Record]) -> String {
    let mut out = String::from("\n");
    for record in records {
        let verdict = if record.passed { "passed" } else { "FAILED" };
        out += &format!("{:<12} {verdict} {:>8.1} s\n", record.name, record.took.as_secs_f64());
    }
    let total: Duration = records.iter().map(|record| record.took).sum();
    let passed = records.iter().filter(|record| record.passed).count();
    out += &format!("{:<12}        {:>8.1} s\n", "in all", total.as_secs_f64());
    out += &format!("{passed} passed, {} failed\n", records.len() - passed);
    out
}

#[cfg(test)]
mod tests;
