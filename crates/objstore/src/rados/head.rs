//! How an object of the store lies in RADOS objects.
//!
//! Ceph limits the size of an object (`osd_max_object_size`, 128 MiB) and of a write
//! (`osd_max_write_size`, 90 MiB), and an object lies on one placement group. So an object of the
//! store is one RADOS object, its *head*, as long as it has at most [`PIECE_BYTES`]; the bytes
//! behind that lie in *pieces*, RADOS objects of that size that are written and read side by side.
//!
//! Invariant: the head alone defines an object, in one atomic change: the pieces of a head have a
//! number that no other head ever had, so no reader mixes pieces of two contents.

use super::sys::Seen;
use crate::OBJECT_BYTES_MAX;

/// The head holds so many bytes, and so does every piece.
pub(super) const PIECE_BYTES: u64 = 4 << 20;

/// The attribute of heads that have pieces.
pub(super) const LARGE: &std::ffi::CStr = c"cudele.large";

/// Between the name of an object and the rest of the name of a piece. No object is named so.
const SEPARATOR: &str = "//";

/// The known state of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// Ceph's number of this state of the head.
    pub(super) version: u64,
    /// Bytes in the head. Bytes that are missing before the first piece are zeros.
    pub(super) head_bytes: u64,
    /// Set if there are pieces.
    pub(super) large: Option<Large>,
}

/// The pieces behind a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Large {
    /// Part of the pieces' names: a connection and a number of its own.
    pub(super) number: (u64, u64),
    /// Length of the whole object in bytes.
    pub(super) size: u64,
}

impl Head {
    /// The state from a read of the head; `None` if its attribute is malformed.
    pub(super) fn of(seen: &Seen) -> Option<Self> {
        let large = match &seen.attr {
            Some(value) => Some(Large::decode(value)?),
            None => None,
        };
        Some(Self { version: seen.version, head_bytes: seen.size, large })
    }

    /// Length of the object in bytes.
    pub(super) fn size(&self) -> u64 {
        self.large.map_or(self.head_bytes, |large| large.size)
    }
}

impl Large {
    /// The attribute's value: three numbers, little-endian.
    pub(super) fn encode(&self) -> Vec<u8> {
        [self.number.0, self.number.1, self.size].map(u64::to_le_bytes).concat()
    }

    fn decode(value: &[u8]) -> Option<Self> {
        let (numbers, []) = value.as_chunks::<8>() else { return None };
        let [first, second, size] = numbers else { return None };
        let number = (u64::from_le_bytes(*first), u64::from_le_bytes(*second));
        let size = u64::from_le_bytes(*size);
        // The caller allocates this length: it must be one that an object can have.
        (size <= OBJECT_BYTES_MAX).then_some(Self { number, size })
    }

    /// The name of a piece; 1 is behind the head.
    pub(super) fn piece(&self, name: &str, index: u64) -> String {
        let (connection, number) = self.number;
        format!("{name}{SEPARATOR}{connection:x}.{number:x}.{index}")
    }

    /// The object, the number and the index in a piece's name; None for other names.
    pub(super) fn of_piece(piece: &str) -> Option<(&str, (u64, u64), u64)> {
        let (name, rest) = piece.rsplit_once(SEPARATOR)?;
        let mut parts = rest.split('.');
        let (connection, number, index) = (parts.next()?, parts.next()?, parts.next()?);
        let hex = |text| u64::from_str_radix(text, 16).ok();
        let (number, index) = ((hex(connection)?, hex(number)?), index.parse().ok()?);
        let again = Self { number, size: 0 }.piece(name, index);
        (parts.next().is_none() && again == piece).then_some((name, number, index))
    }

    /// The numbers of its pieces.
    pub(super) fn pieces(&self) -> std::ops::Range<u64> {
        1..self.size.div_ceil(PIECE_BYTES).max(1)
    }
}

/// A part of a byte range that lies in one RADOS object: the head is number 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RadosRange {
    pub(super) index: u64,
    /// In the RADOS object.
    pub(super) offset: u64,
    pub(super) length: usize,
}

/// The parts of a byte range, in order.
pub(super) fn parts(offset: u64, length: usize) -> impl Iterator<Item = RadosRange> {
    let (mut at, mut left) = (offset, length);
    std::iter::from_fn(move || {
        let within = at % PIECE_BYTES;
        let length = usize::try_from(PIECE_BYTES - within).map_or(left, |room| room.min(left));
        let part = RadosRange { index: at / PIECE_BYTES, offset: within, length };
        at += length as u64;
        left -= length;
        (length > 0).then_some(part)
    })
}

#[cfg(test)]
mod tests;
