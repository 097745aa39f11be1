//! The object store of a cluster, as a client opens it: at the address that the monitor tells.

use std::sync::Arc;

use objstore::Store;
use types::{Errno, Error, Result};

/// Opens the store of a cluster that exists.
///
/// # Errors
/// As [`objstore::open_existing`].
pub(crate) fn open(url: &str) -> Result<Arc<dyn Store>> {
    objstore::open_existing(url).map_err(|error| {
        let remote = url.starts_with("rados:") || error.errno != Errno::NotFound;
        if remote { error } else { elsewhere(url) }
    })
}

/// The cluster has a store in a directory, and this machine has none there.
fn elsewhere(url: &str) -> Error {
    let cause = "the cluster keeps its store in a directory, and this machine has no store there";
    Error::new(Errno::NotFound, url, cause).remedy(
        "run clients on the host of the servers, or mount the file system with that directory at the same \
         path here; for clients on many hosts keep the store in Ceph (docs/administration.md, Several hosts)",
    )
}
