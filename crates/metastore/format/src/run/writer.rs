//! Writes a run.
//!
//! Captured values are copied as they are; only names are looked at. Not here: the form of a value.
//!
//! Invariant: rows arrive in strictly increasing order of name.

use std::collections::BTreeMap;

use crc32c::{crc32c, crc32c_append};
use types::bytes::Put;
use types::{DirFragId, Ino, name_hash};

use super::filter::{self, GROUP_BLOCKS};
use super::{
    BLOCK_BYTES_TARGET, BLOCK_END_BYTES, END_MAGIC, FOOTER_BYTES, HEADER_BYTES, Header,
    INDEX_ENTRY_BYTES, RESTART_ROWS, RUN_VERSION,
};
use crate::manifest::RunInfo;
use crate::name::{NameBuf, shared_prefix};
use crate::object::RunId;
use crate::row::{Base, InodeRecord, RowValue, is_removed, put_value};
use crate::rows::{RowPlace, Rows};
use crate::values::{ValueSegment, ValuesBuilder};

/// A row, and enough of its name to order it mostly without a look at the row: rows lie anywhere
/// in memory, and a look costs more than a comparison.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    /// Eight bytes of the name, from where the names of these rows begin to differ.
    name_part: u64,
    /// Where the buffer holds the row. Later rows lie at higher places.
    pub(super) place: RowPlace,
}

/// The rows to write, in order of name: of each name only the row pushed last.
pub(super) fn sorted(rows: &Rows) -> Vec<Key> {
    let name = |key: &Key| rows.row(key.place).0;
    // The names of a job's files often start alike.
    let mut names = rows.places().map(|place| rows.row(place).0);
    let first = names.next().unwrap_or_default();
    let common = names.fold(first.len(), |common, name| shared_prefix(name, &first[..common]));
    let mut keys = Vec::with_capacity(rows.len());
    keys.extend(rows.places().map(|place| {
        let name_part = sort_key(&rows.row(place).0[common..]);
        Key { name_part, place }
    }));
    keys.sort_unstable_by(|left, right| {
        left.name_part
            .cmp(&right.name_part)
            .then_with(|| name(left).cmp(name(right)))
            .then_with(|| right.place.start.cmp(&left.place.start))
    });
    // Newest first within a name: the first of equals is the one to keep.
    keys.dedup_by(|later, kept| later.name_part == kept.name_part && name(later) == name(kept));
    keys
}

/// Orders like the names, except that different names can have one key.
fn sort_key(name: &[u8]) -> u64 {
    let mut key = [0; 8];
    let count = name.len().min(8);
    key[..count].copy_from_slice(&name[..count]);
    u64::from_be_bytes(key)
}

/// A run in the making.
///
/// Its bytes can be taken away while it grows, so that a run may be larger than memory: the open
/// block, the index and the filters stay, about a fifteenth of the run.
#[derive(Debug)]
pub struct RunBuilder {
    header: Header,
    /// Whether the header has the base of the rows.
    has_base: bool,
    /// The bytes that were not taken away yet.
    out: Vec<u8>,
    /// How many bytes were taken away, and their checksum.
    taken: u64,
    crc: u32,
    index: Vec<u8>,
    filters: Vec<u8>,
    /// Where the group of filters begins that is being made.
    group_start: usize,
    blocks: u32,
    /// Where the open block starts.
    block_start: usize,
    block_rows: usize,
    /// The first name of the open block.
    block_first: NameBuf,
    /// The hash of each row of the open block, for its filter.
    hashes: Vec<u32>,
    restarts: Vec<u32>,
    last_name: NameBuf,
    /// A checksum of the checksums of all blocks.
    sum: u32,
    scratch: Vec<u8>,
    /// Where values go that are long; without it they stay in their rows.
    values: Option<ValuesBuilder>,
    /// To how many bytes of which segments its rows point.
    uses: BTreeMap<RunId, u64>,
}

/// The parts of a run outside its rows.
#[derive(Debug, Default)]
pub struct Columns {
    /// The value segment that was written with it, if any value was long, and the bytes of it that
    /// were not taken away.
    pub segment: Option<(Vec<u8>, ValueSegment)>,
    /// The segments that its rows point into, and to how many bytes.
    pub uses: BTreeMap<RunId, u64>,
}

impl RunBuilder {
    /// An empty run. The first inode becomes the base of its rows.
    #[must_use]
    pub fn new(dirfrag: DirFragId, id: RunId) -> Self {
        let mut builder = Self::with_base(dirfrag, id, Base::default(), 0);
        builder.has_base = false;
        builder
    }

    /// An empty run for values that were encoded with this base.
    pub(super) fn with_base(dirfrag: DirFragId, id: RunId, base: Base, bytes: usize) -> Self {
        let header = Header { version: RUN_VERSION, dirfrag, id, rows: 0, removed: 0, base };
        // Rows take more bytes in memory than in a run, unless they are few.
        let mut out = Vec::with_capacity(HEADER_BYTES + FOOTER_BYTES + bytes);
        header.put(&mut out);
        Self {
            header,
            has_base: true,
            out,
            taken: 0,
            crc: 0,
            index: Vec::new(),
            filters: Vec::new(),
            group_start: 0,
            blocks: 0,
            block_start: HEADER_BYTES,
            block_rows: 0,
            block_first: NameBuf::new(),
            hashes: Vec::new(),
            restarts: Vec::new(),
            last_name: NameBuf::new(),
            sum: 0,
            scratch: Vec::new(),
            values: None,
            uses: BTreeMap::new(),
        }
    }

    /// Values of at least so many bytes go to a value segment of the run's number.
    #[must_use]
    pub fn with_values(mut self, value_bytes_min: usize) -> Self {
        let Header { dirfrag, id, .. } = self.header;
        self.values = Some(ValuesBuilder::new(dirfrag, id, value_bytes_min));
        self
    }

    /// Appends a row with a name larger than all before.
    pub fn push(&mut self, name: &[u8], value: &RowValue<'_>) {
        if !self.has_base
            && self.taken == 0
            && let RowValue::Inode(record) = value
        {
            self.header.base = Base::of(record);
            self.has_base = true;
            self.put_header_again();
        }
        let mut value = *value;
        if let RowValue::Inode(record) = &mut value {
            self.point(record);
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        put_value(&mut scratch, &self.header.base, &value);
        self.push_encoded(name, &scratch);
        self.scratch = scratch;
    }

    /// Moves a row's long value to the segment, and counts the bytes of pointers.
    fn point(&mut self, record: &mut InodeRecord<'_>) {
        if let Some(values) = &mut self.values
            && record.is_large(values.value_bytes_min)
        {
            record.pointer = Some(values.push(record.data, record.extra));
            (record.data, record.extra) = (&[], &[]);
        }
        if let Some(pointer) = record.pointer {
            *self.uses.entry(pointer.segment).or_default() += pointer.bytes();
        }
    }

    /// The header changed, and is still here.
    fn put_header_again(&mut self) {
        let mut header = Vec::with_capacity(HEADER_BYTES);
        self.header.put(&mut header);
        self.out[..HEADER_BYTES].copy_from_slice(&header);
    }

    /// Takes the number of a client's run, which follows from its content. All rows were pushed,
    /// and nothing was taken away.
    pub(super) fn name_by_rows(&mut self, first: Ino) {
        if self.block_rows > 0 {
            self.finish_block();
        }
        self.header.id = RunId::of_client(first, self.sum);
        self.put_header_again();
    }

    /// The same with a value that is encoded.
    #[inline]
    pub(super) fn push_encoded(&mut self, name: &[u8], value: &[u8]) {
        debug_assert!(self.last_name.as_slice() < name, "rows are written in order");
        let mut shared = 0;
        if self.block_rows == 0 {
            self.block_first.set(name);
        }
        if self.block_rows.is_multiple_of(RESTART_ROWS) {
            self.restarts.push(fits_u32(self.out.len() - self.block_start));
        } else {
            shared = shared_prefix(self.last_name.as_slice(), name);
        }
        let suffix = &name[shared..];
        self.out.put_u8(fits_u8(shared));
        self.out.put_u8(fits_u8(suffix.len()));
        self.out.extend_from_slice(suffix);
        self.out.extend_from_slice(value);
        self.last_name.set(name);
        self.hashes.push(name_hash(name));
        self.block_rows += 1;
        self.header.rows += 1;
        self.header.removed += u64::from(is_removed(value));
        if self.out.len() - self.block_start >= BLOCK_BYTES_TARGET {
            self.finish_block();
        }
    }

    /// Closes the open block and enters it into the index.
    fn finish_block(&mut self) {
        for restart in &self.restarts {
            self.out.put_u32(*restart);
        }
        self.out.put_u32(fits_u32(self.restarts.len()));
        let crc = crc32c(&self.out[self.block_start..]);
        self.out.put_u32(crc);
        self.sum = crc32c_append(self.sum, &crc.to_le_bytes());
        let length = self.out.len() - self.block_start;
        debug_assert!(length > BLOCK_END_BYTES, "a block has rows");
        let first = self.block_first.as_slice();
        self.index.reserve(INDEX_ENTRY_BYTES + first.len());
        self.index.put_u32(fits_u32(length));
        self.index.put_u32(fits_u32(self.block_rows));
        self.index.put_u8(fits_u8(first.len()));
        self.index.extend_from_slice(first);
        self.blocks += 1;
        self.block_start = self.out.len();
        self.block_rows = 0;
        self.restarts.clear();
        filter::put_filter(&mut self.filters, &self.hashes);
        self.hashes.clear();
        if (self.blocks as usize).is_multiple_of(GROUP_BLOCKS) {
            self.finish_group();
        }
    }

    fn finish_group(&mut self) {
        filter::end_group(&mut self.filters, self.group_start);
        self.group_start = self.filters.len();
    }

    /// How many rows it has so far.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.header.rows
    }

    /// How many bytes can be taken away.
    #[must_use]
    pub fn ready_bytes(&self) -> usize {
        self.block_start
    }

    /// Takes away the blocks that are ready: they come next in the object.
    #[must_use]
    pub fn take(&mut self) -> Vec<u8> {
        let open = self.out.split_off(self.block_start);
        self.block_start = 0;
        let ready = std::mem::replace(&mut self.out, open);
        self.taken += ready.len() as u64;
        self.crc = crc32c_append(self.crc, &ready);
        ready
    }

    /// How many bytes of its value segment can be taken away.
    #[must_use]
    pub fn ready_value_bytes(&self) -> usize {
        self.values.as_ref().map_or(0, ValuesBuilder::ready_bytes)
    }

    /// Takes away the values that are ready: they come next in the segment.
    #[must_use]
    pub fn take_values(&mut self) -> Vec<u8> {
        self.values.as_mut().map_or_else(Vec::new, ValuesBuilder::take)
    }

    /// As [`RunBuilder::finish`], with the parts outside the rows.
    #[must_use]
    pub fn finish_columns(mut self) -> (Vec<u8>, RunInfo, Columns) {
        let segment = self.values.take().and_then(ValuesBuilder::finish);
        let columns = Columns { segment, uses: std::mem::take(&mut self.uses) };
        let (bytes, info) = self.finish();
        (bytes, info, columns)
    }

    /// The bytes of the object that were not taken away, and the manifest's entry for all of it.
    /// Its rows must have no pointers.
    #[must_use]
    pub fn finish(mut self) -> (Vec<u8>, RunInfo) {
        debug_assert!(self.uses.is_empty(), "what rows point to belongs into the manifest");
        if self.block_rows > 0 {
            self.finish_block();
        }
        if self.group_start < self.filters.len() {
            self.finish_group();
        }
        let mut header = Vec::with_capacity(HEADER_BYTES);
        self.header.put(&mut header);
        self.out.extend_from_slice(&self.filters);
        let index_start = self.out.len();
        self.out.extend_from_slice(&self.index);
        self.out.put_u64(self.header.rows);
        self.out.put_u64(self.header.removed);
        self.out.put_u64(self.taken + index_start as u64);
        self.out.put_u32(self.blocks);
        let crc = crc32c_append(crc32c(&header), &self.out[index_start..]);
        self.out.put_u32(crc);
        self.out.extend_from_slice(END_MAGIC);
        let Header { id, rows, removed, .. } = self.header;
        let bytes = self.taken + self.out.len() as u64;
        let crc = crc32c_append(self.crc, &self.out);
        (self.out, RunInfo { id, rows, removed, bytes, crc })
    }
}

fn fits_u8(count: usize) -> u8 {
    u8::try_from(count).expect("a name has at most 255 bytes")
}

fn fits_u32(count: usize) -> u32 {
    u32::try_from(count).expect("a block is 16 KiB and one row, and a row is less than 4 GiB")
}
