//! Filters: for each block, which names it cannot have.
//!
//! A Bloom filter of ten bits for each row, so that one name in about a hundred and twenty costs a
//! block that does not have it. Filters of sixteen consecutive blocks are a *group* with a checksum
//! of its own, which is read at once. They lie between blocks and index, so that the end of a run
//! stays short: attaching a run reads only the end, and never the part that grows with the names.
//!
//! Invariant: a filter never denies a row of its block. A row that a forger's filter denies is
//! missing from the forger's own run.

use crc32c::crc32c;
use types::bytes::{Malformed, Put};
use types::name_hash;

use crate::error::malformed;

/// The number of blocks with filters that are read together.
pub(super) const GROUP_BLOCKS: usize = 16;
const BITS_PER_ROW: usize = 10;
/// Bits that a name sets.
const PROBES: u32 = 7;
const CRC_BYTES: usize = 4;

/// The length of the filter of a block of so many rows.
pub(super) fn filter_bytes(rows: usize) -> usize {
    (rows * BITS_PER_ROW).div_ceil(8)
}

/// The length of a group with this many bytes of filters.
pub(super) fn group_bytes(filters: usize) -> usize {
    filters + CRC_BYTES
}

/// Appends the filter of a block with names of these hashes.
pub(super) fn put_filter(out: &mut Vec<u8>, hashes: &[u32]) {
    let start = out.len();
    out.resize(start + filter_bytes(hashes.len()), 0);
    let filter = &mut out[start..];
    for hash in hashes {
        for bit in bits(*hash, filter.len()) {
            filter[bit / 8] |= 1 << (bit % 8);
        }
    }
}

/// Appends the checksum of the group that begins at `start`.
pub(super) fn end_group(out: &mut Vec<u8>, start: usize) {
    let crc = crc32c(&out[start..]);
    out.put_u32(crc);
}

/// The filters of a group, if its checksum is right.
pub(super) fn open_group(bytes: &[u8]) -> Result<&[u8], Malformed> {
    match bytes.split_last_chunk::<CRC_BYTES>() {
        Some((filters, crc)) if crc32c(filters) == u32::from_le_bytes(*crc) => Ok(filters),
        Some((filters, _)) => Err(malformed(filters.len(), "a checksum that matches")),
        None => Err(malformed(bytes.len(), "more bytes")),
    }
}

/// Whether the block of a filter may have a name.
pub(super) fn may_have(filter: &[u8], name: &[u8]) -> bool {
    bits(name_hash(name), filter.len()).all(|bit| filter[bit / 8] & 1 << (bit % 8) != 0)
}

/// The bits that stand for a name in a filter of so many bytes.
fn bits(hash: u32, bytes: usize) -> impl Iterator<Item = usize> {
    let (count, step) = (bytes as u64 * 8, hash.rotate_left(15) | 1);
    let probes = if bytes == 0 { 0 } else { PROBES };
    (0..probes).map(move |probe| {
        let mixed = hash.wrapping_add(probe.wrapping_mul(step));
        // In [0, count), by the high bits: no division.
        ((u64::from(mixed) * count) >> 32) as usize
    })
}
