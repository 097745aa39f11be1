//! Limits of a reactor, for each connection and for all together.
//!
//! Invariant: the buffers of all connections together stay below [`Limits::buffer_bytes`], plus one
//! message.

use std::time::Duration;

use crate::descriptors;

/// See the module documentation.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Frames handed out per wake-up. Few enough that a wake-up stays short with many peers that
    /// send ahead, enough that the fixed cost of a wake-up does not count.
    pub frames_per_turn: usize,
    /// With more unsent bytes a connection is not read from.
    pub unsent_bytes: usize,
    /// How long a peer with so much to read, or a closing one, may take nothing at all, and how
    /// long a message may take to arrive. Long enough for a client that was stopped for a moment:
    /// it would only connect again.
    pub stalled: Duration,
    /// The largest first message of a peer, in bytes.
    pub first_bytes: usize,
    /// How long a peer may take to send its first message.
    pub introduction: Duration,
    /// Bytes of memory for the receive and send buffers of all connections together. Beyond it the
    /// reactor closes the connection that has waited longest for its peer.
    pub buffer_bytes: usize,
    /// How many connections there are at most. A further one takes the place of the oldest that has
    /// not sent its first message; if there is none, the reactor refuses it.
    pub connections: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            frames_per_turn: 64,
            unsent_bytes: 4 << 20,
            stalled: Duration::from_secs(60),
            first_bytes: wire::frame::FIRST_PAYLOAD_BYTES_MAX,
            introduction: Duration::from_secs(10),
            buffer_bytes: 256 << 20,
            connections: descriptors::connections_max(),
        }
    }
}
