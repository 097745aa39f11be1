//! Runs the tests of the memory that the processes of a job share (crate `jobtree`) in Miri, which
//! checks each access: for undefined behaviour and, between threads, for data races.
//!
//! Miri needs a nightly compiler. No other chore but fuzzing does, so this chore installs nothing
//! and says how.

use std::path::Path;

use crate::run::{Cargo, Failure, Outcome};

/// How many schedules of the threads are tried unless told otherwise.
const SCHEDULES_DEFAULT: u32 = 16;

const INSTALL: &str = "Miri is missing:
  rustup toolchain install nightly --profile minimal
  rustup component add --toolchain nightly miri rust-src";

/// Runs all tests once, and the test with threads in several schedules.
pub(crate) fn run(root: &Path, arguments: &[&str]) -> Outcome {
    let schedules = match arguments {
        [] => SCHEDULES_DEFAULT,
        ["--schedules", number] => {
            number.parse().map_err(|_| Failure::Usage("--schedules needs a whole number".into()))?
        }
        _ => return Err(Failure::Usage(format!("unexpected arguments {arguments:?}"))),
    };
    if !Cargo::new(&["+nightly", "miri", "--version"]).succeeds(root) {
        return Err(Failure::Failed(INSTALL.into()));
    }
    // The tests keep their regions for as long as the process lives.
    let flags = String::from("-Zmiri-ignore-leaks");
    let seeds = format!("{flags} -Zmiri-many-seeds=0..{schedules}");
    test(root, &flags, &["--skip", "threads"])?;
    test(root, &seeds, &["threads"])
}

fn test(root: &Path, flags: &str, filter: &[&str]) -> Outcome {
    let mut arguments = vec!["+nightly", "miri", "test", "-p", "jobtree", "--lib", "--"];
    arguments.extend(filter);
    Cargo::new(&arguments)
        .with("MIRIFLAGS", flags)
        .with("CARGO_TARGET_DIR", "target/miri")
        .run(root)
}
