//! Messages between clients, metadata servers and the monitor, and their bytes.
//!
//! A connection carries [`frame`]s; a frame carries one [`Message`]. Requests are pipelined and
//! replies may come out of order; a request is identified by its client and its
//! [`Tid`](types::Tid), which makes it idempotent.
//!
//! This crate knows nothing about sockets. Decoding borrows from the frame and never panics. The
//! bytes are documented in `docs/formats/wire.md`.

mod answer;
mod batch;
mod codec;
pub mod frame;
mod identities;
mod map;
mod message;
mod mon;
mod op;
mod outbox;
mod peer;
mod refusal;
mod trace;
mod unused;
mod versions;
mod watch;

pub use answer::{
    Answer, Decoupled, EffectivePolicy, Fragments, MergeReport, MergeSample, Opened, Redirect,
    SampleKind, StateStorage,
};
pub use batch::{Batch, BatchWriter, Requests};
pub use frame::{Frame, FrameError};
pub use identities::{Identities, SpeaksFor, refusal};
pub use map::{
    BalancerEntry, ClusterMap, DecoupledSubtree, MdsEntry, MdsState, PolicyEntry, Warning,
};
pub use message::{
    Failure, Grants, Hello, Message, Replay, Reply, Request, WantsExclusive, Welcome,
};
pub use mon::{Beacon, MonAnswer, MonOp};
pub use op::{
    About, Access, AdminOp, ChangeOp, JobOp, MergeFlags, NewInode, Op, RankOp, ReadOp, SessionOp,
};
pub use outbox::{Outbox, answered};
pub use peer::{PEER_VERSION, PeerBody, PeerMessage, TransferStep};
pub use trace::{TracePart, TraceStep, Traced};
pub use types::{Cred, RenameFlags, XattrFlags};
pub use unused::UnusedNumbers;
pub use versions::{OLDEST_VERSION, ProtocolVersions, VERSION};
pub use watch::{ChangeKind, ChangedName, WatchPage, WatchPoint, WatchedChange};

/// Entry point of the fuzz targets.
#[doc(hidden)]
pub mod fuzz {
    /// Decodes arbitrary bytes as a stream of frames and as one message; must not panic.
    pub fn decode(data: &[u8]) {
        let mut rest = data;
        while let Ok(Some((frame, length))) = crate::frame::decode(rest) {
            message(frame.payload);
            rest = &rest[length..];
        }
        message(data);
    }

    fn message(payload: &[u8]) {
        if let Ok(crate::Message::Batch(batch)) = crate::Message::decode(payload) {
            let mut requests = batch.requests();
            while let Ok(Some(_)) = requests.read() {}
        }
    }
}

#[cfg(test)]
mod tests;
