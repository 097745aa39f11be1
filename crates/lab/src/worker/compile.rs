//! The requests of a job that unpacks a source tree, configures and compiles it.
//!
//! Invariant: the same client sends the same requests in the same order, with any ranks; and every
//! name that it looks up exists.

use std::sync::Arc;
use std::time::Duration;

use cudele::{Dir, Errno, Fs, NewFile, Result};

use super::dialogue::{Stopwatch, await_start};
use crate::harness::job::{Compile, JobOutcome};

/// Directories that are hot at the same time, and the number of compiled files until the set
/// changes.
const HOT: u64 = 4;
const HOT_FOR: u64 = 96;
/// Headers that are looked up for a file: so many by their path.
const HEADERS: u64 = 8;
const BY_PATH: u64 = 1;
/// One file of so many has its directory listed, and a temporary file.
const SELDOM: u64 = 4;

/// Works through the tree.
pub(super) fn run(fs: &Arc<Fs>, task: &Compile) -> Result<JobOutcome> {
    let root = fs.open_dir(&task.dir)?;
    await_start()?;
    let requests = fs.requests();
    let mut outcome = JobOutcome { events: task.directories * task.files, ..JobOutcome::default() };
    let watch = Stopwatch::start();
    let dirs = unpack(&root, task)?;
    outcome.parts.insert("untar".into(), since(&watch));
    configure(&dirs, task)?;
    outcome.parts.insert("configure".into(), since(&watch));
    compile(fs, &dirs, task)?;
    outcome.parts.insert("compile".into(), since(&watch));
    watch.stop(&mut outcome);
    outcome.requests = fs.requests() - requests;
    Ok(outcome)
}

fn since(watch: &Stopwatch) -> f64 {
    let mut outcome = JobOutcome::default();
    watch.stop(&mut outcome);
    outcome.seconds()
}

fn source(number: u64) -> String {
    format!("source.{number:04}.c")
}

/// One directory after the other.
fn unpack(root: &Dir, task: &Compile) -> Result<Vec<Dir>> {
    let mut dirs = Vec::new();
    for number in 0..task.directories {
        let name = Compile::part(number);
        // Where directories have their places before the job begins, they are there.
        let attr = match root.create(&name, &NewFile::directory()) {
            Err(error) if error.errno == Errno::Exists => root.lookup(&name)?,
            made => made?,
        };
        let dir = root.enter(name.as_bytes(), attr.ino)?;
        (0..task.files).try_for_each(|it| dir.create(source(it), &NewFile::default()).map(drop))?;
        dirs.push(dir);
    }
    Ok(dirs)
}

/// Looks everywhere once.
fn configure(dirs: &[Dir], task: &Compile) -> Result<()> {
    for dir in dirs {
        dir.list()?;
        (0..task.files).step_by(4).try_for_each(|it| dir.lookup(source(it)).map(drop))?;
    }
    Ok(())
}

fn compile(fs: &Fs, dirs: &[Dir], task: &Compile) -> Result<()> {
    let think = Duration::from_micros(task.think_micros);
    let count = dirs.len() as u64;
    for unit in 0..task.directories * task.files {
        let dir = &dirs[index((unit / task.files) % count)];
        for header in 0..HEADERS {
            let hot = hot(task.client, unit / HOT_FOR, header % HOT) % count;
            let name = source(mix(unit * HEADERS + header) % task.files);
            if header < BY_PATH {
                fs.stat(format!("{}/{}/{name}", task.dir, Compile::part(hot)))?;
            } else {
                dirs[index(hot)].lookup(&name)?;
            }
        }
        std::thread::sleep(think);
        if unit % SELDOM == 0 {
            dir.list()?;
            let temporary = format!("temporary.{unit}");
            dir.create(&temporary, &NewFile::default())?;
            dir.unlink(&temporary)?;
        }
        dir.create(format!("object.{unit}.o"), &NewFile::default())?;
    }
    Ok(())
}

/// The directories that are hot for a while.
fn hot(client: u64, phase: u64, number: u64) -> u64 {
    mix((client << 32) ^ (phase << 8) ^ number)
}

/// Scatters numbers. Not `types::rng::mix`, because results in `experiments/` were measured with
/// the names that this function chooses.
fn mix(number: u64) -> u64 {
    let mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ (mixed >> 29)
}

fn index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(0)
}
