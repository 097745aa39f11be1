//! The content of files for a process that has the object store and no connection to a server.
//!
//! [`Fs`](crate::Fs) has the same for a client of a metadata server.
//!
//! Invariant: content that [`ContentStore::write_new`] returned for is durable and has checksums.

use std::io::Read;
use std::sync::Arc;

use objstore::Store;
use types::{Errno, Error, Result, Stripe, StripedFile};

use crate::extents::{self, Objects};
use crate::sums::{Seal, Sums};

/// See the module documentation.
#[derive(Debug)]
pub struct ContentStore {
    store: Arc<dyn Store>,
    sums: Sums,
}

impl ContentStore {
    /// The content in a store.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, sums: Sums::default() }
    }

    /// The number of bytes of a file with this stripe that are best read or written at a time.
    #[must_use]
    pub fn span_bytes(&self, stripe: Stripe) -> u64 {
        stripe.bytes() * extents::at_once(&*self.store, stripe) as u64
    }

    /// Reads a byte range and verifies its checksums; the answer is as long as the range.
    ///
    /// # Errors
    /// `EIO`, `EACCES`.
    pub fn read_at(&self, file: StripedFile, offset: u64, length: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        Objects::new(&*self.store, &self.sums, file).read_into(offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Writes the content of a file, with checksums and durably, from its first bytes and the rest
    /// of a source. No other process may know the file. Returns the length of the content.
    ///
    /// # Errors
    /// Those of the source; `ENOSPC`, `EIO`.
    pub fn write_new(&self, file: StripedFile, head: &[u8], source: &mut dyn Read) -> Result<u64> {
        let objects = Objects::new(&*self.store, &self.sums, file);
        let span = self.span_bytes(file.stripe);
        let mut content = head.chain(source);
        let (mut buffer, mut length) = (Vec::new(), 0);
        loop {
            buffer.clear();
            let piece = (&mut content).take(span).read_to_end(&mut buffer);
            piece.map_err(|error| Error::new(Errno::Io, "", error.to_string()))?;
            objects.write_at(length, &buffer)?;
            length += buffer.len() as u64;
            if (buffer.len() as u64) < span {
                objects.sync_all(length)?;
                objects.seal(Seal::Durable);
                self.sums.forget(file.ino);
                return Ok(length);
            }
        }
    }
}
