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
    let at_once = store.bytes_at_once();
    let note = |stage| material.fs.observed().note(Mechanism::GlobalPersist, stage);
    let done = material.persisted_globally;
    let header = material.header.encode();
    let before: usize = material.blocks[..done].iter().map(Vec::len).sum();
    // Writing at an offset makes a second attempt harmless.
    let mut offset = if done == 0 { 0 } else { (header.len() + before) as u64 };
    let start = offset;
    let left: usize = material.blocks[done..].iter().map(Vec::len).sum();
    let mut buffer = Vec::with_capacity(at_once.min(left + header.len()));
    if done == 0 {
        buffer.extend_from_slice(&header);
    }
    for block in &material.blocks[done..] {
        if buffer.len() + block.len() > at_once {
            store.write_range(object, offset, &buffer)?;
            offset += buffer.len() as u64;
            buffer.clear();
        }
        buffer.extend_from_slice(block);
    }
    store.write_range(object, offset, &buffer)?;
    offset += buffer.len() as u64;
    note(Stage::Written);
    store.sync(SyncScope::Object(object))?;
    material.stored.store(true, Ordering::Release);
    note(Stage::Synced);
    Ok(offset - start)
}
