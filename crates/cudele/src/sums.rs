//! Checksums of file content: the client that writes content writes them, and every reader verifies
//! them.
//!
//! Checksums do not change the objects of content. An object of entries beside them has one entry
//! for each block of 16 KiB ([`metastore::Sum`]). A reader does not verify a block without an
//! entry, so content and entry need not be written atomically. The order of writes, which
//! `docs/decisions/0004-content-checksums.md` derives, suffices:
//!
//! * a client removes an entry before a write that contradicts it; the removal is durable if the
//!   entry holds after a power failure;
//! * a client writes an entry after the content, and only if no other client has the file open;
//!   content that several clients write at the same time has no entries;
//! * an entry that is written before its content is durable names the store's period, and expires
//!   with that period.
//!
//! Not here: which clients have a file open (`vfs` passes that to
//! [`Fs::share_sums`](crate::Fs::share_sums)).
//!
//! Invariant: each valid entry in the store fits the content that any reader finds.

mod pending;
mod session;
mod table;
mod write;

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use metastore::{SUM_BLOCK_BYTES, Sum, SumEntry};
use types::{Errno, Error, Ino, Map, Result, Stripe};

use self::pending::Pending;
use self::table::{Age, Table};
use crate::damaged::add_damaged_file;
use crate::extents::{Objects, usize_of};

/// The number of files above which a process drops knowledge that it can read again.
const FILES_MAX: usize = 16_384;
/// The number of changes of content and entry that a comparison tolerates.
const ATTEMPTS_MAX: usize = 8;

/// The knowledge of a process about the checksums of files.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    files: Mutex<Map<Ino, Arc<Mutex<FileSums>>>>,
}

/// The knowledge of a process about the checksums of one file.
#[derive(Debug, Default)]
struct FileSums {
    /// Other clients can write the file, so no client writes entries.
    shared: bool,
    /// The policy switches checksums off.
    off: bool,
    /// The stripe of the file, known after the first write.
    stripe: Option<Stripe>,
    table: Table,
    /// Blocks that this process has written and whose entries it has still to write.
    pending: Pending,
}

/// The state of the content at the time when its entries are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seal {
    /// The content may not be durable: the entries hold until a power failure can lose unsynced
    /// content.
    Written,
    /// All content has become durable since it was written.
    Durable,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A poisoned lock does no harm: a reader that finds a mismatch reads the entries again.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The blocks that a byte range touches.
fn blocks(bytes: &Range<u64>) -> Range<u64> {
    if bytes.is_empty() {
        return 0..0;
    }
    bytes.start / SUM_BLOCK_BYTES..bytes.end.div_ceil(SUM_BLOCK_BYTES)
}

impl Sums {
    fn file(&self, ino: Ino) -> Arc<Mutex<FileSums>> {
        let mut files = locked(&self.files);
        if let Some(file) = files.get(&ino) {
            return file.clone();
        }
        if files.len() >= FILES_MAX {
            files.retain(|_, file| Arc::strong_count(file) > 1 || locked(file).is_needed());
        }
        files.entry(ino).or_default().clone()
    }

    /// Drops all knowledge of a file, which was opened or closed for the last time.
    pub(crate) fn forget(&self, ino: Ino) {
        locked(&self.files).remove(&ino);
    }

    /// Registers a file that was created just now and has no entries.
    pub(crate) fn begin(&self, ino: Ino) {
        let file = self.file(ino);
        *locked(&file) = FileSums { table: Table::fresh(), ..FileSums::default() };
    }

    /// Sets whether other clients can write a file.
    pub(crate) fn share(&self, ino: Ino, shared: bool) {
        let file = self.file(ino);
        let off = locked(&file).off;
        *locked(&file) = FileSums { shared, off, ..FileSums::default() };
    }

    /// Whether a file has blocks whose entries are still to be written.
    pub(crate) fn is_pending(&self, ino: Ino) -> bool {
        let file = locked(&self.files).get(&ino).cloned();
        file.is_some_and(|file| !locked(&file).pending.is_empty())
    }

    /// Sets whether the policy demands entries for a file.
    pub(crate) fn want(&self, ino: Ino, wanted: bool) {
        let file = self.file(ino);
        locked(&file).off = !wanted;
    }

    /// Reads a byte range and verifies its checksums.
    ///
    /// # Errors
    /// `EIO` with the inode and the block if a block does not fit its entry; the errors of the
    /// store.
    pub(crate) fn read_into(
        &self,
        objects: &Objects<'_>,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<()> {
        objects.read_unverified(offset, buffer)?;
        let file = self.file(objects.ino());
        let wanted = blocks(&(offset..offset.saturating_add(buffer.len() as u64)));
        let entries = locked(&file).table.entries(objects, wanted.clone(), Age::Recent);
        let entries = match entries {
            // Unreadable checksums do not make readable content unreadable.
            Err(error) if error.errno == Errno::Io => return Ok(()),
            entries => entries?,
        };
        if misfit(objects, wanted.start, &entries, offset, buffer)?.is_none() {
            return Ok(());
        }
        // Another client may be writing: a mismatch is damage only if the entry is the same before
        // and after the content was read.
        for _ in 0..ATTEMPTS_MAX {
            let entries = locked(&file).table.entries(objects, wanted.clone(), Age::New)?;
            objects.read_unverified(offset, buffer)?;
            let misfit = misfit(objects, wanted.start, &entries, offset, buffer)?;
            let Some((block, sum)) = misfit else { return Ok(()) };
            let after = locked(&file).table.entries(objects, block..block + 1, Age::New)?;
            if after == [SumEntry::Sum(sum)] {
                return Err(damaged(objects, block, sum));
            }
        }
        // Another client writes all the time, so the content may be a mixture of two states.
        Ok(())
    }
}

impl FileSums {
    fn is_needed(&self) -> bool {
        self.shared || self.table.is_fresh() || !self.pending.is_written()
    }
}

/// The first block of a byte range whose content does not fit its entry. The first of the entries
/// belongs to the block with the number that is passed.
fn misfit(
    objects: &Objects<'_>,
    first: u64,
    entries: &[SumEntry],
    offset: u64,
    buffer: &mut [u8],
) -> Result<Option<(u64, Sum)>> {
    let end = offset + buffer.len() as u64;
    let period = objects.store().period();
    let mut whole = Vec::new();
    for (block, entry) in (first..).zip(entries) {
        let Some(sum) = entry.sum().filter(|sum| sum.period == 0 || sum.period == period) else {
            continue;
        };
        let start = block * SUM_BLOCK_BYTES;
        let covered = start + u64::from(sum.length);
        let (from, to) = (start.max(offset), covered.min(end));
        if from >= to {
            continue;
        }
        let asked = usize_of(from - offset)..usize_of(to - offset);
        if (from, to) == (start, covered) {
            if !sum.fits(&buffer[asked]) {
                return Ok(Some((block, sum)));
            }
            continue;
        }
        // The caller reads a part of the block, and the checksum covers all of it.
        whole.resize(usize_of(sum.length.into()), 0);
        objects.read_unverified(start, &mut whole)?;
        if !sum.fits(&whole) {
            return Ok(Some((block, sum)));
        }
        buffer[asked].copy_from_slice(&whole[usize_of(from - start)..usize_of(to - start)]);
    }
    Ok(None)
}

fn damaged(objects: &Objects<'_>, block: u64, sum: Sum) -> Error {
    let start = block * SUM_BLOCK_BYTES;
    let object = objects.name(start / sum.stripe.bytes());
    let cause = format!(
        "the content is damaged: block {block} (bytes {start} to {}, in the object {object}) does not match \
         its checksum",
        start + u64::from(sum.length),
    );
    add_damaged_file(objects.store(), objects.ino(), &cause);
    Error::new(Errno::Io, format!("inode {}", objects.ino().0), cause)
        .remedy("restore the file from a copy; `cudele scrub` lists everything that is damaged")
}

#[cfg(test)]
mod tests;
