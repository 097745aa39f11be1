//! `watch`: creates with and without a watcher of their directory, in turns on one cluster, and the
//! delay from a change to its line.
//!
//! One client creates files and waits for each answer; a second one watches. Row `line` is one
//! create at a time, from its request until the watcher has its change.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cudele::{Dir, Errno, Error, Fs, NewFile, Result, WatchEvent};

use crate::harness::cluster::TestCluster;
use crate::harness::lab::Lab;
use crate::harness::row::Row;
use crate::harness::sheet::Sheet;
use crate::harness::stats::real;

const BENCH: &str = "watch";
/// Goals: the share of the creates that remains beside a watcher, and the delay of a line.
const GOAL_SHARE: f64 = 0.9;
const GOAL_MS: f64 = 10.0;
/// Turns with and without a watcher, which take place one after the other.
const TURNS: u64 = 4;
/// The server forgets a watcher after a second: a turn without one has none.
const FORGETS: &str = "watch_ms=1000";
const STEP: Duration = Duration::from_millis(20);
/// How long a line may take.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn run(lab: &mut Lab) -> Result<()> {
    let files = lab.files(40_000, 2_000);
    let lines = if lab.quick { 50 } else { 500 };
    let mut sheet = Sheet::new(BENCH);
    let mut store = String::new();
    for repetition in 0..lab.repeat {
        lab.progress(BENCH, repetition, &format!("{files} files"));
        let cluster = lab.cluster(&[FORGETS])?;
        once(&cluster, files, lines, &mut sheet)?;
        cluster.store().clone_into(&mut store);
    }
    sheet.row("watched", files / 2).goal("of_alone", GOAL_SHARE);
    sheet.row("line", lines).limit("ms", GOAL_MS);
    lab.report(&store, sheet.rows);
    Ok(())
}

fn once(cluster: &TestCluster, files: u64, lines: u64, sheet: &mut Sheet) -> Result<()> {
    let path = cluster.directory(None)?;
    let (writer, watcher) = (cluster.client()?, cluster.client()?);
    let dir = writer.open_dir(&path)?;
    line(&dir, &watcher, &path, lines, sheet.row("line", lines))?;
    let (mut alone, mut watched) = (0.0, 0.0);
    for turn in 0..TURNS {
        let beside = turn % 2 == 1;
        while !beside && cluster.counter_now("watchers")? > 0 {
            std::thread::sleep(STEP);
        }
        let place = cluster.directory(None)?;
        let dir = writer.open_dir(&place)?;
        let watch = beside.then(|| Watching::begin(&watcher, &place)).transpose()?;
        let start = Instant::now();
        for number in 0..files / TURNS {
            dir.create(format!("file.{number:07}"), &NewFile::default())?;
        }
        let seconds = start.elapsed().as_secs_f64();
        if let Some(watch) = watch {
            watch.end(files / TURNS)?;
            watched += seconds;
        } else {
            alone += seconds;
        }
    }
    sheet.row("alone", files / 2).push(alone);
    let row = sheet.row("watched", files / 2);
    row.push(watched);
    row.note("of_alone", alone / watched);
    Ok(())
}

/// One create after the other, each until its line.
fn line(dir: &Dir, watcher: &Arc<Fs>, path: &str, lines: u64, row: &mut Row) -> Result<()> {
    let mut watch = watcher.watch(path, None)?;
    let mut delays = Vec::new();
    for number in 0..lines {
        let begun = Instant::now();
        let event = std::thread::scope(|scope| -> Result<_> {
            // The watcher waits when the create comes, nearly always.
            let create = scope.spawn(move || dir.create(format!("l{number}"), &NewFile::default()));
            let event = watch.next_event(PATIENCE)?;
            delays.push(begun.elapsed().as_secs_f64() * 1e3);
            create.join().map_err(|_| Error::of(Errno::Io, "create"))??;
            Ok(event)
        })?;
        if !matches!(event, Some(WatchEvent::Change(_))) {
            return Err(Error::new(Errno::Io, "watch", "a create has no line"));
        }
    }
    delays.sort_by(f64::total_cmp);
    row.push(delays.iter().sum::<f64>() / 1e3);
    row.note("ms", delays[delays.len() / 2]);
    row.note("ms_of_99_percent", delays[delays.len() * 99 / 100]);
    Ok(())
}

/// A watcher on a thread of its own, which counts lines.
struct Watching {
    seen: Arc<AtomicU64>,
    ends: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<Result<()>>,
}

impl Watching {
    fn begin(fs: &Arc<Fs>, path: &str) -> Result<Self> {
        let mut watch = fs.watch(path, None)?;
        let (seen, ends) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (counted, ended) = (seen.clone(), ends.clone());
        let thread = std::thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                match watch.next_event(Duration::from_millis(100))? {
                    Some(WatchEvent::Change(_)) => drop(counted.fetch_add(1, Ordering::Relaxed)),
                    Some(WatchEvent::Lost(loss)) => {
                        return Err(Error::new(Errno::Stale, "watch", loss.to_string()));
                    }
                    None => {}
                }
            }
            Ok(())
        });
        Ok(Self { seen, ends, thread })
    }

    /// Ends it when it has seen so many changes.
    fn end(self, changes: u64) -> Result<()> {
        let start = Instant::now();
        while self.seen.load(Ordering::Relaxed) < changes
            && start.elapsed() < PATIENCE
            && !self.thread.is_finished()
        {
            std::thread::yield_now();
        }
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| Error::of(Errno::Io, "watch"))??;
        let seen = self.seen.load(Ordering::Relaxed);
        if seen == changes {
            return Ok(());
        }
        Err(Error::new(Errno::Io, "watch", format!("{} of {changes} changes", real(seen))))
    }
}
