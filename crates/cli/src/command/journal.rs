//! `cudele journal`: a look into journals, damaged ones too.

mod inspect;
mod select;

use clap::{Args as ClapArgs, Subcommand};
use cudele::Result;

use crate::context::Context;

/// Look into journals.
#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show what journals hold, and whether they are damaged
    Inspect(inspect::Args),
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<()> {
    match &args.command {
        Command::Inspect(args) => inspect::run(context, args),
    }
}
