//! Sockets: addresses, blocking connections for clients, and a reactor for servers.
//!
//! Bytes in, frames out. What a frame means is the business of `wire` and the state machines.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "I/O edge: this crate is where sockets live"
)]

mod address;
mod conn;
mod connection;
pub mod descriptors;
mod limits;
mod reactor;

pub use address::{Address, Stream};
pub use connection::{Connection, Sender};
pub use limits::Limits;
pub use reactor::{Happened, Reactor, Waker};

#[cfg(test)]
mod tests;
