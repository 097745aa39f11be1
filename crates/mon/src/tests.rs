mod balancing;
mod bench;
mod clients;
mod fuzz;
mod servers;
mod store;
