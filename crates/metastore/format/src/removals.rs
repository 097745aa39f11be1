//! Lists of removed inodes with objects that a rank has yet to delete.
//!
//! The journal has the removal of a name, and the directory in the store has the length of the
//! file. When the directory is written without the name, the length is lost. So the rank writes a
//! list first, and deletes the list when all inodes on it are purged. After a crash the next server
//! of the rank reads the lists.
//!
//! ```text
//! object  := "CUDLGONE" version:u16 count:varint removal* crc:u32
//! removal := kind:u8 ino:varint [pool:u8 stripes:varint]
//! ```
//!
//! Invariant: an inode on a list is durably removed. Its objects may be deleted already. A second
//! deletion is harmless, because an inode number is never reused.

use types::bytes::{Malformed, Put};
use types::{Epoch, Ino, Pool, Rank};

use crate::error::FormatError;
use crate::frame::{Frame, sealed};

/// The prefix of the names of all lists.
pub const REMOVALS_PREFIX: &str = "removed/";
/// The most inodes on a list.
pub const REMOVALS_MAX: usize = 4096;

const FRAME: Frame =
    Frame { magic: b"CUDLGONE", versions: 1..=1, is_magic: "the magic of a list of removals" };
const FILE: u8 = 1;
const DIRECTORY: u8 = 2;

/// The prefix of the names of a rank's lists.
#[must_use]
pub fn removals_prefix(rank: Rank) -> String {
    format!("{REMOVALS_PREFIX}{:04x}/", rank.0)
}

/// The name of a list: the term that wrote it, and the number of the list in that term.
#[must_use]
pub fn removals_name(rank: Rank, epoch: Epoch, number: u64) -> String {
    format!("{}{:016x}.{number:016x}", removals_prefix(rank), epoch.0)
}

/// The rank, the term and the number in the name of a list.
#[must_use]
pub fn parse_removals_name(name: &str) -> Option<(Rank, Epoch, u64)> {
    let (rank, rest) = name.strip_prefix(REMOVALS_PREFIX)?.split_once('/')?;
    let (epoch, number) = rest.split_once('.')?;
    let rank = Rank(u16::from_str_radix(rank, 16).ok()?);
    let epoch = Epoch(u64::from_str_radix(epoch, 16).ok()?);
    let number = u64::from_str_radix(number, 16).ok()?;
    (removals_name(rank, epoch, number) == name).then_some((rank, epoch, number))
}

/// A removed inode with objects in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Removal {
    /// The content of a file.
    File {
        /// Which.
        ino: Ino,
        /// The pool that it is in.
        pool: Pool,
        /// How many stripes its length says it has.
        stripes: u64,
    },
    /// A directory's manifest and runs.
    Directory {
        /// Which.
        ino: Ino,
    },
}

impl Removal {
    /// The inode.
    #[must_use]
    pub fn ino(&self) -> Ino {
        match *self {
            Self::File { ino, .. } | Self::Directory { ino } => ino,
        }
    }

    /// The bytes of a list.
    #[must_use]
    pub fn encode_list(list: &[Self]) -> Vec<u8> {
        let mut out = FRAME.begin();
        out.put_varint(list.len() as u64);
        for removal in list {
            match *removal {
                Self::File { ino, pool, stripes } => {
                    out.put_u8(FILE);
                    out.put_varint(ino.0);
                    out.put_u8(pool.0);
                    out.put_varint(stripes);
                }
                Self::Directory { ino } => {
                    out.put_u8(DIRECTORY);
                    out.put_varint(ino.0);
                }
            }
        }
        sealed(out)
    }

    /// Reads the list of this name.
    ///
    /// # Errors
    /// If [`Removal::encode_list`] returns no such bytes.
    pub fn decode_list(name: &str, bytes: &[u8]) -> Result<Vec<Self>, FormatError> {
        read(bytes).map_err(|malformed| FormatError::new(name, malformed))
    }
}

fn read(bytes: &[u8]) -> Result<Vec<Removal>, Malformed> {
    let (_, mut reader) = FRAME.open(bytes)?;
    let start = reader;
    let count = reader.length()?;
    if count > REMOVALS_MAX {
        return Err(start.malformed("a list that is not too long"));
    }
    let mut list = Vec::with_capacity(count);
    for _ in 0..count {
        let start = reader;
        let kind = reader.u8()?;
        let ino = Ino(reader.varint()?);
        list.push(match kind {
            FILE => Removal::File { ino, pool: Pool(reader.u8()?), stripes: reader.varint()? },
            DIRECTORY => Removal::Directory { ino },
            _ => return Err(start.malformed("a file or a directory")),
        });
    }
    reader.end()?;
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list() -> Vec<Removal> {
        vec![
            Removal::File { ino: Ino(0x1234), pool: Pool(2), stripes: 70_000 },
            Removal::Directory { ino: Ino(7) },
            Removal::File { ino: Ino(1 << 50), pool: Pool::USUAL, stripes: 0 },
        ]
    }

    #[test]
    fn a_removal_list_reads_back_and_all_damage_is_detected() {
        for list in [list(), Vec::new()] {
            let bytes = Removal::encode_list(&list);
            assert_eq!(Removal::decode_list("x", &bytes), Ok(list));
            for length in 0..bytes.len() {
                assert!(Removal::decode_list("x", &bytes[..length]).is_err(), "{length} bytes");
            }
            for bit in 0..bytes.len() * 8 {
                let mut flipped = bytes.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert!(Removal::decode_list("x", &flipped).is_err(), "bit {bit}");
            }
        }
    }

    /// The bytes of version 1, for ever.
    #[test]
    fn reads_removals_v1() {
        let golden = include_bytes!("../testdata/removals.v1.bin");
        assert_eq!(Removal::decode_list("x", golden), Ok(list()));
        assert_eq!(Removal::encode_list(&list()), golden);
    }

    #[test]
    fn a_name_is_read_back_and_no_other_is() {
        let name = removals_name(Rank(3), Epoch(17), 5);
        assert_eq!(name, "removed/0003/0000000000000011.0000000000000005");
        assert_eq!(parse_removals_name(&name), Some((Rank(3), Epoch(17), 5)));
        for other in [&name[1..], &format!("{name}0"), &name.replace("0003", "3")] {
            assert_eq!(parse_removals_name(other), None, "{other}");
        }
    }
}
