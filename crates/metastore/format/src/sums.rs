//! Checksums of file content: the format of an object of checksums, with one entry for each block.
//!
//! An entry covers the first bytes of a block, and names their number and the period of its write.
//! Each entry is independent: it has a check of its own, which includes the inode and the block,
//! and its alignment keeps all of its bytes in one sector. Sixteen zeros are no entry: the block is
//! not verified.
//!
//! Not here: the rules by which entries are written and compared (`cudele::sums`).
//!
//! Invariant: an entry that was changed, cut, or moved to the place of another entry does not
//! decode.

use types::{Ino, Stripe};

/// The number of bytes that have one checksum. Every stripe is a multiple.
pub const SUM_BLOCK_BYTES: u64 = 16 << 10;
/// The length of an entry.
pub const SUM_BYTES: usize = 16;
/// The number of entries in one object, which then has 4 MiB: the checksums of 4 GiB.
pub const SUMS_PER_OBJECT: u64 = 1 << 18;
/// The first byte of an entry.
const VERSION: u8 = 1;

/// The checksum of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sum {
    /// CRC-32C of the covered bytes.
    pub crc: u32,
    /// The number of covered bytes, from the beginning of the block: 1 to [`SUM_BLOCK_BYTES`].
    pub length: u32,
    /// The stripe of the file, which determines the object of the block.
    pub stripe: Stripe,
    /// 0 if the content was durable when the entry was written. Otherwise the period of the store
    /// at that time: the entry expires with the period.
    pub period: u32,
}

/// The content of the place of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SumEntry {
    /// Zeros: the block has no checksum.
    None,
    /// A valid checksum.
    Sum(Sum),
    /// Bytes that do not decode.
    Damaged,
}

impl SumEntry {
    /// The checksum, if the place has one.
    #[must_use]
    pub fn sum(self) -> Option<Sum> {
        match self {
            Self::Sum(sum) => Some(sum),
            Self::None | Self::Damaged => None,
        }
    }
}

impl Sum {
    /// The bytes of the entry of a block.
    #[must_use]
    pub fn encode(&self, ino: Ino, block: u64) -> [u8; SUM_BYTES] {
        let mut bytes = [0; SUM_BYTES];
        let log = u8::try_from(self.stripe.bytes().trailing_zeros()).unwrap_or_default();
        // The length of a whole block exceeds 14 bits, and no block is empty, so the field is one
        // less.
        let length = u16::try_from(self.length.saturating_sub(1)).unwrap_or(u16::MAX);
        bytes[0] = VERSION;
        bytes[1] = log;
        bytes[2..4].copy_from_slice(&length.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.crc.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.period.to_le_bytes());
        let check = check(ino, block, &bytes[..12]);
        bytes[12..].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    /// Decodes the entry of a block. The stripe is in the default pool: the object's name has the
    /// pool of the file.
    #[must_use]
    pub fn decode(ino: Ino, block: u64, bytes: &[u8]) -> SumEntry {
        if bytes.iter().all(|byte| *byte == 0) {
            return SumEntry::None;
        }
        let Ok(entry) = <&[u8; SUM_BYTES]>::try_from(bytes) else { return SumEntry::Damaged };
        let [version, log, l0, l1, c0, c1, c2, c3, p0, p1, p2, p3, k0, k1, k2, k3] = *entry;
        let length = u32::from(u16::from_le_bytes([l0, l1])) + 1;
        let stripe = 1_u64.checked_shl(log.into()).and_then(Stripe::of_bytes);
        let whole = version == VERSION
            && u64::from(length) <= SUM_BLOCK_BYTES
            && check(ino, block, &bytes[..12]) == u32::from_le_bytes([k0, k1, k2, k3]);
        match stripe {
            Some(stripe) if whole => SumEntry::Sum(Self {
                crc: u32::from_le_bytes([c0, c1, c2, c3]),
                length,
                stripe,
                period: u32::from_le_bytes([p0, p1, p2, p3]),
            }),
            Some(_) | None => SumEntry::Damaged,
        }
    }

    /// Whether the checksum fits these bytes from the beginning of the block. Bytes that are
    /// missing at the end count as zeros.
    #[must_use]
    pub fn fits(&self, bytes: &[u8]) -> bool {
        let length = usize::try_from(self.length).unwrap_or(usize::MAX);
        let crc = crc32c::crc32c(&bytes[..bytes.len().min(length)]);
        padded(crc, length.saturating_sub(bytes.len())) == self.crc
    }
}

/// The checksum of content.
#[must_use]
pub fn content_crc(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// The checksum of content with an appended piece.
#[must_use]
pub fn content_crc_append(crc: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc, bytes)
}

/// The checksum of content with appended zeros.
fn padded(crc: u32, zeros: usize) -> u32 {
    const ZEROS: [u8; 1024] = [0; 1024];
    let (mut crc, mut left) = (crc, zeros);
    while left > 0 {
        let now = left.min(ZEROS.len());
        crc = crc32c::crc32c_append(crc, &ZEROS[..now]);
        left -= now;
    }
    crc
}

fn check(ino: Ino, block: u64, entry: &[u8]) -> u32 {
    let crc = crc32c::crc32c(&ino.0.to_le_bytes());
    let crc = crc32c::crc32c_append(crc, &block.to_le_bytes());
    crc32c::crc32c_append(crc, entry)
}

#[cfg(test)]
mod tests;
