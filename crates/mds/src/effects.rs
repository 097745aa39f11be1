//! The effects of a metadata server: the output of [`Mds::handle`](crate::Mds::handle).

use metastore::request::{StoreOp, Token};
use types::{ClientId, ConnId, Error, Ino, Seq, Tid, Timestamp};
use wire::Outbox;

use crate::MdsNotice;

/// The output of a metadata server, for its driver to execute.
#[derive(Debug, Default)]
pub struct MdsEffects {
    /// Messages to clients.
    pub outbox: Outbox,
    /// Frames for the monitor.
    pub to_monitor: Vec<u8>,
    /// Operations on the object store.
    pub store: Vec<(Token, StoreOp)>,
    /// Questions of the balancer. A thread beside the server's answers them, because it runs a
    /// user's program, and hands the answers back.
    pub questions: Vec<Box<balancer::Question>>,
    /// Connections to close once their messages are sent.
    pub close: Vec<ConnId>,
    /// Everything is written down; the process may end.
    pub stopped: bool,
    /// The server cannot go on; the process must end with this.
    pub fatal: Option<Error>,
    /// Events for the server's log.
    pub notices: Vec<MdsNotice>,
    /// Changes that were executed, in order, if [`crate::Settings::observe`] asks for them.
    pub observed: Vec<Observed>,
}

/// A change that was executed. Its reply may come later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observed {
    /// The client.
    pub client: ClientId,
    /// The client's request.
    pub tid: Tid,
    /// Its position in the journal; 0 for none.
    pub seq: Seq,
    /// The inode it created, or 0.
    pub ino: Ino,
    /// When.
    pub time: Timestamp,
    /// How many messages to clients the input had caused before.
    pub messages: usize,
}
