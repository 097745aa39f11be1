//! The parts of a store that a wrapper hands through; and shared and boxed stores are stores, so
//! that wrappers take either.
//!
//! Invariant: nothing happens here but the call.

use std::sync::Arc;

use types::{ClientId, Pool, Result};

use crate::{
    Capacity, Expect, Fencing, LockGuard, ObjectStore, Pools, Presence, PutOutcome, Reserved,
    Space, Stat, Sweeping, Swept, SyncScope, Tuned, Version,
};

/// Implements traits of a store for a wrapper: each call becomes the same call of the store inside.
macro_rules! forward {
    (Capacity for $wrapper:ident<$store:ident $(: ?$sized:ident)?>, $this:ident => $inner:expr) => {
        impl<$store: Capacity $(+ ?$sized)?> Capacity for $wrapper<$store> {
            fn space(&$this) -> Result<Space> {
                $inner.space()
            }
            fn reserve(&$this, bytes: u64) -> Result<Reserved> {
                $inner.reserve(bytes)
            }
            fn allow_reserve(&$this) {
                $inner.allow_reserve();
            }
            fn lend_reserve(&$this, bytes: u64) {
                $inner.lend_reserve(bytes);
            }
            fn is_short(&$this) -> bool {
                $inner.is_short()
            }
        }
    };
    (Pools for $wrapper:ident<$store:ident $(: ?$sized:ident)?>, $this:ident => $inner:expr) => {
        impl<$store: Pools $(+ ?$sized)?> Pools for $wrapper<$store> {
            fn pool(&$this, name: &str) -> Result<Pool> {
                $inner.pool(name)
            }
        }
    };
    (Sweeping for $wrapper:ident<$store:ident $(: ?$sized:ident)?>, $this:ident => $inner:expr) => {
        impl<$store: Sweeping $(+ ?$sized)?> Sweeping for $wrapper<$store> {
            fn sweep(&$this, now_s: i64, look: bool) -> Result<Swept> {
                $inner.sweep(now_s, look)
            }
        }
    };
}

pub(crate) use forward;

macro_rules! forward_all {
    ($($pointer:ident),*) => { $(
        impl<S: ObjectStore + ?Sized> ObjectStore for $pointer<S> {
            fn put(&self, name: &str, data: &[u8], expect: Expect) -> Result<PutOutcome> {
                (**self).put(name, data, expect)
            }
            fn append(&self, name: &str, data: &[u8]) -> Result<u64> {
                (**self).append(name, data)
            }
            fn write_range(&self, name: &str, offset: u64, data: &[u8]) -> Result<()> {
                (**self).write_range(name, offset, data)
            }
            fn get(&self, name: &str) -> Result<(Vec<u8>, Version)> {
                (**self).get(name)
            }
            fn read_range(&self, name: &str, offset: u64, length: usize) -> Result<Vec<u8>> {
                (**self).read_range(name, offset, length)
            }
            fn stat(&self, name: &str) -> Result<Stat> {
                (**self).stat(name)
            }
            fn delete(&self, name: &str) -> Result<bool> {
                (**self).delete(name)
            }
            fn list(&self, prefix: &str) -> Result<Vec<String>> {
                (**self).list(prefix)
            }
            fn sync(&self, scope: SyncScope<'_>) -> Result<()> {
                (**self).sync(scope)
            }
        }
        impl<S: Tuned + ?Sized> Tuned for $pointer<S> {
            fn write_gathered(&self, name: &str, offset: u64, data: &[&[u8]]) -> Result<()> {
                (**self).write_gathered(name, offset, data)
            }
            fn bytes_at_once(&self) -> usize {
                (**self).bytes_at_once()
            }
            fn read_into(&self, name: &str, offset: u64, buffer: &mut [u8]) -> Result<usize> {
                (**self).read_into(name, offset, buffer)
            }
            fn lists_what_it_finds(&self) -> bool {
                (**self).lists_what_it_finds()
            }
            fn period(&self) -> u32 {
                (**self).period()
            }
        }
        impl<S: Fencing + ?Sized> Fencing for $pointer<S> {
            fn enter(&self, client: ClientId) -> Result<Presence> {
                (**self).enter(client)
            }
            fn shut_out(&self, client: ClientId) -> Result<bool> {
                (**self).shut_out(client)
            }
            fn lock(&self, name: &str, owner: &str) -> Result<Box<dyn LockGuard>> {
                (**self).lock(name, owner)
            }
        }
        forward!(Capacity for $pointer<S: ?Sized>, self => (**self));
        forward!(Pools for $pointer<S: ?Sized>, self => (**self));
        forward!(Sweeping for $pointer<S: ?Sized>, self => (**self));
    )* };
}

forward_all!(Arc, Box);
