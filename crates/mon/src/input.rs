//! The inputs of a monitor. For their effects see [`Mon::handle`](crate::Mon::handle).
//!
//! Invariant: everything that can influence a monitor is in here or in the clock beside it.

use metastore::request::{StoreFailure, StoreResult, Token};
use types::{ConnId, Peer, Span};
use wire::Message;

/// The settings of a new monitor.
#[derive(Clone, Debug)]
pub struct MonSettings {
    /// Names the cluster, if the store has no map yet. A map that exists keeps its name.
    pub cluster: String,
    /// Where the object store is. Put into the map, for the servers to find.
    pub store: String,
    /// How long a metadata server may be silent before it counts as lost.
    pub beacon_grace: Span,
}

/// An input of a monitor.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "one at a time, on the stack")]
pub enum MonInput<'a> {
    /// It starts: it reads its map.
    Start,
    /// Somebody connected.
    Opened {
        /// As what.
        conn: ConnId,
        /// By which process.
        peer: Peer,
    },
    /// A message arrived.
    Message {
        /// From whom.
        conn: ConnId,
        /// The message.
        message: Message<'a>,
    },
    /// A connection is gone. Nothing more may arrive from it.
    Closed {
        /// Which.
        conn: ConnId,
    },
    /// A store operation ended.
    Stored {
        /// Which.
        token: Token,
        /// How.
        result: Result<StoreResult, Box<StoreFailure>>,
    },
    /// Keys were revoked on the monitor's host: these, and perhaps some that the map has.
    Revoked {
        /// Their ids.
        keys: Vec<u64>,
    },
    /// Time passed. Wanted several times within the beacon grace.
    Tick,
    /// End the cluster cleanly, as [`MonOp::Stop`](wire::MonOp::Stop) does.
    Terminate,
}
