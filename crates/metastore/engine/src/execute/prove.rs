//! Verifies that runs of a client match its list: of each, header, index and footer are read.
//!
//! A client waits for it, so two reads are enough for most runs, and several runs are read at a
//! time. Not here: the content of their rows, which every reader checks.

use std::sync::atomic::{AtomicUsize, Ordering};

use metastore::{BLOCK_BYTES_TARGET, DirRun, RunEnds, run_name};
use objstore::Store;
use types::{Errno, Error, Result};

use super::whole;

/// The bytes of an index per block, for usual lengths of names.
const INDEX_BYTES: usize = 48;
const TAIL_BYTES_MIN: usize = 1024;
/// The most bytes per block: a first name of 255 bytes.
const INDEX_BYTES_MAX: usize = 4 + 4 + 1 + 255;
/// The number of runs that is worth a thread on this machine's disk, where their ends are in
/// memory: starting a thread takes as long as reading some of them. And the number where each read
/// is a round trip; and the most threads.
const RUNS_PER_THREAD: usize = 24;
const FAR_RUNS_PER_THREAD: usize = 2;
const THREADS_MAX: usize = 8;

/// Reads the ends of clients' runs, which must match the clients' lists.
pub(super) fn prove_all(store: &dyn Store, runs: &[DirRun]) -> Result<()> {
    let next = AtomicUsize::new(0);
    let prove_some = || -> Result<()> {
        while let Some(run) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
            prove(store, run)?;
        }
        Ok(())
    };
    let is_near = store.lists_what_it_finds();
    let per_thread = if is_near { RUNS_PER_THREAD } else { FAR_RUNS_PER_THREAD };
    let others = (runs.len() / per_thread).min(THREADS_MAX).saturating_sub(1);
    std::thread::scope(|scope| {
        // With fewer threads it only takes longer.
        let spawn = |_| {
            let thread = std::thread::Builder::new().name("prove".to_owned());
            thread.spawn_scoped(scope, prove_some).ok()
        };
        let begun: Vec<_> = (0..others).map_while(spawn).collect();
        let lost = |_| Err(Error::of(Errno::Io, "prove"));
        let done = prove_some();
        begun.into_iter().fold(done, |done, other| done.and(other.join().unwrap_or_else(lost)))
    })
}

fn prove(store: &dyn Store, DirRun { dir, run, .. }: &DirRun) -> Result<()> {
    let dirfrag = whole(*dir);
    let name = run_name(dirfrag, run.id);
    let refuse = |cause: &str| {
        Error::new(Errno::BadMessage, name.clone(), cause).remedy("merge it by value")
    };
    let about = |error: metastore::FormatError| Error::from(error.about(name.clone()));
    let other_length = || refuse("it does not have the length that its client stated");
    let (header, footer) = (RunEnds::HEADER_BYTES, RunEnds::FOOTER_BYTES);
    if run.bytes < (header + footer) as u64 {
        return Err(other_length());
    }
    let body = usize::try_from(run.bytes).map_err(|_| other_length())? - header;
    let guess = body.min((body / BLOCK_BYTES_TARGET) * INDEX_BYTES + TAIL_BYTES_MIN);
    let first = store.read_range(&name, 0, header)?;
    // One byte more than there should be tells its length.
    let mut tail = store.read_range(&name, run.bytes - guess as u64, guess + 1)?;
    if first.len() != header || tail.len() != guess {
        return Err(other_length());
    }
    let length = RunEnds::tail_bytes(run.bytes, &tail[guess - footer..]).map_err(about)?;
    if length > (body / BLOCK_BYTES_TARGET + 2) * INDEX_BYTES_MAX {
        return Err(refuse("its index is larger than those of runs are"));
    }
    if length > guess {
        tail = store.read_range(&name, run.bytes - length as u64, length)?;
    }
    let tail = tail.split_off(tail.len().saturating_sub(length));
    let ends = RunEnds::read(run.bytes, &first, &tail).map_err(about)?;
    let stated = RunEnds { id: run.id, dirfrag, rows: run.rows, removed: run.removed };
    if ends == stated { Ok(()) } else { Err(refuse("it is not the run that its client stated")) }
}
