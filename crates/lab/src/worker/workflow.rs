//! A job of a data processing framework, with the protocol by which such jobs commit their output:
//! every attempt writes below `_temporary`, the one that counts is renamed into place, and
//! `_SUCCESS` comes last. And an observer of the job.
//!
//! Some attempts fail and are repeated, some are run twice; their leftovers must never be seen in
//! place.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cudele::{Errno, Error, Result};

use super::dialogue::{Stopwatch, await_start};
use crate::harness::files::{Files, Listed};
use crate::harness::job::{Job, JobOutcome, Workflow};
use crate::harness::stats::real;

/// Where attempts write.
const TEMPORARY: &str = "_temporary";
/// The name that says that the job is done.
const SUCCESS: &str = "_SUCCESS";
/// Of so many tasks the first attempt of one fails.
const FAILS_EVERY: u64 = 4;
/// Of so many tasks one is run twice, and only one of the two is committed.
const TWICE_EVERY: u64 = 5;
/// Bytes that are written at a time.
const PIECE_BYTES: usize = 16 << 10;
/// Between two looks; and after so long an observer gives up.
const LOOK_AFTER: Duration = Duration::from_millis(2);
const PATIENCE: Duration = Duration::from_secs(300);

/// Which attempt of a task is committed.
fn committed(task: u64) -> u64 {
    u64::from(task.is_multiple_of(FAILS_EVERY))
}

fn part(task: u64) -> String {
    format!("part-{task:06}")
}

/// The first bytes of a part: its attempt.
fn label(task: u64, attempt: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&(task + 1).to_le_bytes());
    bytes[8..].copy_from_slice(&(attempt + 1).to_le_bytes());
    bytes
}

/// Runs the job: its tasks side by side, then the commit of the whole.
pub(super) fn run(job: &Job, task: &Workflow) -> Result<JobOutcome> {
    let files = Files::of(&task.at, &job.mon)?;
    let decouple = |policy: &String| files.decouple(&task.dir, policy);
    let subtree = task.policy.as_ref().map(decouple).transpose()?;
    await_start()?;
    let mut outcome = JobOutcome { events: task.tasks, ..JobOutcome::default() };
    let watch = Stopwatch::start();
    let temporary = format!("{}/{TEMPORARY}", task.dir);
    files.make_dir(&temporary)?;
    let next = AtomicU64::new(0);
    thread::scope(|scope| {
        let executor = || -> Result<()> {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= task.tasks {
                    return Ok(());
                }
                one_task(&files, task, &temporary, number)?;
            }
        };
        let executors: Vec<_> = (0..task.executors).map(|_| scope.spawn(executor)).collect();
        executors.into_iter().try_for_each(|it| -> Result<()> {
            it.join().map_err(|_| Error::new(Errno::Io, "executor", "it panicked"))?
        })
    })?;
    // Uncommitted attempts are removed first: an observer of the finished job sees none of them.
    files.remove_all(&temporary)?;
    files.create(&format!("{}/{SUCCESS}", task.dir))?.close()?;
    match &subtree {
        Some(subtree) => subtree.end(calls::Ending::Merge).map(drop)?,
        None => files.sync()?,
    }
    watch.stop(&mut outcome);
    drop(subtree);
    files.finish()?;
    outcome.bytes = task.tasks * task.bytes;
    Ok(outcome)
}

/// Attempts a task until one can be committed.
fn one_task(files: &Files, task: &Workflow, temporary: &str, number: u64) -> Result<()> {
    let wins = committed(number);
    let last = if number.is_multiple_of(TWICE_EVERY) { wins + 1 } else { wins };
    for attempt in 0..=last {
        let dir = format!("{temporary}/attempt_{number:06}_{attempt}");
        files.make_dir(&dir)?;
        // One that fails ends in the middle.
        let bytes = if attempt < wins { task.bytes / 2 } else { task.bytes };
        write(files, &format!("{dir}/{}", part(number)), bytes, label(number, attempt))?;
        if attempt == wins {
            let place = format!("{}/{}", task.dir, part(number));
            files.rename(&format!("{dir}/{}", part(number)), &place)?;
        }
    }
    Ok(())
}

fn write(files: &Files, path: &str, bytes: u64, label: [u8; 16]) -> Result<()> {
    let file = files.create(path)?;
    let mut piece = vec![0x5a; PIECE_BYTES];
    piece[..16].copy_from_slice(&label);
    let mut at = 0;
    while at < bytes {
        let left = usize::try_from(bytes - at).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
        file.write_at(at, &piece[..left])?;
        at += left as u64;
    }
    file.close()
}

/// Watches the job's directory until the job is done. The visible parts must only grow, be
/// complete, and be all in the end, without any uncommitted one.
pub(super) fn observe(job: &Job, task: &Workflow) -> Result<JobOutcome> {
    let files = Files::of(&task.at, &job.mon)?;
    await_start()?;
    let mut outcome = JobOutcome::default();
    let watch = Stopwatch::start();
    let start = Instant::now();
    let mut seen: BTreeMap<String, u64> = BTreeMap::new();
    let (mut looks, mut steps, mut first) = (0_u64, 0_u64, None);
    loop {
        let listed = files.list(&task.dir)?;
        looks += 1;
        let done = listed.iter().any(|it| it.name == SUCCESS);
        let now = parts(task, &listed)?;
        if let Some((name, _)) = seen.iter().find(|(name, _)| !now.contains_key(*name)) {
            return Err(wrong(task, format!("{name} was seen, and then it was not")));
        }
        if now.len() > seen.len() {
            steps += 1;
            first.get_or_insert_with(|| start.elapsed().as_secs_f64());
        }
        seen = now;
        if done {
            break;
        }
        if start.elapsed() > PATIENCE {
            return Err(wrong(task, "the job was not done in five minutes"));
        }
        thread::sleep(LOOK_AFTER);
    }
    watch.stop(&mut outcome);
    complete(&files, task, &files.list(&task.dir)?)?;
    for (name, value) in [
        ("looks", real(looks)),
        ("steps", real(steps)),
        ("first_seen", first.unwrap_or_else(|| outcome.seconds())),
    ] {
        outcome.parts.insert(name.into(), value);
    }
    files.finish()?;
    outcome.events = seen.len() as u64;
    Ok(outcome)
}

fn wrong(task: &Workflow, cause: impl Into<String>) -> Error {
    Error::new(Errno::Io, task.dir.as_str(), cause.into())
}

/// The parts that are in place, each of its whole length.
fn parts(task: &Workflow, listed: &[Listed]) -> Result<BTreeMap<String, u64>> {
    let parts: BTreeMap<_, _> = listed
        .iter()
        .filter(|it| !it.is_dir && it.name != SUCCESS)
        .map(|it| (it.name.clone(), it.bytes))
        .collect();
    match parts.iter().find(|(_, bytes)| **bytes != task.bytes) {
        Some((name, bytes)) => {
            Err(wrong(task, format!("{name} was seen with {bytes} bytes of {}", task.bytes)))
        }
        None => Ok(parts),
    }
}

/// When the job is done, the committed parts exist, and nothing else.
fn complete(files: &Files, task: &Workflow, listed: &[Listed]) -> Result<()> {
    let mut expected: Vec<_> = (0..task.tasks).map(part).collect();
    expected.insert(0, SUCCESS.to_owned());
    if !listed.iter().map(|it| &it.name).eq(expected.iter()) {
        let more = listed.iter().find(|it| !expected.contains(&it.name));
        let cause = match more {
            Some(it) => format!("{} is left when the job is done", it.name),
            None => format!("{} of {} parts are there", listed.len(), task.tasks),
        };
        return Err(wrong(task, cause));
    }
    for number in 0..task.tasks {
        let mut begins = [0; 16];
        let file = files.open(&format!("{}/{}", task.dir, part(number)))?;
        let read = file.read_at(0, &mut begins)?;
        if read < 16 || begins != label(number, committed(number)) {
            return Err(wrong(task, format!("{} is not of the attempt that counts", part(number))));
        }
    }
    Ok(())
}
