//! Inode numbers that a client gives back with its subtree.

use types::InoRange;
use types::bytes::{Malformed, Reader};

use crate::codec::{put_range, range};

/// Ranges of granted numbers that a client has not used and never will, as they are in a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnusedNumbers<'a>(&'a [u8]);

impl<'a> UnusedNumbers<'a> {
    /// What [`UnusedNumbers::encode`] made.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Ranges as bytes.
    #[must_use]
    pub fn encode(ranges: &[InoRange]) -> Vec<u8> {
        let mut out = Vec::new();
        ranges.iter().for_each(|range| put_range(&mut out, *range));
        out
    }

    /// The ranges.
    pub fn ranges(self) -> impl Iterator<Item = InoRange> + 'a {
        let mut reader = Reader::new(self.0);
        std::iter::from_fn(
            move || {
                if reader.rest().is_empty() { None } else { range(&mut reader).ok() }
            },
        )
    }

    pub(crate) fn bytes(self) -> &'a [u8] {
        self.0
    }

    pub(crate) fn decode(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let start = *reader;
        let bytes = reader.bytes()?;
        let mut inside = Reader::new(bytes);
        while !inside.rest().is_empty() {
            range(&mut inside).map_err(|_| start.malformed("ranges of inode numbers"))?;
        }
        Ok(Self(bytes))
    }
}
