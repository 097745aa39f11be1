//! The functions of `cudele.h`, which is generated from these files. Their comments are the header's.
//!
//! What every function may count on, because the header says so: strings end with a zero byte, and
//! buffers are as long as is said and nobody else's during the call.
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
