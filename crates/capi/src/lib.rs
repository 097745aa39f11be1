//! The C library: the calls of a file system client and of a decoupled subtree, as C programs link
//! them (M-09).
//!
//! [`ffi`] has the functions of `cudele.h`: it translates between C and the crate [`calls`], which
//! is safe Rust and knows nothing of C. The rules of each call are not here.
//!
//! Invariant: a handle is a number, never an address. It is looked up (`handle::Table`) and not
//! followed, so one that was closed or made up is an error and nothing worse; and no panic leaves
//! this crate (`error::answer`).
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "I/O edge: the C library carries out what C programs ask for"
)]

mod error;
pub mod ffi;
mod handle;
