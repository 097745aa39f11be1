//! The parts of the server, each through its own functions.

mod caps;
mod damage;
mod fetches;
mod leases;
mod locks;
mod opens;
mod sessions;
