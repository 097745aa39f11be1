//! Runs simulations and says which seed broke a promise.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "I/O edge: reads arguments and a time limit, prints the result"
)]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use sim::{Report, Tally};

const USAGE: &str = "\
usage: sim [--seeds N] [--first S] [--seconds T] [--seed S] [--transcript] [--ranks]
           [--directories] [--one-rank]

  --seeds N      how many seeds to run (default 50)
  --first S      the first of them (default 0)
  --seconds T    stop after this long, even if seeds are left
  --seed S       run one seed, for example 0x2a
  --transcript   print everything that happens
  --ranks        only simulations of several ranks
  --directories  directories are renamed from one rank to another, too
  --one-rank     only simulations of one rank
";

#[derive(Debug)]
struct Options {
    seeds: u64,
    first: u64,
    seconds: u64,
    transcript: bool,
    ranks: bool,
    directories: bool,
    one_rank: bool,
}

/// The seeds of some workloads that were run.
#[derive(Debug, Default)]
struct Done {
    seeds: u64,
    failures: u64,
    tally: Tally,
}

impl Done {
    /// Runs a workload with a seed.
    fn run(&mut self, name: &str, seed: u64, run: impl FnOnce() -> Report) {
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
        let report = ended
            .unwrap_or_else(|_| Report { violation: Some("panicked".into()), ..Report::default() });
        self.tally.add(&report.tally);
        report.trace.iter().for_each(|line| println!("{line}"));
        if let Some(violation) = report.violation {
            self.failures += 1;
            println!("seed {seed:#x}: {name}{violation}");
            println!("  again: cargo xtask sim --seed {seed:#x} --transcript");
        }
    }
}

fn main() -> ExitCode {
    let Some(options) = parse(std::env::args().skip(1)) else {
        eprint!("{USAGE}");
        return ExitCode::from(2);
    };
    let (start, trace) = (Instant::now(), options.transcript);
    let seeds = options.first..options.first.saturating_add(options.seeds);
    let ends = |seconds: u64| move |_: &u64| start.elapsed() < Duration::from_secs(seconds);
    let mut ranks = Done::default();
    let of_ranks = if options.one_rank { 0..0 } else { seeds.clone() };
    for seed in of_ranks.take_while(ends(options.seconds / 3)) {
        ranks.seeds += 1;
        ranks.run("ranks: ", seed, || sim::ranks::run(seed, trace, options.directories));
    }
    if !options.one_rank {
        let Done { seeds, failures, tally } = &ranks;
        println!("{seeds} seeds of several ranks{tally}, {failures} failures");
    }
    let mut done = Done::default();
    if !options.ranks {
        for seed in seeds.take_while(ends(options.seconds)) {
            done.seeds += 1;
            done.run("", seed, || sim::run(seed, trace));
            done.run("cells: ", seed, || sim::cells::run(seed, trace));
        }
        let (seconds, Done { seeds, failures, tally }) = (start.elapsed().as_secs_f64(), &done);
        println!("{seeds} seeds{tally}, {failures} failures, {seconds:.1} s");
        if options.seeds > 1 {
            println!("{}", sim::cells::table(tally));
        }
    }
    if done.failures + ranks.failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Option<Options> {
    let mut options = Options {
        seeds: 50,
        first: 0,
        seconds: u64::MAX,
        transcript: false,
        ranks: false,
        directories: false,
        one_rank: false,
    };
    while let Some(argument) = arguments.next() {
        let mut value = || number(&arguments.next()?);
        match argument.as_str() {
            "--transcript" => options.transcript = true,
            "--directories" => options.directories = true,
            "--ranks" => options.ranks = true,
            "--one-rank" => options.one_rank = true,
            "--seeds" => options.seeds = value()?,
            "--first" => options.first = value()?,
            "--seconds" => options.seconds = value()?,
            "--seed" => (options.first, options.seeds) = (value()?, 1),
            _ => return None,
        }
    }
    Some(options)
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}
