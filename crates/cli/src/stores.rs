//! The object store beside the servers, for commands that look into it.

use std::sync::Arc;

use cudele::Result;
use objstore::ObjectStore;

use crate::command::up;
use crate::context::Context;

/// The store of the cluster, also if the cluster does not run.
pub(crate) fn of_cluster(context: &Context) -> Result<Arc<dyn ObjectStore>> {
    let found = context.locator().find()?;
    let marker = found.dir.map(|dir| dir.join(up::MARKER));
    let text = marker.and_then(|marker| std::fs::read_to_string(marker).ok());
    match text.and_then(|text| up::field(&text, "store")) {
        Some(url) => objstore::open_existing(&url),
        None => objstore::open_existing(&context.cluster()?.status()?.store),
    }
}
