//! A store in memory that can lose its unsynced writes, as in a crash.
//!
//! For the simulator and for tests: single-threaded use is deterministic, and [`Memory::crash`]
//! loses unsynced writes, torn as the caller chooses. Not for anything that must outlive the
//! process.
//!
//! Invariant: `live` minus the effects of `unsynced` is the durable image. Instead of keeping both
//! images, an object keeps its live bytes and, for each unsynced write, the bytes that it replaced:
//! an append then costs its own bytes and a sync costs nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use types::Result;

use crate::store::{absent, check_end, held};
use crate::{
    Capacity, Expect, Fencing, LockGuard, ObjectStore, Pools, PutOutcome, Space, Stat, Sweeping,
    SyncScope, Tuned, Version, check_name,
};

/// The store. Clones share the same objects, as processes share a disk.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<String, Object>,
    /// Lock name to owner.
    locks: BTreeMap<String, String>,
    /// The number of power failures.
    crashes: u32,
}

#[derive(Debug, Default)]
struct Object {
    live: Vec<u8>,
    /// Whether the object's existence would survive a crash.
    durable: bool,
    unsynced: Vec<Write>,
}

/// One unsynced append or write: where, how long, and how to take it back.
#[derive(Debug)]
struct Write {
    offset: usize,
    length: usize,
    size_before: usize,
    replaced: Vec<u8>,
}

impl Memory {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Loses power: of each unsynced write only a prefix reaches the medium. `torn` is given the
    /// object and the length of the write in bytes and says how many of them survive (more than
    /// the length means all). Writes tear independently, in the order in which they were issued:
    /// one that survives behind a lost one leaves zeros between them, as a disk that reorders
    /// writes does. An object that was never synced and keeps no byte is gone. Objects are visited
    /// by name, so the same store and the same answers leave the same image.
    ///
    /// Locks are not touched: a process that dies drops its guards.
    pub fn crash(&self, mut torn: impl FnMut(&str, usize) -> usize) {
        let mut state = self.state();
        state.crashes += 1;
        state.objects.retain(|name, object| object.crash(|length| torn(name, length)));
    }

    /// Bytes held by all objects.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.state().objects.values().map(|object| object.live.len() as u64).sum()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code here panics half-way through a change, so a poisoned state is a whole one.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Object {
    fn size(&self) -> u64 {
        self.live.len() as u64
    }

    fn write(&mut self, offset: usize, data: &[u8]) {
        let end = if data.is_empty() { 0 } else { offset + data.len() };
        let size_before = self.live.len();
        let overlap = offset.min(size_before)..end.min(size_before).max(offset.min(size_before));
        let replaced = self.live[overlap].to_vec();
        self.unsynced.push(Write { offset, length: data.len(), size_before, replaced });
        self.apply(offset, data);
    }

    fn apply(&mut self, offset: usize, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        let end = offset + data.len();
        if self.live.len() < end {
            self.live.resize(end, 0);
        }
        self.live[offset..end].copy_from_slice(data);
    }

    fn synced(&mut self) {
        self.unsynced.clear();
        self.durable = true;
    }

    /// Returns whether the object still exists.
    fn crash(&mut self, mut torn: impl FnMut(usize) -> usize) -> bool {
        let mut lost = Vec::new();
        while let Some(write) = self.unsynced.pop() {
            let end = write.offset + write.length;
            let data = if write.length == 0 { &[] } else { &self.live[write.offset..end] };
            lost.push((write.offset, data.to_vec()));
            self.live.truncate(write.size_before);
            let replaced_end = write.offset + write.replaced.len();
            if !write.replaced.is_empty() {
                self.live[write.offset..replaced_end].copy_from_slice(&write.replaced);
            }
        }
        for (offset, data) in lost.into_iter().rev() {
            let kept = torn(data.len()).min(data.len());
            self.apply(offset, &data[..kept]);
            self.durable |= kept > 0;
        }
        self.durable
    }
}

impl ObjectStore for Memory {
    fn put(&self, name: &str, data: &[u8], expect: Expect) -> Result<PutOutcome> {
        check_name(name)?;
        check_end(name, 0, data.len())?;
        let mut state = self.state();
        if expect != Expect::Any {
            let current = state.objects.get(name).map(|object| Version::of(&object.live));
            if let Some(conflict) = expect.conflict(current) {
                return Ok(conflict);
            }
        }
        let object = Object { live: data.to_vec(), durable: true, unsynced: Vec::new() };
        state.objects.insert(name.to_string(), object);
        Ok(PutOutcome::Done(Version::of(data)))
    }

    fn append(&self, name: &str, data: &[u8]) -> Result<u64> {
        check_name(name)?;
        let mut state = self.state();
        let offset = state.objects.get(name).map_or(0, Object::size);
        check_end(name, offset, data.len())?;
        let object = state.objects.entry(name.to_string()).or_default();
        object.write(object.live.len(), data);
        Ok(offset)
    }

    fn write_range(&self, name: &str, offset: u64, data: &[u8]) -> Result<()> {
        check_name(name)?;
        check_end(name, offset, data.len())?;
        let offset = usize::try_from(offset).expect("bounded by OBJECT_BYTES_MAX");
        self.state().objects.entry(name.to_string()).or_default().write(offset, data);
        Ok(())
    }

    fn get(&self, name: &str) -> Result<(Vec<u8>, Version)> {
        check_name(name)?;
        let state = self.state();
        let object = state.objects.get(name).ok_or_else(|| absent(name))?;
        Ok((object.live.clone(), Version::of(&object.live)))
    }

    fn read_range(&self, name: &str, offset: u64, length: usize) -> Result<Vec<u8>> {
        check_name(name)?;
        let state = self.state();
        let object = state.objects.get(name).ok_or_else(|| absent(name))?;
        let size = object.live.len();
        let start = usize::try_from(offset).unwrap_or(size).min(size);
        Ok(object.live[start..start.saturating_add(length).min(size)].to_vec())
    }

    fn stat(&self, name: &str) -> Result<Stat> {
        check_name(name)?;
        let state = self.state();
        let object = state.objects.get(name).ok_or_else(|| absent(name))?;
        Ok(Stat { size: object.size() })
    }

    fn delete(&self, name: &str) -> Result<bool> {
        check_name(name)?;
        Ok(self.state().objects.remove(name).is_some())
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>> {
        let state = self.state();
        let from_prefix = state.objects.range(prefix.to_string()..);
        Ok(from_prefix
            .map(|(name, _)| name)
            .take_while(|name| name.starts_with(prefix))
            .cloned()
            .collect())
    }

    fn sync(&self, scope: SyncScope<'_>) -> Result<()> {
        match scope {
            SyncScope::Object(name) => {
                check_name(name)?;
                if let Some(object) = self.state().objects.get_mut(name) {
                    object.synced();
                }
            }
            SyncScope::Prefix(prefix) => {
                let mut state = self.state();
                let from_prefix = state.objects.range_mut(prefix.to_string()..);
                from_prefix
                    .take_while(|(name, _)| name.starts_with(prefix))
                    .for_each(|(_, object)| object.synced());
            }
            SyncScope::All => self.state().objects.values_mut().for_each(Object::synced),
        }
        Ok(())
    }
}

impl Tuned for Memory {
    fn period(&self) -> u32 {
        self.state().crashes.saturating_add(1)
    }
}

impl Capacity for Memory {
    fn space(&self) -> Result<Space> {
        // The machine's free memory is not known here.
        Ok(Space::of_bytes(u64::MAX >> 1, u64::MAX >> 1))
    }
}

impl Pools for Memory {}

impl Fencing for Memory {
    fn lock(&self, name: &str, owner: &str) -> Result<Box<dyn LockGuard>> {
        check_name(name)?;
        let mut state = self.state();
        if let Some(holder) = state.locks.get(name) {
            return Err(held(name, holder));
        }
        state.locks.insert(name.to_string(), owner.to_string());
        drop(state);
        Ok(Box::new(MemoryLock {
            memory: self.clone(),
            name: name.to_string(),
            owner: owner.to_string(),
        }))
    }
}

impl Sweeping for Memory {}

#[derive(Debug)]
struct MemoryLock {
    memory: Memory,
    name: String,
    owner: String,
}

impl LockGuard for MemoryLock {
    fn owner(&self) -> &str {
        &self.owner
    }
}

impl Drop for MemoryLock {
    fn drop(&mut self) {
        self.memory.state().locks.remove(&self.name);
    }
}

#[cfg(test)]
mod tests;
