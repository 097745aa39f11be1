//! Jobs as users run them: trees and archives in, subtrees decoupled, merged and given up, journals
//! looked into. Every test has a cluster, a home and a state directory of its own.

mod archives;
mod fixture;
mod ingest;
mod journals;
mod subtrees;
