//! A metadata server that waits: when the monitor says that a rank has lost its server, it becomes
//! that rank's. The lock of the rank decides between several, and keeps out a server that is still
//! there.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cudele::{Cluster, Errno, MdsState, Result};
use rustix::fs::{FlockOperation, OFlags, flock};
use terminal::context::Context;
use types::Rank;

use crate::log_args::LogArgs;

/// How often the monitor is asked.
const INTERVAL: Duration = Duration::from_millis(100);
/// A cluster whose monitor was not heard for so long is down.
const GONE_AFTER: Duration = Duration::from_secs(10);

/// A cluster on one machine has so many standbys at most.
const SLOTS: u16 = 64;

/// The files that standbys lock while they wait, below the cluster's directory.
fn slots(dir: &Path) -> impl Iterator<Item = PathBuf> {
    let dir = dir.to_owned();
    (0..SLOTS).map(move |number| dir.join(format!("standby.{number}.lock")))
}

/// Locks a file of its own. A cluster without the file has a standby that no condition reports.
fn announce(dir: &Path) -> Option<File> {
    slots(dir).find_map(|slot| {
        let mut options = OpenOptions::new();
        options.write(true).create(true).custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
        let file = options.open(slot).ok()?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).ok().map(|()| file)
    })
}

/// How many standbys wait, and how many there were since the cluster started, on this machine.
pub(crate) fn count(dir: &Path) -> (usize, usize) {
    let files = slots(dir).map_while(|slot| File::open(slot).ok());
    files.fold((0, 0), |(waiting, all), file| {
        let waits = flock(&file, FlockOperation::NonBlockingLockShared).is_err();
        (waiting + usize::from(waits), all + 1)
    })
}

/// Forgets the standbys of a cluster that did not run.
pub(crate) fn forget(dir: &Path) {
    slots(dir).take_while(|slot| std::fs::remove_file(slot).is_ok()).for_each(drop);
}

pub(super) fn run(
    context: &Context,
    log: &LogArgs,
    serve: impl Fn(Rank) -> Result<()>,
) -> Result<()> {
    let cluster = Cluster::find(&context.locator())?;
    let log = log.log("standby");
    log.info("server.started", "started: waits for a rank without a server");
    let dir = context.locator().find()?.dir;
    let mut slot = dir.as_deref().and_then(announce);
    daemon::announce_ready(&log, "waits for a rank without a server");
    let mut last_reply = Instant::now();
    // A rank stops: the cluster goes down, or an administrator ends the rank's server.
    let mut stopping = false;
    loop {
        match cluster.status() {
            Ok(map) => {
                last_reply = Instant::now();
                stopping |= map.mds.iter().any(|entry| entry.state == MdsState::Stopping);
                stopping &= !map.mds.iter().all(|entry| entry.state == MdsState::Active);
                let lost = map.mds.iter().find(|entry| entry.state == MdsState::Lost);
                // A monitor that goes down registers no client. Its ranks may have stopped between
                // two questions.
                if let Some(lost) = lost.filter(|_| cluster.register().is_ok()) {
                    stopping = false;
                    drop(slot.take());
                    match serve(lost.rank) {
                        // Another one was faster, or it is not gone after all.
                        Err(error) if error.errno == Errno::Busy => {
                            slot = dir.as_deref().and_then(announce);
                        }
                        ended => {
                            log.info(
                                "server.ended",
                                format_args!("ended: it had taken over {}", lost.rank),
                            );
                            return ended;
                        }
                    }
                }
            }
            Err(_) if stopping => {
                log.info("server.ended", "ended: the cluster is down");
                return Ok(());
            }
            // A service manager starts it again.
            Err(error) if last_reply.elapsed() >= GONE_AFTER => {
                log.info("server.ended", "ended: the monitor is gone");
                return Err(error);
            }
            Err(_) => {}
        }
        std::thread::sleep(INTERVAL);
    }
}
