//! Work in a decoupled subtree, through the public client library.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use cudele::{
    Completion, Errno, Error, FileType, Fs, Ino, NewFile, Policy, Result, Subtree, Timestamp,
};

use super::dialogue::{Stopwatch, await_end, await_start, await_start_time, sleep_until};
use crate::harness::clock::clock_ns;
use crate::harness::clock::cpu_ns;
use crate::harness::job::{Decoupled, JobOutcome};
use crate::harness::numbered::Numbered;

fn decouple(fs: &Arc<Fs>, dir: &str, policy: &str) -> Result<Subtree> {
    fs.decouple(dir, &Policy::parse(policy)?.policy)
}

/// Appends creates to the client's journal and completes the policy's mechanisms.
pub(super) fn append(fs: &Arc<Fs>, task: &Decoupled) -> Result<JobOutcome> {
    let mut subtree = decouple(fs, &task.dir, &task.policy)?;
    let mut outcome = JobOutcome::default();
    if task.append_first {
        append_names(&mut subtree, task, &mut outcome)?;
    }
    await_start()?;
    sleep_until(clock_ns().saturating_add(task.after_ns));
    let watch = Stopwatch::start();
    if !task.append_first {
        append_names(&mut subtree, task, &mut outcome)?;
    }
    let requests = fs.requests();
    let completion = if task.merge { subtree.merge()? } else { subtree.complete()? };
    watch.stop(&mut outcome);
    outcome.requests += fs.requests() - requests;
    note(&completion, &mut outcome);
    Ok(outcome)
}

fn append_names(subtree: &mut Subtree, task: &Decoupled, outcome: &mut JobOutcome) -> Result<()> {
    let mut names = Numbered::new(task.first, task.files);
    let root = subtree.root();
    let new = NewFile::default();
    let requests = subtree.fs().requests();
    let (start, cpu) = (Instant::now(), cpu_ns());
    for _ in 0..task.files {
        subtree.create(root, names.name(), &new)?;
        names.advance();
    }
    outcome.parts.insert("append_client_journal".into(), start.elapsed().as_secs_f64());
    let cpu = crate::harness::stats::seconds_between(cpu, cpu_ns());
    outcome.parts.insert("append_cpu".into(), cpu);
    outcome.requests = subtree.fs().requests() - requests;
    Ok(())
}

/// Creates between two looks at the clock, which cost as much as one create.
const CREATES_PER_LOOK: u64 = 512;
/// A client that is faster than expected stops here, so that its journal fits into memory.
const EVENTS_MAX: u64 = 400_000_000;

/// Appends creates for as long as the window lasts, and gives the subtree up.
pub(super) fn append_for(
    fs: &Arc<Fs>,
    dir: &str,
    policy: &str,
    window_ns: u64,
) -> Result<JobOutcome> {
    let mut subtree = decouple(fs, dir, policy)?;
    let mut names = Numbered::new(0, EVENTS_MAX);
    let root = subtree.root();
    let new = NewFile::default();
    let start_ns = await_start_time()?;
    sleep_until(start_ns);
    let end_ns = start_ns.saturating_add(window_ns);
    let requests = fs.requests();
    let mut outcome = JobOutcome::default();
    let watch = Stopwatch::start();
    while outcome.events < EVENTS_MAX && clock_ns() < end_ns {
        for _ in 0..CREATES_PER_LOOK {
            subtree.create(root, names.name(), &new)?;
            names.advance();
        }
        outcome.events += CREATES_PER_LOOK;
    }
    watch.stop(&mut outcome);
    outcome.requests = fs.requests() - requests;
    outcome.bytes = subtree.pending_bytes();
    // The subtree stays this client's until the rest have ended.
    await_end()?;
    subtree.discard()?;
    Ok(outcome)
}

pub(super) fn note(completion: &Completion, outcome: &mut JobOutcome) {
    outcome.events = completion.events;
    outcome.bytes = completion.bytes;
    for step in &completion.steps {
        outcome.parts.insert(step.mechanism.name().to_owned(), step.seconds);
    }
    outcome.parts.insert("by_reference".into(), completion.merged_by.seconds);
    let runs = crate::harness::stats::real(completion.merged_by.runs);
    outcome.parts.insert("runs".into(), runs);
    if let Some(report) = &completion.merge {
        let seconds = |nanos| crate::harness::stats::real(nanos) / 1e9;
        outcome.parts.insert("verify".into(), seconds(report.verify_nanos));
        outcome.parts.insert("apply".into(), seconds(report.apply_nanos));
    }
}

/// Appends real names with their attributes: the entries of a directory tree, up to `limit`.
pub(super) fn walk(
    fs: &Arc<Fs>,
    dir: &str,
    policy: &str,
    source: &Path,
    limit: u64,
) -> Result<JobOutcome> {
    let mut subtree = decouple(fs, dir, policy)?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let walked = walkdir::WalkDir::new(source).min_depth(1).sort_by_file_name();
    // The tree is read before the start: its disk is not measured.
    let found = walked.into_iter().filter_map(std::result::Result::ok).take(limit);
    let entries: Vec<_> = found.filter_map(|entry| Entry::read(&entry)).collect();
    if entries.is_empty() {
        return Err(Error::of(Errno::NotFound, source.display().to_string()));
    }
    await_start()?;
    let mut outcome = JobOutcome::default();
    let watch = Stopwatch::start();
    // The directories that lead to the current entry.
    let mut above: Vec<(PathBuf, Ino)> = vec![(source.to_owned(), subtree.root())];
    for entry in &entries {
        while above.len() > 1 && !entry.path.starts_with(&above[above.len() - 1].0) {
            above.pop();
        }
        let parent = above.last().map_or_else(|| subtree.root(), |(_, ino)| *ino);
        let name = entry.path.file_name().unwrap_or_default().as_bytes();
        let ino = subtree.create(parent, name, &entry.new_file())?;
        if entry.file_type == FileType::Directory {
            above.push((entry.path.clone(), ino));
        }
    }
    watch.stop(&mut outcome);
    note(&subtree.complete()?, &mut outcome);
    Ok(outcome)
}

struct Entry {
    path: PathBuf,
    file_type: FileType,
    meta: std::fs::Metadata,
    target: Vec<u8>,
}

impl Entry {
    fn read(entry: &walkdir::DirEntry) -> Option<Self> {
        let meta = entry.metadata().ok()?;
        let kind = meta.file_type();
        let file_type = if kind.is_dir() {
            FileType::Directory
        } else if kind.is_symlink() {
            FileType::Symlink
        } else if kind.is_fifo() {
            FileType::Fifo
        } else {
            FileType::Regular
        };
        let target = std::fs::read_link(entry.path()).unwrap_or_default();
        let target = target.as_os_str().as_bytes().to_vec();
        Some(Self { path: entry.path().to_owned(), file_type, meta, target })
    }

    fn new_file(&self) -> NewFile<'_> {
        let mtime = Timestamp::from_parts(self.meta.mtime(), self.meta.mtime_nsec());
        NewFile {
            file_type: self.file_type,
            permissions: self.meta.mode() & 0o7777,
            owner: Some((self.meta.uid(), self.meta.gid())),
            size: if self.file_type == FileType::Directory { 0 } else { self.meta.size() },
            mtime: Some(mtime),
            data: &self.target,
            ..NewFile::default()
        }
    }
}

/// Lists a directory in a decoupled client's view: first materialised, then from memory.
pub(super) fn view(fs: &Arc<Fs>, dir: &str, policy: &str) -> Result<JobOutcome> {
    let mut subtree = decouple(fs, dir, policy)?;
    let root = subtree.root();
    await_start()?;
    let requests = fs.requests();
    let mut outcome = JobOutcome::default();
    let watch = Stopwatch::start();
    outcome.events = subtree.list(root)?.len() as u64;
    watch.stop(&mut outcome);
    outcome.requests = fs.requests() - requests;
    let start = Instant::now();
    subtree.list(root)?;
    outcome.parts.insert("again".into(), start.elapsed().as_secs_f64());
    subtree.discard()?;
    Ok(outcome)
}
