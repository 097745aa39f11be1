//! Directory trees, archives and dumps: read one entry after the other, brought into the namespace,
//! and compared with their copy there; and dumps are written.
//!
//! Not here: arguments and output of commands. Invariant: the modules point one way: `source` knows
//! neither `intake` nor `verify`.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "I/O edge: trees, archives and dumps are files, and the intake is timed"
)]

pub mod dump;
pub mod intake;
pub mod source;
pub mod verify;
