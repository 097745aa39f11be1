//! The remains of an interrupted ingest.

use std::sync::Arc;

use cudele::{Errno, Error, Fs, Result};
use terminal::context::Context;

use crate::owned;

/// Discards a subtree that a killed ingest decoupled, if no journal of it was kept.
///
/// # Errors
/// `EBUSY` if there is a journal: the user decides whether to merge it.
pub(super) fn give_up_remains(context: &Context, destination: &str) -> Result<()> {
    let path = cudele::parse_path(destination)?;
    let cluster = context.cluster()?;
    let Some(owner) = owned::owner(&cluster, &path)? else { return Ok(()) };
    let mut subtree = owned::attach(context, destination)?;
    if subtree.journals().is_empty() && owner.objects.is_empty() {
        return subtree.discard();
    }
    let cause = "an earlier run left a journal of it";
    let remedy = format!(
        "bring that in with `cudele merge {path}`, or give it up with `cudele discard {path}`; then \
         run this again"
    );
    Err(Error::new(Errno::Busy, path.to_string(), cause).remedy(remedy))
}

/// Whether a directory has no names, or does not exist.
pub(super) fn is_empty(fs: &Arc<Fs>, destination: &str) -> Result<bool> {
    match fs.open_dir(destination).and_then(|dir| dir.list()) {
        Ok(names) => Ok(names.is_empty()),
        Err(error) if error.errno == Errno::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}
