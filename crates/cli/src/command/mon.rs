//! `cudele mon`: a monitor in the foreground.

use clap::Args as ClapArgs;
use cudele::{Errno, Error, Locator, Result};
use daemon::{Beside, MetricsOptions, MonOptions, Standbys};
use httpserver::HttpAddress;
use terminal::context::Context;
use types::Span;

use super::web::Pages;
use crate::log_args::LogArgs;
use crate::marker::{self, Marker};

/// Run a monitor in the foreground, for service managers. It keeps the cluster map in the object
/// store; it is not on the path of metadata operations.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:\n  cudele mon --dir /srv/cudele")]
pub(crate) struct Args {
    /// Where to listen [default: a socket in the cluster's directory]
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Answer scrapers of metrics at PORT (of loopback), HOST:PORT or unix:PATH; there is no
    /// authentication
    #[arg(long, value_name = "ADDR")]
    metrics: Option<HttpAddress>,
    /// Show a web page of the cluster at PORT (of loopback) or HOST:PORT; `cudele web` prints its
    /// address
    #[arg(long, value_name = "ADDR")]
    web: Option<HttpAddress>,
    #[command(flatten)]
    log: LogArgs,
    /// Change nothing in the store
    #[arg(long)]
    read_only: bool,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<()> {
    let (dir, Marker { cluster, store, group }) = marker(context)?;
    let _private = crate::access::keep_private();
    let address = match &args.listen {
        Some(address) => address.parse()?,
        None => Locator::monitor_of(&dir),
    };
    let keys = context.locator().keys(Some(&dir));
    args.web.as_ref().map_or(Ok(()), Pages::check)?;
    let (web, of, monitor) = (args.web.clone(), dir.clone(), (address.clone(), keys.clone()));
    let log = args.log.log("mon");
    let own = log.clone();
    let pages =
        Beside(Box::new(move || Ok(Box::new(Pages::start(&of, monitor, web.as_ref(), &own)?))));
    daemon::run_mon(MonOptions {
        address,
        keys,
        audit: Some(dir.join("log")),
        group,
        settings: mon::MonSettings {
            cluster,
            store: store.clone(),
            beacon_grace: Span::from_millis(5000),
        },
        store: objstore::open_existing(&store)?,
        read_only: args.read_only,
        metrics: args.metrics.clone().map(|address| MetricsOptions { address, paths: false }),
        standbys: Some(Standbys(Box::new(move || super::mds::standby::count(&dir).0 as u64))),
        beside: Some(pages),
        terminate: None,
        log,
    })
}

/// The directory of the cluster, and its marker.
pub(crate) fn marker(context: &Context) -> Result<(std::path::PathBuf, Marker)> {
    let dir = context.locator().find()?.dir.ok_or_else(|| {
        Error::new(Errno::Invalid, "daemon", "no cluster directory is named")
            .remedy("name it with --dir")
    })?;
    let marker = marker::read(&dir)?.ok_or_else(|| {
        Error::new(Errno::NotFound, dir.display().to_string(), "there is no cluster")
            .remedy("`cudele up --dir DIR` makes a cluster")
    })?;
    Ok((dir, marker))
}
