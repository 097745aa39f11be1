//! Nonvolatile Apply as it was published, for comparison only (M-05, X-20): for every event of the
//! journal the objects that it may affect, the directory and the root, are pulled, updated and
//! pushed. Ours reads and writes each directory once.

use std::path::Path;

use cudele::{Error, Ino, Result, Timestamp};
use engine::execute;
use journal::{Create, Event};
use metastore::Rows;
use metastore::request::{LoadedDir, StoreOp, StoreResult};
use namespace::{Mode, Namespace};
use objstore::DirStore;
use types::Seq;

use super::dialogue::{Stopwatch, await_start};
use crate::harness::job::JobOutcome;
use crate::harness::numbered::Numbered;

const JOB: Ino = Ino(Ino::FIRST_FREE);

/// Applies creates to a store of its own, event by event.
pub(super) fn apply(place: &Path, files: u64) -> Result<JobOutcome> {
    let store = DirStore::open(place, true)?;
    let mut first = Namespace::with_root(Timestamp(1));
    let mode = cudele::FileType::Directory.mode_bits() | 0o755;
    let directory = Create { parent: Ino::ROOT, name: b"job", ino: JOB, mode, ..Create::default() };
    first.apply(Seq(1), Mode::Live, &Event::Create(directory));
    for dir in [Ino::ANCHOR, Ino::ROOT, JOB] {
        push(&store, &mut first, dir, Seq(1))?;
    }
    let mut names = Numbered::new(0, files);
    await_start()?;
    let mut outcome = JobOutcome { events: files, ..JobOutcome::default() };
    let watch = Stopwatch::start();
    for number in 0..files {
        let seq = Seq(2 + number);
        let mut namespace = Namespace::new();
        for dir in [Ino::ANCHOR, Ino::ROOT, JOB] {
            pull(&store, &mut namespace, dir)?;
        }
        let (ino, mode) = (Ino(JOB.0 + 1 + number), 0o100_644);
        let create = Create { parent: JOB, name: names.name(), ino, mode, ..Create::default() };
        namespace.apply(seq, Mode::Merge, &Event::Create(create));
        for dir in [JOB, Ino::ROOT] {
            namespace.store().mark_all_dirty(dir, seq);
            push(&store, &mut namespace, dir, seq)?;
        }
        names.advance();
    }
    watch.stop(&mut outcome);
    Ok(outcome)
}

fn pull(store: &DirStore, namespace: &mut Namespace, ino: Ino) -> Result<()> {
    let loaded = execute(store, StoreOp::LoadDir { ino }).map_err(|failure| failure.error)?;
    if let StoreResult::Dir(loaded) = loaded {
        let LoadedDir { manifest, rows } = *loaded;
        namespace.store().load(ino, rows.iter());
        namespace.store().finish_load(ino, manifest.position, manifest.touched);
    }
    Ok(())
}

fn push(store: &DirStore, namespace: &mut Namespace, ino: Ino, position: Seq) -> Result<()> {
    let missing = || Error::of(cudele::Errno::NotFound, "a directory that was just made");
    let mut capture = namespace.store().begin_capture(ino).ok_or_else(missing)?;
    let mut rows = Rows::new();
    while !namespace.store().capture(&mut capture, &mut rows, usize::MAX / 2) {}
    let (counts, touched) = (namespace.dirs().counts(ino), namespace.dirs().unstored_change(ino));
    let op = StoreOp::CommitDir { ino, rows, counts, position, touched, attach: None };
    execute(store, op).map_err(|failure| failure.error)?;
    namespace.store().end_capture(ino);
    Ok(())
}
