//! Second copies of the objects that cannot be rebuilt: the tables of ranks, the map of the
//! monitor, the list of subtrees.
//!
//! ```text
//! copy := "CUDLCOPY" version:u16 name:bytes object:bytes crc:u32
//! ```
//!
//! After a crash a copy may lack the last change of its object. Numbers that are rebuilt from a
//! copy must therefore continue behind all numbers in use. Not here: when a copy is written.
//!
//! Invariant: a copy is decoded whole and for its own object, or not at all.

use types::bytes::{Malformed, Put};

use crate::SUBTREES_NAME;
use crate::error::FormatError;
use crate::frame::{Frame, sealed};
use crate::request::{MAP_NAME, parse_rank_name};

/// The prefix of the names of copies.
pub const COPY_PREFIX: &str = "copy/";

const FRAME: Frame = Frame { magic: b"CUDLCOPY", versions: 1..=1, is_magic: "the magic of a copy" };

/// Whether an object has a second copy.
#[must_use]
pub fn is_copied(object: &str) -> bool {
    object == MAP_NAME || object == SUBTREES_NAME || parse_rank_name(object).is_some()
}

/// The name of the second copy of an object.
#[must_use]
pub fn copy_name(object: &str) -> String {
    format!("{COPY_PREFIX}{object}")
}

/// The second copy of an object.
#[must_use]
pub fn encode_copy(object: &str, data: &[u8]) -> Vec<u8> {
    let mut out = FRAME.begin();
    out.put_bytes(object.as_bytes());
    out.put_bytes(data);
    sealed(out)
}

/// The object in a second copy.
///
/// # Errors
/// If the copy is damaged, of another object, or of an unknown version.
pub fn decode_copy<'a>(object: &str, bytes: &'a [u8]) -> Result<&'a [u8], FormatError> {
    read(object, bytes).map_err(|malformed| FormatError::new(copy_name(object), malformed))
}

fn read<'a>(object: &str, bytes: &'a [u8]) -> Result<&'a [u8], Malformed> {
    let (_, mut reader) = FRAME.open(bytes)?;
    let start = reader;
    if reader.bytes()? != object.as_bytes() {
        return Err(start.malformed("the name of its object"));
    }
    let data = reader.bytes()?;
    reader.end()?;
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_of_its_object_and_whole_or_nothing() {
        let copy = encode_copy("rank/0001", b"a table");
        assert_eq!(decode_copy("rank/0001", &copy).unwrap(), b"a table");
        assert!(decode_copy("rank/0000", &copy).is_err(), "another's");
        for length in 0..copy.len() {
            assert!(decode_copy("rank/0001", &copy[..length]).is_err(), "cut to {length}");
        }
        for bit in 0..copy.len() * 8 {
            let mut copy = copy.clone();
            copy[bit / 8] ^= 1 << (bit % 8);
            assert!(decode_copy("rank/0001", &copy).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn objects_that_no_other_object_repeats_are_copied() {
        let copied = ["rank/0000", "rank/00ff", "mon/map", "mds/subtrees"].map(is_copied);
        assert_eq!(copied, [true; 4]);
        let others = ["rank/0", "rank/0000.lock", "copy/mon/map", "mon/lock"].map(is_copied);
        assert_eq!(others, [false; 4]);
    }
}
