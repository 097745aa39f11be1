//! Prints how fast creates are applied, the longest single one, and the memory of an inode.
//!
//! `cargo run --release -p namespace --example insert [shape]`
//!
//! Every figure is the median of three runs. Stalls are measured apart from rates, because reading
//! the clock around every create costs as much as some of them; the longest stall counts, and of
//! three runs the shortest of these, because any other load of the machine looks like a stall too.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a measurement needs a clock, arguments and a terminal"
)]

use std::time::{Duration, Instant};

use journal::{Block, Create, Event, JournalBuffer};
use namespace::{CreateBatch, Mode, Namespace};
use types::{Ino, Origin, Seq, Timestamp};

const DIRS: u64 = 1000;
const RUNS: usize = 3;
/// The first inode numbers of directories, of existing files, and of the load.
const FIRST_DIR: u64 = 1 << 40;
const FIRST_OLD: u64 = 1 << 41;
const FIRST_NEW: u64 = 1 << 42;

/// Where the creates go.
#[derive(Clone, Copy)]
enum Spread {
    /// All into one directory.
    One,
    /// Into 1000 directories, each file into the next.
    RoundRobin,
    /// Into 1000 directories, one after the other.
    InRuns,
}

/// One load.
struct Load {
    name: &'static str,
    count: u64,
    /// Files that the directory has before.
    existing: u64,
    spread: Spread,
}

const LOADS: [Load; 8] = [
    Load { name: "10K into one", count: 10_000, existing: 0, spread: Spread::One },
    Load { name: "100K into one", count: 100_000, existing: 0, spread: Spread::One },
    Load { name: "1M into one", count: 1_000_000, existing: 0, spread: Spread::One },
    Load { name: "1M into one of 1M", count: 1_000_000, existing: 1_000_000, spread: Spread::One },
    Load { name: "1M round robin", count: 1_000_000, existing: 0, spread: Spread::RoundRobin },
    Load { name: "1M in runs", count: 1_000_000, existing: 0, spread: Spread::InRuns },
    Load {
        name: "1M into one of 10M",
        count: 1_000_000,
        existing: 10_000_000,
        spread: Spread::One,
    },
    Load { name: "10M into one", count: 10_000_000, existing: 0, spread: Spread::One },
];

fn main() {
    let only = std::env::args().nth(1);
    println!(
        "{:20} {:>13} {:>13} {:>12} {:>12} {:>12}",
        "", "direct", "journal", "stall", "of journal", "memory"
    );
    for load in LOADS.iter().filter(|load| only.as_ref().is_none_or(|only| load.name == only)) {
        let journal = encode(load);
        let mut memory = 0.0;
        let direct = rate(load, |namespace| {
            let before = (namespace.memory(), namespace.inodes());
            each_create(load, FIRST_NEW, |create| {
                namespace.apply(Seq(1), Mode::Merge, &Event::Create(*create));
            });
            let more = namespace.memory() - before.0;
            memory = more as f64 / (namespace.inodes() - before.1) as f64;
        });
        let merged = rate(load, |namespace| merge(namespace, &journal));
        let stall = stall(load, |namespace, lap| {
            each_create(load, FIRST_NEW, |create| {
                namespace.apply(Seq(1), Mode::Merge, &Event::Create(*create));
                lap.next();
            });
        });
        println!(
            "{:20} {:9.2} M/s {:9.2} M/s {:9.2} ms {:8.1} B/ev {:8.1} B/ino",
            load.name,
            direct / 1e6,
            merged / 1e6,
            stall.as_secs_f64() * 1e3,
            journal.iter().map(Vec::len).sum::<usize>() as f64 / load.count as f64,
            memory
        );
    }
}

/// Times steps that follow each other: one reading of the clock per step.
struct Lap {
    last: Instant,
    longest: Duration,
    steps: u32,
    preempted: u64,
}

impl Lap {
    fn start() -> Self {
        let preempted = preemptions();
        Self { last: Instant::now(), longest: Duration::ZERO, steps: 0, preempted }
    }

    /// A step during which the scheduler ran something else does not count.
    fn next(&mut self) {
        let took = self.last.elapsed();
        self.steps += 1;
        if took > self.longest || self.steps.is_multiple_of(1024) {
            let preempted = preemptions();
            if took > self.longest && preempted == self.preempted {
                self.longest = took;
            }
            self.preempted = preempted;
        }
        self.last = Instant::now();
    }
}

/// How often the scheduler took the processor away; 0 where the system does not say.
fn preemptions() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let count = status.lines().find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"));
    count.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

fn median<T: PartialOrd + Copy>(mut values: [T; RUNS]) -> T {
    values.sort_by(|a, b| a.partial_cmp(b).expect("durations and rates are numbers"));
    values[RUNS / 2]
}

/// Creates per second.
fn rate(load: &Load, mut work: impl FnMut(&mut Namespace)) -> f64 {
    median([(); RUNS].map(|()| {
        let mut namespace = prepared(load);
        let start = Instant::now();
        work(&mut namespace);
        load.count as f64 / start.elapsed().as_secs_f64()
    }))
}

/// The longest step.
fn stall(load: &Load, mut work: impl FnMut(&mut Namespace, &mut Lap)) -> Duration {
    let runs = [(); RUNS].map(|()| {
        let mut namespace = prepared(load);
        let mut lap = Lap::start();
        work(&mut namespace, &mut lap);
        lap.longest
    });
    runs.into_iter().min().unwrap_or_default()
}

/// The steps of a merge: verify a block's checksum, decode its events, apply them in batches.
fn merge(namespace: &mut Namespace, journal: &[Vec<u8>]) {
    let mut batch = CreateBatch::default();
    for bytes in journal {
        let (block, _) = Block::read(bytes, 0).expect("just written");
        let mut events = block.events();
        while let Some(record) = events.next_event().expect("just written") {
            assert!(namespace.needs().of(&record.event).is_none());
            let Event::Create(create) = record.event else { continue };
            batch.push(Seq(1), &create);
            if batch.is_full() {
                namespace.apply_batch(Mode::Merge, &mut batch, |_, _| ());
            }
        }
    }
    namespace.apply_batch(Mode::Merge, &mut batch, |_, _| ());
}

fn encode(load: &Load) -> Vec<Vec<u8>> {
    let mut journal = JournalBuffer::new(Seq(1), false);
    each_create(load, FIRST_NEW, |create| {
        journal.append(Origin::default(), &Event::Create(*create));
    });
    journal.close_block();
    journal.take_blocks()
}

/// A namespace with the directories and their existing files.
fn prepared(load: &Load) -> Namespace {
    let mut namespace = Namespace::with_root(Timestamp(1));
    for dir in 0..DIRS {
        let name = format!("dir.{dir}");
        let (name, mode) = (name.as_bytes(), 0o040_755);
        let ino = Ino(FIRST_DIR + dir);
        let create = Create { parent: Ino::ROOT, name, ino, mode, ..Create::default() };
        namespace.apply(Seq(1), Mode::Live, &Event::Create(create));
    }
    let old = Load { count: load.existing, name: "old", ..*load };
    each_create(&old, FIRST_OLD, |create| {
        namespace.apply(Seq(1), Mode::Merge, &Event::Create(*create));
    });
    namespace
}

/// Calls back with every create of a load. The names are the load's own: those that are there
/// before and the new ones differ.
fn each_create(load: &Load, first: u64, mut callback: impl FnMut(&Create<'_>)) {
    let mut name = *b"file.0000000";
    if first == FIRST_OLD {
        name[..4].copy_from_slice(b"past");
    }
    for number in 0..load.count {
        let dir = match load.spread {
            Spread::One => 0,
            Spread::RoundRobin => number % DIRS,
            Spread::InRuns => number * DIRS / load.count,
        };
        // The clock of a client that makes a million files a second, at its usual precision.
        let time = Timestamp((number / 4096) as i64 * 4_000_000);
        callback(&Create {
            parent: Ino(FIRST_DIR + dir),
            name: &name,
            ino: Ino(first + number),
            mode: 0o100_644,
            uid: 1000,
            gid: 1000,
            time,
            mtime: time,
            atime: time,
            ..Create::default()
        });
        increment(&mut name[5..]);
    }
}

/// Adds one to a decimal number: cheaper than formatting it.
fn increment(digits: &mut [u8]) {
    for digit in digits.iter_mut().rev() {
        if *digit < b'9' {
            *digit += 1;
            return;
        }
        *digit = b'0';
    }
}
