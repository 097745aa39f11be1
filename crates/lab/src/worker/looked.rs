//! Clients that look a name up before they create it, as `open(O_CREAT)` on a mount does, and
//! clients that only look.
//!
//! Invariant: every answer of a lookup is checked, so that a wrong answer from a cache fails the
//! experiment.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cudele::{Dir, Errno, Error, Fs, NewFile, Result};

use super::dialogue::{Stopwatch, await_end, await_middle, await_start, pipe};
use crate::harness::job::JobOutcome;
use crate::harness::numbered::Numbered;

/// Names that are enough for a client that does not know how many it needs.
const NAMES: u64 = 1_000_000_000;

/// A directory in which names are looked up and made.
pub(super) trait Place {
    /// Whether there is such a name.
    fn has(&self, name: &[u8]) -> Result<bool>;
    fn create(&self, name: &[u8]) -> Result<()>;
    /// Requests to the server so far, if this client counts them.
    fn requests(&self) -> u64;
}

/// A directory of ours, and its client.
pub(super) struct Ours(Arc<Fs>, Dir);

impl Place for Ours {
    fn has(&self, name: &[u8]) -> Result<bool> {
        match self.1.lookup(name) {
            Ok(_) => Ok(true),
            Err(error) if error.errno == Errno::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn create(&self, name: &[u8]) -> Result<()> {
        self.1.create(name, &NewFile::default()).map(drop)
    }

    fn requests(&self) -> u64 {
        self.0.requests()
    }
}

/// A directory of ours. Only a client that receives revocations may cache anything of it.
pub(super) fn ours(fs: Arc<Fs>, path: &str, hears: bool) -> Result<Ours> {
    if hears {
        fs.listen(|_| {})?;
    }
    let dir = fs.open_dir(path)?;
    Ok(Ours(fs, dir))
}

/// Creates files, half of them before and half behind the middle. The parts are `before` and
/// `after`, and for the requests to the server `requests_before` and `requests_after`.
pub(super) fn create(dir: &impl Place, first: u64, files: u64) -> Result<JobOutcome> {
    let mut names = Numbered::new(first, files);
    let mut outcome = JobOutcome { events: files, ..JobOutcome::default() };
    let before = files / 2;
    await_start()?;
    let watch = Stopwatch::start();
    half(dir, &mut names, before, "before", &mut outcome)?;
    await_middle()?;
    half(dir, &mut names, files - before, "after", &mut outcome)?;
    watch.stop(&mut outcome);
    Ok(outcome)
}

fn half(
    dir: &impl Place,
    names: &mut Numbered,
    files: u64,
    part: &str,
    outcome: &mut JobOutcome,
) -> Result<()> {
    let asked = dir.requests();
    let watch = Stopwatch::start();
    for _ in 0..files {
        if dir.has(names.name())? {
            return Err(pipe("a name was there before it was created"));
        }
        dir.create(names.name())?;
        names.advance();
    }
    let mut measured = JobOutcome::default();
    watch.stop(&mut measured);
    let asked = dir.requests() - asked;
    outcome.requests += asked;
    outcome.parts.insert(part.into(), measured.seconds());
    outcome.parts.insert(format!("requests_{part}"), crate::harness::stats::real(asked));
    Ok(())
}

/// Creates files in another client's directory from the start until the parent reports the end of
/// the rest.
pub(super) fn intrude(dir: &impl Place, first: u64) -> Result<JobOutcome> {
    let mut names = Numbered::new(first, NAMES);
    let ended = Arc::new(AtomicBool::new(false));
    await_start()?;
    let requests = dir.requests();
    let mut outcome = JobOutcome::default();
    let watch = Stopwatch::start();
    dir.create(names.name())?;
    names.advance();
    outcome.events += 1;
    // The other client continues when this one is known to be at work.
    super::dialogue::say(crate::harness::job::MIDDLE)?;
    let waiting = std::thread::spawn({
        let ended = ended.clone();
        move || {
            let result = await_end();
            ended.store(true, Ordering::Relaxed);
            result
        }
    });
    while !ended.load(Ordering::Relaxed) {
        dir.create(names.name())?;
        names.advance();
        outcome.events += 1;
    }
    watch.stop(&mut outcome);
    outcome.requests = dir.requests() - requests;
    waiting.join().map_err(|_| pipe("the thread that waits for the end died"))??;
    Ok(outcome)
}

/// Looks files up that this client created: each so many times, in turn.
pub(super) fn stat(
    fs: &Arc<Fs>,
    path: &str,
    files: u64,
    passes: u64,
    remember: bool,
) -> Result<JobOutcome> {
    if remember {
        fs.listen(|_| {})?;
    }
    let dir = fs.open_dir(path)?;
    let mut names = Numbered::new(0, files);
    let mut made = Vec::new();
    for _ in 0..files {
        made.push(dir.create(names.name(), &NewFile::default())?.ino);
        names.advance();
    }
    look(&dir, &made)?;
    await_start()?;
    let requests = fs.requests();
    let mut outcome = JobOutcome { events: files * passes, ..JobOutcome::default() };
    let watch = Stopwatch::start();
    for _ in 0..passes {
        look(&dir, &made)?;
    }
    watch.stop(&mut outcome);
    outcome.requests = fs.requests() - requests;
    Ok(outcome)
}

/// Looks all of them up once.
fn look(dir: &Dir, made: &[cudele::Ino]) -> Result<()> {
    let mut names = Numbered::new(0, made.len() as u64);
    for ino in made {
        if dir.lookup(names.name())?.ino != *ino {
            return Err(Error::new(Errno::Io, "bench", "a name is of another file"));
        }
        names.advance();
    }
    Ok(())
}
