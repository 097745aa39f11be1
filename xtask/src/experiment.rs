//! The published figures: builds the program as it is shipped, and has `crates/experiments` run it.
//!
//! Not here: the experiments themselves (`experiments/`) and their drawing. This crate is built
//! first and stays light.

use std::path::{Path, PathBuf};

use crate::run::{Cargo, Outcome};

/// Runs experiments; the options are those of the program that does it.
pub(crate) fn run(root: &Path, options: &[&str]) -> Outcome {
    let runs =
        !options.iter().any(|option| matches!(*option, "page" | "list")) && !options.is_empty();
    if runs {
        Cargo::new(&["build", "--release", "-p", "cli"]).run(root)?;
    }
    let program = target(root).join("release/cudele");
    Cargo::new(&["run", "--quiet", "-p", "experiments", "--", "--program"])
        .and(&[&program.to_string_lossy(), "--root", &root.to_string_lossy()])
        .and(options)
        .run(root)
}

/// The build directory of cargo.
fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir))
}
