//! A small HTTP server for the pages of a daemon: few connections, short requests, no state.
//!
//! The pages are a [`Site`]. A connection has one request and one answer. Nothing of a request
//! reaches a site but its method (`GET` or `HEAD`), its path and its header fields.
//!
//! Invariant: connections, the bytes of a request, and the time of both are bounded, and no client
//! delays another one.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "I/O edge: a server with threads and clocks"
)]

mod address;
mod client;
mod request;
mod server;
mod site;

pub use address::HttpAddress;
pub use client::exchange;
pub use request::HttpRequest;
pub use server::HttpServer;
pub use site::{HttpResponse, HttpStatus, Site};

#[cfg(test)]
mod tests;
