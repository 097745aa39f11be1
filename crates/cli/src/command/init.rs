//! `cudele init`: a cluster that daemons can be started for.

use std::fs;
use std::path::Path;

use clap::Args as ClapArgs;
use cudele::{Errno, Error, Result};
use keys::Authority;
use serde_json::json;
use terminal::context::Context;
use terminal::io;

use super::up;
use crate::access;
use crate::marker::{self, Marker};

/// Make a cluster without starting it, for service managers that start `cudele mon` and `cudele
/// mds`. A cluster that exists stays as it is, except that `--group` sets its group.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:\n  cudele init --dir /var/lib/cudele --group cudele")]
pub(crate) struct Args {
    /// Object store [default: a directory of files below the cluster's directory]
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Let the members of this group connect, besides the owner of the cluster and root
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
}

/// Longest path of a Unix socket in bytes, on Linux.
const SOCKET_PATH_MAX: usize = 107;

pub(crate) fn run(context: &Context, args: &Args) -> Result<()> {
    let dir = up::directory(context)?;
    let group = args.group.as_deref().map(access::group_of).transpose()?;
    let _private = access::keep_private();
    let is_new = marker::read(&dir).is_ok_and(|known| known.is_none());
    prepare(&dir, args.store.as_deref())?;
    access::protect(&dir, group)?;
    let store = up::store_of(&dir);
    let value = json!({ "dir": dir, "store": store, "new": is_new });
    context.print(&value, || {
        let what = if is_new { "is made" } else { "exists" };
        format!(
            "The cluster {what}.\n  directory  {}\n  store      {}\n",
            dir.display(),
            store.unwrap_or_default()
        )
    })
}

/// Makes sure that the directory is ours, and records the cluster's id and store in it.
pub(crate) fn prepare(dir: &Path, store: Option<&str>) -> Result<()> {
    let socket = dir.join("mds.0.sock");
    if socket.as_os_str().len() > SOCKET_PATH_MAX {
        return Err(Error::new(
            Errno::NameTooLong,
            dir.display().to_string(),
            format!("the path of a socket in it would exceed {SOCKET_PATH_MAX} bytes"),
        )
        .remedy("choose a shorter --dir"));
    }
    fs::create_dir_all(dir).map_err(|error| io(dir, &error))?;
    let known = match marker::read(dir) {
        Err(error) if error.errno == Errno::BadMessage => Some(marker::mend(dir, store)?),
        known => known?,
    };
    if let Some(known) = known {
        return match store {
            Some(store) if store != known.store => Err(Error::new(
                Errno::Exists,
                dir.display().to_string(),
                format!("the cluster here uses the store {}", known.store),
            )
            .remedy("leave --store out, or choose another --dir")),
            Some(_) | None => Ok(()),
        };
    }
    let (foreign, started) = marker::foreign(dir)?;
    if let Some(entry) = foreign {
        let name = entry.file_name().unwrap_or_default().to_string_lossy().into_owned();
        return Err(Error::new(
            Errno::Exists,
            dir.display().to_string(),
            format!("not a Cudele cluster: it contains {name}"),
        )
        .remedy("choose an empty or new directory with --dir"));
    }
    if started {
        return marker::mend(dir, store).map(drop);
    }
    let store = store.map_or_else(|| marker::default_store(dir), String::from);
    // Opening it creates it, and fails clearly if it cannot be used.
    objstore::open(&store)?;
    marker::write(dir, &Marker { cluster: marker::new_id()?, store, group: None })?;
    Authority::ensure(dir, cudele::now()).map(drop)
}
