//! Writes a run.
//!
//! Values are copied as they were captured; only names are looked at. Not here: what a value
//! looks like.
//!
//! Invariant: rows arrive in strictly increasing order of name.

use crc32c::{crc32c, crc32c_append};
use types::DirFragId;
use types::bytes::Put;

use super::{
    BLOCK_BYTES_TARGET, BLOCK_END_BYTES, END_MAGIC, FOOTER_BYTES, HEADER_BYTES, Header,
    INDEX_ENTRY_BYTES, RESTART_ROWS,
};
use crate::name::shared_prefix;
use crate::object::RunId;
use crate::row::is_removed;
use crate::rows::{Place, Rows};

/// A row, and enough of its name to order it mostly without a look at the row: rows lie anywhere
/// in memory, and a look costs more than a comparison.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    /// Eight bytes of the name, from where the names of these rows begin to differ.
    name_part: u64,
    /// Where the buffer holds the row. Later rows lie at higher places.
    pub(super) place: Place,
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
pub(super) struct RunWriter<'r> {
    header: Header,
    out: Vec<u8>,
    index: Vec<u8>,
    blocks: u32,
    /// Where the open block starts.
    block_start: usize,
    block_rows: usize,
    /// The first name of the open block.
    block_first: &'r [u8],
    restarts: Vec<u32>,
    last_name: &'r [u8],
}

impl<'r> RunWriter<'r> {
    pub(super) fn new(dirfrag: DirFragId, id: RunId, rows: &Rows) -> Self {
        let header = Header { dirfrag, id, rows: 0, removed: 0, base: rows.base() };
        // What rows take in memory is more than what they take in a run, unless they are few.
        let mut out = Vec::with_capacity(HEADER_BYTES + FOOTER_BYTES + rows.bytes());
        header.put(&mut out);
        Self {
            header,
            out,
            index: Vec::new(),
            blocks: 0,
            block_start: HEADER_BYTES,
            block_rows: 0,
            block_first: &[],
            restarts: Vec::new(),
            last_name: &[],
        }
    }

    /// Appends a row whose name is larger than all before.
    #[inline]
    pub(super) fn push(&mut self, name: &'r [u8], value: &[u8]) {
        debug_assert!(self.last_name < name, "rows are written in order");
        let mut shared = 0;
        if self.block_rows == 0 {
            self.block_first = name;
        }
        if self.block_rows.is_multiple_of(RESTART_ROWS) {
            self.restarts.push(fits_u32(self.out.len() - self.block_start));
        } else {
            shared = shared_prefix(self.last_name, name);
        }
        let suffix = &name[shared..];
        self.out.put_u8(fits_u8(shared));
        self.out.put_u8(fits_u8(suffix.len()));
        self.out.extend_from_slice(suffix);
        self.out.extend_from_slice(value);
        self.last_name = name;
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
        let length = self.out.len() - self.block_start;
        debug_assert!(length > BLOCK_END_BYTES, "a block has rows");
        self.index.reserve(INDEX_ENTRY_BYTES + self.block_first.len());
        self.index.put_u32(fits_u32(length));
        self.index.put_u32(fits_u32(self.block_rows));
        self.index.put_u8(fits_u8(self.block_first.len()));
        self.index.extend_from_slice(self.block_first);
        self.blocks += 1;
        self.block_start = self.out.len();
        self.block_rows = 0;
        self.restarts.clear();
    }

    /// The bytes of the object.
    pub(super) fn finish(mut self) -> Vec<u8> {
        if self.block_rows > 0 {
            self.finish_block();
        }
        let mut header = Vec::with_capacity(HEADER_BYTES);
        self.header.put(&mut header);
        self.out[..HEADER_BYTES].copy_from_slice(&header);
        let index_start = self.out.len();
        self.out.extend_from_slice(&self.index);
        self.out.put_u64(index_start as u64);
        self.out.put_u32(self.blocks);
        let crc = crc32c_append(crc32c(&header), &self.out[index_start..]);
        self.out.put_u32(crc);
        self.out.extend_from_slice(END_MAGIC);
        self.out
    }
}

fn fits_u8(count: usize) -> u8 {
    u8::try_from(count).expect("a name has at most 255 bytes")
}

fn fits_u32(count: usize) -> u32 {
    u32::try_from(count).expect("a block is 16 KiB and one row, and a row is less than 4 GiB")
}
