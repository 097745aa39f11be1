//! Options of `cudele up` that it cannot carry out: it rejects them before it starts a daemon,
//! instead of ignoring them.

use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use cudele::{Cluster, ClusterMap, Errno, Error, Locator, MdsEntry, MdsState, Result};
use httpserver::HttpAddress;
use net::Address;
use terminal::context::Context;

use super::{Args, RANKS_MAX};
use crate::command::{mds, web};

/// How long a server may take to report its settings: it does so twice a second.
const REPORT: Duration = Duration::from_secs(5);

/// Checks the options, and compares them with the cluster if it runs.
///
/// # Errors
/// `EINVAL` with the option and the remedy.
pub(super) fn check(context: &Context, dir: &Path, args: &Args) -> Result<()> {
    let invalid = |option: String, cause: &str| Error::new(Errno::Invalid, option, cause);
    if let Some(mon) = &context.mon
        && mon.parse::<Address>()? != Locator::monitor_of(dir)
    {
        let cause =
            "`cudele up` starts a monitor that listens on a socket in the cluster's directory";
        return Err(invalid(format!("--mon {mon}"), cause).remedy(
            "leave --mon out; daemons that listen on the network are started with `cudele mon --listen \
             ADDR` and `cudele mds --listen ADDR --mon ADDR` (docs/administration.md, Several hosts)",
        ));
    }
    if let Some(mds) = args.mds
        && !(1..=RANKS_MAX).contains(&mds)
    {
        let cause = format!("a cluster has 1 to {RANKS_MAX} active metadata servers");
        return Err(invalid(format!("--mds {mds}"), &cause).remedy("name a number in between"));
    }
    check_ports(dir, args)?;
    check_page(dir, args)?;
    let settings =
        args.settings.iter().map(|text| mds::setting(text)).collect::<Result<Vec<_>>>()?;
    let Ok(cluster) = Cluster::connect(&Locator::monitor_of(dir)) else { return Ok(()) };
    let map = cluster.status()?;
    let ranks = map.mds.iter().map(|entry| entry.rank.0 + 1).max().unwrap_or(0);
    if let Some(mds) = args.mds.filter(|mds| *mds < ranks) {
        let cause = format!("the cluster has {ranks} metadata servers");
        return Err(invalid(format!("--mds {mds}"), &cause).remedy(format!(
            "`cudele mds remove {}` takes the last one out, while clients work",
            ranks - 1
        )));
    }
    if settings.is_empty() {
        return Ok(());
    }
    for entry in map.mds.iter().filter(|entry| super::runs(&cluster, entry)) {
        let reported = reported(&cluster, entry)?;
        for ((name, value), text) in settings.iter().zip(&args.settings) {
            if !reported.contains(&(mds::reported_as(name), *value)) {
                let cause = format!("{} runs already, without this setting", entry.rank);
                return Err(invalid(format!("--set {text}"), &cause).remedy(format!(
                    "end it with `cudele mds fail {}` or `cudele down` first, or leave --set out",
                    entry.rank.0
                )));
            }
        }
    }
    Ok(())
}

/// Whether each daemon can have a port for its metrics, and those that run have theirs.
fn check_ports(dir: &Path, args: &Args) -> Result<()> {
    let Some(port) = args.metrics else { return Ok(()) };
    let refused = |cause: &str, remedy: &str| {
        Error::new(Errno::Invalid, format!("--metrics {port}"), cause).remedy(remedy)
    };
    if port == 0 || port.checked_add(RANKS_MAX).is_none() {
        let cause = format!("the monitor and {RANKS_MAX} ranks have ports of their own behind it");
        return Err(refused(&cause, "name a port from 1 to 65279"));
    }
    let runs = Cluster::connect(&Locator::monitor_of(dir)).is_ok();
    if runs && TcpStream::connect(("127.0.0.1", port)).is_err() {
        let cause = "the cluster runs already, without metrics at this port";
        return Err(refused(
            cause,
            "end the cluster with `cudele down` first, or leave --metrics out",
        ));
    }
    Ok(())
}

/// Whether a monitor that runs shows its page where it is wanted.
fn check_page(dir: &Path, args: &Args) -> Result<()> {
    let Some(port) = args.web else { return Ok(()) };
    let page = web::link(dir).unwrap_or_default();
    let is_there = match port {
        0 => !page.is_empty(),
        _ => page.starts_with(&format!("{}/", HttpAddress::port(port))),
    };
    if is_there || Cluster::connect(&Locator::monitor_of(dir)).is_err() {
        return Ok(());
    }
    let cause = "the cluster runs already, without a web page at this port";
    Err(Error::new(Errno::Invalid, format!("--web {port}"), cause)
        .remedy("end the cluster with `cudele down` first, or leave --web out"))
}

/// The counters of a server that runs. The monitor may be so new that it has not heard of them.
fn reported(cluster: &Cluster, entry: &MdsEntry) -> Result<Vec<(String, u64)>> {
    let start = Instant::now();
    loop {
        let map: ClusterMap = cluster.status()?;
        let found = map.mds.into_iter().find(|known| known.rank == entry.rank);
        let counters = found.map(|known| (known.state, known.counters));
        match counters {
            Some((MdsState::Lost, _)) | None => return Ok(Vec::new()),
            Some((_, counters)) if !counters.is_empty() || start.elapsed() > REPORT => {
                return Ok(counters);
            }
            Some(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}
