//! Global Persist (M-07): the journal goes into the object store, where any other machine finds it.

use std::sync::atomic::Ordering;

use objstore::SyncScope;
use policy::Mechanism;
use types::Result;

use super::Material;
use crate::Stage;

pub(crate) fn global_persist(material: &Material<'_>) -> Result<u64> {
    let Some(object) = &material.object else { return Ok(0) };
    let store = material.fs.store();
    let note = |stage| material.fs.observed().note(Mechanism::GlobalPersist, stage);
    let header = material.header.encode();
    let (before, left) = material.blocks.split_at(material.persisted_globally);
    let first = before.is_empty().then_some(header.as_slice());
    let parts: Vec<&[u8]> = first.into_iter().chain(left.iter().map(Vec::as_slice)).collect();
    let bytes: usize = parts.iter().map(|part| part.len()).sum();
    let offset = match first {
        Some(_) => 0,
        None => header.len() + before.iter().map(Vec::len).sum::<usize>(),
    };
    // Writing at an offset makes a second attempt harmless.
    store.write_gathered(object, offset as u64, &parts)?;
    note(Stage::Written);
    store.sync(SyncScope::Object(object))?;
    material.stored.store(true, Ordering::Release);
    note(Stage::Synced);
    Ok(bytes as u64)
}
