//! The cost of a create in the cores of server and client, in instructions: a ratchet.
//!
//! Times depend on the machine and its load; instruction counts hardly do, so this check finds
//! slower creates that a benchmark could not tell from noise. `crates/daemon/examples/creates.rs`
//! drives the cores as values, and callgrind counts the instructions of its functions `served` (the
//! server) and `answered` (a client that answers itself). Two runs have different numbers of files,
//! and the difference of the two leaves out the cost of starting.
//!
//! Without valgrind this check prints a line and passes; with `CUDELE_VALGRIND=required` it fails.
//!
//! Invariant: the stored numbers are changed by hand only, with the change that explains it.

use std::path::Path;
use std::process::Command;

use crate::run::{Cargo, Failure, Outcome};

/// Where the numbers are.
const STORED: &str = "xtask/instructions.toml";
/// Files of the two runs.
const FILES: [u64; 2] = [20_000, 40_000];
/// Differences below this percentage are ignored: another libc has another allocator.
const SLACK_PERCENT: u64 = 5;
/// The counted functions: the number's name in the file, the function, and the program's arguments.
const COUNTED: [(&str, &str, &[&str]); 4] = [
    ("create", "served", &[]),
    ("create_of_user", "served", &["user"]),
    ("create_ahead", "served", &["ahead"]),
    ("create_ahead_client", "answered", &["ahead"]),
];

/// Counts the instructions and compares them with the stored numbers.
pub(crate) fn check(root: &Path) -> Outcome {
    if let Some(why) = impossible() {
        if std::env::var_os("CUDELE_VALGRIND").is_some_and(|value| value == "required") {
            return Err(Failure::Failed(why.into()));
        }
        println!("instructions are not counted: {why}");
        return Ok(());
    }
    let stored = stored(root)?;
    Cargo::new(&["build", "--quiet", "--release", "-p", "daemon", "--example", "creates"])
        .run(root)?;
    let mut dearer = false;
    for (name, function, mode) in COUNTED {
        let [few, many] = FILES.map(|files| count(root, function, mode, files));
        let each = (many? - few?) / (FILES[1] - FILES[0]);
        let before = number(&stored, name)?;
        println!("{name}: {each} instructions, stored are {before}: {}", verdict(each, before));
        dearer |= is_dearer(each, before);
    }
    if dearer { Err(Failure::Reported) } else { Ok(()) }
}

/// Why nothing can be counted here.
fn impossible() -> Option<&'static str> {
    if cfg!(not(all(target_arch = "x86_64", target_os = "linux"))) {
        return Some("the stored numbers are of x86-64 and Linux");
    }
    let found = Command::new("valgrind").arg("--version").output();
    if found.is_ok_and(|found| found.status.success()) { None } else { Some("no valgrind here") }
}

fn stored(root: &Path) -> Result<toml::Table, Failure> {
    let text = std::fs::read_to_string(root.join(STORED));
    let text = text.map_err(|error| Failure::Failed(format!("{STORED}: {error}")))?;
    text.parse().map_err(|error| Failure::Failed(format!("{STORED}: {error}")))
}

fn number(stored: &toml::Table, name: &str) -> Result<u64, Failure> {
    let found = stored.get(name).and_then(toml::Value::as_integer);
    found
        .and_then(|found| u64::try_from(found).ok())
        .ok_or_else(|| Failure::Failed(format!("{STORED} has no number {name}")))
}

/// Instructions of a function in a run.
fn count(root: &Path, function: &str, mode: &[&str], files: u64) -> Result<u64, Failure> {
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(format!("--toggle-collect=creates::{function}*"))
        .arg(root.join(target).join("release/examples/creates"))
        .arg(files.to_string())
        .args(mode)
        .output()
        .map_err(|error| Failure::Failed(format!("cannot start valgrind: {error}")))?;
    let said = String::from_utf8_lossy(&output.stderr);
    match collected(&said) {
        // Zero: the function to count was not found.
        Some(count) if output.status.success() && count > 0 => Ok(count),
        _ => Err(Failure::Failed(format!("callgrind counted nothing:\n{said}"))),
    }
}

/// The number in callgrind's last lines.
fn collected(said: &str) -> Option<u64> {
    said.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok())
}

fn is_dearer(each: u64, before: u64) -> bool {
    each * 100 > before * (100 + SLACK_PERCENT)
}

fn verdict(each: u64, before: u64) -> String {
    if is_dearer(each, before) {
        format!("FAILED, more than {SLACK_PERCENT} % above")
    } else if each < before {
        format!("passed; {STORED} can say {each}")
    } else {
        "passed".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_the_slack_is_dearer() {
        assert!(!is_dearer(1_050, 1_000));
        assert!(is_dearer(1_051, 1_000));
        assert!(verdict(1_051, 1_000).contains("FAILED"));
        assert!(verdict(900, 1_000).contains("can say 900"));
        assert_eq!(verdict(1_000, 1_000), "passed");
    }

    #[test]
    fn the_count_is_found_in_what_callgrind_says() {
        let said = "==7== Callgrind, a call-graph\n==7== Events    : Ir\n==7== Collected : 4711\n";
        assert_eq!(collected(said), Some(4_711));
        assert_eq!(collected("==7== Events    : Ir\n"), None);
    }

    #[test]
    fn there_are_numbers() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("it is in the repository");
        let stored = stored(root).unwrap_or_else(|_| panic!("{STORED} is readable"));
        for (name, ..) in COUNTED {
            assert!(number(&stored, name).is_ok_and(|number| number > 0), "{name}");
        }
    }
}
