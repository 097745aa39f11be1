//! `cudele-lab`: the benchmarks, the published experiments that are made of them, and the soak.
//!
//! `cudele bench` and `cargo xtask experiment` start it. The product's daemons and commands are in
//! `cudele`, which it finds beside itself or on `PATH`. Invariant: `harness` imports neither
//! `worker` nor `bench`, `worker` does not
//! import `bench`, and `experiment` knows benchmarks by the rows that they print only.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "I/O edge: benchmarks start processes, read clocks and print rows"
)]

mod bench;
mod experiment;
mod harness;
mod lossy;
mod soak;
mod worker;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use terminal::context::Context;
use terminal::waiting;

/// The benchmarks of Cudele.
// Its help and its messages name the command that starts it.
#[derive(Debug, Parser)]
#[command(name = "cudele", bin_name = "cudele", version, max_term_width = 100)]
struct Arguments {
    #[command(flatten)]
    context: Context,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run an experiment and print its rows
    Bench(bench::Args),
    /// Run the commands of the published figures, and draw what they print
    Experiment(experiment::Args),
    /// Run a cluster under load through a seeded list of incidents, and judge each answer
    Soak(soak::Args),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let context = &arguments.context;
    waiting::say_on_terminal();
    let result = match &arguments.command {
        Command::Bench(args) => bench::run(context, args),
        Command::Experiment(args) => experiment::run(args),
        Command::Soak(args) => soak::run(context, args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            context.report(&error);
            ExitCode::from(if error.errno == types::Errno::Invalid { 2 } else { 1 })
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::Arguments;

    #[test]
    fn arguments_are_those_of_the_commands_that_start_it() {
        Arguments::command().debug_assert();
        for line in [
            "cudele bench mechanisms --repeat 5 --json",
            "cudele --json --dir /tmp/x bench all --quick",
            "cudele bench --worker",
            "cudele experiment creates --quick --root /srv/cudele",
            "cudele soak --minutes 10 --seed 7 --dir /tmp/x",
            "cudele soak --continue --dir /tmp/x",
        ] {
            let parsed = Arguments::try_parse_from(line.split_whitespace());
            assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
        }
    }
}
