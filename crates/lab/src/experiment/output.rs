//! Files that an experiment leaves.

use std::path::Path;

use cudele::Result;
use terminal::io;

/// Writes a file, with the directories above it.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(|error| io(parent, &error))?;
    }
    std::fs::write(path, bytes).map_err(|error| io(path, &error))
}
