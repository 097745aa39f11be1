//! The entries of a file, as they are in the store.
//!
//! Remembered entries may be out of date while other clients write. So a reader reads the entries
//! again before it reports damage. A writer remembers only entries that it has read since the file
//! became its own, or became shared: clients only remove entries of a shared file.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use metastore::{SUM_BYTES, SUMS_PER_OBJECT, Sum, SumEntry};
use objstore::SyncScope;
use types::{Errno, Result};

use crate::extents::{Objects, usize_of};

/// Entries are read so many at a time: those of 16 MiB.
const CHUNK: u64 = 1024;
/// So many chunks are remembered of a file.
const CHUNKS_MAX: usize = 256;
/// After this time, a block that had no entry is looked up again.
const RECENT: Duration = Duration::from_secs(1);

/// The age that remembered entries may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Age {
    /// Any for an entry; [`RECENT`] for the absence of one.
    Recent,
    /// Read since the file became this process's own, or became shared.
    Own,
    /// Read now.
    New,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// The store had no entry when this process made the file, and no other client writes entries.
    fresh: bool,
    chunks: BTreeMap<u64, Chunk>,
}

#[derive(Debug)]
struct Chunk {
    /// A block behind the end has no entry.
    entries: Vec<SumEntry>,
    read: Instant,
}

impl Chunk {
    fn get(&self, at: usize) -> SumEntry {
        self.entries.get(at).copied().unwrap_or(SumEntry::None)
    }
}

/// The object that the entry of a block is in, and where.
fn place(objects: &Objects<'_>, block: u64) -> (String, u64) {
    let at = block % SUMS_PER_OBJECT * SUM_BYTES as u64;
    (objects.sums_name(block / SUMS_PER_OBJECT), at)
}

/// The part of some blocks that is in a chunk, counted from its beginning.
fn within(chunk: u64, blocks: &Range<u64>) -> Range<usize> {
    let start = chunk * CHUNK;
    let from = blocks.start.max(start) - start;
    usize_of(from)..usize_of(blocks.end.min(start + CHUNK) - start)
}

fn chunks(blocks: &Range<u64>) -> Range<u64> {
    if blocks.is_empty() {
        return 0..0;
    }
    blocks.start / CHUNK..(blocks.end - 1) / CHUNK + 1
}

impl Table {
    pub(super) fn fresh() -> Self {
        Self { fresh: true, ..Self::default() }
    }

    pub(super) fn is_fresh(&self) -> bool {
        self.fresh
    }

    /// The entries of some blocks.
    pub(super) fn entries(
        &mut self,
        objects: &Objects<'_>,
        blocks: Range<u64>,
        age: Age,
    ) -> Result<Vec<SumEntry>> {
        let mut found = Vec::with_capacity(usize_of(blocks.end.saturating_sub(blocks.start)));
        for number in chunks(&blocks) {
            let inside = within(number, &blocks);
            let known = self.chunks.get(&number).is_some_and(|chunk| match age {
                Age::Own => true,
                Age::New => false,
                Age::Recent => {
                    inside.clone().all(|at| chunk.get(at).sum().is_some())
                        || chunk.read.elapsed() < RECENT
                }
            });
            if !known {
                self.read(objects, number)?;
            }
            let chunk = self.chunks.get(&number);
            found.extend(inside.map(|at| chunk.map_or(SumEntry::None, |chunk| chunk.get(at))));
        }
        Ok(found)
    }

    fn read(&mut self, objects: &Objects<'_>, number: u64) -> Result<()> {
        if self.chunks.len() >= CHUNKS_MAX {
            self.clear();
        }
        let mut entries = Vec::new();
        if !self.fresh {
            let first = number * CHUNK;
            let (object, at) = place(objects, first);
            let length = usize_of(CHUNK) * SUM_BYTES;
            let bytes = match objects.store().read_range(&object, at, length) {
                Ok(bytes) => bytes,
                Err(error) if error.errno == Errno::NotFound => Vec::new(),
                Err(error) => return Err(error),
            };
            let each = (first..).zip(bytes.chunks(SUM_BYTES));
            entries.extend(each.map(|(block, bytes)| Sum::decode(objects.ino(), block, bytes)));
        }
        self.chunks.insert(number, Chunk { entries, read: Instant::now() });
        Ok(())
    }

    /// Writes entries of blocks that follow each other; none takes one away.
    pub(super) fn write(
        &mut self,
        objects: &Objects<'_>,
        first: u64,
        sums: &[Option<Sum>],
    ) -> Result<()> {
        let all = first..first + sums.len() as u64;
        for number in chunks(&all) {
            let inside = within(number, &all);
            let from = number * CHUNK + inside.start as u64;
            let now = &sums[usize_of(from - first)..][..inside.len()];
            let bytes: Vec<u8> = (from..)
                .zip(now)
                .flat_map(|(block, sum)| {
                    sum.map_or([0; SUM_BYTES], |sum| sum.encode(objects.ino(), block))
                })
                .collect();
            let (object, at) = place(objects, from);
            objects.store().write_range(&object, at, &bytes)?;
            self.remember(number, inside.start, now);
        }
        self.fresh = false;
        Ok(())
    }

    /// Remembers written entries of a chunk that was read or is new. The other entries of an unread
    /// chunk are unknown.
    fn remember(&mut self, number: u64, from: usize, sums: &[Option<Sum>]) {
        if self.fresh && !self.chunks.contains_key(&number) {
            let empty = Chunk { entries: Vec::new(), read: Instant::now() };
            self.chunks.insert(number, empty);
        }
        let Some(chunk) = self.chunks.get_mut(&number) else { return };
        let end = from + sums.len();
        if chunk.entries.len() < end {
            chunk.entries.resize(end, SumEntry::None);
        }
        for (entry, sum) in chunk.entries[from..end].iter_mut().zip(sums) {
            *entry = sum.map_or(SumEntry::None, SumEntry::Sum);
        }
    }

    /// Removes entries before a write contradicts them. The removal is durable if one of the
    /// entries holds after a power failure. Then all such entries of the chunk are removed, and
    /// written again as entries of this period if the file is this process's own: one sync for a
    /// chunk instead of one for a block.
    pub(super) fn take_away(
        &mut self,
        objects: &Objects<'_>,
        gone: &[u64],
        is_own: bool,
    ) -> Result<()> {
        let period = objects.store().period();
        let mut left = gone;
        let mut unsynced: Vec<String> = Vec::new();
        while let Some(first) = left.first() {
            let number = first / CHUNK;
            let (now, later) = left.split_at(left.partition_point(|block| block / CHUNK == number));
            left = later;
            let start = number * CHUNK;
            let chunk = self.chunks.get(&number);
            let entries = chunk.map(|chunk| chunk.entries.as_slice()).unwrap_or_default();
            let durable = |block: &u64| {
                let entry = entries.get(usize_of(block - start)).copied().unwrap_or(SumEntry::None);
                entry.sum().is_none_or(|sum| sum.period == 0)
            };
            if period == 0 || !now.iter().any(durable) {
                for run in runs(now) {
                    self.write(objects, run.start, &vec![None; usize_of(run.end - run.start)])?;
                }
                continue;
            }
            let sums: Vec<Option<Sum>> = (start..)
                .zip(entries)
                .map(|(block, entry)| {
                    let stays = is_own && now.binary_search(&block).is_err();
                    let sum = entry.sum().filter(|_| stays)?;
                    Some(Sum { period: if sum.period == 0 { period } else { sum.period }, ..sum })
                })
                .collect();
            self.write(objects, start, &sums)?;
            let (object, _) = place(objects, start);
            if unsynced.last() != Some(&object) {
                unsynced.push(object);
            }
        }
        unsynced.iter().try_for_each(|object| objects.store().sync(SyncScope::Object(object)))
    }

    /// Nothing is remembered.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Numbers in order, as ranges of those that follow each other.
pub(super) fn runs(numbers: &[u64]) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some(run) if run.end == *number => run.end += 1,
            Some(_) | None => runs.push(*number..number + 1),
        }
    }
    runs
}
