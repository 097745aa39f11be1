//! The files that may silence the lints against input, output, clocks and random numbers in the
//! core.
//!
//! Clippy enforces the bans of `clippy.toml`; this check keeps the list of exceptions, so that a
//! new exception is a visible change to this file.
//!
//! Invariant: an opt-out for a whole crate or module gives its reason after the words "I/O edge: ",
//! so that one search finds all opt-outs.

use super::Finding;
use crate::rust::{Attribute, attributes, contains_word};
use crate::tree::{File, Tree};

/// Crates that talk to the machine.
const EDGES: [&str; 26] = [
    "objstore",
    "keys",
    "exporter",
    "httpserver",
    "engine",
    "net",
    "testceph",
    "daemon",
    "cudele",
    "decoders",
    "branches",
    "terminal",
    "vfs",
    "web",
    "jobserver",
    "mount",
    "calls",
    "ingest",
    "mirror",
    "intercept",
    "preload",
    "capi",
    "pyapi",
    "cli",
    "lab",
    "xtask",
];

/// The simulator itself must be deterministic, but its program reads arguments and a time limit
/// and its tests read scripts.
const SIM_EDGES: [&str; 3] = ["crates/sim/src/main.rs", "crates/sim/src/bin/", "crates/sim/tests/"];

/// The tree of a job in shared memory uses atomic numbers only; its tests share it among threads.
const THREADED_TESTS: &str = "crates/jobtree/src/tests.rs";

/// Examples and benchmarks are programs of their own: measuring needs a clock.
const PROGRAMS: [&str; 2] = ["/examples/", "/benches/"];

/// Lint names that silence far more than the one line that needed it.
const TOO_WIDE: [&str; 5] =
    ["warnings", "clippy::all", "clippy::style", "clippy::correctness", "clippy::suspicious"];

const REASON: &str = "I/O edge: ";

/// Whether a file may use the functions that `clippy.toml` bans.
pub(super) fn is_edge(file: &File) -> bool {
    file.crate_name().is_some_and(|name| EDGES.contains(&name))
        || SIM_EDGES.iter().any(|prefix| file.path.starts_with(prefix))
        || file.path == THREADED_TESTS
        || is_program(file)
}

fn is_program(file: &File) -> bool {
    PROGRAMS.iter().any(|part| file.path.contains(part))
}

/// Finds opt-outs that are not on the list, say too little, or silence too much.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let inside = |file: &&File| file.crate_name().is_some();
    tree.rust().filter(inside).flat_map(check_file).collect()
}

fn check_file(file: &File) -> Vec<Finding> {
    attributes(file.text())
        .iter()
        .filter(|attribute| attribute.silences())
        .filter_map(|attribute| {
            let (message, remedy) = fault(file, attribute)?;
            Some(Finding::new(&file.path, attribute.line, message, remedy))
        })
        .collect()
}

fn fault(file: &File, attribute: &Attribute) -> Option<(String, &'static str)> {
    if let Some(lint) = TOO_WIDE.iter().find(|lint| contains_word(&attribute.code, lint)) {
        return Some((format!("`{lint}` is silenced"), "name the one lint that is in the way"));
    }
    if !attribute.code.contains("clippy::disallowed_") {
        return None;
    }
    // A test may read and write its golden files: one function at a time, and `purity` still keeps
    // clocks and threads out of it.
    if file.is_test() && !attribute.inner {
        return None;
    }
    if !is_edge(file) {
        let message = "opts out of the bans, but is not an I/O edge".to_owned();
        return Some((message, "hand in what it needs, or emit an effect"));
    }
    let reasoned = attribute.text.contains(&format!("\"{REASON}"));
    (attribute.inner && !reasoned && !is_program(file)).then(|| {
        let message = format!("the opt-out's reason does not begin with `{REASON}`");
        (message, "begin it so, and say what the crate does at the edge")
    })
}
