//! Removal of entries before content is written, zeroed or deleted, and the write of new entries.

use std::ops::Range;

use metastore::{SUM_BLOCK_BYTES, SUMS_PER_OBJECT, Sum, SumEntry};
use objstore::{Store, SyncScope};
use types::{Errno, Result, StripedFile};

use super::pending::BlockState;
use super::table::{Age, runs};
use super::{FileSums, Seal, Sums, blocks, locked};
use crate::extents::{Objects, usize_of};

/// The limit of blocks that one seal reads again to make their entries: 64 MiB.
const READ_AGAIN_MAX: usize = 4096;
/// The number of blocks above which a process drops the entries that a sync would upgrade to period
/// 0.
const REMEMBERED_MAX: usize = 1 << 18;

impl Sums {
    /// Removes the entries that the write contradicts, and writes content. [`Sums::seal`] writes
    /// the new entries.
    ///
    /// # Errors
    /// The errors of the store; no content is written if an entry cannot be removed.
    pub(crate) fn write_at(&self, objects: &Objects<'_>, offset: u64, data: &[u8]) -> Result<()> {
        let file = self.file(objects.ino());
        let range = offset..offset + data.len() as u64;
        if range.is_empty() {
            return objects.write_unverified(offset, data);
        }
        locked(&file).before_write(objects, &range)?;
        let written = objects.write_unverified(offset, data);
        let mut file = locked(&file);
        if !file.shared {
            file.pending.end(&range, written.is_ok().then_some(data));
        }
        written
    }

    /// Zeroes with `act` a byte range, given as beginning and end, of a file of this length.
    ///
    /// # Errors
    /// As [`Sums::write_at`].
    pub(crate) fn zero(
        &self,
        objects: &Objects<'_>,
        size: u64,
        range: &Range<u64>,
        act: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        let file = self.file(objects.ino());
        let (begun, ready) = {
            let mut file = locked(&file);
            // Until the end, no other thread writes entries of these blocks.
            let mut begun = file.pending.begin_zero(range);
            let ready = file.before_zero(objects, size, range, &mut begun);
            (begun, ready)
        };
        let zeroed = ready.and_then(|()| act());
        locked(&file).pending.end_zero(range, &begun);
        zeroed
    }

    /// Removes all entries of a file of this length, before its content is deleted. The removal is
    /// durable if an entry holds after a power failure and a client can still read the file.
    ///
    /// # Errors
    /// The errors of the store.
    pub(crate) fn remove(&self, objects: &Objects<'_>, size: u64, is_gone: bool) -> Result<()> {
        let file = self.file(objects.ino());
        let mut file = locked(&file);
        file.pending.clear();
        for name in objects.sums_names(size)? {
            remove_object(objects, &name, is_gone)?;
        }
        file.table.clear();
        Ok(())
    }

    /// Writes the entries of the blocks that this process has written. A write does not fail
    /// because its checksum is missing, so this skips an entry that cannot be written. With
    /// `read_again` it reads blocks that were written in the middle.
    pub(crate) fn seal(&self, objects: &Objects<'_>, seal: Seal, read_again: bool) {
        let file = self.file(objects.ino());
        let mut file = locked(&file);
        if file.shared || file.off {
            file.pending.clear();
        } else if !file.pending.is_empty() {
            // The next seal writes the entries that failed now.
            let _ = file.seal(objects, seal, read_again);
        }
    }
}

/// Entries that hold for the store's period, and that a sync can upgrade to period 0.
#[derive(Debug, Default)]
pub(crate) struct Written(Vec<WrittenFile>);

/// The entries of one file.
#[derive(Debug)]
struct WrittenFile {
    file: StripedFile,
    blocks: Vec<(u64, BlockState)>,
}

impl Sums {
    /// The entries of the content that is written so far.
    pub(crate) fn written(&self) -> Written {
        let files: Vec<_> =
            locked(&self.files).iter().map(|(ino, file)| (*ino, file.clone())).collect();
        let written = files.into_iter().filter_map(|(ino, file)| {
            let file = locked(&file);
            let (file, blocks) = (StripedFile::new(ino, file.stripe?), file.written());
            Some(WrittenFile { file, blocks }).filter(|written| !written.blocks.is_empty())
        });
        Written(written.collect())
    }

    /// Upgrades to period 0 the entries of content that has become durable.
    pub(crate) fn hold_for_good(&self, store: &dyn Store, written: &Written) {
        for WrittenFile { file, blocks } in &written.0 {
            let objects = Objects::new(store, self, *file);
            let file = self.file(file.ino);
            // An entry that is not upgraded holds until the end of the period.
            let _ = locked(&file).hold_for_good(&objects, blocks);
        }
    }
}

/// Removes an object of entries; durably if an entry holds after a power failure and a client can
/// still read the file.
fn remove_object(objects: &Objects<'_>, name: &str, is_gone: bool) -> Result<()> {
    let durably = !is_gone && holds_after_power_failure(objects, name)?;
    objects.store().delete(name)?;
    if durably {
        objects.store().sync(SyncScope::Object(name))?;
    }
    Ok(())
}

fn holds_after_power_failure(objects: &Objects<'_>, name: &str) -> Result<bool> {
    if objects.store().period() == 0 {
        return Ok(false);
    }
    let bytes = match objects.store().get(name) {
        Ok((bytes, _)) => bytes,
        Err(error) if error.errno == Errno::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    let (_, number) = name.rsplit_once('.').unwrap_or_default();
    let first = u64::from_str_radix(number, 16).unwrap_or_default() * SUMS_PER_OBJECT;
    let mut entries = (first..).zip(bytes.chunks(metastore::SUM_BYTES));
    Ok(entries.any(|(block, bytes)| match Sum::decode(objects.ino(), block, bytes) {
        SumEntry::Sum(sum) => sum.period == 0,
        SumEntry::None => false,
        SumEntry::Damaged => true,
    }))
}

impl FileSums {
    fn before_write(&mut self, objects: &Objects<'_>, range: &Range<u64>) -> Result<()> {
        self.stripe = Some(objects.stripe());
        let all = blocks(range);
        let entries = self.table.entries(objects, all.clone(), Age::Own)?;
        let contradicts = |block: u64, entry: SumEntry| match entry {
            SumEntry::None => false,
            // Bytes behind the covered ones can change without contradicting the entry.
            SumEntry::Sum(sum) => range.start < block * SUM_BLOCK_BYTES + u64::from(sum.length),
            SumEntry::Damaged => true,
        };
        let each = || all.clone().zip(&entries);
        let gone: Vec<u64> = each()
            .filter_map(|(block, entry)| contradicts(block, *entry).then_some(block))
            .collect();
        if !gone.is_empty() {
            self.table.take_away(objects, &gone, !self.shared)?;
        }
        if !self.shared {
            for (block, entry) in each() {
                let is_gone = gone.binary_search(&block).is_ok();
                self.pending.begin(block, entry.sum(), is_gone);
            }
        }
        Ok(())
    }

    fn before_zero(
        &mut self,
        objects: &Objects<'_>,
        size: u64,
        range: &Range<u64>,
        begun: &mut Vec<u64>,
    ) -> Result<()> {
        let bytes = SUMS_PER_OBJECT * SUM_BLOCK_BYTES;
        // A file can be so much longer than its content that a look at each block would never end.
        for number in objects.sums_numbers(range.end)? {
            let first = number * SUMS_PER_OBJECT;
            let all = blocks(range);
            let inside = all.start.max(first)..all.end.min(first + SUMS_PER_OBJECT);
            if inside.is_empty() {
                continue;
            }
            let start = number * bytes;
            if range.start <= start && range.end >= size.min(start + bytes) {
                remove_object(objects, &objects.sums_name(number), false)?;
                self.table.clear();
                continue;
            }
            let entries = self.table.entries(objects, inside.clone(), Age::Own)?;
            let covered = |block: u64, sum: Sum| {
                range.start < block * SUM_BLOCK_BYTES + u64::from(sum.length)
            };
            let gone = inside.zip(entries).filter(|(block, entry)| match entry {
                SumEntry::None => false,
                SumEntry::Sum(sum) => covered(*block, *sum),
                SumEntry::Damaged => true,
            });
            let gone: Vec<(u64, u32)> = gone
                .map(|(block, entry)| (block, entry.sum().map_or(0, |sum| sum.length)))
                .collect();
            let numbers: Vec<u64> = gone.iter().map(|(block, _)| *block).collect();
            self.table.take_away(objects, &numbers, !self.shared)?;
            if !self.shared {
                self.pending.lose(range, &gone, begun);
            }
        }
        Ok(())
    }

    /// The entries that a sync of all content would upgrade to period 0.
    fn written(&self) -> Vec<(u64, BlockState)> {
        if self.shared { Vec::new() } else { self.pending.written() }
    }

    fn hold_for_good(
        &mut self,
        objects: &Objects<'_>,
        written: &[(u64, BlockState)],
    ) -> Result<()> {
        let still = written.iter().filter(|(block, known)| self.pending.is_still(*block, *known));
        let sums = still.filter_map(|(block, known)| match *known {
            BlockState::Bytes { crc, length } => {
                Some((*block, Sum { crc, length, stripe: objects.stripe(), period: 0 }))
            }
            BlockState::Unread { .. } => None,
        });
        let sums: Vec<(u64, Sum)> = sums.collect();
        self.write_entries(objects, &sums)
    }

    fn seal(&mut self, objects: &Objects<'_>, seal: Seal, read_again: bool) -> Result<()> {
        let period = match seal {
            Seal::Written => objects.store().period(),
            Seal::Durable => 0,
        };
        let mut left = if read_again { READ_AGAIN_MAX } else { 0 };
        let mut sums: Vec<(u64, Sum)> = Vec::new();
        for (block, known) in self.pending.ready(period == 0) {
            let (crc, length) = match known {
                BlockState::Bytes { crc, length } => (crc, length),
                BlockState::Unread { .. } if left > 0 => {
                    left -= 1;
                    match objects.read_block(block)? {
                        Some(bytes) => {
                            let length = u32::try_from(bytes.len()).unwrap_or_default();
                            (metastore::content_crc(&bytes), length)
                        }
                        None => continue,
                    }
                }
                BlockState::Unread { .. } => continue,
            };
            sums.push((block, Sum { crc, length, stripe: objects.stripe(), period }));
        }
        self.write_entries(objects, &sums)?;
        if self.pending.len() > REMEMBERED_MAX {
            self.pending.clear();
        }
        Ok(())
    }

    fn write_entries(&mut self, objects: &Objects<'_>, sums: &[(u64, Sum)]) -> Result<()> {
        let numbers: Vec<u64> = sums.iter().map(|(block, _)| *block).collect();
        let mut rest = sums;
        for run in runs(&numbers) {
            let (now, later) = rest.split_at(usize_of(run.end - run.start));
            rest = later;
            let entries: Vec<Option<Sum>> = now.iter().map(|(_, sum)| Some(*sum)).collect();
            self.table.write(objects, run.start, &entries)?;
            now.iter().for_each(|(block, sum)| self.pending.sealed(*block, *sum));
        }
        Ok(())
    }
}
