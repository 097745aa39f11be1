//! The native half of the Python package `cudele`: the calls of crate [`calls`] for Python.
//!
//! People import the Python half, `python/cudele` beside this crate; it encodes paths, knows
//! Python's files and has the documentation. Here are bytes, numbers and errors. The rules of each
//! call are not here.
//!
//! Invariants: while a call works, other threads of Python run (`error::call`); every failure, a
//! panic too, is an `OSError`; and a connection that was made before a `fork` is neither used nor
//! ended in the child (`held`).
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "I/O edge: the Python library carries out what Python programs ask for"
)]

mod connection;
mod error;
mod file;
mod held;
mod subtree;

use pyo3::prelude::*;

/// The module `cudele._cudele`.
#[pymodule]
fn _cudele(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<connection::Connection>()?;
    module.add_class::<connection::Listing>()?;
    module.add_class::<file::File>()?;
    module.add_class::<subtree::Subtree>()?;
    module.add_function(wrap_pyfunction!(connection::connect, module)?)?;
    module.add_function(wrap_pyfunction!(held::forked, module)?)?;
    #[cfg(debug_assertions)]
    module.add_function(wrap_pyfunction!(error::panic, module)?)?;
    Ok(())
}
