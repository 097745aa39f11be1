//! The other programs of this project: beside the running one, else on `PATH`.

use std::path::PathBuf;

use cudele::{Errno, Error, Result};

/// A program of this project.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Its file name.
    name: &'static str,
    /// The package that builds it.
    package: &'static str,
}

/// `cudele`, which has the daemons and the commands.
pub const PRODUCT: Program = Program { name: "cudele", package: "cli" };

/// `cudele-lab`, which has the benchmarks and the experiments.
pub const LAB: Program = Program { name: "cudele-lab", package: "lab" };

/// Where a program is.
///
/// # Errors
/// `ENOENT`, with the command that builds it.
pub fn find(Program { name, package }: Program) -> Result<PathBuf> {
    let here = std::env::current_exe().ok();
    let beside = here.as_deref().and_then(|program| program.parent()).map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut files =
        beside.into_iter().chain(std::env::split_paths(&path)).map(|dir| dir.join(name));
    files.find(|file| file.is_file()).ok_or_else(|| {
        Error::new(Errno::NotFound, name, "the program is neither beside this one nor on PATH")
            .remedy(format!("build it with `cargo build --release -p {package}`"))
    })
}
