//! Requests: for each kind its success, and each error that it may return.

mod across;
mod attributes;
mod content;
mod create;
mod decoupling;
mod links;
mod locks;
mod logged;
mod open;
mod policies;
mod questions;
mod quotas;
mod remove;
mod rename;
mod rights;
mod trash;
mod watch;
mod whole;
