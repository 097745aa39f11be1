//! Everything that reads bytes of foreign origin, as a list of fuzz targets.
//!
//! A target takes any bytes. It must return, with little memory, and a value that it reads must be
//! the same after another round of writing and reading. `cargo xtask fuzz` runs a target with
//! libFuzzer; the tests of this crate run all of them, on the kept inputs of `testdata` and on
//! changed ones.
//!
//! A target of a format with a checksum also reads the bytes with the right checksum: chance does
//! not find one.

mod targets;

pub use targets::{TARGETS, Target};

/// The target of this name.
#[must_use]
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
