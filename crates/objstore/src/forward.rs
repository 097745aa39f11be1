//! Shared and boxed stores are stores, so that wrappers take either.
//!
//! Invariant: nothing happens here but the call.

use std::sync::Arc;

use types::{ClientId, Pool, Result};

use crate::{
    Expect, LockGuard, ObjectStore, Outcome, Presence, Reserved, Space, Stat, Swept, SyncScope,
    Version,
};

macro_rules! forward {
    ($($pointer:ident),*) => { $(
        impl<S: ObjectStore + ?Sized> ObjectStore for $pointer<S> {
            fn put(&self, name: &str, data: &[u8], expect: Expect) -> Result<Outcome> {
                (**self).put(name, data, expect)
            }
            fn append(&self, name: &str, data: &[u8]) -> Result<u64> {
                (**self).append(name, data)
            }
            fn write_range(&self, name: &str, offset: u64, data: &[u8]) -> Result<()> {
                (**self).write_range(name, offset, data)
            }
            fn write_gathered(&self, name: &str, offset: u64, data: &[&[u8]]) -> Result<()> {
                (**self).write_gathered(name, offset, data)
            }
            fn bytes_at_once(&self) -> usize {
                (**self).bytes_at_once()
            }
            fn get(&self, name: &str) -> Result<(Vec<u8>, Version)> {
                (**self).get(name)
            }
            fn read_range(&self, name: &str, offset: u64, length: usize) -> Result<Vec<u8>> {
                (**self).read_range(name, offset, length)
            }
            fn read_into(&self, name: &str, offset: u64, buffer: &mut [u8]) -> Result<usize> {
                (**self).read_into(name, offset, buffer)
            }
            fn stat(&self, name: &str) -> Result<Stat> {
                (**self).stat(name)
            }
            fn delete(&self, name: &str) -> Result<bool> {
                (**self).delete(name)
            }
            fn lists_what_it_finds(&self) -> bool {
                (**self).lists_what_it_finds()
            }
            fn list(&self, prefix: &str) -> Result<Vec<String>> {
                (**self).list(prefix)
            }
            fn sync(&self, scope: SyncScope<'_>) -> Result<()> {
                (**self).sync(scope)
            }
            fn period(&self) -> u32 {
                (**self).period()
            }
            fn space(&self) -> Result<Space> {
                (**self).space()
            }
            fn reserve(&self, bytes: u64) -> Result<Reserved> {
                (**self).reserve(bytes)
            }
            fn allow_reserve(&self) {
                (**self).allow_reserve();
            }
            fn lend_reserve(&self, bytes: u64) {
                (**self).lend_reserve(bytes);
            }
            fn is_short(&self) -> bool {
                (**self).is_short()
            }
            fn pool(&self, name: &str) -> Result<Pool> {
                (**self).pool(name)
            }
            fn enter(&self, client: ClientId) -> Result<Presence> {
                (**self).enter(client)
            }
            fn shut_out(&self, client: ClientId) -> Result<bool> {
                (**self).shut_out(client)
            }
            fn sweep(&self, now_s: i64, look: bool) -> Result<Swept> {
                (**self).sweep(now_s, look)
            }
            fn lock(&self, name: &str, owner: &str) -> Result<Box<dyn LockGuard>> {
                (**self).lock(name, owner)
            }
        }
    )* };
}

forward!(Arc, Box);
