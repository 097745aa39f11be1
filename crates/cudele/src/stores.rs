//! The object store of a cluster, as a client opens it: at the address that the monitor tells.

use std::sync::Arc;

use objstore::{Closed, Store};
use types::{Errno, Error, Result};

/// Opens the store of a cluster that exists. A store in a directory that this user may not enter
/// is opened, too: with it a client has names, attributes and the content of small files.
///
/// # Errors
/// As [`objstore::open_existing`].
pub(crate) fn open(url: &str) -> Result<Arc<dyn Store>> {
    let is_remote = url.starts_with("rados:");
    match objstore::open_existing(url) {
        Err(error) if !is_remote && error.errno == Errno::Access => {
            Ok(Arc::new(Closed::because(no_access(url))))
        }
        Err(error) if !is_remote && error.errno == Errno::NotFound => Err(elsewhere(url)),
        opened => opened,
    }
}

/// Only the owner of the cluster may enter its store.
fn no_access(url: &str) -> Error {
    let cause = "the store is the cluster owner's alone: an object has no permissions";
    Error::new(Errno::Access, url, cause)
        .remedy("read and write large files through a mount that root or the owner made")
}

/// The cluster has a store in a directory, and this machine has none there.
fn elsewhere(url: &str) -> Error {
    let cause = "the cluster keeps its store in a directory, and this machine has no store there";
    Error::new(Errno::NotFound, url, cause).remedy(
        "run clients on the host of the servers, or mount the file system with that directory at the same \
         path here; for clients on many hosts keep the store in Ceph (docs/administration.md, Several hosts)",
    )
}
