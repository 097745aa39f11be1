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

const USAGE: &str = "\
usage: sim [--seeds N] [--first S] [--seconds T] [--seed S] [--transcript] [--ranks]
           [--directories]

  --seeds N      how many seeds to run (default 50)
  --first S      the first of them (default 0)
  --seconds T    stop after this long, even if seeds are left
  --seed S       run one seed, for example 0x2a
  --transcript   print everything that happens
  --ranks        only simulations of several ranks
  --directories  directories are renamed from one rank to another, too
";

#[derive(Debug)]
struct Options {
    seeds: u64,
    first: u64,
    seconds: u64,
    transcript: bool,
    ranks: bool,
    directories: bool,
}

fn main() -> ExitCode {
    let Some(options) = parse(std::env::args().skip(1)) else {
        eprint!("{USAGE}");
        return ExitCode::from(2);
    };
    let start = Instant::now();
    let ranks = ranks(&options, start);
    if options.ranks {
        return if ranks == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let (mut done, mut checked, mut judged, mut terms, mut failures) = (0_u64, 0, 0, 0, 0);
    let (mut answered_here, mut leased_here, mut async_ops, mut snapshots) = (0, 0, 0, 0);
    let mut tally = sim::cells::CellTally::default();
    for seed in options.first..options.first.saturating_add(options.seeds) {
        if start.elapsed() >= Duration::from_secs(options.seconds) {
            break;
        }
        let ended = std::panic::catch_unwind(|| sim::run(seed, options.transcript));
        done += 1;
        let first = match ended {
            Ok(report) => {
                checked += report.checked;
                judged += report.judged;
                answered_here += report.answered_here;
                leased_here += report.leased_here;
                async_ops += report.async_ops;
                snapshots += report.snapshots;
                terms += report.terms;
                for line in &report.trace {
                    println!("{line}");
                }
                report.violation
            }
            Err(_) => Some("panicked".into()),
        };
        let ended = std::panic::catch_unwind(|| sim::cells::run(seed, options.transcript));
        let second = match ended {
            Ok(report) => {
                terms += report.terms;
                tally.add(&report.tally);
                for line in &report.trace {
                    println!("{line}");
                }
                report.violation
            }
            Err(_) => Some("panicked".into()),
        };
        for violation in first.into_iter().chain(second.map(|text| format!("cells: {text}"))) {
            failures += 1;
            println!("seed {seed:#x}: {violation}");
            println!("  again: cargo xtask sim --seed {seed:#x} --transcript");
        }
    }
    println!(
        "{done} seeds, {checked} answers compared ({answered_here} of them not asked for, {leased_here} under leases), {async_ops} told later, {judged} judged, {snapshots} snapshots compared, {terms} servers, {failures} failures, {:.1} s",
        start.elapsed().as_secs_f64()
    );
    if options.seeds > 1 {
        println!("{} subtrees under the nine cells compared", tally.comparisons);
        print!("{tally}");
    }
    if failures + ranks == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Subtrees that move between ranks. Returns how many seeds broke a promise.
fn ranks(options: &Options, start: Instant) -> u64 {
    let mut sum = sim::ranks::RanksReport::default();
    let (mut done, mut failures) = (0_u64, 0);
    for seed in options.first..options.first.saturating_add(options.seeds) {
        if start.elapsed() >= Duration::from_secs(options.seconds) / 3 {
            break;
        }
        let ended = std::panic::catch_unwind(|| {
            sim::ranks::run(seed, options.transcript, options.directories)
        });
        done += 1;
        let report = ended.unwrap_or_else(|_| sim::ranks::RanksReport {
            violation: Some("panicked".into()),
            ..sim::ranks::RanksReport::default()
        });
        sum.judged += report.judged;
        sum.moves += report.moves;
        sum.inner_moves += report.inner_moves;
        sum.linked_moves += report.linked_moves;
        sum.refused += report.refused;
        sum.splits += report.splits;
        sum.joins += report.joins;
        sum.passed += report.passed;
        sum.passed_dirs += report.passed_dirs;
        sum.busy_dirs += report.busy_dirs;
        sum.kept_dirs += report.kept_dirs;
        sum.linked += report.linked;
        sum.colocated += report.colocated;
        sum.apart += report.apart;
        sum.redirected += report.redirected;
        sum.stale += report.stale;
        sum.crashes += report.crashes;
        sum.crashes_moving += report.crashes_moving;
        for line in &report.trace {
            println!("{line}");
        }
        if let Some(violation) = report.violation {
            failures += 1;
            println!("seed {seed:#x}: ranks: {violation}");
        }
    }
    println!(
        "{done} seeds of several ranks, {} answers judged, {} subtrees moved ({} of them fragments of fragments, {} with files that have several names) and {} not, {} directories split and {} joined, {} names of files and {} of directories passed between ranks ({} were busy and {} stayed), {} second names made after {} directories moved for them and {} not, {} requests sent on and {} asked for again in vain, {} servers killed, {} of them with a subtree on its way, {failures} failures",
        sum.judged,
        sum.moves,
        sum.inner_moves,
        sum.linked_moves,
        sum.refused,
        sum.splits,
        sum.joins,
        sum.passed,
        sum.passed_dirs,
        sum.busy_dirs,
        sum.kept_dirs,
        sum.linked,
        sum.colocated,
        sum.apart,
        sum.redirected,
        sum.stale,
        sum.crashes,
        sum.crashes_moving
    );
    failures
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Option<Options> {
    let mut options = Options {
        seeds: 50,
        first: 0,
        seconds: u64::MAX,
        transcript: false,
        ranks: false,
        directories: false,
    };
    while let Some(argument) = arguments.next() {
        if argument == "--transcript" {
            options.transcript = true;
            continue;
        }
        if argument == "--directories" {
            options.directories = true;
            continue;
        }
        if argument == "--ranks" {
            options.ranks = true;
            continue;
        }
        let value = number(&arguments.next()?)?;
        match argument.as_str() {
            "--seeds" => options.seeds = value,
            "--first" => options.first = value,
            "--seconds" => options.seconds = value,
            "--seed" => (options.first, options.seeds) = (value, 1),
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
