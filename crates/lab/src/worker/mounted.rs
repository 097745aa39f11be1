//! Mounts, and work in them with ordinary system calls, as of any program.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use cudele::{Errno, Error, Policy, Result, STRIPE_BYTES, WantsExclusive};
use objstore::{Store, SyncScope};
use rustix::fs::{Advice, AtFlags, Mode, OFlags};
use rustix::io::Errno as Sys;
use vfs::{Ending, Vfs, VfsOptions};

use super::dialogue::{Stopwatch, await_start, mount};
use super::{noise, nothing};
use crate::harness::job::{Calls, Job, JobOutcome, Served};
use crate::harness::numbered::Numbered;

/// Bytes that are written or read with one call.
const CALL_BYTES: usize = 1 << 20;
/// The file of the rows about bandwidth.
const LARGE: &str = "large";

fn said(path: &Path) -> impl Fn(Sys) -> Error {
    move |errno| terminal::io(path, &errno.into())
}

/// Mounts, and unmounts at the start signal. The part `merge` is the time after that.
pub(super) fn serve(job: &Job, at: &Path, what: &Served) -> Result<JobOutcome> {
    let root = rustix::process::getuid().is_root();
    let latency_us = matches!(what, Served::Awake).then_some(0);
    let options = ::mount::MountOptions {
        set_id: root,
        devices: root,
        latency_us,
        io_uring: Some(matches!(what, Served::OverIoUring)),
        ..Default::default()
    };
    let ahead = match what {
        Served::Synchronously => WantsExclusive::Never,
        Served::Nothing
        | Served::Namespace
        | Served::Awake
        | Served::OverIoUring
        | Served::Decoupled { .. } => WantsExclusive::Always,
    };
    let settings = VfsOptions { ahead, ..VfsOptions::default() };
    let mut outcome = JobOutcome::default();
    let Served::Decoupled { dir, policy, merge } = what else {
        if matches!(what, Served::Nothing) {
            let session = nothing::mount(at, &options)?;
            await_start()?;
            ::mount::unmount(at, true)?;
            let _ = session.join();
        } else {
            let vfs = Vfs::new(mount(job)?, &cudele::Path::root(), settings)?;
            let mounted = ::mount::mount(Arc::new(vfs), at, "cudele:/", &options)?;
            await_start()?;
            mounted.unmount()?;
        }
        return Ok(outcome);
    };
    let vfs = Vfs::new(mount(job)?, &cudele::Path::root(), settings)?;
    let vfs = Arc::new(vfs);
    let policy = Policy::parse(policy)?.policy;
    let subtree = vfs.decouple(&cudele::Path::parse(dir.as_bytes())?, &policy)?;
    let mounted = ::mount::mount(vfs.clone(), at, "cudele:/", &options)?;
    await_start()?;
    mounted.unmount()?;
    let start = Instant::now();
    let done = vfs.end(subtree, if *merge { Ending::Merge } else { Ending::Discard })?;
    outcome.parts.insert("merge".into(), start.elapsed().as_secs_f64());
    outcome.events = done.events;
    Ok(outcome)
}

/// Works in a directory.
pub(super) fn calls(dir: &Path, work: Calls) -> Result<JobOutcome> {
    match work {
        Calls::Create { files } => create(dir, files),
        Calls::Stat { files, passes } => stat(dir, files, passes),
        Calls::List => list(dir),
        Calls::Write { bytes } => write(dir, bytes),
        Calls::Read { bytes, keep } => read(dir, bytes, keep),
    }
}

fn open_dir(dir: &Path) -> Result<rustix::fd::OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(dir, flags, Mode::empty()).map_err(said(dir))
}

fn create(path: &Path, files: u64) -> Result<JobOutcome> {
    let dir = open_dir(path)?;
    let mut names = Numbered::new(0, files);
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    await_start()?;
    let mut outcome = JobOutcome { events: files, ..JobOutcome::default() };
    let watch = Stopwatch::start();
    for _ in 0..files {
        let made = rustix::fs::openat(&dir, names.name(), flags, Mode::from_raw_mode(0o644));
        drop(made.map_err(said(path))?);
        names.advance();
    }
    watch.stop(&mut outcome);
    Ok(outcome)
}

fn stat(path: &Path, files: u64, passes: u64) -> Result<JobOutcome> {
    let dir = open_dir(path)?;
    let pass = || {
        let mut names = Numbered::new(0, files);
        for _ in 0..files {
            let stat = rustix::fs::statat(&dir, names.name(), AtFlags::empty());
            stat.map_err(said(path))?;
            names.advance();
        }
        Ok::<_, Error>(())
    };
    pass()?;
    await_start()?;
    let mut outcome = JobOutcome { events: files * passes, ..JobOutcome::default() };
    let watch = Stopwatch::start();
    for _ in 0..passes {
        pass()?;
    }
    watch.stop(&mut outcome);
    Ok(outcome)
}

fn list(path: &Path) -> Result<JobOutcome> {
    await_start()?;
    let mut outcome = JobOutcome::default();
    let watch = Stopwatch::start();
    outcome.events = entries(path)?;
    watch.stop(&mut outcome);
    let start = Instant::now();
    entries(path)?;
    outcome.parts.insert("again".into(), start.elapsed().as_secs_f64());
    Ok(outcome)
}

fn entries(path: &Path) -> Result<u64> {
    let mut count = 0;
    for entry in rustix::fs::Dir::new(open_dir(path)?).map_err(said(path))? {
        let entry = entry.map_err(said(path))?;
        count += u64::from(!matches!(entry.file_name().to_bytes(), b"." | b".."));
    }
    Ok(count)
}

/// The calls that cover so many bytes: where each begins, and its length.
fn pieces(bytes: u64) -> impl Iterator<Item = (u64, usize)> {
    let call = CALL_BYTES as u64;
    (0..bytes.div_ceil(call)).map(move |number| {
        let length = (bytes - number * call).min(call);
        (number * call, usize::try_from(length).unwrap_or(CALL_BYTES))
    })
}

fn write(dir: &Path, bytes: u64) -> Result<JobOutcome> {
    let path = dir.join(LARGE);
    let about = |error| terminal::io(&path, &error);
    let block = noise::block(CALL_BYTES);
    await_start()?;
    let mut outcome = JobOutcome { bytes, ..JobOutcome::default() };
    let watch = Stopwatch::start();
    let mut file = File::create(&path).map_err(about)?;
    for (_, length) in pieces(bytes) {
        file.write_all(&block[..length]).map_err(about)?;
    }
    watch.stop(&mut outcome);
    let start = Instant::now();
    file.sync_all().map_err(about)?;
    outcome.parts.insert("sync".into(), start.elapsed().as_secs_f64());
    Ok(outcome)
}

fn read(dir: &Path, bytes: u64, keep: bool) -> Result<JobOutcome> {
    let path = dir.join(LARGE);
    let about = |error| terminal::io(&path, &error);
    let mut file = File::open(&path).map_err(about)?;
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).map_err(said(&path))?;
    let mut buffer = vec![0; CALL_BYTES];
    let mut outcome = JobOutcome::default();
    await_start()?;
    let watch = Stopwatch::start();
    loop {
        let count = file.read(&mut buffer).map_err(about)?;
        if count == 0 {
            break;
        }
        outcome.bytes += count as u64;
    }
    watch.stop(&mut outcome);
    if outcome.bytes != bytes {
        let cause = format!("{} bytes of {bytes} could be read", outcome.bytes);
        return Err(Error::new(Errno::Io, path.display().to_string(), cause));
    }
    drop(file);
    if !keep {
        std::fs::remove_file(&path).map_err(about)?;
    }
    Ok(outcome)
}

/// The same bytes in the object store itself, in objects as large as those of a file.
pub(super) fn store(url: &str, bytes: u64, writes: bool, keep: bool) -> Result<JobOutcome> {
    let store: Arc<dyn Store> = objstore::open_existing(url)?;
    let object = |offset: u64| format!("bench/{}", offset / STRIPE_BYTES);
    let objects = || (0..bytes).step_by(usize::try_from(STRIPE_BYTES).unwrap_or(usize::MAX));
    let block = noise::block(CALL_BYTES);
    await_start()?;
    let mut outcome = JobOutcome::default();
    let watch = Stopwatch::start();
    for (offset, length) in pieces(bytes) {
        let at = offset % STRIPE_BYTES;
        if writes {
            store.write_range(&object(offset), at, &block[..length])?;
            outcome.bytes += length as u64;
        } else {
            outcome.bytes += store.read_range(&object(offset), at, length)?.len() as u64;
        }
    }
    watch.stop(&mut outcome);
    if writes {
        let start = Instant::now();
        objects().try_for_each(|offset| store.sync(SyncScope::Object(&object(offset))))?;
        outcome.parts.insert("sync".into(), start.elapsed().as_secs_f64());
    } else if !keep {
        objects().try_for_each(|offset| store.delete(&object(offset)).map(|_| ()))?;
    }
    Ok(outcome)
}

/// Runs a program.
pub(super) fn program(arguments: &[OsString]) -> Result<JobOutcome> {
    let Some((program, rest)) = arguments.split_first() else { return Ok(JobOutcome::default()) };
    let path = Path::new(program);
    await_start()?;
    let mut outcome = JobOutcome::default();
    let watch = Stopwatch::start();
    let done = Command::new(program).args(rest).stdin(Stdio::null()).output();
    watch.stop(&mut outcome);
    let done = done.map_err(|error| terminal::io(path, &error))?;
    if done.status.success() {
        return Ok(outcome);
    }
    let said = String::from_utf8_lossy(&done.stderr);
    let said = said.lines().take(3).collect::<Vec<_>>().join("; ");
    Err(Error::new(Errno::Io, path.display().to_string(), format!("{}: {said}", done.status)))
}
