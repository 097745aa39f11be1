//! The clients of the incident `client-power-cut`: one works in a decoupled subtree and notes how
//! many names are durable on its machine, and the next one on the machine merges its work.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use cudele::{Errno, Error, Fs, NewFile, Path, Policy, Result, StateDir};

use super::dialogue::await_start;
use crate::harness::job::JobOutcome;
use crate::harness::soak::{SoakJob, soak_name};

/// Durable on the disk of the machine, and weakly consistent.
const POLICY: &str = "weak-local";
/// Names between two times that the client makes its work durable.
const PERSIST_EVERY: u64 = 50;
/// The client rests when it has so many.
const NAMES_MAX: u64 = 50_000;

fn only_dir(job: &SoakJob) -> Result<&str> {
    let none = || Error::new(Errno::Invalid, "soak", "the client works in one directory");
    job.dirs.first().map(String::as_str).ok_or_else(none)
}

/// Creates, and makes durable, until the parent ends this process. Each line of the record is a
/// number of names that are durable.
pub(super) fn work(fs: &Arc<Fs>, job: &SoakJob) -> Result<JobOutcome> {
    let failed = |error: std::io::Error| terminal::io(&job.record, &error);
    let mut record = File::create(&job.record).map_err(failed)?;
    let policy = Policy::from_name_or_text(POLICY)?.policy;
    let mut subtree = fs.decouple(only_dir(job)?, &policy)?;
    let root = subtree.root();
    await_start()?;
    for number in 0..NAMES_MAX {
        subtree.create(root, soak_name(job.number, number).as_bytes(), &NewFile::default())?;
        let names = number + 1;
        if names.is_multiple_of(PERSIST_EVERY) {
            subtree.persist()?;
            writeln!(record, "{names}").map_err(failed)?;
        }
    }
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Merges what an earlier client of this machine left, and gives the subtree back.
pub(super) fn resume(fs: &Arc<Fs>, job: &SoakJob) -> Result<JobOutcome> {
    let dir = only_dir(job)?;
    let path = Path::parse(dir).map_err(|_| Error::new(Errno::Invalid, dir, "it is no path"))?;
    let lost = || Error::new(Errno::NotFound, dir, "the disk has no note of the subtree");
    let owner = StateDir::owner_at(fs.cluster_id(), &path)?.ok_or_else(lost)?;
    await_start()?;
    let mut subtree = fs.cluster().mount_as(owner.client())?.attach(dir)?;
    subtree.merge()?;
    subtree.forget()?;
    Ok(JobOutcome::default())
}
