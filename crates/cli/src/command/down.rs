//! `cudele down`: stop a cluster cleanly.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args as ClapArgs;
use cudele::{Cluster, ClusterMap, Errno, Error, Locator, MdsState, Result};
use net::Address;
use serde_json::json;
use terminal::context::Context;

/// Write everything to the metadata store, trim the journal, and end the daemons.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:\n  cudele down --dir /tmp/try")]
pub(crate) struct Args {}

const PATIENCE: Duration = Duration::from_secs(600);
/// The time that a server which has told the monitor that it stops needs to end its process.
const LAST_STEPS: Duration = Duration::from_secs(2);
/// A store with less room than this is called full.
const FULL_BYTES: u64 = 1 << 20;
/// Counters of servers that grow while a server writes to the store.
const PROGRESS: [&str; 3] = ["journal_safe", "commits", "trimmed_segments"];

pub(crate) fn run(context: &Context, _: &Args) -> Result<()> {
    let start = Instant::now();
    let found = context.locator().find()?;
    let cluster = match Cluster::connect_with(&found.mon, &found.keys) {
        Ok(cluster) => cluster,
        Err(error) if matches!(error.errno, Errno::NotFound | Errno::Refused) => {
            return Err(Error::new(error.errno, found.mon.to_string(), "no cluster runs there")
                .remedy("nothing to stop; `cudele up` starts one"));
        }
        Err(error) => return Err(error),
    };
    stop(&cluster)?;
    if let Some(dir) = found.dir.or_else(|| directory_of(&found.mon)) {
        Locator::remember_stopped(&dir)?;
    }
    let seconds = start.elapsed().as_secs_f64();
    context.print(&json!({ "stopped": true, "seconds": seconds }), || {
        format!("The cluster is down ({seconds:.2} s).\n")
    })
}

/// The directory of a cluster on this machine whose monitor has this address.
fn directory_of(monitor: &Address) -> Option<PathBuf> {
    let Address::Unix(socket) = monitor else { return None };
    let dir = socket.parent()?;
    dir.join(super::up::MARKER).is_file().then(|| dir.to_owned())
}

/// Stops a cluster and waits until it is gone.
///
/// # Errors
/// If the monitor does not answer, if the store takes nothing any more, or if not everything is
/// written after ten minutes.
pub(crate) fn stop(cluster: &Cluster) -> Result<()> {
    let start = Instant::now();
    let mut before = cluster.status().ok();
    // Asking again changes nothing, and a large namespace takes a while to be written.
    let mut late = false;
    while let Err(error) = cluster.stop() {
        if late && matches!(error.errno, Errno::NotFound | Errno::Refused) {
            break;
        }
        if error.errno != Errno::TimedOut {
            return Err(error);
        }
        late = true;
        let now = cluster.status().ok();
        if let (Some(before), Some(now)) = (&before, &now)
            && is_stuck(before, now)
        {
            return Err(stuck(now, start.elapsed()));
        }
        before = now;
        let seconds = start.elapsed().as_secs();
        if start.elapsed() > PATIENCE {
            let cause = format!("not everything is written after {seconds} seconds");
            return Err(Error { cause, ..error }.remedy(
                "make room in the store if it is full, and stop it again; what was synced is in \
                 the journal in any case",
            ));
        }
        eprintln!("cudele: still writing after {seconds} seconds; the store may be slow or full");
    }
    // The monitor ends last; its socket goes with it.
    while Cluster::connect_with(cluster.address(), cluster.keys()).is_ok() {
        if start.elapsed() > PATIENCE {
            let address = cluster.address().to_string();
            return Err(Error::new(Errno::TimedOut, address, "still running"));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let ended = Instant::now();
    while let Some(error) = still_running(cluster, before.as_ref()) {
        if ended.elapsed() > LAST_STEPS {
            return Err(error);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// A server that takes connections after the monitor has ended. The monitor gives up a server that
/// does not answer, for example while its process is stopped by a debugger.
fn still_running(cluster: &Cluster, before: Option<&ClusterMap>) -> Option<Error> {
    let servers = before?.mds.iter().filter(|entry| entry.state != MdsState::Lost);
    let mut runs = servers.filter(|entry| {
        let address = entry.address.parse::<Address>();
        address.is_ok_and(|address| address.is_served(cluster.keys()))
    });
    let entry = runs.next()?;
    let cause = format!(
        "the monitor has ended, and the server of {} (process {}) did not answer it",
        entry.rank, entry.pid
    );
    Some(Error::new(Errno::TimedOut, entry.address.clone(), cause).remedy(format!(
        "end it with `kill {}` before the cluster is started again: it writes everything down",
        entry.pid
    )))
}

/// Whether servers have tried to write since, and nothing of it is in the store.
fn is_stuck(before: &ClusterMap, now: &ClusterMap) -> bool {
    let sum = |map: &ClusterMap, names: &[&str]| -> u64 {
        let counters = map.mds.iter().flat_map(|entry| &entry.counters);
        counters.filter(|(name, _)| names.contains(&name.as_str())).map(|(_, value)| value).sum()
    };
    sum(now, &PROGRESS) == sum(before, &PROGRESS)
        && sum(now, &["store_failures"]) > sum(before, &["store_failures"])
}

fn stuck(map: &ClusterMap, since: Duration) -> Error {
    let space = objstore::open_existing(&map.store).and_then(|store| store.space()).ok();
    let full = space.is_some_and(|space| space.available < FULL_BYTES);
    let (errno, why) =
        if full { (Errno::NoSpace, "is full") } else { (Errno::Io, "takes no writes") };
    let stopping = map.mds.iter().filter(|entry| entry.state == MdsState::Stopping);
    let pids: Vec<_> = stopping.map(|entry| entry.pid.to_string()).collect();
    let cause = format!(
        "the store {why}, and not everything is written after {} seconds. What was synced is in \
         the journal there; the rest is in the memory of the metadata server (process {}), which \
         goes on trying",
        since.as_secs(),
        pids.join(", "),
    );
    Error::new(errno, map.store.clone(), cause).remedy(
        "make room in the store: the cluster ends by itself then. A server that is killed instead \
         is brought back by `cudele up` from the journal, without what only its memory had",
    )
}

#[cfg(test)]
mod tests {
    use cudele::{ClusterMap, MdsEntry};

    use super::is_stuck;

    fn map(committed: u64, failures: u64) -> ClusterMap {
        let counters = [("commits", committed), ("requests", 7), ("store_failures", failures)];
        let counters = counters.map(|(name, value)| (name.to_owned(), value)).to_vec();
        let entry = MdsEntry { counters, ..MdsEntry::default() };
        ClusterMap { mds: vec![entry], ..ClusterMap::default() }
    }

    #[test]
    fn a_server_that_fails_without_progress_is_stuck() {
        assert!(is_stuck(&map(5, 1), &map(5, 2)));
        assert!(!is_stuck(&map(5, 1), &map(6, 2)), "a bit is done");
        assert!(!is_stuck(&map(5, 1), &map(5, 1)), "the store is slow");
    }
}
