//! Frames: where a message starts and ends on a connection, and whether it arrived intact.
//!
//! ```text
//! 0  length    4  of the payload in bytes
//! 4  version   1  of the protocol; 0 in the first frame, see `ProtocolVersions`
//! 5  reserved  3  zero
//! 8  crc32c    4  of bytes 0..8 and of the payload
//! 12 payload
//! ```

use types::{Errno, Error};

use crate::{ProtocolVersions, VERSION};

/// Length of a frame header in bytes.
pub const HEADER_BYTES: usize = 12;
/// The largest payload in bytes: a peer that announces more is foreign.
pub const PAYLOAD_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The largest payload of the first message of a connection, in bytes: an unknown peer costs no
/// more memory than this. A program with a longer first request sends a short one before it.
pub const FIRST_PAYLOAD_BYTES_MAX: usize = 8 * 1024;

/// Payloads shorter than this have the checksums of their heads in a table: nearly all requests and
/// answers do.
const TABLED: u32 = 1024;

/// CRC-32C of the head of a frame of this version, for each payload length below [`TABLED`]. For
/// eight bytes the general function takes as many instructions as for a small payload.
static HEADS: [u32; TABLED as usize] = {
    let (mut heads, mut length) = ([0; TABLED as usize], 0);
    while length < TABLED {
        heads[length as usize] = head_checksum(length);
        length += 1;
    }
    heads
};

/// CRC-32C of the first eight bytes of a header, bit by bit: the compiler evaluates this.
const fn head_checksum(length: u32) -> u32 {
    /// The Castagnoli polynomial, lowest bit first (RFC 3720, appendix B.4).
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let (mut crc, mut bit) = (u32::MAX, 0);
    while bit < u64::BITS {
        let word = if bit < 32 { length } else { VERSION as u32 };
        let differs = (crc ^ (word >> (bit % 32))) & 1;
        crc = (crc >> 1) ^ (POLYNOMIAL * differs);
        bit += 1;
    }
    !crc
}

/// The checksum of a frame of this version with this payload and with zeros in the reserved bytes.
fn checksum(version: u8, length: u32, payload: &[u8]) -> u32 {
    let known = HEADS.get(length as usize).filter(|_| version == VERSION);
    let head = known.copied().unwrap_or_else(|| {
        let [a, b, c, d] = length.to_le_bytes();
        crc32c::crc32c(&[a, b, c, d, version, 0, 0, 0])
    });
    crc32c::crc32c_append(head, payload)
}

/// A frame that arrived intact.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// The encoded message.
    pub payload: &'a [u8],
}

/// The connection cannot be understood and must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// The frame has a version that this program does not speak.
    Version(u8),
    /// The peer speaks no version that this program speaks.
    Versions(ProtocolVersions),
    /// The announced length is absurd: a foreign protocol.
    Length(u32),
    /// The checksum does not match, or reserved bytes are set.
    Corrupt,
}

impl std::fmt::Display for FrameError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Version(version) => {
                let ours = ProtocolVersions::OURS;
                write!(f, "the peer speaks version {version} of the protocol, this program {ours}")
            }
            Self::Versions(theirs) => {
                let ours = ProtocolVersions::OURS;
                write!(f, "the peer speaks {theirs} of the protocol, this program {ours}")
            }
            Self::Length(length) => {
                write!(f, "the peer announces a message of {length} bytes; it is not Cudele")
            }
            Self::Corrupt => f.write_str("a message arrived damaged"),
        }
    }
}

impl std::error::Error for FrameError {}

impl From<FrameError> for Error {
    fn from(error: FrameError) -> Self {
        let is_of_another_release =
            matches!(error, FrameError::Version(_) | FrameError::Versions(_));
        let error = Error::new(Errno::BadMessage, "", error.to_string());
        if is_of_another_release { error.remedy("upgrade the older of the two") } else { error }
    }
}

/// Appends a frame whose payload is written by `fill`.
pub fn encode(out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    encode_in(VERSION, out, fill);
}

/// The same in a version of the protocol.
#[inline]
pub(crate) fn encode_in(version: u8, out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.resize(start + HEADER_BYTES, 0);
    fill(out);
    let (header, payload) = out[start..].split_at_mut(HEADER_BYTES);
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    debug_assert!(payload.len() <= PAYLOAD_BYTES_MAX, "senders split what is larger");
    header[..4].copy_from_slice(&length.to_le_bytes());
    header[4] = version;
    let crc = checksum(version, length, payload);
    header[8..].copy_from_slice(&crc.to_le_bytes());
}

/// Reads the first frame of `bytes`, and its length including the header. `None` if more bytes
/// must arrive first.
///
/// # Errors
/// The stream is foreign, damaged or of another version.
pub fn decode(bytes: &[u8]) -> Result<Option<(Frame<'_>, usize)>, FrameError> {
    decode_up_to(bytes, PAYLOAD_BYTES_MAX)
}

/// The same with a smaller limit for the payload.
///
/// # Errors
/// As [`decode`].
pub fn decode_up_to(
    bytes: &[u8],
    payload_bytes_max: usize,
) -> Result<Option<(Frame<'_>, usize)>, FrameError> {
    decode_in(VERSION, bytes, payload_bytes_max)
}

/// The same in a version of the protocol.
#[inline]
pub(crate) fn decode_in(
    version: u8,
    bytes: &[u8],
    payload_bytes_max: usize,
) -> Result<Option<(Frame<'_>, usize)>, FrameError> {
    let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        return Ok(None);
    };
    let length = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
    if length as usize > payload_bytes_max.min(PAYLOAD_BYTES_MAX) {
        return Err(FrameError::Length(length));
    }
    if header[4] != version {
        return Err(FrameError::Version(header[4]));
    }
    let Some(payload) = rest.get(..length as usize) else { return Ok(None) };
    let crc = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
    if header[5..8] != [0; 3] || checksum(version, length, payload) != crc {
        return Err(FrameError::Corrupt);
    }
    Ok(Some((Frame { payload }, HEADER_BYTES + length as usize)))
}

/// The length of the first frame of `bytes` including its header, as far as it has arrived.
#[must_use]
pub fn announced(bytes: &[u8]) -> Option<usize> {
    let length = bytes.first_chunk().map(|length| u32::from_le_bytes(*length))?;
    Some(HEADER_BYTES + length as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_the_checksums_of_heads() {
        for length in (0..2 * TABLED).chain([u32::MAX]) {
            let [a, b, c, d] = length.to_le_bytes();
            let head = [a, b, c, d, VERSION, 0, 0, 0];
            assert_eq!(
                checksum(VERSION, length, b"payload"),
                crc32c::crc32c(&[&head[..], b"payload"].concat())
            );
        }
    }
}
