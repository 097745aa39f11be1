//! Checksums of file content: what stands in an object of checksums, one entry for each block.
//!
//! An entry covers the first bytes of a block, as many as it says, and says from when it is. Entries are
//! independent of each other: each has a check of its own, which includes the inode and the block, and is
//! aligned so that no sector is between its bytes. Sixteen zeros are no entry: nothing is known of that block.
//!
//! Not here: when entries are written and what they are held against (`cudele::sums`).
//!
//! Invariant: an entry that was changed, cut, or moved to the place of another one does not decode.

use types::{Ino, Stripe};

/// Content has one checksum for so many bytes. No stripe is smaller, and each is a multiple.
pub const SUM_BLOCK_BYTES: u64 = 16 << 10;
/// The length of an entry.
pub const SUM_BYTES: usize = 16;
/// Entries in one object, which then has 4 MiB: the checksums of 4 GiB.
pub const SUMS_PER_OBJECT: u64 = 1 << 18;
/// What an entry begins with.
const VERSION: u8 = 1;

/// The checksum of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sum {
    /// CRC-32C of the bytes that it covers.
    pub crc: u32,
    /// How many these are, from the beginning of the block: 1 to [`SUM_BLOCK_BYTES`].
    pub length: u32,
    /// How the file is striped: it says in which object the block is.
    pub stripe: Stripe,
    /// 0 if the content was durable when this was written. Otherwise the period of the store in which it was
    /// written: it holds only as long as that lasts.
    pub period: u32,
}

/// What stands in the place of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Nothing.
    None,
    /// A checksum.
    Sum(Sum),
    /// Something else.
    Damaged,
}

impl Entry {
    /// The checksum, if there is one.
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
        // A whole block does not fit into 14 bits, and no block has no bytes.
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

    /// What an entry of a block says. The stripe is in the usual pool: the name of the object says in which
    /// pool the file is.
    #[must_use]
    pub fn decode(ino: Ino, block: u64, bytes: &[u8]) -> Entry {
        if bytes.iter().all(|byte| *byte == 0) {
            return Entry::None;
        }
        let Ok(entry) = <&[u8; SUM_BYTES]>::try_from(bytes) else { return Entry::Damaged };
        let [version, log, l0, l1, c0, c1, c2, c3, p0, p1, p2, p3, k0, k1, k2, k3] = *entry;
        let length = u32::from(u16::from_le_bytes([l0, l1])) + 1;
        let stripe = 1_u64.checked_shl(log.into()).and_then(Stripe::of_bytes);
        let whole = version == VERSION
            && u64::from(length) <= SUM_BLOCK_BYTES
            && check(ino, block, &bytes[..12]) == u32::from_le_bytes([k0, k1, k2, k3]);
        match stripe {
            Some(stripe) if whole => Entry::Sum(Self {
                crc: u32::from_le_bytes([c0, c1, c2, c3]),
                length,
                stripe,
                period: u32::from_le_bytes([p0, p1, p2, p3]),
            }),
            Some(_) | None => Entry::Damaged,
        }
    }

    /// Whether bytes from the beginning of the block on are those that it was made of. Bytes that are missing
    /// at the end count as zeros.
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

/// The checksum of content with more behind it.
#[must_use]
pub fn content_crc_append(crc: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc, bytes)
}

/// The same with so many zeros behind it.
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
