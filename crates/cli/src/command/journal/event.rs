//! `cudele journal event`: events got, erased, applied and recovered.

mod apply;
mod get;
mod recover;
mod splice;

use clap::{Args as ClapArgs, Subcommand};
use cudele::Result;
use terminal::context::Context;

/// Get, erase, apply and recover events.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:\n  cudele journal event get mds.0 --type unlink --path /home")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show events, or write them to a journal
    Get(get::Args),
    /// Erase events, or damaged parts
    Splice(splice::Args),
    /// Carry events of a client's journal out in the namespace
    Apply(apply::Args),
    /// Write the intact part of a damaged journal to a new one
    Recover(recover::Args),
}

pub(super) fn run(context: &Context, args: &Args) -> Result<()> {
    match &args.command {
        Command::Get(args) => get::run(context, args),
        Command::Splice(args) => splice::run(context, args),
        Command::Apply(args) => apply::run(context, args),
        Command::Recover(args) => recover::run(context, args),
    }
}
