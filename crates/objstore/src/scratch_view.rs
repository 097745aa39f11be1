//! A read-only view of a store, for servers on a damaged store: their writes stay in memory and
//! disappear with the process.
//!
//! Invariant: the store below is never changed.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use types::{Errno, Pool, Result};

use crate::store::absent;
use crate::{
    Capacity, Expect, Fencing, LockGuard, Memory, ObjectStore, Pools, PutOutcome, Space, Stat,
    Store, Sweeping, SyncScope, Tuned, Version,
};

/// See the module documentation.
#[derive(Debug)]
pub struct ScratchView {
    base: Arc<dyn Store>,
    above: Memory,
    /// Deleted objects of the store below.
    hidden: Mutex<BTreeSet<String>>,
}

impl ScratchView {
    /// A view without writes.
    #[must_use]
    pub fn new(base: Arc<dyn Store>) -> Self {
        Self { base, above: Memory::new(), hidden: Mutex::default() }
    }

    fn hidden(&self) -> MutexGuard<'_, BTreeSet<String>> {
        // Single inserts leave the set consistent.
        self.hidden.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Copies an object into memory, if the object exists.
    fn lift(&self, name: &str) -> Result<()> {
        match self.get(name) {
            Ok((bytes, _)) => self.above.put(name, &bytes, Expect::Any).map(drop),
            Err(error) if error.errno == Errno::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Reads an object of the store below, unless it is deleted.
    fn below<T>(&self, name: &str, read: impl FnOnce(&dyn ObjectStore) -> Result<T>) -> Result<T> {
        if self.hidden().contains(name) { Err(absent(name)) } else { read(&*self.base) }
    }
}

fn or_else<T>(above: Result<T>, below: impl FnOnce() -> Result<T>) -> Result<T> {
    match above {
        Err(error) if error.errno == Errno::NotFound => below(),
        above => above,
    }
}

impl ObjectStore for ScratchView {
    fn put(&self, name: &str, data: &[u8], expect: Expect) -> Result<PutOutcome> {
        let known = match self.get(name) {
            Ok((_, version)) => Some(version),
            Err(error) if error.errno == Errno::NotFound => None,
            // A damaged object may be replaced.
            Err(_) if expect == Expect::Any => None,
            Err(error) => return Err(error),
        };
        match expect.conflict(known) {
            Some(conflict) if expect != Expect::Any => Ok(conflict),
            _ => self.above.put(name, data, Expect::Any),
        }
    }

    fn append(&self, name: &str, data: &[u8]) -> Result<u64> {
        self.lift(name)?;
        self.above.append(name, data)
    }

    fn write_range(&self, name: &str, offset: u64, data: &[u8]) -> Result<()> {
        self.lift(name)?;
        self.above.write_range(name, offset, data)
    }

    fn get(&self, name: &str) -> Result<(Vec<u8>, Version)> {
        or_else(self.above.get(name), || self.below(name, |base| base.get(name)))
    }

    fn read_range(&self, name: &str, offset: u64, length: usize) -> Result<Vec<u8>> {
        or_else(self.above.read_range(name, offset, length), || {
            self.below(name, |base| base.read_range(name, offset, length))
        })
    }

    fn stat(&self, name: &str) -> Result<Stat> {
        or_else(self.above.stat(name), || self.below(name, |base| base.stat(name)))
    }

    fn delete(&self, name: &str) -> Result<bool> {
        let there = self.stat(name).is_ok();
        self.above.delete(name)?;
        self.hidden().insert(name.to_owned());
        Ok(there)
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>> {
        let mut names = self.base.list(prefix)?;
        let hidden = self.hidden();
        names.retain(|name| !hidden.contains(name));
        names.extend(self.above.list(prefix)?);
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    fn sync(&self, _: SyncScope<'_>) -> Result<()> {
        Ok(())
    }
}

impl Tuned for ScratchView {
    fn lists_what_it_finds(&self) -> bool {
        self.base.lists_what_it_finds()
    }

    fn period(&self) -> u32 {
        self.base.period()
    }
}

impl Capacity for ScratchView {
    fn space(&self) -> Result<Space> {
        self.base.space()
    }
}

impl Pools for ScratchView {
    fn pool(&self, name: &str) -> Result<Pool> {
        self.base.pool(name)
    }
}

impl Fencing for ScratchView {
    fn lock(&self, name: &str, owner: &str) -> Result<Box<dyn LockGuard>> {
        self.base.lock(name, owner)
    }
}

impl Sweeping for ScratchView {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_visible_and_leave_the_store_unchanged() {
        let base = Arc::new(Memory::new());
        for name in ["a", "b", "c"] {
            let _ = base.put(name, b"old", Expect::Any).unwrap();
        }
        let before: Vec<_> = ["a", "b", "c"].map(|name| base.get(name).unwrap()).into();
        let aside = ScratchView::new(base.clone());
        let version = aside.get("a").unwrap().1;
        assert!(matches!(
            aside.put("a", b"new", Expect::Is(version)).unwrap(),
            PutOutcome::Done(_)
        ));
        assert!(matches!(
            aside.put("a", b"x", Expect::Is(version)).unwrap(),
            PutOutcome::Conflict(_)
        ));
        assert!(matches!(aside.put("b", b"x", Expect::Absent).unwrap(), PutOutcome::Conflict(_)));
        aside.append("b", b"+").unwrap();
        assert!(aside.delete("c").unwrap());
        assert!(!aside.delete("c").unwrap());
        assert!(matches!(aside.put("d", b"d", Expect::Absent).unwrap(), PutOutcome::Done(_)));
        assert_eq!(aside.list("").unwrap(), ["a", "b", "d"]);
        assert_eq!(aside.get("b").unwrap().0, b"old+");
        assert_eq!(aside.get("c").unwrap_err().errno, Errno::NotFound);
        let _ = aside.put("c", b"again", Expect::Absent).unwrap();
        assert_eq!(aside.get("c").unwrap().0, b"again");
        let after: Vec<_> = ["a", "b", "c"].map(|name| base.get(name).unwrap()).into();
        assert_eq!(before, after);
        assert!(base.get("d").is_err());
    }
}
