//! A job that creates files and computes, with merges during its work.

use std::sync::Arc;
use std::time::Duration;

use cudele::{Fs, NewFile, Policy, Result};

use super::dialogue::{Stopwatch, await_start};
use crate::harness::clock::clock_ns;
use crate::harness::job::{JobOutcome, Synced};
use crate::harness::numbered::Numbered;
use crate::harness::stats::{real, seconds_between};

/// Creates files, each followed by the same piece of work, and merges the rest at the end, which is
/// not part of the time.
pub(super) fn synced(fs: &Arc<Fs>, task: &Synced) -> Result<JobOutcome> {
    let mut subtree = fs.decouple(&task.dir, &Policy::parse(&task.policy)?.policy)?;
    if task.every_ns > 0 {
        subtree.sync_every(Duration::from_nanos(task.every_ns))?;
    }
    let (root, new) = (subtree.root(), NewFile::default());
    let mut names = Numbered::new(0, task.files);
    let work = vec![7_u8; task.work_bytes];
    await_start()?;
    let mut outcome = JobOutcome::default();
    let (mut longest, mut sum) = (0, 0_u32);
    let watch = Stopwatch::start();
    for _ in 0..task.files {
        let before = clock_ns();
        subtree.create(root, names.name(), &new)?;
        longest = longest.max(clock_ns() - before);
        names.advance();
        sum ^= std::hint::black_box(journal::checksum(std::hint::black_box(&work)));
    }
    watch.stop(&mut outcome);
    std::hint::black_box(sum);
    outcome.parts.insert("longest".into(), seconds_between(0, longest));
    let start = clock_ns();
    let done = subtree.merge()?;
    outcome.parts.insert("final_merge".into(), seconds_between(start, clock_ns()));
    outcome.parts.insert("syncs".into(), real(done.syncs));
    let report = done.merge.unwrap_or_default();
    // A file that was created twice would have replaced itself.
    outcome.events = report.created - report.replaced;
    outcome.bytes = done.bytes;
    Ok(outcome)
}
