//! The published figures: builds the programs as they are shipped, and has `cudele-lab` run the
//! experiments and draw their figures.
//!
//! Not here: the experiments themselves (`experiments/`) and their drawing. This crate is built
//! first and stays light.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run::{Cargo, Failure, Outcome};

/// Runs experiments; the options are those of the program that does it.
pub(crate) fn run(root: &Path, options: &[&str]) -> Outcome {
    Cargo::new(&["build", "--release", "-p", "cli", "-p", "lab"]).run(root)?;
    let program = target(root).join("release/cudele-lab");
    let status = Command::new(&program)
        .arg("experiment")
        .arg("--root")
        .arg(root)
        .args(options)
        .status()
        .map_err(|error| Failure::Failed(format!("cannot start {}: {error}", program.display())))?;
    if status.success() { Ok(()) } else { Err(Failure::Reported) }
}

/// The build directory of cargo.
fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir))
}
