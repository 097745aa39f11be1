//! Creates in random order, in some directories of a decoupled subtree; and single questions about
//! them.

use std::sync::Arc;
use std::time::Instant;

use cudele::{Dir, FileType, Fs, Ino, NewFile, Policy, Result};

use super::decoupled;
use super::dialogue::{Stopwatch, await_start, disk_bytes};
use crate::harness::clock::clock_ns;
use crate::harness::job::{Entries, Insert, JobOutcome};
use crate::harness::numbered::Shuffled;
use crate::harness::numbered::{content_bytes, directory_name};
use crate::harness::stats::{real, seconds_between};

/// Creates the directories and the files, merges them batch by batch, gives the subtree up, and
/// waits until the metadata store has everything.
pub(super) fn insert(fs: &Arc<Fs>, task: &Insert) -> Result<JobOutcome> {
    let mut subtree = fs.decouple(&task.dir, &Policy::parse(&task.policy)?.policy)?;
    let mut names = Shuffled::new(task.entries.files);
    let (new, root) = (NewFile::default(), subtree.root());
    let content = vec![0x5a; task.content.map_or(0, |[_, most]| most as usize)];
    let directory = NewFile { file_type: FileType::Directory, ..NewFile::default() };
    await_start()?;
    let mut outcome = JobOutcome::default();
    let (mut events, mut bytes, mut inserted) = (0, 0, 0);
    let written = disk_bytes();
    let watch = Stopwatch::start();
    let made = (0..task.entries.directories)
        .map(|number| subtree.create(root, directory_name(number).as_bytes(), &directory));
    let directories: Vec<Ino> = made.collect::<Result<_>>()?;
    for place in 0..task.entries.files {
        let number = names.at(place);
        let within = usize::try_from(number % task.entries.directories).unwrap_or(0);
        let length = task.content.map_or(0, |range| content_bytes(number, range));
        let new = NewFile { size: length as u64, data: &content[..length], ..new };
        let name = names.name(number);
        inserted += name.len() + length;
        subtree.create(directories[within], name, &new)?;
        if task.batch > 0 && (place + 1).is_multiple_of(task.batch) {
            let done = subtree.complete()?;
            (events, bytes) = (events + done.events, bytes + done.bytes);
        }
    }
    let created = clock_ns();
    let done = subtree.merge()?;
    fs.checkpoint()?;
    watch.stop(&mut outcome);
    decoupled::note(&done, &mut outcome);
    (outcome.events, outcome.bytes) = (outcome.events + events, outcome.bytes + bytes);
    outcome.parts.insert("until_last".into(), seconds_between(outcome.start_ns, created));
    outcome.parts.insert("disk_bytes".into(), real(disk_bytes() - written));
    outcome.parts.insert("inserted_bytes".into(), real(inserted as u64));
    Ok(outcome)
}

/// Looks existing files up, or creates new ones, by one request each.
pub(super) fn find(
    fs: &Arc<Fs>,
    dir: &str,
    entries: Entries,
    count: u64,
    create: bool,
) -> Result<JobOutcome> {
    let path = |number| format!("{dir}/{}", directory_name(number));
    let open = |number| fs.open_dir(path(number));
    let directories: Vec<Dir> = (0..entries.directories).map(open).collect::<Result<_>>()?;
    // Another order than that in which they were made.
    let mut names = Shuffled::new(entries.files);
    let step = (entries.files / count.max(1)).max(1);
    let new = NewFile::default();
    let mut micros = Vec::with_capacity(usize::try_from(count).unwrap_or(0));
    await_start()?;
    let requests = fs.requests();
    let mut outcome = JobOutcome { events: count, ..JobOutcome::default() };
    let watch = Stopwatch::start();
    for place in 0..count {
        let number = names.at((place * step + place % step) % entries.files);
        let within = usize::try_from(number % entries.directories).unwrap_or(0);
        let before = Instant::now();
        if create {
            let name = [b"another.", names.name(number)].concat();
            directories[within].create(name, &new)?;
        } else {
            directories[within].lookup(names.name(number))?;
        }
        let tenths = before.elapsed().as_nanos() / 100;
        micros.push(u32::try_from(tenths).unwrap_or(u32::MAX));
    }
    watch.stop(&mut outcome);
    outcome.requests = fs.requests() - requests;
    outcome.latencies_us = Some(super::dialogue::latencies_us(micros));
    Ok(outcome)
}
