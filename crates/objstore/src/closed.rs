//! A store that this process may not open: every operation fails for the same reason.
//!
//! A client without the right to the store can do all that needs none: names, attributes, and
//! content that is kept with them.

use types::{ClientId, Error, Result};

use crate::{
    Capacity, Expect, Fencing, LockGuard, ObjectStore, Pools, Presence, PutOutcome, Space, Stat,
    Sweeping, SyncScope, Tuned, Version,
};

/// See the module documentation.
#[derive(Clone, Debug)]
pub struct Closed(Error);

impl Closed {
    /// A store whose operations fail with this error.
    #[must_use]
    pub fn because(error: Error) -> Self {
        Self(error)
    }

    fn refuse<T>(&self) -> Result<T> {
        Err(self.0.clone())
    }
}

impl ObjectStore for Closed {
    fn put(&self, _: &str, _: &[u8], _: Expect) -> Result<PutOutcome> {
        self.refuse()
    }

    fn append(&self, _: &str, _: &[u8]) -> Result<u64> {
        self.refuse()
    }

    fn write_range(&self, _: &str, _: u64, _: &[u8]) -> Result<()> {
        self.refuse()
    }

    fn get(&self, _: &str) -> Result<(Vec<u8>, Version)> {
        self.refuse()
    }

    fn read_range(&self, _: &str, _: u64, _: usize) -> Result<Vec<u8>> {
        self.refuse()
    }

    fn stat(&self, _: &str) -> Result<Stat> {
        self.refuse()
    }

    fn delete(&self, _: &str) -> Result<bool> {
        self.refuse()
    }

    fn list(&self, _: &str) -> Result<Vec<String>> {
        self.refuse()
    }

    /// Nothing was written, so nothing is missing.
    fn sync(&self, _: SyncScope<'_>) -> Result<()> {
        Ok(())
    }
}

impl Tuned for Closed {
    fn period(&self) -> u32 {
        1
    }
}

impl Capacity for Closed {
    fn space(&self) -> Result<Space> {
        self.refuse()
    }
}

impl Pools for Closed {}

impl Fencing for Closed {
    /// No write of this client can arrive late.
    fn enter(&self, _: ClientId) -> Result<Presence> {
        Ok(Presence::of(()))
    }

    fn lock(&self, _: &str, _: &str) -> Result<Box<dyn LockGuard>> {
        self.refuse()
    }
}

impl Sweeping for Closed {}

#[cfg(test)]
mod tests {
    use types::Errno;

    use super::*;

    #[test]
    fn a_closed_store_says_why_and_holds_nothing_up() {
        let store = Closed::because(Error::new(Errno::Access, "dir:/s", "not yours"));
        for failed in [
            store.get("x").map(drop),
            store.put("x", b"", Expect::Any).map(drop),
            store.append("x", b"").map(drop),
            store.write_range("x", 0, b""),
            store.read_range("x", 0, 1).map(drop),
            store.stat("x").map(drop),
            store.delete("x").map(drop),
            store.list("").map(drop),
            store.lock("x", "me").map(drop),
            store.space().map(drop),
        ] {
            assert_eq!(failed.map_err(|error| error.errno), Err(Errno::Access));
        }
        assert!(store.sync(SyncScope::All).is_ok() && store.enter(ClientId(1)).is_ok());
    }
}
