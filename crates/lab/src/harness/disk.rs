//! The disk of a cluster's store, and what the kernel has of it in memory.

use std::path::Path;

use cudele::Result;
use terminal::io;
use walkdir::WalkDir;

use super::cluster::TestCluster;

/// The kernel forgets the content of all objects: it must be read from the disk again.
pub(crate) fn evict(cluster: &TestCluster) -> Result<()> {
    let Some(disk) = cluster.store_disk() else { return Ok(()) };
    evict_below(&disk)
}

/// The same for all files below a directory.
pub(crate) fn evict_below(dir: &Path) -> Result<()> {
    for entry in WalkDir::new(dir).into_iter().filter_map(std::result::Result::ok) {
        if entry.file_type().is_file() {
            let about = |error| io(entry.path(), &error);
            let file = std::fs::File::open(entry.path()).map_err(about)?;
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)
                .map_err(|error| io(entry.path(), &error.into()))?;
        }
    }
    Ok(())
}

/// The earlier case's writes reach the disk before the next one writes.
pub(crate) fn settle(cluster: &TestCluster) -> Result<()> {
    let Some(disk) = cluster.store_disk() else { return Ok(()) };
    let about = |error: rustix::io::Errno| io(&disk, &error.into());
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
    let dir = rustix::fs::open(&disk, flags, rustix::fs::Mode::empty()).map_err(about)?;
    rustix::fs::syncfs(dir).map_err(about)
}
