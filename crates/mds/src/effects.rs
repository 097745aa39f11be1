//! The effects of a metadata server: the output of [`Mds::handle`](crate::Mds::handle).

use metastore::request::{StoreOp, Token};
use types::{ClientId, ConnId, Error, Ino, Seq, Tid, Timestamp};
use wire::{Answer, Failure, Grants, Message, Outbox, Reply};

use crate::MdsNotice;
use crate::session::Remembered;

/// The output of a metadata server, for its driver to execute.
#[derive(Debug, Default)]
pub struct MdsEffects {
    /// Messages to clients.
    pub outbox: Outbox,
    /// Frames for the monitor.
    pub to_monitor: Vec<u8>,
    /// Frames for other ranks. Each may be lost.
    pub to_peers: Vec<crate::PeerFrame>,
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
    /// The last change that is durable: every reply states it.
    pub(crate) safe: Seq,
    /// Replies to requests of this server's own balancer.
    pub(crate) to_balancer: Vec<(Tid, Result<(), Failure>)>,
    /// Answers to questions of other ranks.
    pub(crate) to_askers: Vec<(Tid, Result<Answer, Failure>)>,
}

/// The request that a reply answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ReplyTo {
    /// The connection that it came over.
    pub(crate) conn: ConnId,
    /// Its number there.
    pub(crate) tid: Tid,
}

impl ReplyTo {
    /// Work of the server's own: no reply is sent.
    pub(crate) const NOBODY: Self = Self { conn: ConnId::NOBODY, tid: Tid(0) };
}

impl MdsEffects {
    /// Reports an executed change to the driver, for its history.
    pub(crate) fn observe(&mut self, client: ClientId, remembered: Remembered) {
        let Remembered { tid, seq, ino, time } = remembered;
        let messages = self.outbox.sends.len();
        self.observed.push(Observed { client, tid, seq, ino, time, messages });
    }

    /// Answers a request that changed nothing.
    pub(crate) fn reply_with(&mut self, at: ReplyTo, seq: Seq, answer: Answer) {
        self.reply(at, seq, Timestamp(0), Ok(answer));
    }

    /// Refuses a request.
    pub(crate) fn reply_error(&mut self, at: ReplyTo, failure: Failure) {
        self.reply(at, Seq(0), Timestamp(0), Err(failure));
    }

    /// Answers a request whose change has this position in the journal, and this time.
    pub(crate) fn reply(
        &mut self,
        at: ReplyTo,
        seq: Seq,
        time: Timestamp,
        result: Result<Answer, Failure>,
    ) {
        self.reply_with_grants(at, seq, time, None, result);
    }

    /// The same, with what the client may cache from now on.
    pub(crate) fn reply_with_grants(
        &mut self,
        ReplyTo { conn, tid }: ReplyTo,
        seq: Seq,
        time: Timestamp,
        grants: Option<Grants>,
        result: Result<Answer, Failure>,
    ) {
        match conn {
            ConnId::NOBODY => {}
            ConnId::BALANCER => self.to_balancer.push((tid, result.map(drop))),
            ConnId::PEER => self.to_askers.push((tid, result)),
            _ => {
                let reply =
                    Message::Reply(Reply { tid, seq, time, safe: self.safe, grants, result });
                if conn == ConnId::MONITOR {
                    reply.append_frame(&mut self.to_monitor);
                } else {
                    self.outbox.send(conn, &reply);
                }
            }
        }
    }
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
