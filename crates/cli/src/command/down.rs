//! `cudele down`: stop a cluster cleanly.

use std::time::{Duration, Instant};

use clap::Args as ClapArgs;
use cudele::{Cluster, Errno, Error, Result};
use serde_json::json;

use crate::context::Context;

/// Write everything to the metadata store, trim the journal, and end the daemons.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:\n  cudele down --dir /tmp/try")]
pub(crate) struct Args {}

const PATIENCE: Duration = Duration::from_secs(600);

pub(crate) fn run(context: &Context, _: &Args) -> Result<()> {
    let start = Instant::now();
    let found = context.locator().find()?;
    let cluster = match Cluster::connect(&found.mon) {
        Ok(cluster) => cluster,
        Err(error) if matches!(error.errno, Errno::NotFound | Errno::Refused) => {
            return Err(Error::new(error.errno, found.mon.to_string(), "no cluster runs there")
                .remedy("nothing to stop; `cudele up` starts one"));
        }
        Err(error) => return Err(error),
    };
    stop(&cluster)?;
    let seconds = start.elapsed().as_secs_f64();
    context.print(&json!({ "stopped": true, "seconds": seconds }), || {
        format!("The cluster is down ({seconds:.2} s).\n")
    })
}

/// Stops a cluster and waits until it is gone.
///
/// # Errors
/// If the monitor does not answer, or not everything is written after ten minutes.
pub(crate) fn stop(cluster: &Cluster) -> Result<()> {
    let start = Instant::now();
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
    while Cluster::connect(cluster.address()).is_ok() {
        if start.elapsed() > PATIENCE {
            let address = cluster.address().to_string();
            return Err(Error::new(Errno::TimedOut, address, "still running"));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}
