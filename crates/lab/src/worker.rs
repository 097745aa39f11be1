//! A client process of an experiment: `cudele bench --worker`.
//!
//! It prepares, reports that, waits for the start, works, and reports. Invariant: no measured work
//! happens before the start, and no other work happens between start and end.

mod cephfs;
mod change;
mod checkpoint;
mod compile;
mod dataset;
mod decoupled;
mod dialogue;
mod hammer;
mod insert;
mod kernel;
mod looked;
mod mounted;
mod noise;
mod nothing;
mod per_event;
mod raw;
pub(crate) mod rocks;
mod soak;
mod soak_decoupled;
mod soak_probe;
mod synced;
mod workflow;

use std::sync::Arc;
use std::time::{Duration, Instant};

use cudele::{Fs, NewFile, Result};

use crate::harness::job::{Job, JobOutcome, Task};
use crate::harness::numbered::Numbered;
use dialogue::{Stopwatch, await_start, latencies_us, line, mount, pipe, say};

/// Reads a job from standard input, does it, and writes the outcome.
///
/// # Errors
/// The error of the work; the parent shows it to the user.
pub(crate) fn run() -> Result<()> {
    let job: Job = serde_json::from_str(&line()?).map_err(|error| pipe(&error.to_string()))?;
    let outcome = perform(&job)?;
    let text = serde_json::to_string(&outcome).map_err(|error| pipe(&error.to_string()))?;
    say(&text)
}

fn perform(job: &Job) -> Result<JobOutcome> {
    match &job.task {
        Task::Create { dir, first, files, sync, latencies, alone } => {
            let fs = mount(job)?;
            let names = Numbered::new(*first, *files);
            let (files, sync, latencies, alone) = (*files, *sync, *latencies, *alone);
            create(&fs, dir, names, &Creates { files, sync, latencies, alone })
        }
        Task::CephCreate { conf, dir, files, sync } => cephfs::create(conf, dir, *files, *sync),
        Task::LookAndCreate { dir, first, files } => {
            looked::create(&looked::ours(mount(job)?, dir, true)?, *first, *files)
        }
        Task::Intrude { dir, first } => {
            looked::intrude(&looked::ours(mount(job)?, dir, false)?, *first)
        }
        Task::CephLookAndCreate { conf, dir, first, files } => {
            looked::create(&cephfs::place(conf, dir)?, *first, *files)
        }
        Task::CephIntrude { conf, dir, first } => {
            looked::intrude(&cephfs::place(conf, dir)?, *first)
        }
        Task::Stat { dir, files, passes, remember } => {
            looked::stat(&mount(job)?, dir, *files, *passes, *remember)
        }
        Task::Decoupled(task) => decoupled::append(&mount(job)?, task),
        Task::Insert(task) => insert::insert(&mount(job)?, task),
        Task::Find { dir, entries, count, create } => {
            insert::find(&mount(job)?, dir, *entries, *count, *create)
        }
        Task::RocksInsert { place, entries, tables } => rocks::insert(place, *entries, *tables),
        Task::Walk { dir, policy, source, limit } => {
            decoupled::walk(&mount(job)?, dir, policy, source, *limit)
        }
        Task::LookUp { path } => find(&mount(job)?, path),
        Task::Scan { dir } => scan(&mount(job)?, dir),
        Task::CephList { conf, dir } => cephfs::list(conf, dir),
        Task::List { dir } => list(&mount(job)?, dir),
        Task::View { dir, policy } => decoupled::view(&mount(job)?, dir, policy),
        Task::Write { file, bytes } => raw::write(file, *bytes),
        Task::AppendFor { dir, policy, window_ns } => {
            decoupled::append_for(&mount(job)?, dir, policy, *window_ns)
        }
        Task::PerEvent { place, files } => per_event::apply(place, *files),
        Task::Synced(task) => synced::synced(&mount(job)?, task),
        Task::Hammer(task) => hammer::run(&job.mon, task),
        Task::Echo { socket } => raw::echo(socket),
        Task::Ping { socket, rounds } => raw::ping(socket, *rounds),
        Task::Serve { at, what } => mounted::serve(job, at, what),
        Task::Calls { dir, work } => mounted::calls(dir, *work),
        Task::Store { url, bytes, write, keep } => mounted::store(url, *bytes, *write, *keep),
        Task::Program { arguments } => mounted::program(arguments),
        Task::Checkpoint(task) => checkpoint::write(job, task),
        Task::WalkCheckpoint(task) => checkpoint::walk(job, task),
        Task::Workflow(task) => workflow::run(job, task),
        Task::Observe(task) => workflow::observe(job, task),
        Task::Change(task) => change::changes(job, task),
        Task::MakeDataset(task) => dataset::make(job, task),
        Task::ReadDataset(task) => dataset::read(job, task),
        Task::Soak(task) => soak::work(&mount(job)?, task),
        Task::Compile(task) => compile::run(&mount(job)?, task),
    }
}

/// How often a client tries to have a directory alone, and how long after the last time.
const ATTEMPTS: u32 = 100;
const ATTEMPT_AFTER: Duration = Duration::from_millis(20);

struct Creates {
    files: u64,
    sync: bool,
    latencies: bool,
    /// Without waiting for the server, in a directory that this client has alone.
    alone: bool,
}

fn create(fs: &Arc<Fs>, path: &str, mut names: Numbered, how: &Creates) -> Result<JobOutcome> {
    let dir = fs.open_dir(path)?;
    let new = NewFile::default();
    let mut micros = Vec::new();
    if how.latencies {
        micros.reserve(usize::try_from(how.files).unwrap_or(0));
    }
    if how.alone {
        have_exclusive(fs, &dir)?;
    }
    await_start()?;
    let requests = fs.requests();
    let mut outcome = JobOutcome { events: how.files, ..JobOutcome::default() };
    let watch = Stopwatch::start();
    let start = Instant::now();
    if how.latencies {
        for _ in 0..how.files {
            let before = Instant::now();
            dir.create(names.name(), &new)?;
            // In tenths of a microsecond, so that 7 minutes still fit.
            let tenths = before.elapsed().as_nanos() / 100;
            micros.push(u32::try_from(tenths).unwrap_or(u32::MAX));
            names.advance();
        }
    } else {
        for _ in 0..how.files {
            dir.create(names.name(), &new)?;
            names.advance();
        }
    }
    outcome.parts.insert("create".into(), start.elapsed().as_secs_f64());
    if how.sync {
        let start = Instant::now();
        fs.sync()?;
        outcome.parts.insert("sync".into(), start.elapsed().as_secs_f64());
    }
    watch.stop(&mut outcome);
    outcome.requests = fs.requests() - requests;
    if how.latencies {
        outcome.latencies_us = Some(latencies_us(micros));
    }
    Ok(outcome)
}

/// Creates files until this client has the directory alone.
fn have_exclusive(fs: &Arc<Fs>, dir: &cudele::Dir) -> Result<()> {
    fs.listen(|_| {})?;
    fs.take_exclusive(cudele::WantsExclusive::Always)?;
    for attempt in 0..ATTEMPTS {
        dir.create(format!("first.{attempt}"), &NewFile::default())?;
        // Existing entries are read before.
        if fs.exclusive_dirs() > 0 {
            return Ok(());
        }
        std::thread::sleep(ATTEMPT_AFTER);
    }
    Err(pipe("the server did not give the directory to this client alone"))
}

fn find(fs: &Arc<Fs>, path: &str) -> Result<JobOutcome> {
    await_start()?;
    let mut outcome = JobOutcome { events: 1, ..JobOutcome::default() };
    let watch = Stopwatch::start();
    fs.stat(path)?;
    watch.stop(&mut outcome);
    Ok(outcome)
}

/// Names and attributes are looked at, and not kept.
fn scan(fs: &Arc<Fs>, path: &str) -> Result<JobOutcome> {
    await_start()?;
    let requests = fs.requests();
    let mut outcome = JobOutcome::default();
    let watch = Stopwatch::start();
    let mut bytes = 0;
    let scanned = fs.scan(path, |name, attr| {
        bytes += name.len() as u64 + attr.size;
        Ok(())
    })?;
    watch.stop(&mut outcome);
    outcome.requests = fs.requests() - requests;
    (outcome.events, outcome.bytes) = (scanned.entries, std::hint::black_box(bytes));
    Ok(outcome)
}

/// To open a directory is part of listing it: the server has to bring it into its memory.
fn list(fs: &Arc<Fs>, path: &str) -> Result<JobOutcome> {
    await_start()?;
    let requests = fs.requests();
    let mut outcome = JobOutcome::default();
    let watch = Stopwatch::start();
    outcome.events = fs.open_dir(path)?.list()?.len() as u64;
    watch.stop(&mut outcome);
    outcome.requests = fs.requests() - requests;
    Ok(outcome)
}
