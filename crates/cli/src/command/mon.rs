//! `cudele mon`: a monitor in the foreground.

use clap::Args as ClapArgs;
use cudele::{Errno, Error, Locator, Result};
use daemon::MonOptions;
use types::Span;

use super::up::{MARKER, field};
use crate::context::Context;

/// Run a monitor in the foreground, for service managers. It keeps the cluster map in the object
/// store; it is not on the path of metadata operations.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:\n  cudele mon --dir /srv/cudele")]
pub(crate) struct Args {
    /// Where to listen [default: a socket in the cluster's directory]
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<()> {
    let (dir, text) = marker(context)?;
    let store = field(&text, "store").unwrap_or_default();
    let address = match &args.listen {
        Some(address) => address.parse()?,
        None => Locator::monitor_of(&dir),
    };
    daemon::run_mon(MonOptions {
        address,
        settings: mon::Settings {
            cluster: field(&text, "cluster").unwrap_or_default(),
            store: store.clone(),
            beacon_grace: Span::from_millis(5000),
        },
        store: objstore::open_existing(&store)?,
        terminate: None,
    })
}

/// The directory of the cluster, and the file that says so.
pub(crate) fn marker(context: &Context) -> Result<(std::path::PathBuf, String)> {
    let dir = context.locator().find()?.dir.ok_or_else(|| {
        Error::new(Errno::Invalid, "daemon", "no cluster directory is named")
            .remedy("name it with --dir")
    })?;
    let marker = dir.join(MARKER);
    let text = std::fs::read_to_string(&marker).map_err(|error| {
        super::up::io(&marker, &error).remedy("`cudele up --dir DIR` makes a cluster")
    })?;
    Ok((dir, text))
}
