//! The state that a policy keeps from one tick to the next: `WRstate` and `RDstate`.
//!
//! The rank keeps the bytes (its table in the object store) and hands the value in again, so that
//! a restart forgets nothing.
//!
//! Invariant: a state is at most [`BYTES_MAX`] bytes; numbers are finite.

use types::bytes::{Malformed, Put, Reader};

/// The longest state in bytes.
pub const BYTES_MAX: usize = 64 * 1024;

/// A single value.
#[derive(Clone, Debug, PartialEq)]
pub enum Scalar {
    /// A number.
    Number(f64),
    /// A text, as bytes.
    Text(Vec<u8>),
    /// True or false.
    Truth(bool),
}

/// What `WRstate` saved.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum State {
    /// Nothing: `RDstate()` gives the policy's setting `state`, or 0.
    #[default]
    Nothing,
    /// One value.
    One(Scalar),
    /// A flat table, in the order of its keys.
    Table(Vec<(Scalar, Scalar)>),
}

const VERSION: u8 = 1;
const NOTHING: u8 = 0;
const ONE: u8 = 1;
const TABLE: u8 = 2;
const NUMBER: u8 = 0;
const TEXT: u8 = 1;
const FALSE: u8 = 2;
const TRUE: u8 = 3;

impl State {
    /// The bytes. See `docs/formats/balancer.md`.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        match self {
            Self::Nothing => bytes.put_u8(NOTHING),
            Self::One(value) => {
                bytes.put_u8(ONE);
                put(&mut bytes, value);
            }
            Self::Table(pairs) => {
                bytes.put_u8(TABLE);
                bytes.put_varint(pairs.len() as u64);
                for (key, value) in pairs {
                    put(&mut bytes, key);
                    put(&mut bytes, value);
                }
            }
        }
        let sum = checksum(&bytes);
        bytes.put_u32(sum);
        bytes
    }

    /// Reads the bytes of [`State::encode`].
    ///
    /// # Errors
    /// [`Malformed`] with the offset, for anything else, of any length.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        if bytes.len() > BYTES_MAX {
            return Err(reader.malformed("a shorter state"));
        }
        let (body, sum) = bytes.split_at(bytes.len().saturating_sub(4));
        if reader.u8()? != VERSION {
            return Err(reader.malformed("version 1"));
        }
        let state = match reader.u8()? {
            NOTHING => Self::Nothing,
            ONE => Self::One(get(&mut reader)?),
            TABLE => {
                let count = reader.length()?;
                let mut pairs = Vec::new();
                for _ in 0..count {
                    pairs.push((get(&mut reader)?, get(&mut reader)?));
                }
                Self::Table(pairs)
            }
            _ => return Err(reader.malformed("a kind of state")),
        };
        if reader.rest() != sum || checksum(body).to_le_bytes() != sum {
            return Err(reader.malformed("a matching checksum"));
        }
        Ok(state)
    }
}

fn put(bytes: &mut Vec<u8>, value: &Scalar) {
    match value {
        Scalar::Number(number) => {
            bytes.put_u8(NUMBER);
            bytes.put_u64(number.to_bits());
        }
        Scalar::Text(text) => {
            bytes.put_u8(TEXT);
            bytes.put_bytes(text);
        }
        Scalar::Truth(truth) => bytes.put_u8(if *truth { TRUE } else { FALSE }),
    }
}

fn get(reader: &mut Reader<'_>) -> Result<Scalar, Malformed> {
    match reader.u8()? {
        NUMBER => {
            let number = f64::from_bits(reader.u64()?);
            let finite = number.is_finite().then_some(Scalar::Number(number));
            finite.ok_or_else(|| reader.malformed("a finite number"))
        }
        TEXT => Ok(Scalar::Text(reader.bytes()?.to_vec())),
        FALSE => Ok(Scalar::Truth(false)),
        TRUE => Ok(Scalar::Truth(true)),
        _ => Err(reader.malformed("a kind of value")),
    }
}

/// CRC-32C, which every page of `docs/formats` uses.
pub(crate) fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

#[cfg(test)]
mod tests;
