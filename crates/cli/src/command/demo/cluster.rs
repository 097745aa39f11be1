//! The demo's own cluster.
//!
//! Invariant: unless it is kept, its daemons end and its files go away with it, also when the demo
//! fails or the user interrupts it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use cudele::{Cluster, Errno, Error, Result, StateDir};
use terminal::context::Context;

use crate::command::{down, up};

pub(super) struct DemoCluster {
    dir: PathBuf,
    cluster: Arc<Cluster>,
    /// Its name, under which local state is kept.
    id: String,
    keep: bool,
    stop: Arc<AtomicBool>,
    ended: bool,
}

impl DemoCluster {
    /// Starts one in a directory, which must be new, or in a temporary one.
    pub(super) fn start(dir: Option<&Path>, keep: bool) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register(signal, stop.clone())
                .map_err(|error| Error::new(Errno::Io, "signals", error.to_string()))?;
        }
        let temporary = std::env::temp_dir().join(format!("cudele-demo.{}", std::process::id()));
        let dir = dir.map_or(temporary, Path::to_owned);
        let dir = std::path::absolute(&dir).map_err(|error| terminal::io(&dir, &error))?;
        if dir.join(up::MARKER).exists() {
            let cause = "a cluster is here already";
            return Err(Error::new(Errno::Exists, dir.display().to_string(), cause)
                .remedy("the demo makes its own; name a new directory with --dir"));
        }
        let up = up::start(&dir, None, &[])?;
        let id = up.map.cluster;
        Ok(Self { dir, cluster: up.cluster, id, keep, stop, ended: false })
    }

    pub(super) fn cluster(&self) -> &Arc<Cluster> {
        &self.cluster
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Set when the user interrupts.
    pub(super) fn stop_flag(&self) -> Arc<AtomicBool> {
        self.stop.clone()
    }

    /// Stops it and removes it, or says how to reach it.
    pub(super) fn end(mut self, context: &Context) -> Result<()> {
        self.ended = true;
        if !self.keep {
            return self.remove();
        }
        if !context.json {
            let dir = self.dir.display();
            eprintln!(
                "The cluster still runs: cudele --dir {dir} ls /posix; cudele --dir {dir} down"
            );
        }
        Ok(())
    }

    fn remove(&self) -> Result<()> {
        down::stop(&self.cluster)?;
        let gone = |path: &Path| match std::fs::remove_dir_all(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(terminal::io(path, &error))
            }
            Ok(()) | Err(_) => Ok(()),
        };
        gone(&self.dir)?;
        match StateDir::root() {
            Some(root) => gone(&root.join("subtrees").join(&self.id)),
            None => Ok(()),
        }
    }
}

impl Drop for DemoCluster {
    fn drop(&mut self) {
        if self.ended || self.keep {
            return;
        }
        if let Err(error) = self.remove() {
            eprintln!("cudele: {error}; remove {} yourself", self.dir.display());
        }
    }
}
