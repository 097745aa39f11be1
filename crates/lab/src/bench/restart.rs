//! `restart`: the servers of four ranks are restarted one after the other while clients work on
//! each of them; how long the slowest request takes, how many fail, and how many names are missing.
//! Beside them, servers that are killed in the same way.

use std::fmt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use cudele::{Errno, Error, Fs, NewFile, Result};
use types::Rank;

use crate::harness::cluster::{TestCluster, program};
use crate::harness::lab::Lab;
use crate::harness::process;
use crate::harness::row::Row;
use crate::harness::stats::real;

const BENCH: &str = "restart";
const RANKS: u16 = 4;
/// How long the clients work before, between and after the restarts.
const WORK: Duration = Duration::from_secs(2);
/// How long a rank may be without a server.
const PATIENCE: Duration = Duration::from_secs(60);
const STEP: Duration = Duration::from_millis(5);
/// The slowest request during the restart of all ranks, in milliseconds.
const SLOWEST: &str = "slowest_request_ms";

/// How a server ends.
#[derive(Clone, Copy)]
enum End {
    Stopped,
    Killed,
}

/// The work of one client.
#[derive(Default)]
struct Work {
    names: u64,
    failed: u64,
    missing: u64,
    slowest: Duration,
}

pub(crate) fn run(lab: &mut Lab) -> Result<()> {
    let mut stopped = Row::new(BENCH, "restarted", 0).clients(u32::from(RANKS));
    let mut killed = stopped.named("killed");
    stopped.limit(SLOWEST, 2000.0);
    stopped.limit("failed", 0.0);
    stopped.limit("missing", 0.0);
    let cluster = lab.cluster_of(&[], RANKS)?;
    let mut servers = Servers(vec![server(&cluster, &["--standby"])?]);
    for repetition in 0..lab.repeat {
        for (end, row) in [(End::Stopped, &mut stopped), (End::Killed, &mut killed)] {
            lab.progress(BENCH, repetition, &format!("servers are {end}"));
            let dir = format!("/{end}.{repetition}");
            let work = all_ranks(&cluster, &mut servers, end, &dir)?;
            let sum = |of: fn(&Work) -> u64| real(work.iter().map(of).sum());
            let slowest = work.iter().map(|work| work.slowest).max().unwrap_or_default();
            row.push(slowest.as_secs_f64());
            row.note(SLOWEST, slowest.as_secs_f64() * 1e3);
            row.note("failed", sum(|work| work.failed));
            row.note("missing", sum(|work| work.missing));
            row.note("names", sum(|work| work.names));
        }
        if let Some(beside) = killed.seconds.last() {
            stopped.against(*beside);
        }
    }
    let store = cluster.store().to_owned();
    lab.report(&store, [stopped, killed]);
    Ok(())
}

/// Restarts the server of each rank while a client works on each. Returns what the clients did.
fn all_ranks(
    cluster: &TestCluster,
    servers: &mut Servers,
    end: End,
    dir: &str,
) -> Result<Vec<Work>> {
    let admin = cluster.client()?;
    let mut clients = Vec::new();
    for rank in 0..RANKS {
        let dir = format!("{dir}.{rank}");
        let ino = admin.make_dir(&dir, 0o755)?.ino;
        admin.pin(ino, Rank(rank))?;
        clients.push((cluster.client()?, dir));
    }
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ended = &ended;
        let start = |(fs, dir): (Arc<Fs>, String)| scope.spawn(move || work(&fs, &dir, ended));
        let threads: Vec<_> = clients.into_iter().map(start).collect();
        let restarted = (0..RANKS).try_for_each(|rank| {
            sleep(WORK);
            servers.restart(cluster, rank, end)
        });
        sleep(WORK);
        ended.store(true, Ordering::Relaxed);
        let work =
            threads.into_iter().map(|thread| thread.join().map_err(|_| failed("a client"))?);
        let work = work.collect::<Result<Vec<_>>>();
        restarted.and(work)
    })
}

/// Makes a file after the other and looks each up, until the end; then looks whether all are there.
fn work(fs: &Arc<Fs>, dir: &str, ended: &AtomicBool) -> Result<Work> {
    let (mut done, dir) = (Work::default(), fs.open_dir(dir)?);
    while !ended.load(Ordering::Relaxed) {
        let (name, begin) = (done.names.to_string(), Instant::now());
        let made = dir.create(&name, &NewFile::default());
        let found = made.and_then(|_| dir.lookup(&name));
        done.slowest = done.slowest.max(begin.elapsed());
        done.failed += u64::from(found.is_err());
        done.names += 1;
    }
    let there = u64::try_from(dir.list()?.len()).unwrap_or(u64::MAX);
    done.missing = done.names.saturating_sub(there);
    Ok(done)
}

/// The processes that this experiment started. Dropping them ends them.
struct Servers(Vec<Child>);

impl Servers {
    /// Ends the server of a rank, starts it again as the next standby, and waits until the rank has
    /// another server.
    fn restart(&mut self, cluster: &TestCluster, rank: u16, end: End) -> Result<()> {
        let index = usize::from(rank);
        let before = cluster.pids()?.get(index).copied().ok_or_else(|| failed("its rank"))?;
        match end {
            End::Stopped => process::terminate(before)?,
            End::Killed => process::kill(before, PATIENCE)?,
        }
        self.0.push(server(cluster, &["--rank", &rank.to_string(), "--or-standby"])?);
        let begin = Instant::now();
        while cluster.pids()?.get(index) == Some(&before) {
            if begin.elapsed() > PATIENCE {
                return Err(failed("a rank has no other server"));
            }
            sleep(STEP);
        }
        Ok(())
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for server in &mut self.0 {
            // One that has ended needs no end.
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

fn server(cluster: &TestCluster, options: &[&str]) -> Result<Child> {
    let dir: &Path = cluster.own_dir()?;
    let mut command = program()?;
    command.arg("mds").arg("--dir").arg(dir).args(options);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().map_err(|error| failed(&error.to_string()))
}

fn failed(cause: &str) -> Error {
    Error::new(Errno::Io, BENCH, format!("it failed: {cause}"))
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stopped => "stopped",
            Self::Killed => "killed",
        })
    }
}
