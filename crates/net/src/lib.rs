//! Sockets: addresses, blocking connections for clients, and a reactor for servers.
//!
//! Bytes in, frames out. What a frame means is the business of `wire` and the state machines.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "I/O edge: this crate is where sockets live"
)]

mod address;
mod connection;
mod reactor;

pub use address::{Address, Stream};
pub use connection::{Connection, Sender};
pub use reactor::{Happened, Limits, Reactor, Waker};

#[cfg(test)]
mod tests;
