//! Jobs as users run them: trees and archives in, subtrees decoupled, merged and given up, journals
//! looked into. Every test has a cluster, a home and a state directory of its own.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "I/O edge: tests run the program, make trees and break journals"
)]

mod archives;
mod checks;
mod dumps;
mod fixture;
mod ingest;
mod journal_clients;
mod journal_servers;
mod journals;
mod merge_requests;
mod nonvolatile;
mod parallel;
mod quotas;
mod recover;
mod sealed;
mod subtrees;
mod sync;
mod transitions;
