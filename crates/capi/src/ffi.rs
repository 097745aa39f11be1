//! The functions of `cudele.h`, which is generated from these files. Their comments become the
//! header's.
//!
//! Conditions that the header demands of callers and every function relies on: strings end with a
//! zero byte, and buffers have the stated length and no second user during the call.
#![allow(
    unsafe_code,
    reason = "called by C: exports symbols, reads and writes memory of the caller"
)]
#![allow(
    clippy::missing_safety_doc,
    reason = "the header says once, at its top, what holds for all"
)]

mod attributes;
mod connection;
mod files;
mod memory;
mod names;
mod subtrees;

pub use attributes::*;
pub use connection::*;
pub use files::*;
pub use names::*;
pub use subtrees::*;
