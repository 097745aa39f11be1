//! Checksums of file content: written by whoever writes content, verified by whoever reads it.
//!
//! Content lies in its objects as it always did; beside them is an object of entries, one for each block of
//! 16 KiB ([`metastore::Sum`]). A block without an entry is not verified. So content and entry need not be
//! written at once, if the order is kept that `docs/decisions/0004-content-checksums.md` derives:
//!
//! * an entry that a write will contradict is taken away before the write, durably if the entry is one that
//!   holds after a power failure;
//! * an entry is written after the content, by the one client that has the file to itself; what several clients
//!   write at a time has none;
//! * an entry written before its content was durable names the store's period, and holds no longer than that.
//!
//! Not here: which file is whose (`vfs` tells: [`Fs::share_sums`](crate::Fs::share_sums)).
//!
//! Invariant: of the entries in the store that hold, each fits the content that any reader finds.

mod pending;
mod session;
mod table;
mod write;

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use metastore::{Entry, SUM_BLOCK_BYTES, Sum};
use types::{Errno, Error, Ino, Map, Result, Stripe};

use self::pending::Pending;
use self::table::{Age, Table};
use crate::extents::{Objects, usize_of};

/// So many files are remembered without need.
const FILES_MAX: usize = 16_384;
/// So often content and entry may change while they are held against each other.
const ATTEMPTS_MAX: usize = 8;

/// What a process knows of the checksums of files.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    files: Mutex<Map<Ino, Arc<Mutex<FileSums>>>>,
}

/// What it knows of those of one file.
#[derive(Debug, Default)]
struct FileSums {
    /// Others may write the file, too: nobody writes entries.
    shared: bool,
    /// The policy wants no entries.
    off: bool,
    /// How it is striped, once it was written.
    stripe: Option<Stripe>,
    table: Table,
    /// Blocks that this process has written since, and not written the entry of.
    pending: Pending,
}

/// When entries are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seal {
    /// The content may not be durable: they hold as long as nothing unsynced can have been lost.
    Written,
    /// All content was made durable since it was written.
    Durable,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is remembered is looked up again where it does not fit.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The blocks that a byte range touches.
fn blocks(offset: u64, length: u64) -> Range<u64> {
    if length == 0 {
        return 0..0;
    }
    offset / SUM_BLOCK_BYTES..offset.saturating_add(length).div_ceil(SUM_BLOCK_BYTES)
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

    /// Nothing is known of a file any more: it was opened, or closed for good.
    pub(crate) fn forget(&self, ino: Ino) {
        locked(&self.files).remove(&ino);
    }

    /// A file was made just now: there are no entries.
    pub(crate) fn begin(&self, ino: Ino) {
        let file = self.file(ino);
        *locked(&file) = FileSums { table: Table::fresh(), ..FileSums::default() };
    }

    /// Whether others may write a file, too.
    pub(crate) fn share(&self, ino: Ino, shared: bool) {
        let file = self.file(ino);
        let off = locked(&file).off;
        *locked(&file) = FileSums { shared, off, ..FileSums::default() };
    }

    /// Whether entries of a file are to be written.
    pub(crate) fn is_pending(&self, ino: Ino) -> bool {
        let file = locked(&self.files).get(&ino).cloned();
        file.is_some_and(|file| !locked(&file).pending.is_empty())
    }

    /// Whether the policy wants entries for a file.
    pub(crate) fn want(&self, ino: Ino, wanted: bool) {
        let file = self.file(ino);
        locked(&file).off = !wanted;
    }

    /// Reads a byte range and holds it against its checksums.
    ///
    /// # Errors
    /// `EIO` with the inode and the block if it does not fit; what the store says.
    pub(crate) fn read_into(
        &self,
        objects: &Objects<'_>,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<()> {
        objects.read_unverified(offset, buffer)?;
        let file = self.file(objects.ino());
        let wanted = blocks(offset, buffer.len() as u64);
        let entries = locked(&file).table.entries(objects, wanted.clone(), Age::Recent);
        let entries = match entries {
            // The checksums are lost, and the content is not.
            Err(error) if error.errno == Errno::Io => return Ok(()),
            entries => entries?,
        };
        if misfit(objects, (wanted.start, &entries), offset, buffer)?.is_none() {
            return Ok(());
        }
        // Somebody may be writing: an entry that stands before and after the content was read, and does
        // not fit it, is damage.
        for _ in 0..ATTEMPTS_MAX {
            let entries = locked(&file).table.entries(objects, wanted.clone(), Age::New)?;
            objects.read_unverified(offset, buffer)?;
            let misfit = misfit(objects, (wanted.start, &entries), offset, buffer)?;
            let Some((block, sum)) = misfit else { return Ok(()) };
            let after = locked(&file).table.entries(objects, block..block + 1, Age::New)?;
            if after == [Entry::Sum(sum)] {
                return Err(damaged(objects, block, sum));
            }
        }
        // Somebody writes all the time: the content is between two states, as it may be.
        Ok(())
    }
}

impl FileSums {
    fn is_needed(&self) -> bool {
        self.shared || self.table.is_fresh() || !self.pending.is_written()
    }
}

/// The first block of a byte range whose content does not fit its entry. The entries are those of the blocks
/// from a number on.
fn misfit(
    objects: &Objects<'_>,
    (first, entries): (u64, &[Entry]),
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
        // A part of what it covers was asked for, and the checksum is of all.
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
    Error::new(Errno::Io, format!("inode {}", objects.ino().0), cause)
        .remedy("restore the file from a copy; `cudele scrub` lists everything that is damaged")
}

#[cfg(test)]
mod tests;
