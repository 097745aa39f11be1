//! The messages of a state machine after an input: frames, ready to be written to connections.
//!
//! Not a queue of the network: the driver writes everything out before the next input, and keeps
//! the frames that a slow peer does not take. One buffer holds all frames and is reused, so that a
//! message is encoded once and sending allocates nothing in the steady state.
//!
//! Invariant: every range in [`Outbox::sends`] is exactly one frame of [`Outbox::frames`], and
//! per connection the order of `sends` is the order to write in.

use std::ops::Range;

use types::bytes::Reader;
use types::{ConnId, Tid};

use crate::Message;
use crate::frame::HEADER_BYTES;

/// The first byte of the payload of a reply.
pub(crate) const REPLY: u8 = 4;

/// The request that a frame of an outbox answers; `None` for messages other than replies. A few
/// instructions, because the checksum and the rest of the frame are not looked at.
#[inline]
#[must_use]
pub fn answered(frame: &[u8]) -> Option<Tid> {
    let (kind, rest) = frame.get(HEADER_BYTES..)?.split_first()?;
    if *kind != REPLY {
        return None;
    }
    Reader::new(rest).varint().ok().map(Tid)
}

/// See the module documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outbox {
    /// The bytes of all frames, one after the other.
    pub frames: Vec<u8>,
    /// The connections, each with its bytes of `frames`.
    pub sends: Vec<(ConnId, Range<usize>)>,
}

impl Outbox {
    /// Adds a message for a connection.
    pub fn send(&mut self, conn: ConnId, message: &Message<'_>) {
        let start = self.frames.len();
        message.append_frame(&mut self.frames);
        self.sends.push((conn, start..self.frames.len()));
    }

    /// The frames with their connections, in order.
    pub fn iter(&self) -> impl Iterator<Item = (ConnId, &[u8])> {
        self.sends.iter().map(|(conn, range)| (*conn, &self.frames[range.clone()]))
    }

    /// Whether there is nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sends.is_empty()
    }

    /// Forgets everything but keeps the memory.
    pub fn clear(&mut self) {
        self.frames.clear();
        self.sends.clear();
    }
}
