//! Nonvolatile Apply (M-05), seen from the client: the journal goes into the object store, and the
//! metadata server applies it from there and writes what changed to the metadata store before it
//! answers. Nothing that anybody kills afterwards takes it away, and the server need not restart.

use std::sync::atomic::Ordering;

use types::Result;
use wire::{MergeFlags, MergeReport};

use super::{Material, global_persist};

/// Returns the report and how many bytes were written to the store by this client.
pub(crate) fn nonvolatile_apply(material: &Material<'_>) -> Result<(MergeReport, u64)> {
    let flags = MergeFlags { store: true, ..material.merge };
    let Some(object) = &material.object else {
        // Nothing to put there.
        let report =
            material.fs.merge_journal(material.subtree, &material.header.encode(), flags)?;
        return Ok((report, 0));
    };
    // A mechanism before this one may have put it there.
    let written = if material.stored.load(Ordering::Acquire) {
        0
    } else {
        global_persist::global_persist(material)?
    };
    let report = material.fs.merge_object(material.subtree, object, flags)?;
    Ok((report, written))
}
