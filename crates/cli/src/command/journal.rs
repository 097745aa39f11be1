//! `cudele journal`: journals read, kept, repaired and emptied, damaged ones too.
//!
//! The journals are those of clients (files on this disk, objects in the store) and those of
//! metadata servers (segments in the store). Crate `journal` knows the bytes; this module chooses
//! the journal, the permitted changes, and the output.
//!
//! Invariant: the journal of a metadata server is changed only while this process holds the rank,
//! so that no server can be running.

mod archive;
mod backup;
mod event;
mod export;
mod files;
mod filter;
mod header;
mod import;
mod inspect;
mod reset;
mod rework;
mod select;
mod source;

use clap::{Args as ClapArgs, Subcommand};
use cudele::Result;
use terminal::context::Context;

/// Read, keep, repair and empty journals: those of clients, which are files on this disk or objects
/// in the store, and those of metadata servers. A server's journal is named mds.0, and can be
/// changed while the server is stopped.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:
  cudele journal inspect --mds
  cudele journal export mds.0 mds.tar
  cudele journal event recover broken.journal whole.journal")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the content of journals, and whether they are damaged
    Inspect(inspect::Args),
    /// Write a journal to a file
    Export(export::Args),
    /// Put an exported journal in its place
    Import(import::Args),
    /// Empty the journal of a metadata server that is stopped
    Reset(reset::Args),
    /// Show and repair the header of a journal
    Header(header::Args),
    /// Get, erase, apply and recover events
    Event(event::Args),
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<()> {
    match &args.command {
        Command::Inspect(args) => inspect::run(context, args),
        Command::Export(args) => export::run(context, args),
        Command::Import(args) => import::run(context, args),
        Command::Reset(args) => reset::run(context, args),
        Command::Header(args) => header::run(context, args),
        Command::Event(args) => event::run(context, args),
    }
}
