//! `cudele web`: the address of the web page of a cluster, and the page itself for `cudele mon`.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use ::web::{ClusterSite, WebKey};
use clap::Args as ClapArgs;
use cudele::{Cluster, Errno, Error, Result};
use daemon::Log;
use httpserver::{HttpAddress, HttpServer};
use net::{Address, Keyring};
use serde_json::json;
use terminal::context::Context;
use terminal::io;

/// Print the address of the cluster's web page, with the key that admits a browser. The key is for
/// the owner of the cluster and root: whoever has it sees all paths of decoupled subtrees.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  cudele up --web 9400      start a cluster with the page\n  \
    cudele web                print the address\n  \
    ssh -L 9400:127.0.0.1:9400 HOST   reach the page from another host")]
pub(crate) struct Args {}

pub(crate) fn run(context: &Context, _: &Args) -> Result<()> {
    let link = link(&super::mon::marker(context)?.0)?;
    context.print(&json!({ "address": link }), || format!("{link}\n"))
}

/// The address of the page of the cluster in a directory, with the key.
///
/// # Errors
/// `ENOENT` if the monitor shows no page, `EACCES` for other users.
pub(crate) fn link(dir: &Path) -> Result<String> {
    let file = file_of(dir);
    let link = match std::fs::read_to_string(&file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        read => Some(read.map_err(|error| io(&file, &error))?),
    };
    // A file that a full disk left empty has none.
    let link = link.filter(|link| WebKey::of_link(link).is_some());
    link.map(|link| link.trim_end().to_owned()).ok_or_else(|| {
        Error::new(Errno::NotFound, "web", "the monitor shows no page")
            .remedy("start the cluster with `cudele up --web PORT`, or its monitor with --web")
    })
}

/// The file with the address of the page, for the owner and root only.
fn file_of(dir: &Path) -> PathBuf {
    dir.join("web")
}

/// The pages of a monitor that runs, if it shows any. Without them there is no file with their
/// address.
#[derive(Debug)]
pub(crate) struct Pages {
    server: Option<HttpServer>,
    file: PathBuf,
}

impl Drop for Pages {
    fn drop(&mut self) {
        drop(self.server.take());
        let _ = std::fs::remove_file(&self.file);
    }
}

impl Pages {
    /// Checks an address before anything is started.
    ///
    /// # Errors
    /// `EINVAL` for an address that other hosts reach: the page would go there in plain text.
    pub(crate) fn check(address: &HttpAddress) -> Result<()> {
        if matches!(address, HttpAddress::Tcp(_)) && address.is_local() {
            return Ok(());
        }
        let cause = "the page is served on loopback only, because it is not encrypted";
        Err(Error::new(Errno::Invalid, format!("--web {address}"), cause)
            .remedy("name a port; another host reaches it with `ssh -L PORT:127.0.0.1:PORT HOST`"))
    }

    /// Serves the pages of the cluster in a directory, whose monitor listens at an address. A key
    /// of an earlier start is used again, so that links stay valid. Without an address for the
    /// pages, only the file of a monitor that was killed is removed.
    ///
    /// # Errors
    /// As [`HttpServer::start`].
    pub(crate) fn start(
        dir: &Path,
        (monitor, keys): (Address, Keyring),
        address: Option<&HttpAddress>,
        log: &Log,
    ) -> Result<Self> {
        // A full disk does not keep the monitor from its work.
        let named = |written: std::io::Result<()>, file: &Path| {
            if let Err(error) = written {
                let text =
                    format_args!("`cudele web` does not find the page: {}", io(file, &error));
                log.warning("web.unnamed", text);
            }
        };
        let mut pages = Self { server: None, file: file_of(dir) };
        let Some(address) = address else {
            let _ = std::fs::remove_file(&pages.file);
            return Ok(pages);
        };
        let kept = dir.join("web.key");
        let before = std::fs::read_to_string(&kept).ok();
        let key = match before.as_deref().and_then(WebKey::of_link) {
            Some(key) => key,
            None => {
                let key = WebKey::draw()?;
                named(key.keep(&kept, ""), &kept);
                key
            }
        };
        let connected: Mutex<Option<Arc<Cluster>>> = Mutex::new(None);
        let source = move || {
            let mut connected = connected.lock().unwrap_or_else(PoisonError::into_inner);
            match &*connected {
                Some(cluster) => Ok(cluster.clone()),
                None => {
                    let cluster = Cluster::connect_with(&monitor, &keys)?;
                    Ok(connected.insert(cluster).clone())
                }
            }
        };
        let site = Arc::new(ClusterSite::new(Box::new(source), key.clone()));
        site.keep_history().map_err(|error| terminal::io("--web".as_ref(), &error))?;
        let server = HttpServer::start("--web", address, site)?;
        named(key.keep(&pages.file, &server.address().to_string()), &pages.file);
        pages.server = Some(server);
        Ok(pages)
    }
}
