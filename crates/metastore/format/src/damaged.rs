//! The object that names the files whose content was found damaged, for `cudele health`.
//!
//! ```text
//! object := "CUDLDMGD" version:u16 count:varint file* crc:u32
//! file   := ino:varint cause:bytes
//! ```
//!
//! A reader of content adds the file whose checksum does not match. A check of all content replaces
//! the list. Not here: how the object is read and written.
//!
//! Invariant: a list has at most [`DAMAGED_FILES_MAX`] files; decoding returns such a list or an
//! error that names the byte.

use std::collections::BTreeMap;

use types::Ino;
use types::bytes::{Malformed, Put};

use crate::error::FormatError;
use crate::frame::{Frame, sealed};

/// Name of the object.
pub const DAMAGED_FILES_NAME: &str = "damage/content";
/// Files that are listed at most. An administrator needs to know that there are many, and the
/// first of them; `cudele scrub` finds all.
pub const DAMAGED_FILES_MAX: usize = 256;

const FRAME: Frame =
    Frame { magic: b"CUDLDMGD", versions: 1..=1, is_magic: "the magic of a list of damaged files" };
/// The bytes of a cause that are kept.
const CAUSE_BYTES_MAX: usize = 512;

/// See the module documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DamagedFiles {
    causes: BTreeMap<Ino, String>,
}

impl DamagedFiles {
    /// The files, by inode number, with the cause of each.
    pub fn all(&self) -> impl ExactSizeIterator<Item = (Ino, &str)> {
        self.causes.iter().map(|(ino, cause)| (*ino, &**cause))
    }

    /// Adds a file, unless the list is full.
    pub fn add(&mut self, ino: Ino, cause: &str) {
        if self.causes.len() < DAMAGED_FILES_MAX {
            let kept = cause.floor_char_boundary(CAUSE_BYTES_MAX);
            self.causes.entry(ino).or_insert_with(|| cause[..kept].to_owned());
        }
    }

    /// The bytes of the object.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = FRAME.begin();
        out.put_varint(self.causes.len() as u64);
        for (ino, cause) in &self.causes {
            out.put_varint(ino.0);
            out.put_bytes(cause.as_bytes());
        }
        sealed(out)
    }

    /// Reads the object.
    ///
    /// # Errors
    /// If the object is damaged or of an unknown version.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        read(bytes).map_err(|malformed| FormatError::new(DAMAGED_FILES_NAME, malformed))
    }
}

fn read(bytes: &[u8]) -> Result<DamagedFiles, Malformed> {
    let (_, mut reader) = FRAME.open(bytes)?;
    let mut files = DamagedFiles::default();
    for _ in 0..reader.varint()? {
        let ino = Ino(reader.varint()?);
        let before = reader;
        let cause = String::from_utf8_lossy(reader.bytes()?);
        if files.causes.len() == DAMAGED_FILES_MAX {
            return Err(before.malformed("at most 256 files"));
        }
        files.add(ino, &cause);
    }
    reader.end()?;
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_whole_or_not_at_all() {
        let mut files = DamagedFiles::default();
        for ino in 0..300 {
            files.add(Ino(ino), "block 3");
            files.add(Ino(ino), "block 4");
        }
        assert_eq!(files.all().len(), DAMAGED_FILES_MAX);
        assert_eq!(files.all().next(), Some((Ino(0), "block 3")), "the first cause stays");
        let bytes = files.encode();
        assert_eq!(DamagedFiles::decode(&bytes).unwrap(), files);
        for length in 0..bytes.len() {
            assert!(DamagedFiles::decode(&bytes[..length]).is_err(), "cut to {length}");
        }
        for byte in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[byte] ^= 4;
            assert!(DamagedFiles::decode(&bytes).is_err(), "byte {byte}");
        }
    }

    #[test]
    fn a_long_cause_is_cut_between_characters() {
        let mut files = DamagedFiles::default();
        files.add(Ino(7), &"ü".repeat(CAUSE_BYTES_MAX));
        let bytes = files.encode();
        let (_, cause) = files.all().next().unwrap();
        assert_eq!(cause.len(), CAUSE_BYTES_MAX);
        assert_eq!(DamagedFiles::decode(&bytes).unwrap(), files);
    }
}
