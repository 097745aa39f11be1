//! A metadata server that waits: when the monitor says that a rank has lost its server, it becomes
//! that rank's. The lock of the rank decides between several, and keeps out a server that is still
//! there.

use std::time::{Duration, Instant};

use cudele::{Cluster, Errno, MdsState, Result};
use types::Rank;

use crate::context::Context;

/// How often the monitor is asked.
const INTERVAL: Duration = Duration::from_millis(100);
/// A cluster whose monitor was not heard for so long is down.
const GONE_AFTER: Duration = Duration::from_secs(10);

pub(super) fn run(context: &Context, serve: impl Fn(Rank) -> Result<()>) -> Result<()> {
    let cluster = Cluster::find(&context.locator())?;
    let mut heard = Instant::now();
    // A rank that is about to stop is not lost afterwards: the cluster goes down.
    let mut stopping = false;
    loop {
        match cluster.status() {
            Ok(map) => {
                heard = Instant::now();
                stopping |= map.mds.iter().any(|entry| entry.state == MdsState::Stopping);
                stopping &= !map.mds.iter().all(|entry| entry.state == MdsState::Active);
                let lost = map.mds.iter().find(|entry| entry.state == MdsState::Lost);
                if let Some(lost) = lost.filter(|_| !stopping) {
                    match serve(lost.rank) {
                        // Another one was faster, or it is not gone after all.
                        Err(error) if error.errno == Errno::Busy => {}
                        ended => return ended,
                    }
                }
            }
            Err(_) if stopping || heard.elapsed() >= GONE_AFTER => return Ok(()),
            Err(_) => {}
        }
        std::thread::sleep(INTERVAL);
    }
}
