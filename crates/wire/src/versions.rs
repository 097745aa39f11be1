//! The versions of the protocol that a program speaks, and the first frame of each side of a
//! connection, with which the two agree on one.
//!
//! The side that connects sends its versions and waits for those of the other. This frame has the
//! version 0 and keeps its form for ever, so that a program of any release can say why it does not
//! understand another.

use std::fmt;

use crate::frame::{self, FrameError};

/// The newest version of the protocol that this program speaks.
pub const VERSION: u8 = 11;
/// The oldest version that it speaks. Releases that follow each other have one in common.
pub const OLDEST_VERSION: u8 = 11;

/// The version of the frame that opens a connection.
const OPENING: u8 = 0;
/// The largest payload of that frame, in bytes: later releases may append to it.
const OPENING_BYTES_MAX: usize = 64;

/// See the module documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtocolVersions {
    /// The oldest.
    pub oldest: u8,
    /// The newest.
    pub newest: u8,
}

impl fmt::Display for ProtocolVersions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { oldest, newest } = self;
        if oldest == newest {
            write!(f, "version {newest}")
        } else {
            write!(f, "versions {oldest} to {newest}")
        }
    }
}

impl ProtocolVersions {
    /// Those of this program.
    pub const OURS: Self = Self { oldest: OLDEST_VERSION, newest: VERSION };

    /// The newest version that both sides speak.
    ///
    /// # Errors
    /// If there is none.
    pub fn agree(self, peer: Self) -> Result<u8, FrameError> {
        let newest = self.newest.min(peer.newest);
        let oldest = self.oldest.max(peer.oldest).max(1);
        if newest < oldest { Err(FrameError::Versions(peer)) } else { Ok(newest) }
    }

    /// The frame that opens a connection.
    #[must_use]
    pub fn to_frame(self) -> Vec<u8> {
        let mut out = Vec::new();
        frame::encode_in(OPENING, &mut out, |out| out.extend([self.oldest, self.newest]));
        out
    }

    /// How many bytes must at least arrive behind these until the first frame of a peer is whole.
    #[must_use]
    pub fn missing(bytes: &[u8]) -> usize {
        let whole = match bytes.len() >= frame::HEADER_BYTES {
            true => frame::announced(bytes).unwrap_or(0),
            false => frame::HEADER_BYTES,
        };
        whole.saturating_sub(bytes.len())
    }

    /// Reads the first frame of a peer, and its length including the header. `None` if more bytes
    /// must arrive first.
    ///
    /// # Errors
    /// The peer is foreign, or older than this exchange.
    pub fn decode(bytes: &[u8]) -> Result<Option<(Self, usize)>, FrameError> {
        let Some((frame, length)) = frame::decode_in(OPENING, bytes, OPENING_BYTES_MAX)? else {
            return Ok(None);
        };
        let [oldest, newest, ..] = *frame.payload else { return Err(FrameError::Corrupt) };
        Ok(Some((Self { oldest, newest }, length)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn versions(oldest: u8, newest: u8) -> ProtocolVersions {
        ProtocolVersions { oldest, newest }
    }

    #[test]
    fn two_programs_speak_the_newest_version_that_both_know() {
        assert_eq!(versions(11, 12).agree(versions(11, 11)), Ok(11));
        assert_eq!(versions(11, 12).agree(versions(12, 13)), Ok(12));
        assert_eq!(versions(11, 12).agree(versions(11, 12)), Ok(12));
        for stranger in [versions(13, 14), versions(9, 10), versions(12, 11), versions(0, 0)] {
            let refusal = versions(11, 11).agree(stranger);
            assert_eq!(refusal, Err(FrameError::Versions(stranger)));
        }
    }

    #[test]
    fn a_program_can_read_the_versions_of_any_release() {
        let mut bytes = versions(200, 255).to_frame();
        assert_eq!(ProtocolVersions::decode(&bytes), Ok(Some((versions(200, 255), bytes.len()))));
        assert_eq!(ProtocolVersions::decode(&bytes[..13]), Ok(None));
        bytes[12] ^= 1;
        assert_eq!(ProtocolVersions::decode(&bytes), Err(FrameError::Corrupt));
        // A later release appends something.
        let mut longer = Vec::new();
        frame::encode_in(OPENING, &mut longer, |out| out.extend([11, 12, 7, 7, 7]));
        longer.extend(b"further bytes");
        assert_eq!(ProtocolVersions::decode(&longer), Ok(Some((versions(11, 12), 17))));
        let mut empty = Vec::new();
        frame::encode_in(OPENING, &mut empty, |out| out.push(11));
        assert_eq!(ProtocolVersions::decode(&empty), Err(FrameError::Corrupt));
    }

    #[test]
    fn another_first_frame_is_named() {
        let mut hello = Vec::new();
        frame::encode_in(10, &mut hello, |out| out.push(1));
        assert_eq!(ProtocolVersions::decode(&hello), Err(FrameError::Version(10)));
        assert!(matches!(ProtocolVersions::decode(b"GET / HTTP/1.1"), Err(FrameError::Length(_))));
    }
}
