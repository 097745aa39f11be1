//! How a call is made and how it fails: without the interpreter's lock, and as an `OSError`.

use calls::{CallFailure, guarded};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

/// Makes a call while other threads of Python run.
///
/// # Errors
/// The call's, as the subclass of `OSError` that Python has for its number; `EIO` for a panic.
pub(crate) fn call<T: Send>(
    py: Python<'_>,
    call: impl FnOnce() -> Result<T, CallFailure> + Send,
) -> PyResult<T> {
    py.detach(|| guarded(call)).map_err(|failure| raised(py, failure))
}

/// An error of Python: number, cause with remedy, and the path if it is about one.
pub(crate) fn raised(py: Python<'_>, failure: CallFailure) -> PyErr {
    let code = failure.code();
    let (subject, cause, remedy) = match failure {
        CallFailure::Refused(error) => (error.subject, error.cause, error.remedy),
        CallFailure::Closed { what, cause, remedy } => (what.to_owned(), cause, remedy.to_owned()),
    };
    let path = subject.starts_with('/').then_some(&subject);
    let mut message = String::new();
    if path.is_none() && !subject.is_empty() {
        message = format!("{subject}: ");
    }
    message += &cause;
    if !remedy.is_empty() {
        message += &format!("; {remedy}");
    }
    let made = match path {
        Some(path) => py.get_type::<PyOSError>().call1((code, message, path)),
        None => py.get_type::<PyOSError>().call1((code, message)),
    };
    let described = made.and_then(|error| {
        error.setattr("cause", cause)?;
        error.setattr("remedy", remedy)?;
        Ok(error)
    });
    described.map_or_else(|error| error, PyErr::from_value)
}

/// Panics in a call, for the test of panics.
#[cfg(debug_assertions)]
#[pyfunction(name = "_panic")]
pub(crate) fn panic(py: Python<'_>, index: usize) -> PyResult<u8> {
    call(py, || Ok([1][index]))
}
