//! The needs of every command: the place of the cluster, and the form of messages.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use cudele::{Cluster, Errno, Error, Fs, Locator, Result};
use serde_json::{Value, json};
use types::quote::printable_lines;

/// Options of every command.
#[derive(Debug, Args)]
pub struct Context {
    /// Print facts as JSON
    #[arg(long, global = true)]
    pub json: bool,
    /// Address of the monitor: unix:PATH, tcp:HOST:PORT or plain:HOST:PORT [default:
    /// $CUDELE_MON]
    #[arg(long, global = true, value_name = "ADDR")]
    pub mon: Option<String>,
    /// Directory of a cluster started by `cudele up` [default: $CUDELE_DIR, else
    /// the only one of yours that is alive]
    #[arg(long, global = true, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// File with the key for connections over TCP [default: $CUDELE_KEY]
    #[arg(long, global = true, value_name = "FILE")]
    pub key: Option<PathBuf>,
}

impl Context {
    /// Where the cluster is, as far as the command line says.
    pub fn locator(&self) -> Locator {
        Locator { mon: self.mon.clone(), dir: self.dir.clone(), key: self.key.clone() }
    }

    /// The cluster.
    ///
    /// # Errors
    /// As [`Cluster::find`].
    pub fn cluster(&self) -> Result<Arc<Cluster>> {
        Cluster::find(&self.locator())
    }

    /// A file system client.
    ///
    /// # Errors
    /// As [`Cluster::find`] and [`Cluster::mount`].
    pub fn mount(&self) -> Result<Arc<Fs>> {
        self.cluster()?.mount()
    }

    /// Prints facts: as JSON if that was asked for, else as text.
    ///
    /// # Errors
    /// As [`say`].
    pub fn print(&self, value: &Value, text: impl FnOnce() -> String) -> Result<()> {
        if self.json {
            return say(&format!("{value:#}\n"));
        }
        // Each command quotes the names in its text; this call covers the rest of the text.
        say(&printable_lines(&text()))
    }

    /// Prints an error: the fault, its object, and the remedy.
    pub fn report(&self, error: &Error) {
        let mut error = error.clone();
        if error.remedy.is_empty() {
            error.remedy = crate::advice::remedy(error.errno).to_owned();
            if matches!(error.errno, Errno::Io | Errno::BadMessage) {
                let dir = self.locator().find().ok().and_then(|found| found.dir);
                let logs = crate::logfile::advice(dir.as_deref());
                let separator = if error.remedy.is_empty() { "" } else { "; " };
                error.remedy = format!("{}{separator}{logs}", error.remedy);
            }
        }
        if self.json {
            let value = json!({
                "error": {
                    "errno": error.errno.symbol(),
                    "subject": error.subject,
                    "cause": error.cause,
                    "remedy": error.remedy,
                }
            });
            eprintln!("{value:#}");
        } else {
            eprintln!("cudele: {error}");
        }
    }
}

/// Writes to standard output. A reader that left early (`cudele ls | head`) is no error.
///
/// # Errors
/// `ENOSPC` or `EIO` if standard output is a file that cannot be written.
pub fn say(text: &str) -> Result<()> {
    is_read(text).map(drop)
}

/// Writes to standard output. Returns whether it still has a reader: a command without an end ends
/// then.
///
/// # Errors
/// As [`say`].
pub fn is_read(text: &str) -> Result<bool> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(crate::io(Path::new("standard output"), &error)),
    }
}
