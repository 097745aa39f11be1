//! The effects of a monitor, as values.
//!
//! Not how it is done: a driver writes to sockets and to the store, a simulator to queues.
//!
//! Invariant: effects are independent of each other, except that messages to one connection keep
//! their order and go out before it is closed.

use metastore::request::{StoreOp, Token};
use types::{ConnId, Error, Tid};
use wire::{Failure, Message, MonAnswer, Outbox};

use crate::MonNotice;

/// The output of a monitor. Several inputs may add to it before the driver carries it out and
/// clears it.
#[derive(Debug, Default)]
pub struct MonEffects {
    /// Messages.
    pub outbox: Outbox,
    /// Operations on the object store.
    pub store: Vec<(Token, StoreOp)>,
    /// Connections to close once their messages are sent.
    pub close: Vec<ConnId>,
    /// The process may end once the messages are sent. Set again by every further input.
    pub stopped: bool,
    /// Why it must end, if it was not asked to.
    pub fatal: Option<Error>,
    /// Events for the monitor's log.
    pub notices: Vec<MonNotice>,
}

impl MonEffects {
    /// Adds a message.
    pub fn send(&mut self, conn: ConnId, message: &Message<'_>) {
        self.outbox.send(conn, message);
    }

    /// Forgets everything but keeps the memory.
    pub fn clear(&mut self) {
        let Self { outbox, store, close, stopped, fatal, notices } = self;
        outbox.clear();
        store.clear();
        close.clear();
        *stopped = false;
        *fatal = None;
        notices.clear();
    }

    /// Adds the reply to a request.
    pub(crate) fn reply(&mut self, asker: Asker, result: Result<MonAnswer, Failure>) {
        self.send(asker.conn, &Message::MonReply { tid: asker.tid, result });
    }
}

/// The connection and the request that wait for a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asker {
    pub(crate) conn: ConnId,
    pub(crate) tid: Tid,
}
