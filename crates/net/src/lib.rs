//! Sockets: addresses, blocking connections for clients, and a reactor for servers.
//!
//! Bytes in, frames out. The crate `wire` and the state machines interpret frames.
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
mod peer;
mod reactor;
mod secured;
mod tls;

pub use address::{Address, OpenedConnection, Stream};
pub use connection::{Connection, Sender};
pub use keys::Keyring;
pub use limits::Limits;
pub use reactor::{ConnectionEvent, Reactor, Waker};

#[cfg(test)]
mod tests;
