//! Nonvolatile Apply (M-05) at the client: the journal goes into the object store, and the metadata
//! server applies it from there and writes the changes to the metadata store before it answers.
//! They survive any later kill, and the server need not restart.

use std::sync::atomic::Ordering;

use types::Result;
use wire::{MergeFlags, MergeReport, UnusedNumbers};

use super::{Material, MergedBy, global_persist};

/// Returns the report, the bytes of the journal that this client wrote to the store, and the way of
/// the merge.
pub(crate) fn nonvolatile_apply(material: &Material<'_>) -> Result<(MergeReport, u64, MergedBy)> {
    let flags = MergeFlags { store: true, ..material.merge };
    let merged_by = match material.by_reference(flags)? {
        Ok((report, merged_by)) => return Ok((report, 0, merged_by)),
        Err(by_value) => by_value,
    };
    let unused = UnusedNumbers::new(&material.unused);
    let Some(object) = &material.object else {
        // Nothing to put there.
        let header = material.header.encode();
        material.asked.store(true, Ordering::Release);
        let report = material.fs.merge_journal(material.subtree, &header, flags, unused)?;
        return Ok((report, 0, merged_by));
    };
    // A mechanism before this one may have put it there.
    let written = if material.stored.load(Ordering::Acquire) {
        0
    } else {
        global_persist::global_persist(material)?
    };
    material.asked.store(true, Ordering::Release);
    let report = material.fs.merge_object(material.subtree, object, flags, unused)?;
    Ok((report, written, merged_by))
}
