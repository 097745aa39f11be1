//! The frame of a small object: eight magic bytes, a version, a body, and a CRC-32C of all before
//! it.
//!
//! The checksum is verified before the version is believed: a flipped bit must not look like the
//! format of a later release.

use std::ops::RangeInclusive;

use crc32c::crc32c;
use types::bytes::{Malformed, Put, Reader};

use crate::error::{KNOWN_VERSION, malformed};

/// Bytes of the checksum at the end.
pub(crate) const CRC_BYTES: usize = 4;

/// The frame of one kind of object.
pub(crate) struct Frame {
    pub(crate) magic: &'static [u8; 8],
    /// The versions that this build reads.
    pub(crate) versions: RangeInclusive<u16>,
    /// The magic, in words, for an error.
    pub(crate) is_magic: &'static str,
}

impl Frame {
    /// The beginning of an object of the newest version.
    pub(crate) fn begin(&self) -> Vec<u8> {
        self.begin_version(*self.versions.end())
    }

    pub(crate) fn begin_version(&self, version: u16) -> Vec<u8> {
        debug_assert!(self.versions.contains(&version), "this build reads what it writes");
        let mut out = self.magic.to_vec();
        out.put_u16(version);
        out
    }

    /// The version of an object, and a reader that stands at its body.
    ///
    /// # Errors
    /// If the object is of another kind, damaged, or of an unknown version.
    pub(crate) fn open<'a>(&self, bytes: &'a [u8]) -> Result<(u16, Reader<'a>), Malformed> {
        let mut reader = Reader::new(bytes);
        if reader.take(self.magic.len())? != self.magic {
            return Err(malformed(0, self.is_magic));
        }
        let version = reader.u16()?;
        let head = reader.offset();
        let Some((whole, crc)) = bytes.split_last_chunk::<CRC_BYTES>() else {
            return Err(reader.malformed("more bytes"));
        };
        if crc32c(whole) != u32::from_le_bytes(*crc) {
            return Err(malformed(whole.len(), "a checksum that matches"));
        }
        if !self.versions.contains(&version) {
            return Err(malformed(self.magic.len(), KNOWN_VERSION));
        }
        let mut reader = Reader::new(whole);
        reader.take(head)?;
        Ok((version, reader))
    }
}

/// Ends an object with its checksum.
pub(crate) fn sealed(mut out: Vec<u8>) -> Vec<u8> {
    let crc = crc32c(&out);
    out.put_u32(crc);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: Frame =
        Frame { magic: b"CUDLTEST", versions: 2..=3, is_magic: "the magic of a test" };

    #[test]
    fn the_body_is_read_between_version_and_checksum() {
        let mut out = FRAME.begin();
        out.put_u8(7);
        let bytes = sealed(out);
        let (version, mut reader) = FRAME.open(&bytes).unwrap();
        assert_eq!((version, reader.u8(), reader.end()), (3, Ok(7), Ok(())));
    }

    #[test]
    fn a_flipped_bit_is_damage_and_not_a_later_version() {
        let bytes = sealed(FRAME.begin_version(2));
        for at in FRAME.magic.len()..bytes.len() {
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << bit;
                let error = FRAME.open(&damaged).unwrap_err();
                assert_eq!(error.expected, "a checksum that matches", "byte {at}, bit {bit}");
            }
        }
        assert_eq!(FRAME.open(b"CUDLELSE..").unwrap_err().expected, "the magic of a test");
        assert_eq!(FRAME.open(&bytes[..12]).unwrap_err().expected, "a checksum that matches");
        assert_eq!(FRAME.open(&bytes[..9]).unwrap_err().expected, "more bytes");
    }

    #[test]
    fn other_versions_are_named_as_such() {
        for version in [0, 1, 4, u16::MAX] {
            let mut out = FRAME.magic.to_vec();
            out.put_u16(version);
            assert_eq!(FRAME.open(&sealed(out)).unwrap_err().expected, KNOWN_VERSION);
        }
    }
}
