//! The other programs of this project: beside the running one, else on `PATH`.

use std::path::PathBuf;

use cudele::{Errno, Error, Result};

/// The program of this name.
///
/// # Errors
/// `ENOENT` with the command that builds it.
pub fn find(name: &str, package: &str) -> Result<PathBuf> {
    let here = std::env::current_exe().ok();
    let beside = here.as_deref().and_then(|program| program.parent()).map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut programs =
        beside.into_iter().chain(std::env::split_paths(&path)).map(|dir| dir.join(name));
    programs.find(|program| program.is_file()).ok_or_else(|| {
        Error::new(Errno::NotFound, name, "it is neither beside this program nor on PATH").remedy(
            format!(
                "build it with `cargo build --release -p {package}`, or put it beside this one"
            ),
        )
    })
}
