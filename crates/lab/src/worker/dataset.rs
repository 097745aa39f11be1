//! A data set of many small files: made once, then read in random order, as the training of a model
//! does.
//!
//! Invariant: every file that is read is compared with its written content.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use cudele::{Dir, Errno, Error, Fs, INLINE_BYTES, Ino, NewFile, Policy, Result, Subtree};

use super::dialogue::{Stopwatch, await_start, mount};
use super::noise;
use crate::harness::files::{At, read_local};
use crate::harness::job::{Dataset, Job, JobOutcome, Reading};
use crate::harness::numbered::Shuffled;

/// Files of a directory.
const FILES_PER_DIRECTORY: u64 = 1000;
/// The lengths go from the first to the last, and are the same every time.
const BYTES_MIN: u64 = 256;
const BYTES_MAX: u64 = 8192;

fn directories(files: u64) -> u64 {
    files.div_ceil(FILES_PER_DIRECTORY)
}

fn directory(number: u64) -> String {
    format!("class.{number:05}")
}

fn name(number: u64) -> String {
    format!("sample.{number:08}")
}

/// The content of a file.
fn content(number: u64, buffer: &mut Vec<u8>) {
    let state = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let length = BYTES_MIN + (state >> 32) % (BYTES_MAX - BYTES_MIN);
    let length = usize::try_from(length).unwrap_or(0);
    buffer.clear();
    noise::fill(buffer, length, state);
}

/// Makes the data set.
pub(super) fn make(job: &Job, task: &Dataset) -> Result<JobOutcome> {
    let mut outcome = JobOutcome { events: task.files, ..JobOutcome::default() };
    let mut buffer = Vec::new();
    let mut subtree = match (&task.at, &task.policy) {
        (At::Namespace, Some(policy)) => {
            Some(mount(job)?.decouple(&task.dir, &Policy::parse(policy)?.policy)?)
        }
        _ => None,
    };
    await_start()?;
    let watch = Stopwatch::start();
    let mut dir = Ino::default();
    for number in 0..task.files {
        content(number, &mut buffer);
        outcome.bytes += buffer.len() as u64;
        let above = directory(number / FILES_PER_DIRECTORY);
        let first = number.is_multiple_of(FILES_PER_DIRECTORY);
        if let Some(subtree) = &mut subtree {
            if first {
                dir = subtree.create(subtree.root(), above.as_bytes(), &NewFile::directory())?;
            }
            let (name, new) = (name(number), NewFile::default());
            subtree.create_file(dir, name.as_bytes(), &new, &mut &buffer[..])?;
        } else if let At::Below(root) = &task.at {
            let above = root.join(above);
            let about = |error| terminal::io(&above, &error);
            if first {
                std::fs::create_dir(&above).map_err(about)?;
            }
            std::fs::write(above.join(name(number)), &buffer).map_err(about)?;
        }
    }
    if let Some(mut subtree) = subtree {
        subtree.merge()?;
        subtree.forget()?;
    }
    watch.stop(&mut outcome);
    Ok(outcome)
}

/// Where files are read from.
enum Reader {
    /// By requests, to the servers of the namespace; directories stay open.
    Requests { fs: Arc<Fs>, dirs: Vec<Option<Dir>> },
    /// In a view of the subtree that this client has for itself.
    View { subtree: Box<Subtree>, dirs: Vec<Ino> },
    /// From a file system of this machine.
    Local(std::path::PathBuf),
}

/// Reads this client's share of the files in random order, so many times.
pub(super) fn read(job: &Job, task: &Dataset) -> Result<JobOutcome> {
    let count = usize::try_from(directories(task.files)).unwrap_or(0);
    let fs = if task.at == At::Namespace { Some(mount(job)?) } else { None };
    await_start()?;
    let mut outcome = JobOutcome::default();
    let watch = Stopwatch::start();
    let start = Instant::now();
    let mut reader = match (&task.at, fs.clone()) {
        (At::Below(dir), _) => Reader::Local(dir.clone()),
        (At::Namespace, None) => return Err(Error::of(Errno::Io, task.dir.as_str())),
        (At::Namespace, Some(fs)) => match (&task.reading, &task.policy) {
            (Reading::View, Some(policy)) => {
                let mut subtree = fs.decouple(&task.dir, &Policy::parse(policy)?.policy)?;
                subtree.materialise()?;
                Reader::View { subtree: Box::new(subtree), dirs: vec![Ino(0); count] }
            }
            _ => Reader::Requests { fs, dirs: vec![None; count] },
        },
    };
    outcome.parts.insert("opened".into(), start.elapsed().as_secs_f64());
    let requests = || fs.as_ref().map_or(0, |fs| fs.requests());
    let (order, asked) = (Shuffled::new(task.files), requests());
    let (mut expected, mut found) = (Vec::new(), Vec::new());
    for pass in ["first", "again"] {
        let start = Instant::now();
        let mut place = task.reader;
        while place < task.files {
            let number = order.at(place);
            reader.read(task, number, &mut found)?;
            content(number, &mut expected);
            if found != expected {
                let cause = format!("file {number} is not what was written");
                return Err(Error::new(Errno::Io, task.dir.as_str(), cause));
            }
            outcome.bytes += found.len() as u64;
            outcome.events += 1;
            place += task.readers;
        }
        outcome.parts.insert(pass.into(), start.elapsed().as_secs_f64());
    }
    watch.stop(&mut outcome);
    outcome.requests = requests() - asked;
    reader.end()?;
    Ok(outcome)
}

impl Reader {
    fn read(&mut self, task: &Dataset, number: u64, found: &mut Vec<u8>) -> Result<()> {
        let above = number / FILES_PER_DIRECTORY;
        let at = usize::try_from(above).unwrap_or(0);
        found.clear();
        match self {
            Self::Local(root) => read_local(
                Path::new(root).join(directory(above)).join(name(number)).as_path(),
                found,
            ),
            Self::Requests { fs, dirs } => {
                if dirs[at].is_none() {
                    dirs[at] = Some(fs.open_dir(format!("{}/{}", task.dir, directory(above)))?);
                }
                let Some(dir) = &dirs[at] else { return Ok(()) };
                let attr = dir.lookup(name(number))?;
                fs.read_file(&attr, &mut |piece| {
                    found.extend_from_slice(piece);
                    Ok(())
                })
            }
            Self::View { subtree, dirs } => {
                if dirs[at] == Ino(0) {
                    let root = subtree.root();
                    dirs[at] = subtree.lookup(root, directory(above).as_bytes())?.ino;
                }
                let attr = subtree.lookup(dirs[at], name(number).as_bytes())?;
                // Small contents came with the metadata.
                if attr.size <= u64::from(INLINE_BYTES) {
                    found.extend_from_slice(&subtree.data(attr.ino)?);
                    return Ok(());
                }
                let length = usize::try_from(attr.size).unwrap_or(0);
                found.extend_from_slice(&subtree.fs().read_at(attr.striped(), 0, length)?);
                Ok(())
            }
        }
    }

    fn end(self) -> Result<()> {
        match self {
            Self::View { subtree, .. } => subtree.discard(),
            Self::Requests { .. } | Self::Local(_) => Ok(()),
        }
    }
}
