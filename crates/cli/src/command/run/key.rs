//! The key of a job's programs over TCP, narrower than the key of the user who runs the job: with
//! it, a program of the job changes nothing outside the job's directory.

use std::io::Write;
use std::path::{Path as FilePath, PathBuf};

use cudele::{Path, Result};
use keys::Narrower;
use tempfile::NamedTempFile;
use terminal::context::Context;
use terminal::io;

/// A key file that lives as long as the job.
#[derive(Debug)]
pub(super) struct JobKey(NamedTempFile);

impl JobKey {
    /// A key for a job in a subtree, for some hours. `None` if the user has no key, or one that
    /// signs no narrower keys.
    ///
    /// # Errors
    /// `EIO` if the new file cannot be written.
    pub(super) fn new(context: &Context, path: &Path, hours: i64) -> Result<Option<Self>> {
        let named = std::env::var_os("CUDELE_KEY").filter(|name| !name.is_empty());
        let Some(wider) = context.key.clone().or_else(|| named.map(PathBuf::from)) else {
            return Ok(None);
        };
        // A connection that needs the key says why it cannot be read.
        let Ok(text) = std::fs::read_to_string(&wider) else { return Ok(None) };
        let name = wider.display().to_string();
        let Ok(key) = keys::narrowable(&name, &text) else { return Ok(None) };
        let Some(wish) = Narrower::for_job(&key, path, hours * 3600) else { return Ok(None) };
        let made = keys::narrow(&name, &text, &wish, cudele::now())?;
        // For its owner alone.
        let file = tempfile::Builder::new().prefix("cudele-job-").suffix(".pem").tempfile();
        let mut file = file.map_err(|error| io(&std::env::temp_dir(), &error))?;
        file.write_all(made.as_bytes()).map_err(|error| io(file.path(), &error))?;
        Ok(Some(Self(file)))
    }

    /// Its file.
    pub(super) fn file(&self) -> &FilePath {
        self.0.path()
    }
}
