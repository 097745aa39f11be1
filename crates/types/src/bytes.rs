//! Little-endian bytes: the primitives that every format of the project is written with.
//!
//! [`Reader`] never panics and never allocates: for any input it returns a value or [`Malformed`]
//! with the offset at which the bytes stopped making sense.

use crate::{Errno, Error};

/// The bytes do not follow the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The offset of the fault, in bytes from the start of the input.
    pub offset: usize,
    /// The value that the reader expected there.
    pub expected: &'static str,
}

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "at byte {}: expected {}", self.offset, self.expected)
    }
}

impl std::error::Error for Malformed {}

impl From<Malformed> for Error {
    fn from(malformed: Malformed) -> Self {
        Error::new(Errno::BadMessage, "", malformed.to_string())
    }
}

/// Appends to a byte vector.
pub trait Put {
    /// One byte.
    fn put_u8(&mut self, value: u8);
    /// Two bytes, little-endian.
    fn put_u16(&mut self, value: u16);
    /// Four bytes, little-endian.
    fn put_u32(&mut self, value: u32);
    /// Eight bytes, little-endian.
    fn put_u64(&mut self, value: u64);
    /// LEB128, 1 to 10 bytes.
    fn put_varint(&mut self, value: u64);
    /// Zigzag LEB128: small magnitudes of either sign are short.
    fn put_signed(&mut self, value: i64);
    /// A varint length, then the bytes.
    fn put_bytes(&mut self, bytes: &[u8]);
}

impl Put for Vec<u8> {
    fn put_u8(&mut self, value: u8) {
        self.push(value);
    }
    fn put_u16(&mut self, value: u16) {
        self.extend_from_slice(&value.to_le_bytes());
    }
    fn put_u32(&mut self, value: u32) {
        self.extend_from_slice(&value.to_le_bytes());
    }
    fn put_u64(&mut self, value: u64) {
        self.extend_from_slice(&value.to_le_bytes());
    }
    fn put_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.push((value & 0x7f) as u8);
    }
    fn put_signed(&mut self, value: i64) {
        self.put_varint(zigzag(value));
    }
    fn put_bytes(&mut self, bytes: &[u8]) {
        self.put_varint(bytes.len() as u64);
        self.extend_from_slice(bytes);
    }
}

/// Maps signed to unsigned so that small magnitudes stay small.
#[must_use]
pub fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

/// The inverse of [`zigzag`].
#[must_use]
pub fn unzigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}

/// Reads from a byte slice, remembering where it is.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Reader<'a> {
    /// Starts at the beginning of `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, offset: 0 }
    }

    /// How many bytes were consumed.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// What is left.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.offset..]
    }

    /// Whether everything was consumed.
    #[must_use]
    pub fn is_at_end(&self) -> bool {
        self.offset == self.bytes.len()
    }

    /// The error for this place.
    #[must_use]
    pub fn malformed(&self, expected: &'static str) -> Malformed {
        Malformed { offset: self.offset, expected }
    }

    /// Exactly `count` bytes.
    ///
    /// # Errors
    /// If fewer are left.
    #[inline]
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let rest = self.rest();
        if count > rest.len() {
            return Err(self.malformed("more bytes"));
        }
        self.offset += count;
        Ok(&rest[..count])
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let rest = self.rest();
        let Some(chunk) = rest.first_chunk::<N>() else {
            return Err(self.malformed("more bytes"));
        };
        self.offset += N;
        Ok(*chunk)
    }

    /// One byte.
    ///
    /// # Errors
    /// At the end.
    #[inline]
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        let Some(byte) = self.bytes.get(self.offset) else {
            return Err(self.malformed("a byte"));
        };
        self.offset += 1;
        Ok(*byte)
    }

    /// Two bytes.
    ///
    /// # Errors
    /// If fewer are left.
    pub fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// Four bytes.
    ///
    /// # Errors
    /// If fewer are left.
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// Eight bytes.
    ///
    /// # Errors
    /// If fewer are left.
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// LEB128.
    ///
    /// # Errors
    /// If it is cut off or longer than 64 bits.
    #[inline]
    pub fn varint(&mut self) -> Result<u64, Malformed> {
        let start = *self;
        let first = self.u8()?;
        if first < 0x80 {
            return Ok(u64::from(first));
        }
        let mut value = u64::from(first & 0x7f);
        for shift in (7..64).step_by(7) {
            let byte = self.u8()?;
            let part = u64::from(byte & 0x7f);
            if shift == 63 && part > 1 {
                return Err(start.malformed("a number of at most 64 bits"));
            }
            value |= part << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(start.malformed("a number of at most 64 bits"))
    }

    /// Zigzag LEB128.
    ///
    /// # Errors
    /// As [`Reader::varint`].
    #[inline]
    pub fn signed(&mut self) -> Result<i64, Malformed> {
        Ok(unzigzag(self.varint()?))
    }

    /// A varint that must fit 32 bits.
    ///
    /// # Errors
    /// As [`Reader::varint`], or if it does not fit.
    #[inline]
    pub fn varint_u32(&mut self) -> Result<u32, Malformed> {
        let start = *self;
        u32::try_from(self.varint()?).map_err(|_| start.malformed("a number of at most 32 bits"))
    }

    /// A varint that must fit a `usize`.
    ///
    /// # Errors
    /// As [`Reader::varint`], or if it does not fit.
    #[inline]
    pub fn length(&mut self) -> Result<usize, Malformed> {
        let start = *self;
        usize::try_from(self.varint()?).map_err(|_| start.malformed("a length"))
    }

    /// A varint length, then so many bytes.
    ///
    /// # Errors
    /// If the length is larger than the rest of the input.
    pub fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.length()?;
        self.take(length)
    }

    /// Checks that nothing is left.
    ///
    /// # Errors
    /// If something is.
    pub fn end(&self) -> Result<(), Malformed> {
        if self.is_at_end() { Ok(()) } else { Err(self.malformed("the end")) }
    }
}
