//! Changes of a large subtree's policy, from strong to weak and back, while another client works in
//! it.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use cudele::{Errno, Error, Fs, NewFile, Policy, Result, Subtree};

use super::dialogue::{Stopwatch, await_start, mount};
use crate::harness::job::{Change, Job, JobOutcome};
use crate::harness::numbered::Numbered;
use crate::harness::process;
use crate::harness::stats::real;

/// The prefix of objects with the content of files, in the spelling of the embedded store.
const DATA: &str = "data%";

/// The other client: it creates files one after the other and knows how long it had to wait.
struct Live {
    ended: AtomicBool,
    created: AtomicU64,
    longest_ns: AtomicU64,
}

/// The store's files: inode number, time of the last change and length, by path.
type Inventory = BTreeMap<Vec<u8>, (u64, i64, i64, u64)>;

fn inventory(store: &Path) -> Inventory {
    let walk = walkdir::WalkDir::new(store).into_iter().filter_map(std::result::Result::ok);
    let files = walk.filter_map(|entry| {
        let meta = entry.metadata().ok().filter(std::fs::Metadata::is_file)?;
        let path = crate::harness::files::bytes_of(entry.path()).to_vec();
        Some((path, (meta.ino(), meta.mtime(), meta.mtime_nsec(), meta.len())))
    });
    files.collect()
}

/// Bytes of objects that are new or were written since: of files' content, and of metadata.
fn written(before: &Inventory, after: &Inventory) -> (u64, u64) {
    let mut bytes = (0, 0);
    for (path, now) in after.iter().filter(|(path, now)| before.get(*path) != Some(now)) {
        let is_data = path.windows(DATA.len()).any(|part| part == DATA.as_bytes());
        *(if is_data { &mut bytes.0 } else { &mut bytes.1 }) += now.3;
    }
    bytes
}

/// Executes all changes, each measured separately. The parts of one have its name with a figure
/// behind a dot.
pub(super) fn changes(job: &Job, task: &Change) -> Result<JobOutcome> {
    let (fs, other) = (mount(job)?, mount(job)?);
    let live = Arc::new(Live {
        ended: AtomicBool::new(false),
        created: AtomicU64::new(0),
        longest_ns: AtomicU64::new(0),
    });
    await_start()?;
    let mut outcome = JobOutcome::default();
    let watch = Stopwatch::start();
    let done = thread::scope(|scope| {
        let busy = scope.spawn(|| live.work(&other, &task.live_dir));
        let mut changer = Changer { fs: &fs, task, live: &live, outcome: &mut outcome };
        let done = changer.all();
        live.ended.store(true, Ordering::Relaxed);
        let ended = busy.join().map_err(|_| wrong(task, "the client at work panicked"))?;
        done.and(ended)
    });
    done?;
    watch.stop(&mut outcome);
    check(&fs, task, live.created.load(Ordering::Relaxed))?;
    Ok(outcome)
}

fn wrong(task: &Change, cause: impl Into<String>) -> Error {
    Error::new(Errno::Io, task.dir.as_str(), cause.into())
}

impl Live {
    fn work(&self, fs: &Arc<Fs>, path: &str) -> Result<()> {
        let dir = fs.open_dir(path)?;
        let mut names = Numbered::new(0, 1_000_000_000);
        while !self.ended.load(Ordering::Relaxed) {
            let before = Instant::now();
            dir.create(names.name(), &NewFile::default())?;
            let waited = u64::try_from(before.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.longest_ns.fetch_max(waited, Ordering::Relaxed);
            self.created.fetch_add(1, Ordering::Relaxed);
            names.advance();
        }
        Ok(())
    }
}

struct Changer<'a> {
    fs: &'a Arc<Fs>,
    task: &'a Change,
    live: &'a Live,
    outcome: &'a mut JobOutcome,
}

impl Changer<'_> {
    fn all(&mut self) -> Result<()> {
        let Change { weak, strong, volatile, held, .. } = self.task;
        self.measure("strong_to_weak", |it| it.set(weak))?;
        let mut subtree = self.measure("decouple", |it| it.decouple())?;
        self.measure("weak_to_strong", |it| it.give_back(subtree))?;
        self.set(weak)?;
        subtree = self.decouple()?;
        let (root, mut names) = (subtree.root(), Numbered::new(self.task.files, *held));
        for _ in 0..*held {
            subtree.create(root, names.name(), &NewFile::default())?;
            names.advance();
        }
        self.measure("weak_to_strong_held", |it| it.give_back(subtree))?;
        self.measure("durable_to_volatile", |it| it.set(volatile))?;
        let dir = self.fs.open_dir(&self.task.dir)?;
        let mut names = Numbered::new(self.task.files + held, *held);
        for _ in 0..*held {
            dir.create(names.name(), &NewFile::default())?;
            names.advance();
        }
        self.measure("volatile_to_durable", |it| it.set(strong))
    }

    fn set(&mut self, policy: &str) -> Result<()> {
        self.fs.cluster().set_policy(self.task.dir.as_bytes(), Some(policy)).map(drop)
    }

    fn decouple(&mut self) -> Result<Subtree> {
        self.fs.decouple(&self.task.dir, &Policy::parse(&self.task.weak)?.policy)
    }

    /// The journal is merged, and the subtree is shared under the strong policy.
    fn give_back(&mut self, mut subtree: Subtree) -> Result<()> {
        subtree.set_policy(&Policy::parse(&self.task.strong)?.policy)?;
        subtree.forget()
    }

    fn measure<T>(&mut self, name: &str, change: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let objects = inventory(&self.task.store);
        let handed = |pid| process::handed_over_bytes(pid).unwrap_or(0);
        let (server, client) = (handed(self.task.server), handed(std::process::id()));
        self.live.longest_ns.store(0, Ordering::Relaxed);
        let (start, created) = (Instant::now(), self.live.created.load(Ordering::Relaxed));
        let value = change(self)?;
        let seconds = start.elapsed().as_secs_f64();
        let created = self.live.created.load(Ordering::Relaxed) - created;
        // The one that was under way when the change ended counts, too.
        let longest = self.live.longest_ns.load(Ordering::Relaxed);
        let now = (handed(self.task.server), handed(std::process::id()));
        let (data, metadata) = written(&objects, &inventory(&self.task.store));
        for (figure, value) in [
            ("seconds", seconds),
            ("data_bytes", real(data)),
            ("metadata_bytes", real(metadata)),
            ("server_handed_bytes", real(now.0.saturating_sub(server))),
            ("client_handed_bytes", real(now.1.saturating_sub(client))),
            ("live_creates", real(created)),
            ("longest_ms", real(longest) / 1e6),
        ] {
            self.outcome.parts.insert(format!("{name}.{figure}"), value);
        }
        Ok(value)
    }
}

/// Everything is in its place, and the files of the concurrent client exist as well.
fn check(fs: &Arc<Fs>, task: &Change, live: u64) -> Result<()> {
    let count = |path: &str| fs.scan(path, |_, _| Ok(())).map(|scanned| scanned.entries);
    // Beside the names are the directories of the content and of the client at work.
    let expected = task.files + 2 * task.held + 2;
    for (path, expected) in [(&task.dir, expected), (&task.live_dir, live)] {
        let found = count(path)?;
        if found != expected {
            let cause = format!("{expected} entries should be in {path}, and {found} are");
            return Err(wrong(task, cause));
        }
    }
    Ok(())
}
