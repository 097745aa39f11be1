//! Ranks of a parallel program that write checkpoints: each its own files (N-N), or all of them
//! their blocks of one file, in turn (N-1).

use std::thread;
use std::time::Instant;

use cudele::{Completion, Errno, Error, Mechanism, Result};

use super::dialogue::{Stopwatch, await_start};
use crate::harness::files::{Files, OpenFile};
use crate::harness::job::{Checkpoint, Job, JobOutcome, Syncing};

/// Bytes at the start of a block that name its writer.
const STAMP_BYTES: usize = 24;

/// The waiting times of ranks, in seconds: until they could continue computing, until their data
/// had its final durability, until other clients could see it.
#[derive(Clone, Copy, Debug, Default)]
struct Waited {
    returned: f64,
    durable: f64,
    visible: f64,
}

impl Waited {
    fn add(&mut self, other: Self) {
        self.returned += other.returned;
        self.durable += other.durable;
        self.visible += other.visible;
    }
}

/// The directory of a rank's own files.
fn own_dir(dir: &str, rank: u64) -> String {
    format!("{dir}/rank.{rank:04}")
}

/// The file of a step that all ranks share.
fn shared_file(dir: &str, step: u64) -> String {
    format!("{dir}/step.{step:04}")
}

/// A block of a checkpoint.
#[derive(Clone, Copy)]
struct BlockId {
    rank: u64,
    step: u64,
    /// Among the blocks of this rank and step.
    number: u64,
}

/// The first bytes of a block.
fn stamp(BlockId { rank, step, number }: BlockId) -> [u8; STAMP_BYTES] {
    let mut bytes = [0; STAMP_BYTES];
    for (place, word) in bytes.chunks_exact_mut(8).zip([rank, step, number]) {
        place.copy_from_slice(&(word + 1).to_le_bytes());
    }
    bytes
}

/// Writes the checkpoints of this process's ranks.
pub(super) fn write(job: &Job, task: &Checkpoint) -> Result<JobOutcome> {
    let files = Files::of(&task.at, &job.mon)?;
    if !task.shared {
        task.own.clone().try_for_each(|rank| files.make_dir(&own_dir(&task.dir, rank)))?;
    }
    let root = match (task.shared, task.own.start) {
        (true, _) => task.dir.clone(),
        (false, rank) => own_dir(&task.dir, rank),
    };
    let subtree = task.policy.as_ref().map(|policy| files.decouple(&root, policy)).transpose()?;
    await_start()?;
    let mut outcome = JobOutcome::default();
    let mut waited = Waited::default();
    let watch = Stopwatch::start();
    for step in 0..task.steps {
        let start = Instant::now();
        one_step(&files, task, step)?;
        let returned = start.elapsed().as_secs_f64();
        let mut one = Waited { returned, durable: returned, visible: returned };
        if let Some(subtree) = &subtree {
            let done = subtree.end(calls::Ending::Complete)?;
            let all = start.elapsed().as_secs_f64();
            one.durable = all - after(&done, Mechanism::persists);
            one.visible = all - after(&done, Mechanism::applies);
        } else {
            make_durable(&files, task, step)?;
            one.durable = start.elapsed().as_secs_f64();
        }
        waited.add(one);
    }
    watch.stop(&mut outcome);
    let Waited { returned, durable, visible } = waited;
    for (name, seconds) in [("returned", returned), ("durable", durable), ("visible", visible)] {
        outcome.parts.insert(name.into(), seconds);
    }
    if let Some(subtree) = subtree {
        let start = Instant::now();
        subtree.end(calls::Ending::Merge)?;
        outcome.parts.insert("merge".into(), start.elapsed().as_secs_f64());
        drop(subtree);
    }
    files.finish()?;
    outcome.events = task.steps * task.files * (task.own.end - task.own.start);
    outcome.bytes = outcome.events * task.bytes;
    Ok(outcome)
}

/// Seconds of the mechanisms that came behind the last one of a kind; 0 if there was none.
fn after(done: &Completion, kind: impl Fn(Mechanism) -> bool) -> f64 {
    let last = done.steps.iter().rposition(|step| kind(step.mechanism));
    last.map_or(0.0, |at| done.steps[at + 1..].iter().map(|step| step.seconds).sum())
}

/// All ranks of this process write their data, each in a thread of its own.
fn one_step(files: &Files, task: &Checkpoint, step: u64) -> Result<()> {
    let mut ranks = task.own.clone();
    let first = ranks.next();
    thread::scope(|scope| {
        let others: Vec<_> =
            ranks.map(|rank| scope.spawn(move || one_rank(files, task, rank, step))).collect();
        let mut done = first.map_or(Ok(()), |rank| one_rank(files, task, rank, step));
        for other in others {
            let ended = other.join().map_err(|_| Error::new(Errno::Io, "rank", "it panicked"));
            done = done.and(ended.and_then(|result| result));
        }
        done
    })
}

fn one_rank(files: &Files, task: &Checkpoint, rank: u64, step: u64) -> Result<()> {
    let mut block = vec![0xa5; usize::try_from(task.bytes).unwrap_or(STAMP_BYTES)];
    let mut write = |file: &OpenFile, place, number| {
        block[..STAMP_BYTES].copy_from_slice(&stamp(BlockId { rank, step, number }));
        file.write_at(place, &block)
    };
    if task.shared {
        let file = files.create(&shared_file(&task.dir, step))?;
        for number in 0..task.files {
            write(&file, (number * task.ranks + rank) * task.bytes, number)?;
        }
        return file.close();
    }
    for number in 0..task.files {
        let file = files.create(&own_file(task, BlockId { rank, step, number }))?;
        write(&file, 0, number)?;
        file.close()?;
    }
    Ok(())
}

fn own_file(task: &Checkpoint, BlockId { rank, step, number }: BlockId) -> String {
    format!("{}/step.{step:04}.{number:06}", own_dir(&task.dir, rank))
}

/// Waits for the disk, as a program does that wants its checkpoint to survive.
fn make_durable(files: &Files, task: &Checkpoint, step: u64) -> Result<()> {
    match task.sync {
        Syncing::All => return files.sync(),
        Syncing::Not => return Ok(()),
        Syncing::Each => {}
    }
    if task.shared {
        return files.open_to_sync(&shared_file(&task.dir, step))?.sync();
    }
    for rank in task.own.clone() {
        for number in 0..task.files {
            files.open_to_sync(&own_file(task, BlockId { rank, step, number }))?.sync()?;
        }
    }
    Ok(())
}

/// Walks through the files of all ranks, as a restart does: names, lengths, and the first bytes of
/// each block.
pub(super) fn walk(job: &Job, task: &Checkpoint) -> Result<JobOutcome> {
    let files = Files::of(&task.at, &job.mon)?;
    await_start()?;
    let mut outcome = JobOutcome::default();
    let watch = Stopwatch::start();
    if task.shared {
        let length = task.ranks * task.files * task.bytes;
        expect_listed(
            &files,
            &task.dir,
            (0..task.steps).map(|step| (shared_file("", step), length)),
        )?;
        for step in 0..task.steps {
            let file = files.open(&shared_file(&task.dir, step))?;
            for rank in 0..task.ranks {
                for number in 0..task.files {
                    let place = (number * task.ranks + rank) * task.bytes;
                    check_block(&file, place, BlockId { rank, step, number }, &mut outcome)?;
                }
            }
        }
    } else {
        for rank in 0..task.ranks {
            let dir = own_dir(&task.dir, rank);
            let all = (0..task.steps).flat_map(|step| (0..task.files).map(move |it| (step, it)));
            let names =
                all.clone().map(|(step, it)| (format!("/step.{step:04}.{it:06}"), task.bytes));
            expect_listed(&files, &dir, names)?;
            for (step, number) in all {
                let block = BlockId { rank, step, number };
                let file = files.open(&own_file(task, block))?;
                check_block(&file, 0, block, &mut outcome)?;
            }
        }
    }
    watch.stop(&mut outcome);
    files.finish()?;
    Ok(outcome)
}

fn wrong(path: &str, cause: impl Into<String>) -> Error {
    Error::new(Errno::Io, path, cause.into())
}

/// A directory has these names and lengths, and nothing else.
fn expect_listed(
    files: &Files,
    dir: &str,
    expected: impl Iterator<Item = (String, u64)>,
) -> Result<()> {
    let listed = files.list(dir)?;
    let mut expected: Vec<_> = expected.collect();
    expected.sort();
    let found = listed.iter().map(|it| (format!("/{}", it.name), it.bytes));
    if found.eq(expected.iter().cloned()) {
        return Ok(());
    }
    let cause = format!(
        "{} names with {} bytes were written, {} with {} bytes are there",
        expected.len(),
        expected.iter().map(|(_, bytes)| bytes).sum::<u64>(),
        listed.len(),
        listed.iter().map(|it| it.bytes).sum::<u64>()
    );
    Err(wrong(dir, cause))
}

fn check_block(
    file: &OpenFile,
    place: u64,
    block: BlockId,
    outcome: &mut JobOutcome,
) -> Result<()> {
    let mut begins = [0; STAMP_BYTES];
    let count = file.read_at(place, &mut begins)?;
    outcome.events += 1;
    if count == STAMP_BYTES && begins == stamp(block) {
        return Ok(());
    }
    let BlockId { rank, step, number } = block;
    let cause = format!("block {number} of rank {rank} in step {step} is not what was written");
    Err(wrong("checkpoint", cause))
}
