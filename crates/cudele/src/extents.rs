//! Byte ranges of a file's content in the object store. A file is striped over objects named by its
//! inode number and filled from the front. The size of the objects is fixed when the file is made
//! ([`Attr::stripe`](types::Attr::stripe)). A range without an object, or never written, reads as
//! zeros.
//!
//! The length of a file is its inode's business: nothing here knows it or keeps to it.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use metastore::{ObjectName, SUM_BLOCK_BYTES, SUMS_PER_OBJECT};
use objstore::{Store, SyncScope};
use types::{Errno, Error, Ino, Result, Stripe, StripedFile};

use crate::Fs;
use crate::sums::{Seal, Sums};

/// Of a range with more objects than this those that exist are listed: a file may be so much longer
/// than its content that asking for each would never end.
const UNLISTED_MAX: u64 = 64;
/// The same for a store whose listings cost as much as all its objects: so many objects are asked
/// for in parallel, in a second or two. A file of 256 GiB with the usual stripes has no more.
const UNLISTED_SLOWLY_MAX: u64 = 65_536;

/// Zeros are written so many at a time.
static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];

/// Objects of one file that are made durable at the same time: a store that waits for its disk
/// waits once for several.
const SYNCS_AT_ONCE: usize = 8;
/// Objects of one file that are written, read or removed at the same time, at most.
const OBJECTS_AT_ONCE: usize = 8;
/// So many answers are waited for together where the order matters.
const ANSWERS_TOGETHER: usize = 256;

/// A piece of a byte range that lies in one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    stripe: u64,
    /// In the object.
    offset: u64,
    length: u64,
}

/// The pieces of a byte range, in order.
fn pieces(stripe: Stripe, offset: u64, length: u64) -> impl Iterator<Item = Piece> {
    let stripe = stripe.bytes();
    let end = offset.saturating_add(length);
    let mut at = offset;
    std::iter::from_fn(move || {
        let piece = Piece {
            stripe: at / stripe,
            offset: at % stripe,
            length: (end - at).min(stripe - at % stripe),
        };
        at += piece.length;
        (piece.length > 0).then_some(piece)
    })
}

/// The part of a byte range that lies in this object, which it must touch.
fn piece_of(stripe: Stripe, number: u64, range: &Range<u64>) -> Piece {
    let start = number * stripe.bytes();
    let from = range.start.max(start) - start;
    let to = (range.end - start).min(stripe.bytes());
    Piece { stripe: number, offset: from, length: to - from }
}

pub(crate) fn usize_of(length: u64) -> usize {
    usize::try_from(length).unwrap_or(usize::MAX)
}

/// How many objects of one file are best written or read at the same time.
pub(crate) fn at_once(store: &dyn Store, stripe: Stripe) -> usize {
    let stripe = usize::try_from(stripe.bytes()).unwrap_or(usize::MAX);
    (store.bytes_at_once() / stripe).clamp(1, OBJECTS_AT_ONCE)
}

impl Fs {
    pub(crate) fn objects(&self, file: StripedFile) -> Objects<'_> {
        let threads = self.cluster().has_threads();
        Objects { store: &**self.store(), file, sums: &self.sums, threads }
    }

    /// Reads a byte range; the answer is as long as the range.
    ///
    /// # Errors
    /// `EIO`, `EACCES`.
    pub fn read_at(&self, file: StripedFile, offset: u64, length: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.read_into(file, offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Reads a byte range as long as the buffer.
    ///
    /// # Errors
    /// `EIO`, `EACCES`.
    pub fn read_into(&self, file: StripedFile, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.objects(file).read_into(offset, buffer)
    }

    /// Writes a byte range. The range has checksums after [`Fs::seal`], and is durable after
    /// [`Fs::sync_file`].
    ///
    /// # Errors
    /// `ENOSPC`, `EIO`; part of the range may be written then.
    pub fn write_at(&self, file: StripedFile, offset: u64, data: &[u8]) -> Result<()> {
        self.objects(file).write_at(offset, data)
    }

    /// Makes a range of a file of this length read as zeros, given as offset and length; deletes
    /// whole objects. The cost grows with the number of objects in the range.
    ///
    /// # Errors
    /// `EIO`, `ENOSPC`.
    pub fn zero_range(&self, file: StripedFile, size: u64, range: Range<u64>) -> Result<()> {
        self.objects(file).zero_range(size, range)
    }

    /// Deletes the content of a file of this length.
    ///
    /// # Errors
    /// `EIO`.
    pub fn delete_data(&self, file: StripedFile, size: u64) -> Result<()> {
        self.sums.remove(&self.objects(file), size, true)?;
        self.objects(file).delete_data(size)
    }

    /// Deletes the content of a file that stays and gets other content. After a power failure the
    /// file has the old content or the new content.
    ///
    /// # Errors
    /// `EIO`.
    pub fn withdraw_data(&self, file: StripedFile, size: u64) -> Result<()> {
        self.sums.remove(&self.objects(file), size, false)?;
        self.objects(file).delete_data(size)
    }

    /// Makes the content of a file of this length durable, and the deletion of removed parts.
    ///
    /// # Errors
    /// `EIO`, `ENOSPC`.
    pub fn sync_file(&self, file: StripedFile, size: u64) -> Result<()> {
        self.objects(file).sync_all(size)
    }

    /// Makes the objects with these numbers durable, or that they are gone.
    ///
    /// # Errors
    /// `EIO`, `ENOSPC`.
    pub fn sync_stripes(&self, file: StripedFile, numbers: &[u64]) -> Result<()> {
        self.objects(file).sync(numbers)
    }

    /// Where data begins at or behind an offset of a file of this length; nothing if only zeros
    /// follow that take no room.
    ///
    /// # Errors
    /// `EIO`.
    pub fn next_data(&self, file: StripedFile, size: u64, offset: u64) -> Result<Option<u64>> {
        self.objects(file).next_data(size, offset)
    }

    /// Where zeros that take no room begin at or behind an offset of a file of this length: at its
    /// end, if nowhere else.
    ///
    /// # Errors
    /// `EIO`.
    pub fn next_hole(&self, file: StripedFile, size: u64, offset: u64) -> Result<u64> {
        self.objects(file).next_hole(size, offset)
    }
}

/// The objects of one file.
#[derive(Clone, Copy)]
pub(crate) struct Objects<'a> {
    store: &'a dyn Store,
    file: StripedFile,
    sums: &'a Sums,
    /// Several may be read, written or synced at the same time.
    threads: bool,
}

impl<'a> Objects<'a> {
    pub(crate) fn new(store: &'a dyn Store, sums: &'a Sums, file: StripedFile) -> Self {
        Self { store, file, sums, threads: true }
    }

    pub(crate) fn store(&self) -> &'a dyn Store {
        self.store
    }

    pub(crate) fn ino(&self) -> Ino {
        self.file.ino
    }

    pub(crate) fn stripe(&self) -> Stripe {
        self.file.stripe
    }

    pub(crate) fn name(&self, number: u64) -> String {
        metastore::data_name(self.file.ino, self.file.stripe.pool(), number)
    }

    /// Does something with all items, with so many at a time; the first error ends it.
    fn side_by_side<T: Send>(
        &self,
        at_once: usize,
        items: Vec<T>,
        act: impl Fn(T) -> Result<()> + Sync,
    ) -> Result<()> {
        let at_once = if self.threads { at_once.min(items.len()) } else { 1 };
        if at_once <= 1 {
            return items.into_iter().try_for_each(act);
        }
        let items = Mutex::new(items.into_iter());
        let next = || items.lock().unwrap_or_else(PoisonError::into_inner).next();
        let work = || {
            while let Some(item) = next() {
                if let Err(error) = act(item) {
                    // The other threads begin no further part.
                    while next().is_some() {}
                    return Err(error);
                }
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let others = (1..at_once).map_while(|_| {
                let thread = std::thread::Builder::new().name("objects".to_owned());
                // With fewer threads it only takes longer.
                thread.spawn_scoped(scope, work).ok()
            });
            let others: Vec<_> = others.collect();
            let lost = |_| Err(Error::of(Errno::Io, "objects"));
            let done = work();
            others.into_iter().fold(done, |done, other| done.and(other.join().unwrap_or_else(lost)))
        })
    }

    fn prefix(&self) -> String {
        metastore::data_prefix(self.file.ino, self.file.stripe.pool())
    }

    pub(crate) fn sums_name(&self, number: u64) -> String {
        metastore::sums_name(self.file.ino, self.file.stripe.pool(), number)
    }

    /// The numbers of all objects of checksums that a file of this length can have.
    pub(crate) fn sums_numbers(&self, size: u64) -> Result<Vec<u64>> {
        let count = size.div_ceil(SUM_BLOCK_BYTES * SUMS_PER_OBJECT);
        if count <= self.unlisted_max() {
            return Ok((0..count).collect());
        }
        let names = self.store.list(&self.prefix())?;
        let numbers = names.iter().filter_map(|name| match ObjectName::parse(name)? {
            ObjectName::Sums(_, _, number) => Some(number),
            ObjectName::Data(..)
            | ObjectName::Manifest(_)
            | ObjectName::Run(..)
            | ObjectName::Values(..) => None,
        });
        Ok(numbers.collect())
    }

    /// The names of all objects of checksums that a file of this length can have.
    pub(crate) fn sums_names(&self, size: u64) -> Result<Vec<String>> {
        Ok(self.sums_numbers(size)?.into_iter().map(|number| self.sums_name(number)).collect())
    }

    /// The bytes of a block in the store, or `None` if the store has no byte of the block.
    pub(crate) fn read_block(&self, block: u64) -> Result<Option<Vec<u8>>> {
        let at = block * SUM_BLOCK_BYTES;
        let name = self.name(at / self.file.stripe.bytes());
        let offset = at % self.file.stripe.bytes();
        match self.store.read_range(&name, offset, usize_of(SUM_BLOCK_BYTES)) {
            Ok(bytes) => Ok(Some(bytes).filter(|bytes| !bytes.is_empty())),
            Err(error) if error.errno == Errno::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn read_into(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.sums.read_into(self, offset, buffer)
    }

    pub(crate) fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.sums.write_at(self, offset, data)
    }

    /// Writes the checksums of the blocks that were written through these objects.
    pub(crate) fn seal(&self, seal: Seal) {
        self.sums.seal(self, seal, true);
    }

    pub(crate) fn read_unverified(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let mut rest = buffer;
        let pieces = pieces(self.file.stripe, offset, rest.len() as u64).map(|piece| {
            let (now, later) = std::mem::take(&mut rest).split_at_mut(usize_of(piece.length));
            rest = later;
            (piece, now)
        });
        let pieces: Vec<_> = pieces.collect();
        self.side_by_side(at_once(self.store, self.file.stripe), pieces, |(piece, now)| {
            let read = match self.store.read_into(&self.name(piece.stripe), piece.offset, now) {
                Ok(read) => read,
                Err(error) if error.errno == Errno::NotFound => 0,
                Err(error) => return Err(error),
            };
            now[read..].fill(0);
            Ok(())
        })
    }

    pub(crate) fn write_unverified(&self, offset: u64, data: &[u8]) -> Result<()> {
        let mut rest = data;
        let pieces = pieces(self.file.stripe, offset, data.len() as u64).map(|piece| {
            let (now, later) = rest.split_at(usize_of(piece.length));
            rest = later;
            (piece, now)
        });
        let pieces: Vec<_> = pieces.collect();
        self.side_by_side(at_once(self.store, self.file.stripe), pieces, |(piece, now)| {
            self.store.write_range(&self.name(piece.stripe), piece.offset, now)
        })
    }

    pub(crate) fn zero_range(&self, size: u64, range: Range<u64>) -> Result<()> {
        let range = range.start..range.end.min(size);
        self.sums.zero(self, size, &range, || self.zero_unverified(size, &range))
    }

    fn zero_unverified(&self, size: u64, range: &Range<u64>) -> Result<()> {
        let stripe = self.file.stripe;
        let stripes = range.start / stripe.bytes()..stripe.count(range.end);
        self.side_by_side(self.asked_at_once(), self.numbers(stripes)?, |number| {
            let piece = piece_of(stripe, number, range);
            let object = self.name(number);
            let left = size - number * self.file.stripe.bytes();
            if piece.offset == 0 && piece.length >= left.min(self.file.stripe.bytes()) {
                return self.store.delete(&object).map(|_| ());
            }
            let end = (piece.offset + piece.length).min(self.held_in(&object)?);
            let mut at = piece.offset;
            while at < end {
                let length = usize_of((end - at).min(ZEROS.len() as u64));
                let zeroed = self.store.write_range(&object, at, &ZEROS[..length]);
                zeroed.or_else(|error| self.reads_as_zeros(&object, at, length, error))?;
                at += length as u64;
            }
            Ok(())
        })
    }

    /// A full store has no room for zeros in a hole, which needs none.
    fn reads_as_zeros(&self, object: &str, at: u64, length: usize, error: Error) -> Result<()> {
        if error.errno != Errno::NoSpace {
            return Err(error);
        }
        let held = self.store.read_range(object, at, length)?;
        if held.iter().all(|byte| *byte == 0) { Ok(()) } else { Err(error) }
    }

    fn delete_data(&self, size: u64) -> Result<()> {
        self.side_by_side(
            self.asked_at_once(),
            self.numbers(0..self.file.stripe.count(size))?,
            |number| self.store.delete(&self.name(number)).map(|_| ()),
        )
    }

    /// The number of objects to ask for in parallel; answers from a directory are fast.
    fn asked_at_once(&self) -> usize {
        if self.store.lists_what_it_finds() { 1 } else { OBJECTS_AT_ONCE }
    }

    pub(crate) fn sync_all(&self, size: u64) -> Result<()> {
        let stripes = self.file.stripe.count(size);
        if stripes > UNLISTED_MAX {
            return self.store.sync(SyncScope::Prefix(&self.prefix()));
        }
        self.sync(&(0..stripes).collect::<Vec<_>>())
    }

    fn sync(&self, numbers: &[u64]) -> Result<()> {
        self.side_by_side(SYNCS_AT_ONCE, numbers.to_vec(), |number| {
            self.store.sync(SyncScope::Object(&self.name(number)))
        })
    }

    fn next_data(&self, size: u64, offset: u64) -> Result<Option<u64>> {
        let end = self.file.stripe.count(size);
        let near = (offset / self.file.stripe.bytes()).saturating_add(UNLISTED_MAX).min(end);
        // Data is mostly near; a listing is worth its price only for the rest.
        for stripes in [offset / self.file.stripe.bytes()..near, near..end] {
            let numbers = self.numbers(stripes)?;
            // One by one where that is quick, or there are few.
            let few = numbers.len() as u64 <= UNLISTED_MAX || self.asked_at_once() == 1;
            for numbers in numbers.chunks(if few { 1 } else { ANSWERS_TOGETHER }) {
                let found = AtomicU64::new(u64::MAX);
                self.side_by_side(self.asked_at_once(), numbers.to_vec(), |number| {
                    let start = number * self.file.stripe.bytes();
                    let at = start.max(offset);
                    if at - start < self.held_in(&self.name(number))? {
                        found.fetch_min(at, Ordering::Relaxed);
                    }
                    Ok(())
                })?;
                let found = found.into_inner();
                if found != u64::MAX {
                    return Ok(Some(found).filter(|at| *at < size));
                }
            }
        }
        Ok(None)
    }

    fn next_hole(&self, size: u64, offset: u64) -> Result<u64> {
        let mut at = offset;
        while at < size {
            let number = at / self.file.stripe.bytes();
            let start = number * self.file.stripe.bytes();
            let held = self.held_in(&self.name(number))?.min(self.file.stripe.bytes());
            if at - start >= held {
                return Ok(at);
            }
            at = start + held;
        }
        Ok(size)
    }

    /// How many bytes an object has; none if it is not there.
    fn held_in(&self, object: &str) -> Result<u64> {
        match self.store.stat(object) {
            Ok(stat) => Ok(stat.size),
            Err(error) if error.errno == Errno::NotFound => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// The number of objects above which a list of the existing objects is cheaper than one request
    /// for each.
    fn unlisted_max(&self) -> u64 {
        if self.store.lists_what_it_finds() { UNLISTED_MAX } else { UNLISTED_SLOWLY_MAX }
    }

    /// The numbers of a file's objects in a range: all that may exist, of many those that do. In
    /// order.
    fn numbers(&self, stripes: Range<u64>) -> Result<Vec<u64>> {
        if stripes.end.saturating_sub(stripes.start) <= self.unlisted_max() {
            return Ok(stripes.collect());
        }
        let names = self.store.list(&self.prefix())?;
        let numbers = names.iter().filter_map(|name| match ObjectName::parse(name) {
            Some(ObjectName::Data(_, _, number)) => Some(number),
            Some(
                ObjectName::Sums(..)
                | ObjectName::Manifest(_)
                | ObjectName::Run(..)
                | ObjectName::Values(..),
            )
            | None => None,
        });
        let mut numbers: Vec<u64> = numbers.filter(|number| stripes.contains(number)).collect();
        // Names with more digits are sorted before shorter ones.
        numbers.sort_unstable();
        Ok(numbers)
    }
}

#[cfg(test)]
mod tests;
