//! The Python package, as Python meets it: the extension of this build, real daemons, and pytest.
//!
//! The tests themselves are Python and lie in `crates/pyapi/tests`. This passes them the library
//! that cargo has built, so that nothing is compiled twice.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "I/O edge: the test starts Python"
)]

use std::path::Path;
use std::process::Command;

/// Options for pytest, divided by blanks.
const OPTIONS: &str = "CUDELE_PYTEST";

#[test]
#[ignore = "installs pytest and fsspec from PyPI: `cargo xtask python`, and a step of `cargo ci`"]
fn the_python_package_does_what_its_tests_say() {
    // Cargo puts the libraries of a test beside it.
    let library = std::env::current_exe().unwrap().with_file_name("libpyapi.so");
    let mut tests = Command::new(env!("CARGO"));
    tests.args(["run", "--quiet", "--package", "xtask", "--", "python", "run"]);
    tests.arg(library).arg(env!("CARGO_BIN_EXE_cudele"));
    tests.args(std::env::var(OPTIONS).unwrap_or_default().split_whitespace());
    tests.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
    assert!(tests.status().unwrap().success(), "pytest found faults; they are above");
}
