//! A copy of a journal before it is changed, in a file.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use cudele::Result;

use super::export;
use super::files::{self, Over};
use super::source::Source;

/// The options of everything that changes a journal.
#[derive(Debug, ClapArgs)]
pub(super) struct BackupArgs {
    /// Where an export of the journal is kept as it was [default: a file in this directory]
    #[arg(long, value_name = "FILE")]
    backup: Option<PathBuf>,
    /// Keep no copy of the old journal
    #[arg(long, conflicts_with = "backup")]
    no_backup: bool,
}

impl BackupArgs {
    /// Exports a journal before it is changed. Returns where to.
    ///
    /// # Errors
    /// If the file exists or cannot be written: then nothing must be changed.
    pub(super) fn keep(&self, source: &Source) -> Result<Option<PathBuf>> {
        if self.no_backup || source.pieces.is_empty() {
            return Ok(None);
        }
        let file = self.backup.clone().unwrap_or_else(|| {
            let seconds = cudele::now().seconds();
            let name = source.name.rsplit('/').next().unwrap_or_default();
            PathBuf::from(format!("cudele-{name}-{seconds}.backup"))
        });
        files::write(&file, &export::bytes(source)?, Over::Nothing).map_err(|error| {
            error.remedy("nothing was changed; name another file with --backup")
        })?;
        Ok(Some(file))
    }
}

/// A line that says where it is.
pub(super) fn line(kept: Option<&PathBuf>) -> String {
    kept.map_or(String::new(), |file| format!("  what was there is kept in {}\n", file.display()))
}
