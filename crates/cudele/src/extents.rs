//! Byte ranges of a file's content in the object store: a file is striped over objects named by
//! its inode number and filled from the front. How large they are is fixed when the file is made
//! ([`Attr::stripe`](types::Attr::stripe)). What was never written, or has no object, reads as zeros.
//!
//! The length of a file is its inode's business: nothing here knows it or keeps to it.

use objstore::SyncScope;
use types::{Errno, Ino, Result, Stripe};

use crate::Fs;

/// Zeros are written so many at a time.
static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];

/// Objects of one file that are made durable at the same time: a store that waits for its disk
/// waits once for several.
const SYNCS_AT_ONCE: u64 = 8;

/// A piece of a byte range that lies in one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    stripe: u64,
    /// In the object.
    offset: u64,
    length: u64,
}

/// The pieces of a byte range, in order.
fn pieces(stripe: Stripe, offset: u64, length: u64) -> impl Iterator<Item = Piece> {
    let stripe = stripe.bytes();
    let end = offset.saturating_add(length);
    let mut at = offset;
    std::iter::from_fn(move || {
        let piece = Piece {
            stripe: at / stripe,
            offset: at % stripe,
            length: (end - at).min(stripe - at % stripe),
        };
        at += piece.length;
        (piece.length > 0).then_some(piece)
    })
}

fn usize_of(length: u64) -> usize {
    usize::try_from(length).unwrap_or(usize::MAX)
}

impl Fs {
    /// Reads a byte range; the answer is as long as the range.
    ///
    /// # Errors
    /// `EIO`, `EACCES`.
    pub fn read_at(&self, place: (Ino, Stripe), offset: u64, length: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.read_into(place, offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Reads a byte range as long as the buffer.
    ///
    /// # Errors
    /// `EIO`, `EACCES`.
    pub fn read_into(
        &self,
        (ino, stripe): (Ino, Stripe),
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<()> {
        let mut rest = buffer;
        for piece in pieces(stripe, offset, rest.len() as u64) {
            let (now, later) = rest.split_at_mut(usize_of(piece.length));
            let object = metastore::data_name(ino, piece.stripe);
            let read = match self.store().read_into(&object, piece.offset, now) {
                Ok(read) => read,
                Err(error) if error.errno == Errno::NotFound => 0,
                Err(error) => return Err(error),
            };
            now[read..].fill(0);
            rest = later;
        }
        Ok(())
    }

    /// Writes a byte range. Durable after [`Fs::sync_file`].
    ///
    /// # Errors
    /// `ENOSPC`, `EIO`; part of the range may be written then.
    pub fn write_at(&self, (ino, stripe): (Ino, Stripe), offset: u64, data: &[u8]) -> Result<()> {
        let mut rest = data;
        for piece in pieces(stripe, offset, data.len() as u64) {
            let (now, later) = rest.split_at(usize_of(piece.length));
            let object = metastore::data_name(ino, piece.stripe);
            self.store().write_range(&object, piece.offset, now)?;
            rest = later;
        }
        Ok(())
    }

    /// Makes a byte range of a file of this length read as zeros; whole objects are removed.
    ///
    /// # Errors
    /// `EIO`, `ENOSPC`.
    pub fn zero_range(
        &self,
        (ino, stripe): (Ino, Stripe),
        size: u64,
        (offset, length): (u64, u64),
    ) -> Result<()> {
        let end = offset.saturating_add(length).min(size);
        for piece in pieces(stripe, offset, end.saturating_sub(offset)) {
            let object = metastore::data_name(ino, piece.stripe);
            let left = size - piece.stripe * stripe.bytes();
            if piece.offset == 0 && piece.length >= left.min(stripe.bytes()) {
                self.store().delete(&object)?;
                continue;
            }
            let held = match self.store().stat(&object) {
                Ok(stat) => stat.size,
                Err(error) if error.errno == Errno::NotFound => 0,
                Err(error) => return Err(error),
            };
            let mut at = piece.offset;
            let end = (piece.offset + piece.length).min(held);
            while at < end {
                let length = (end - at).min(ZEROS.len() as u64);
                self.store().write_range(&object, at, &ZEROS[..usize_of(length)])?;
                at += length;
            }
        }
        Ok(())
    }

    /// Removes the content of a file of this length that nobody needs any more.
    ///
    /// # Errors
    /// `EIO`.
    pub fn delete_data(&self, (ino, stripe): (Ino, Stripe), size: u64) -> Result<()> {
        for number in 0..stripe.count(size) {
            self.store().delete(&metastore::data_name(ino, number))?;
        }
        Ok(())
    }

    /// Makes the content of a file of this length durable.
    ///
    /// # Errors
    /// `EIO`, `ENOSPC`.
    pub fn sync_file(&self, (ino, stripe): (Ino, Stripe), size: u64) -> Result<()> {
        let stripes = stripe.count(size);
        let at_once = stripes.clamp(1, SYNCS_AT_ONCE);
        let every = move |first: u64| {
            (first..stripes).step_by(usize_of(at_once)).try_for_each(|stripe| {
                self.store().sync(SyncScope::Object(&metastore::data_name(ino, stripe)))
            })
        };
        std::thread::scope(|scope| {
            let others: Vec<_> =
                (1..at_once).map(|first| scope.spawn(move || every(first))).collect();
            let mut result = every(0);
            for other in others {
                let lost = |_| Err(types::Error::of(Errno::Io, "sync"));
                result = result.and(other.join().unwrap_or_else(lost));
            }
            result
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_a_range_without_gaps() {
        for stripe in [Stripe::MIN, Stripe::DEFAULT, Stripe::MAX] {
            let bytes = stripe.bytes();
            let all: Vec<_> = pieces(stripe, bytes - 1, bytes + 2).collect();
            let piece = |stripe, offset, length| Piece { stripe, offset, length };
            assert_eq!(all, [piece(0, bytes - 1, 1), piece(1, 0, bytes), piece(2, 0, 1)]);
            assert_eq!(pieces(stripe, 5, 0).count(), 0);
            assert_eq!(pieces(stripe, u64::MAX - 1, 1).count(), 1);
        }
    }
}
