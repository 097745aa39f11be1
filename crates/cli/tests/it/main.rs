//! The program as its users meet it: real daemons, real processes, real signals.
//!
//! Every test has a cluster of its own, in a directory of its own. Clients are the program itself
//! or, where a test must see a client's memory, the client library.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "I/O edge: tests start daemons, kill them and say what they skip"
)]

mod advice;
mod balancer;
mod balancing;
mod cluster;
mod commands;
mod configured;
mod content;
mod copies;
mod crash;
mod damage;
mod flips;
mod fragments;
mod fsck;
mod full;
mod hostile;
mod hosts;
mod interfered;
mod lab;
mod lifecycle;
mod linearizability;
mod links;
mod logs;
mod metrics;
mod mirrors;
mod names;
mod network;
mod opened;
mod policies;
mod quotas;
mod quoting;
mod ranks;
mod readme;
mod releases;
mod rename;
mod room;
mod sharing;
mod site;
mod strangers;
mod threadless;
mod trace;
mod trash;
mod views;
mod walks;
mod watch;
mod web;
mod wishes;
