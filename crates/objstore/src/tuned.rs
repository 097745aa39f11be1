//! Properties by which callers choose how they use a store, and operations that some back ends do
//! better than with a plain read or write.
//!
//! Not here: any promise beyond that of [`ObjectStore`].
//!
//! Invariant: a back end that implements nothing but `period` is right, only slower.

use types::Result;

use crate::ObjectStore;
use crate::gather::Gather;

/// For most stores: few calls, and small enough to be copied within a cache.
const BYTES_AT_ONCE: usize = 256 << 10;

/// A store with hints for its callers.
pub trait Tuned: ObjectStore {
    /// As [`ObjectStore::write_range`], of all the given data, which need not lie in one place. In
    /// between, and after an error, any part of it may be written.
    ///
    /// # Errors
    /// Those of every method of [`ObjectStore`].
    fn write_gathered(&self, name: &str, offset: u64, data: &[&[u8]]) -> Result<()> {
        let (mut left, mut at, mut buffer) = (Gather::of(data), offset, Vec::new());
        loop {
            let now = left.take(self.bytes_at_once(), &mut buffer);
            self.write_range(name, at, now)?;
            at += now.len() as u64;
            if left.len() == 0 {
                return Ok(());
            }
        }
    }

    /// How many bytes to hand over at a time when there are many: enough for the store to do its
    /// best, and no more.
    fn bytes_at_once(&self) -> usize {
        BYTES_AT_ONCE
    }

    /// As [`ObjectStore::read_range`], into a buffer that the caller uses again; returns how many
    /// bytes.
    ///
    /// # Errors
    /// `ENOENT` if it is absent.
    fn read_into(&self, name: &str, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let read = self.read_range(name, offset, buffer.len())?;
        buffer[..read.len()].copy_from_slice(&read);
        Ok(read.len())
    }

    /// Whether the cost of a list depends on its result only. Where it depends on the size of the
    /// whole store, names that can be guessed are better guessed.
    fn lists_what_it_finds(&self) -> bool {
        true
    }

    /// The number of the period in which no unsynced write can have been lost: it changes with a
    /// power failure. 0 if a write is durable when it returns. Two calls may differ if the store
    /// cannot determine the period.
    fn period(&self) -> u32;
}
