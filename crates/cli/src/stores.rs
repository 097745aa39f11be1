//! The object store beside the servers, for commands that look into it.

use std::sync::Arc;

use cudele::Result;
use objstore::Store;
use terminal::context::Context;

use crate::marker;

/// The store of the cluster, also if the cluster does not run.
pub(crate) fn of_cluster(context: &Context) -> Result<Arc<dyn Store>> {
    let found = context.locator().find()?;
    match found.dir.map(|dir| marker::read(&dir)).transpose()?.flatten() {
        Some(marker) => objstore::open_existing(&marker.store),
        None => objstore::open_existing(&context.cluster()?.status()?.store),
    }
}
