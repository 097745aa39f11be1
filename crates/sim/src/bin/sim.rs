//! Runs simulations and says which seed broke a promise.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "I/O edge: reads arguments and a time limit, prints the result"
)]

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sim::cells::ace::{self, AceCase, AceCounts, AceFailure, PointFaults};
use sim::{Report, Tally};

const USAGE: &str = "\
usage: sim [--seeds N] [--first S] [--seconds T] [--seed S] [--threads N] [--transcript]
           [--ranks] [--directories] [--one-rank]
       sim --ace [--length N] [--cell CELL] [--from N] [--count N] [--every N] [--seconds T]
           [--threads N] [--json]
       sim --ace-case N [--transcript]

  --seeds N      how many seeds to run (default 50)
  --first S      the first of them (default 0)
  --seconds T    stop after this long, even if seeds are left
  --seed S       run one seed, for example 0x2a
  --threads N    how many seeds to run at a time (default: as many as there are processors)
  --transcript   print everything that happens
  --ranks        only simulations of several ranks
  --directories  directories are renamed from one rank to another, too
  --one-rank     only simulations of one rank
  --ace          every workload of a few operations in every cell, with a fault after every
                 persistence point
  --length N     operations of a workload, without those that they need (default 1)
  --cell CELL    only this cell, for example weak-local
  --from N       the number of the first workload (default 0)
  --count N      how many workloads to run (default: all)
  --every N      only each Nth of them (default 1)
  --json         print the counts as JSON
  --ace-case N   run one case of --ace, for example 0x2010001
";

#[derive(Debug)]
struct Options {
    seeds: u64,
    first: u64,
    seconds: u64,
    threads: usize,
    transcript: bool,
    ranks: bool,
    directories: bool,
    one_rank: bool,
    ace: Option<AceOptions>,
}

/// The options of `--ace`.
#[derive(Debug)]
struct AceOptions {
    length: u32,
    cell: Option<String>,
    from: u64,
    count: u64,
    every: u64,
    json: bool,
    case: Option<u64>,
}

impl Default for AceOptions {
    fn default() -> Self {
        let (from, count, every) = (0, u64::MAX, 1);
        Self { length: 1, cell: None, from, count, every, json: false, case: None }
    }
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
        // One text, so that the lines of two seeds do not mix.
        let mut text: String = report.trace.iter().flat_map(|line| [line, "\n"]).collect();
        if let Some(violation) = report.violation {
            self.failures += 1;
            text += &format!("seed {seed:#x}: {name}{violation}\n");
            text += &format!("  again: cargo xtask sim --seed {seed:#x} --transcript\n");
        }
        print!("{text}");
    }

    /// Adds what another thread ran.
    fn add(mut self, other: &Self) -> Self {
        self.seeds += other.seeds;
        self.failures += other.failures;
        self.tally.add(&other.tally);
        self
    }
}

/// Runs workloads with each seed, several seeds at a time, until there are no more or the time is
/// over.
fn run_all(
    seeds: std::ops::Range<u64>,
    threads: usize,
    is_over: impl Fn() -> bool + Sync,
    run: impl Fn(&mut Done, u64) + Sync,
) -> Done {
    let next = AtomicU64::new(seeds.start);
    let work = || {
        let mut done = Done::default();
        while !is_over() {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                break;
            }
            done.seeds += 1;
            run(&mut done, seed);
        }
        done
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        let ended = workers.into_iter().map(|worker| worker.join().expect("panics are caught"));
        ended.fold(Done::default(), |sum, done| sum.add(&done))
    })
}

fn main() -> ExitCode {
    let Some(options) = parse(std::env::args().skip(1)) else {
        eprint!("{USAGE}");
        return ExitCode::from(2);
    };
    if let Some(asked) = &options.ace {
        return match asked.case {
            Some(number) => run_ace_case(number, options.transcript),
            None => run_ace(asked, options.seconds, options.threads),
        };
    }
    let Options { seeds, first, seconds, threads, transcript, directories, .. } = options;
    let start = Instant::now();
    let seeds = first..first.saturating_add(seeds);
    let mut ranks = Done::default();
    if !options.one_rank {
        let is_over = || start.elapsed() >= Duration::from_secs(seconds / 3);
        ranks = run_all(seeds.clone(), threads, is_over, |done, seed| {
            done.run("ranks: ", seed, || sim::ranks::run(seed, transcript, directories));
        });
        let Done { seeds, failures, tally } = &ranks;
        println!("{seeds} seeds of several ranks{tally}, {failures} failures");
    }
    let mut done = Done::default();
    if !options.ranks {
        let is_over = || start.elapsed() >= Duration::from_secs(seconds);
        done = run_all(seeds, threads, is_over, |done, seed| {
            done.run("", seed, || sim::run(seed, transcript));
            done.run("cells: ", seed, || sim::cells::run(seed, transcript));
        });
        let (seconds, Done { seeds, failures, tally }) = (start.elapsed().as_secs_f64(), &done);
        println!("{seeds} seeds{tally}, {failures} failures, {seconds:.1} s");
        if options.seeds > 1 {
            println!("{}", sim::cells::table(tally));
        }
    }
    if done.failures + ranks.failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs one case of `--ace`.
fn run_ace_case(number: u64, transcript: bool) -> ExitCode {
    let Some(case) = AceCase::of_number(number) else {
        eprintln!("no case has the number {number:#x}");
        return ExitCode::from(2);
    };
    println!("{}", case.words());
    let Some(report) = ace::run_case(case, transcript) else { return ExitCode::SUCCESS };
    report.trace.iter().for_each(|line| println!("{line}"));
    match report.violation {
        Some(violation) => {
            println!("{number:#x}: {violation}");
            ExitCode::FAILURE
        }
        None => ExitCode::SUCCESS,
    }
}

fn print_failure(failure: &AceFailure) {
    let AceFailure { case, violation } = failure;
    let (number, words) = (case.number(), case.words());
    println!("{words}\n  {violation}\n  again: cargo xtask sim --ace-case {number:#x}");
}

/// Runs the workloads of `--ace`, several at a time, and prints the counts.
fn run_ace(asked: &AceOptions, seconds: u64, threads: usize) -> ExitCode {
    let cells: Vec<usize> = (0..)
        .map_while(|cell| {
            Some((cell, AceCase { length: 1, workload: 0, cell, strike: None }.cell()?))
        })
        .filter(|(_, cell)| asked.cell.as_ref().is_none_or(|name| *name == cell.to_string()))
        .map(|(at, _)| at)
        .collect();
    let (start, end) = (Instant::now(), ace::workloads(asked.length));
    let last = asked.from.saturating_add(asked.count.saturating_mul(asked.every)).min(end);
    let (next, done) = (AtomicU64::new(asked.from), AtomicU64::new(0));
    let work = || {
        let mut sum = AceCounts::default();
        while start.elapsed() < Duration::from_secs(seconds) {
            let workload = next.fetch_add(asked.every, Ordering::Relaxed);
            if workload >= last {
                break;
            }
            for cell in &cells {
                let mut failed = |failure: AceFailure| print_failure(&failure);
                let case = AceCase { length: asked.length, workload, cell: *cell, strike: None };
                sum.add(&ace::run_workload(case, PointFaults::All, &mut failed));
            }
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            if done.is_multiple_of(100) {
                let seconds = start.elapsed().as_secs();
                eprintln!("{done} workloads, up to {workload} of {end}, {seconds} s");
            }
        }
        sum
    };
    let sum = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        let mut sum = AceCounts::default();
        workers.into_iter().for_each(|it| sum.add(&it.join().expect("panics are caught")));
        sum
    });
    let AceCounts { workloads, left_out, points, runs, failures } = sum;
    let (length, cells, seconds) = (asked.length, cells.len(), start.elapsed().as_secs());
    let begun = done.into_inner();
    if asked.json {
        println!(
            "{{\"length\":{length},\"begun\":{begun},\"of\":{end},\"cells\":{cells},\
             \"workloads\":{workloads},\"left_out\":{left_out},\"points\":{points},\
             \"runs\":{runs},\"failures\":{failures},\"seconds\":{seconds}}}"
        );
    } else {
        println!(
            "{begun} of {end} workloads of length {length} in {cells} cells: {workloads} possible, \
             {left_out} left out, {points} persistence points, {runs} runs, {failures} failures, \
             {seconds} s"
        );
    }
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Option<Options> {
    let mut options = Options {
        seeds: 50,
        first: 0,
        seconds: u64::MAX,
        threads: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        transcript: false,
        ranks: false,
        directories: false,
        one_rank: false,
        ace: None,
    };
    while let Some(argument) = arguments.next() {
        if argument == "--cell" {
            options.ace.get_or_insert_default().cell = Some(arguments.next()?);
            continue;
        }
        let mut value = || number(&arguments.next()?);
        match argument.as_str() {
            "--transcript" => options.transcript = true,
            "--directories" => options.directories = true,
            "--ranks" => options.ranks = true,
            "--one-rank" => options.one_rank = true,
            "--threads" => options.threads = usize::try_from(value()?).ok()?,
            "--seeds" => options.seeds = value()?,
            "--first" => options.first = value()?,
            "--seconds" => options.seconds = value()?,
            "--ace" => drop(options.ace.get_or_insert_default()),
            "--length" => {
                options.ace.get_or_insert_default().length = u32::try_from(value()?).ok()?;
            }
            "--from" => options.ace.get_or_insert_default().from = value()?,
            "--count" => options.ace.get_or_insert_default().count = value()?,
            "--every" => options.ace.get_or_insert_default().every = value()?.max(1),
            "--json" => options.ace.get_or_insert_default().json = true,
            "--ace-case" => options.ace.get_or_insert_default().case = Some(value()?),
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
