//! Nonvolatile Apply (M-05), seen from the client: the journal goes into the object store, and the
//! metadata server applies it from there and writes what changed to the metadata store before it
//! answers. Nothing that anybody kills afterwards takes it away, and the server need not restart.

use std::sync::atomic::Ordering;

use types::Result;
use wire::{MergeFlags, MergeReport, Unused};

use super::{Material, global_persist};

/// Returns the report and how many bytes were written to the store by this client.
pub(crate) fn nonvolatile_apply(material: &Material<'_>) -> Result<(MergeReport, u64)> {
    let flags = MergeFlags { store: true, ..material.merge };
    let unused = Unused::new(&material.unused);
    let Some(object) = &material.object else {
        // Nothing to put there.
        let header = material.header.encode();
        material.asked.store(true, Ordering::Release);
        let report = material.fs.merge_journal(material.subtree, &header, flags, unused)?;
        return Ok((report, 0));
    };
    // A mechanism before this one may have put it there.
    let written = if material.stored.load(Ordering::Acquire) {
        0
    } else {
        global_persist::global_persist(material)?
    };
    material.asked.store(true, Ordering::Release);
    let report = material.fs.merge_object(material.subtree, object, flags, unused)?;
    Ok((report, written))
}
