//! The needs of command-line programs: the cluster that a command means, facts as
//! text or JSON, errors with remedies, progress, numbers for people, and quoted names.
//!
//! Not here: commands. Invariant: facts go to standard output, and everything else goes to standard
//! error.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stderr,
    reason = "I/O edge: programs talk to people and look at files"
)]

mod advice;
pub mod context;
pub mod costs;
pub mod figures;
pub mod format;
pub mod logfile;
pub mod mount_point;
pub mod out;
pub mod program;
pub mod progress;
pub mod waiting;

use std::path::Path;

use cudele::{Errno, Error};

/// The system's error about a file of this machine.
pub fn io(path: &Path, error: &std::io::Error) -> Error {
    let errno = error.raw_os_error().and_then(|code| u16::try_from(code).ok());
    let errno = errno.map_or(Errno::Io, Errno::from_code);
    let remedy = if errno == Errno::NotFound {
        "this is a path of this machine: check it"
    } else if matches!(errno, Errno::Access | Errno::NotPermitted) {
        "this is a path of this machine: `ls -ld` shows owner and mode"
    } else if errno == Errno::NoSpace {
        "make room on the disk of this machine"
    } else {
        ""
    };
    Error::new(errno, path.display().to_string(), error.to_string()).remedy(remedy)
}
