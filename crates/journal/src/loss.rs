//! Effects of a merge on entries that it replaces, as a record of the merge lists them.

use types::bytes::{Put, Reader};
use types::{Ino, Pool, Timestamp};

#[cfg(doc)]
use crate::Event;

/// The number of names of an inode that has none left.
const ALL_NAMES: u32 = u32::MAX;
/// Where the place of the time has the pool and the stripes of a removed file.
const POOL_SHIFT: u32 = 1;
const STRIPES_SHIFT: u32 = 9;

/// The entries that a merge replaced: the `losses` of an [`Event::Merged`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The directory that took over the names of the loser, or 0.
    pub winner: Ino,
    /// A replaced directory; without a winner, an inode that lost names.
    pub loser: Ino,
    /// How many names. Without a winner and 0: a create of this inode was not carried out. Without
    /// a winner and [`u32::MAX`]: the inode was removed, see [`Loss::removed`].
    pub names: u32,
    /// When.
    pub time: Timestamp,
}

impl Loss {
    /// Appends the loss to a list.
    pub fn put(&self, losses: &mut Vec<u8>) {
        losses.put_varint(self.winner.0);
        losses.put_varint(self.loser.0);
        losses.put_varint(u64::from(self.names));
        losses.put_signed(self.time.0);
    }

    /// Says that the create of this inode was not carried out.
    #[must_use]
    pub fn of_create(ino: Ino, time: Timestamp) -> Self {
        Self { winner: Ino(0), loser: ino, names: 0, time }
    }

    /// The inode of a rejected create, if the loss is about one.
    #[must_use]
    pub fn create(&self) -> Option<Ino> {
        (self.winner.0 == 0 && self.names == 0).then_some(self.loser)
    }

    /// Says that an inode lost its last name: a file with so many stripes in a pool, or a
    /// directory.
    #[must_use]
    pub fn of_removed(ino: Ino, content: Option<(Pool, u64)>) -> Self {
        let packed = content.map_or(0, |(pool, stripes)| {
            let stripes = stripes.min(i64::MAX.cast_unsigned() >> STRIPES_SHIFT);
            1 | u64::from(pool.0) << POOL_SHIFT | stripes << STRIPES_SHIFT
        });
        let time = Timestamp(packed.cast_signed());
        Self { winner: Ino(0), loser: ino, names: ALL_NAMES, time }
    }

    /// A removed inode with the pool and the number of stripes of a file, if the loss is about one.
    #[must_use]
    pub fn removed(&self) -> Option<(Ino, Option<(Pool, u64)>)> {
        if self.winner.0 != 0 || self.names != ALL_NAMES {
            return None;
        }
        let packed = self.time.0.cast_unsigned();
        #[allow(clippy::cast_possible_truncation, reason = "a byte is taken")]
        let content = (Pool((packed >> POOL_SHIFT) as u8), packed >> STRIPES_SHIFT);
        Some((self.loser, (packed & 1 == 1).then_some(content)))
    }

    /// Reads losses. Ends at the first malformed one.
    pub fn all(losses: &[u8]) -> impl Iterator<Item = Self> {
        let mut reader = Reader::new(losses);
        std::iter::from_fn(move || {
            let (winner, loser) = (Ino(reader.varint().ok()?), Ino(reader.varint().ok()?));
            let (names, time) = (reader.varint_u32().ok()?, Timestamp(reader.signed().ok()?));
            Some(Self { winner, loser, names, time })
        })
    }
}
