//! `cudele bench`: starts `cudele-lab`, which has the benchmarks.
//!
//! Invariant: the benchmark replaces this process, so that signals and the exit code are its own.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use clap::Args as ClapArgs;
use cudele::Result;
use terminal::context::Context;
use terminal::{io, program};

/// Run an experiment and print its rows
// The benchmark explains its own options: `--help` is an argument like the rest.
#[derive(Debug, ClapArgs)]
#[command(
    disable_help_flag = true,
    after_help = "Example:\n  cudele bench mechanisms --repeat 5 --json"
)]
pub(crate) struct Args {
    /// Which experiment, and its options
    #[arg(value_name = "NAME", trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<()> {
    let error = lab(context, context.json)?.args(&args.arguments).exec();
    Err(io(&program::find(program::LAB)?, &error))
}

/// The arguments of this process, with `bench --help` for `help bench`: the options of a benchmark
/// are known to its program only.
pub(crate) fn arguments(mut given: Vec<OsString>) -> Vec<OsString> {
    if given.get(1).is_some_and(|word| word == "help")
        && given.get(2).is_some_and(|word| word == "bench")
    {
        given.splice(1..3, ["bench".into(), "--help".into()]);
    }
    given
}

/// The command that runs a benchmark on the cluster, or in the directory, of this command.
///
/// # Errors
/// `ENOENT` if the program of the benchmarks is missing.
pub(crate) fn lab(context: &Context, json: bool) -> Result<Command> {
    let mut command = Command::new(program::find(program::LAB)?);
    if json {
        command.arg("--json");
    }
    if let Some(mon) = &context.mon {
        command.arg("--mon").arg(mon);
    }
    if let Some(dir) = &context.dir {
        command.arg("--dir").arg(dir);
    }
    command.arg("bench");
    Ok(command)
}
