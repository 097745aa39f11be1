//! Messages: the content of frames.

use types::bytes::{Malformed, Put, Reader};
use types::{Attr, ClientId, Cred, Epoch, Errno, Ino, Rank, Seq, Span, Stripe, Tid, Timestamp};

use crate::answer::Answer;
use crate::batch::Batch;
use crate::codec::{
    attr, boolean, cred, list, option, put_attr, put_cred, put_list, put_option, put_result, result,
};
use crate::map::{ClusterMap, rank};
use crate::mon::{Beacon, MonAnswer, MonOp};
use crate::op::{Op, flags, ino};
use crate::peer::PeerMessage;
use crate::trace::Traced;

/// The first message of a client to a metadata server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// Who it is.
    pub client: ClientId,
    /// The server's term in which the client was connected before; 0 for none.
    pub epoch: Epoch,
    /// How many unsafe and unanswered requests it sends again before new ones.
    pub unsafe_requests: u64,
}

/// The server's answer to a hello.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Welcome {
    /// The server's term: if it changed, applied but unsafe requests must be sent again.
    pub epoch: Epoch,
    /// Everything the client did up to this request is in the recovered journal.
    pub completed: Tid,
    /// Everything up to this position is durable.
    pub safe: Seq,
    /// The client is not welcome: its work was taken over, and nothing it asks is carried out.
    pub fenced: bool,
    /// The newest term that ended without being stopped, so that changes that only memory held
    /// since are lost; 0 for none.
    pub crashed: Epoch,
}

/// The first reply to a request, for resending the request after a restart: it must have the same
/// effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replay {
    /// Its position in the lost part of the journal: requests of all clients are carried out in
    /// this order.
    pub seq: Seq,
    /// The inode it created, or 0.
    pub ino: Ino,
    /// When it was carried out.
    pub time: Timestamp,
    /// How the file that it created is striped: content may be there by now.
    pub stripe: Stripe,
}

/// Whether a client takes directories for itself when it can have them alone
/// ([`Grants::exclusive`]), and answers changes in them before the server has heard of them
/// (asynchronous operations).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WantsExclusive {
    /// No (`wsync`).
    #[default]
    Never,
    /// Where the policy says that changes may be answered so early (`ack: async`).
    AsPolicySays,
    /// Also where the policy does not say that they may not (`nowsync`, the default of a mount).
    Always,
}

/// A request to a metadata server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Its number, increasing within the client.
    pub tid: Tid,
    /// Every request up to this one was answered, and the client has the answer: the server need
    /// not remember it any more.
    pub acked: Tid,
    /// On whose behalf.
    pub cred: Cred,
    /// Set when it was executed before a restart of the server, and for requests with
    /// [`Request::is_async`].
    pub replay: Option<Replay>,
    /// The client caches answers, if it may ([`Grants`]), and receives [`Message::Revoke`].
    pub remembers: bool,
    /// Whether it also takes directories for itself ([`Grants::exclusive`]).
    pub wants_exclusive: WantsExclusive,
    /// The client has answered it itself, in directories that it has alone, and `replay` says how.
    /// There is no reply unless it fails; [`crate::SessionOp::AwaitAsync`] asks how far the server
    /// is.
    pub is_async: bool,
    /// What to do.
    pub op: Op<'a>,
}

impl<'a> Request<'a> {
    /// A request that is made for the first time, and remembers nothing.
    #[must_use]
    pub fn new(tid: Tid, acked: Tid, cred: Cred, op: Op<'a>) -> Self {
        let (remembers, wants_exclusive, is_async) = (false, WantsExclusive::Never, false);
        Self { tid, acked, cred, replay: None, remembers, wants_exclusive, is_async, op }
    }
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The error number.
    pub errno: Errno,
    /// More words; may be empty.
    pub text: String,
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Self {
        Self { errno, text: String::new() }
    }
}

impl From<Failure> for types::Error {
    fn from(failure: Failure) -> Self {
        let Failure { errno, text } = failure;
        types::Error::new(errno, "", if text.is_empty() { errno.text().into() } else { text })
    }
}

/// A metadata server's reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Which request it answers.
    pub tid: Tid,
    /// The position that the request's event has in the journal; 0 if it has none. The request is
    /// *applied* now and *safe* once the journal is durable up to here.
    pub seq: Seq,
    /// When it was carried out; zero for requests that change nothing.
    pub time: Timestamp,
    /// Everything up to this position is durable.
    pub safe: Seq,
    /// The part of it that may be cached.
    pub grants: Option<Grants>,
    /// The answer.
    pub result: Result<Answer, Failure>,
}

/// The capability that comes with a reply: until it is revoked ([`Message::Revoke`]) no other
/// client changes the names in a directory, its attributes, or those of files whose home it is. So
/// the client may cache answers about them, also that a name does not exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    /// The directory that the request was about, or in which its inode stands, as it is now.
    pub dir: Attr,
    /// The attributes in the answer may be remembered, too. Those of a directory come with the
    /// capability of that directory.
    pub inode: bool,
    /// No other client has the capability of the directory, and none gets it, not even to read,
    /// before it is revoked: the client may change the directory without waiting for an answer.
    /// Files that are created there are striped like this.
    pub exclusive: Option<Stripe>,
    /// The same of the directory that was just created in it.
    pub new_exclusive: Option<Stripe>,
    /// There is no capability, and no server will revoke anything: the client may cache the answer
    /// for so long after it sent the request, by its own clock, and no change happens before.
    pub lease: Option<Span>,
}

/// The content of one frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// Client to server: who I am.
    Hello(Hello),
    /// Server to client: where we are.
    Welcome(Welcome),
    /// Client to server, or monitor to server.
    Request(Request<'a>),
    /// Server to client.
    Reply(Reply),
    /// Client to server: a part of the journal that the merge of this request transfers.
    Chunk {
        /// The merge request.
        tid: Tid,
        /// Bytes of the journal.
        bytes: &'a [u8],
    },
    /// Client to monitor.
    MonRequest {
        /// Its number.
        tid: Tid,
        /// On whose behalf.
        cred: Cred,
        /// What to do.
        op: MonOp<'a>,
    },
    /// Monitor to client.
    MonReply {
        /// Which request it answers.
        tid: Tid,
        /// The answer.
        result: Result<MonAnswer, Failure>,
    },
    /// Server to monitor.
    Beacon(Beacon),
    /// Monitor to server.
    Map(Box<ClusterMap>),
    /// Monitor to server: write everything down and stop.
    Stop,
    /// Client to server: operations that it has answered itself ([`Request::is_async`]).
    Batch(Batch<'a>),
    /// Server to monitor, and from there to every other server: the load of a rank. The bytes are
    /// the balancer's.
    Heartbeat(&'a [u8]),
    /// Server to monitor: a rank's decision about its load, and how a move ended. The bytes are the
    /// balancer's.
    Balanced(&'a [u8]),
    /// Server to client: another client opens a file that the client has open.
    Recall {
        /// The file.
        ino: Ino,
    },
    /// Server to client: files that the client has open, or locks in, are served by another rank
    /// from now on, to which the client must report them (`SessionOp::Reopen`).
    Moved {
        /// Who serves them.
        to: Rank,
        /// The files. If there are none, some are about to move: a client that connects now is
        /// asked about them in time.
        files: Vec<Ino>,
    },
    /// Server to client: drop a directory and the files in it from the cache, and acknowledge that
    /// (`SessionOp::Return`): another client changes it.
    Revoke {
        /// The directory.
        dir: Ino,
    },
    /// Server to server.
    Peer(Box<PeerMessage<'a>>),
    /// Client to server: report the course of a request that follows ([`Message::Traced`]).
    Trace {
        /// The request.
        tid: Tid,
    },
    /// Server to client: the course of a request.
    Traced(Box<Traced>),
}

impl Message<'_> {
    /// Appends the message's bytes (the payload of a frame).
    #[allow(clippy::too_many_lines, reason = "an arm for each message")]
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Message::Hello(Hello { client, epoch, unsafe_requests }) => {
                out.put_u8(1);
                out.put_varint(client.0);
                out.put_varint(epoch.0);
                out.put_varint(*unsafe_requests);
            }
            Message::Welcome(Welcome { epoch, completed, safe, fenced, crashed }) => {
                out.put_u8(2);
                out.put_varint(epoch.0);
                out.put_varint(completed.0);
                out.put_varint(safe.0);
                out.put_u8(u8::from(*fenced));
                out.put_varint(crashed.0);
            }
            Message::Request(request) => {
                let Request { tid, acked, cred, replay, remembers, wants_exclusive, is_async, op } =
                    request;
                out.put_u8(3);
                out.put_varint(tid.0);
                out.put_varint(tid.0.saturating_sub(acked.0));
                put_cred(out, cred);
                let wants = wants_exclusive != &WantsExclusive::Never;
                let always = wants_exclusive == &WantsExclusive::Always;
                let flags = [replay.is_some(), *remembers, *is_async, wants, always].into_iter();
                out.put_u8(flags.rev().fold(0, |bits, flag| bits << 1 | u8::from(flag)));
                if let Some(replay) = replay {
                    out.put_varint(replay.seq.0);
                    out.put_varint(replay.ino.0);
                    out.put_signed(replay.time.0);
                    out.put_varint(replay.stripe.code().into());
                }
                op.encode(out);
            }
            Message::Reply(Reply { tid, seq, time, safe, grants, result }) => {
                out.put_u8(crate::outbox::REPLY);
                out.put_varint(tid.0);
                out.put_varint(seq.0);
                out.put_signed(time.0);
                out.put_varint(safe.0);
                put_option(out, grants.as_ref(), |out, grants| {
                    put_attr(out, &grants.dir);
                    out.put_u8(u8::from(grants.inode));
                    put_option(out, grants.exclusive, |out, stripe| {
                        out.put_varint(stripe.code().into())
                    });
                    put_option(out, grants.new_exclusive, |out, stripe| {
                        out.put_varint(stripe.code().into())
                    });
                    put_option(out, grants.lease, |out, lease| out.put_varint(lease.0));
                });
                put_result(out, result, Answer::encode);
            }
            Message::Chunk { tid, bytes } => {
                out.put_u8(5);
                out.put_varint(tid.0);
                out.put_bytes(bytes);
            }
            Message::MonRequest { tid, cred, op } => {
                out.put_u8(6);
                out.put_varint(tid.0);
                put_cred(out, cred);
                op.encode(out);
            }
            Message::MonReply { tid, result } => {
                out.put_u8(7);
                out.put_varint(tid.0);
                put_result(out, result, MonAnswer::encode);
            }
            Message::Beacon(beacon) => {
                out.put_u8(8);
                beacon.encode(out);
            }
            Message::Map(map) => {
                out.put_u8(9);
                map.encode(out, true);
            }
            Message::Stop => out.put_u8(10),
            Message::Recall { ino } => {
                out.put_u8(11);
                out.put_varint(ino.0);
            }
            Message::Revoke { dir } => {
                out.put_u8(12);
                out.put_varint(dir.0);
            }
            Message::Moved { to, files } => {
                out.put_u8(16);
                out.put_varint(u64::from(to.0));
                put_list(out, files, |out, ino| out.put_varint(ino.0));
            }
            Message::Batch(batch) => {
                out.put_u8(13);
                out.put_bytes(batch.bytes);
            }
            Message::Heartbeat(bytes) => {
                out.put_u8(14);
                out.put_bytes(bytes);
            }
            Message::Balanced(bytes) => {
                out.put_u8(15);
                out.put_bytes(bytes);
            }
            Message::Peer(peer) => {
                out.put_u8(17);
                peer.encode(out);
            }
            Message::Trace { tid } => {
                out.put_u8(18);
                out.put_varint(tid.0);
            }
            Message::Traced(traced) => {
                out.put_u8(19);
                traced.encode(out);
            }
        }
    }

    /// The message as a frame of its own.
    #[must_use]
    pub fn to_frame(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.append_frame(&mut out);
        out
    }

    /// Appends the message as a frame.
    pub fn append_frame(&self, out: &mut Vec<u8>) {
        crate::frame::encode(out, |out| self.encode(out));
    }
}

impl<'a> Message<'a> {
    /// Reads the payload of a frame.
    ///
    /// # Errors
    /// If it is not exactly one message.
    pub fn decode(payload: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(payload);
        let message = Self::read(&mut reader)?;
        reader.end()?;
        Ok(message)
    }

    fn read(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let start = *reader;
        Ok(match reader.u8()? {
            1 => Message::Hello(Hello {
                client: ClientId(reader.varint()?),
                epoch: Epoch(reader.varint()?),
                unsafe_requests: reader.varint()?,
            }),
            2 => Message::Welcome(Welcome {
                epoch: Epoch(reader.varint()?),
                completed: Tid(reader.varint()?),
                safe: Seq(reader.varint()?),
                fenced: boolean(reader)?,
                crashed: Epoch(reader.varint()?),
            }),
            3 => {
                let tid = reader.varint()?;
                let acked = tid.saturating_sub(reader.varint()?);
                let cred = cred(reader)?;
                let start = *reader;
                let [replayed, remembers, is_async, wants, always, ..] = flags(reader, 5)?;
                let wants_exclusive = match (wants, always) {
                    (false, _) => WantsExclusive::Never,
                    (true, false) => WantsExclusive::AsPolicySays,
                    (true, true) => WantsExclusive::Always,
                };
                if is_async && !replayed {
                    return Err(start.malformed("what was answered ahead, with its answer"));
                }
                let replay = if replayed { Some(replay(reader)?) } else { None };
                let op = Op::decode(reader)?;
                let (tid, acked) = (Tid(tid), Tid(acked));
                let request =
                    Request { tid, acked, cred, replay, remembers, wants_exclusive, is_async, op };
                Message::Request(request)
            }
            4 => Message::Reply(Reply {
                tid: Tid(reader.varint()?),
                seq: Seq(reader.varint()?),
                time: Timestamp(reader.signed()?),
                safe: Seq(reader.varint()?),
                grants: option(reader, grants)?,
                result: result(reader, Answer::decode)?,
            }),
            5 => Message::Chunk { tid: Tid(reader.varint()?), bytes: reader.bytes()? },
            6 => Message::MonRequest {
                tid: Tid(reader.varint()?),
                cred: cred(reader)?,
                op: MonOp::decode(reader)?,
            },
            7 => Message::MonReply {
                tid: Tid(reader.varint()?),
                result: result(reader, MonAnswer::decode)?,
            },
            8 => Message::Beacon(Beacon::decode(reader)?),
            9 => Message::Map(Box::new(ClusterMap::decode(reader)?)),
            10 => Message::Stop,
            11 => Message::Recall { ino: ino(reader)? },
            12 => Message::Revoke { dir: ino(reader)? },
            13 => Message::Batch(Batch::new(reader.bytes()?)),
            14 => Message::Heartbeat(reader.bytes()?),
            15 => Message::Balanced(reader.bytes()?),
            17 => Message::Peer(Box::new(PeerMessage::decode(reader)?)),
            18 => Message::Trace { tid: Tid(reader.varint()?) },
            19 => Message::Traced(Box::new(Traced::read(reader)?)),
            16 => Message::Moved { to: rank(reader)?, files: list(reader, ino)? },
            _ => return Err(start.malformed("a known message")),
        })
    }
}

fn replay(reader: &mut Reader<'_>) -> Result<Replay, Malformed> {
    let (seq, ino) = (Seq(reader.varint()?), ino(reader)?);
    let time = Timestamp(reader.signed()?);
    Ok(Replay { seq, ino, time, stripe: stripe(reader)? })
}

pub(crate) fn stripe(reader: &mut Reader<'_>) -> Result<Stripe, Malformed> {
    let start = *reader;
    Stripe::from_code(reader.varint_u32()?).ok_or_else(|| start.malformed("a stripe"))
}

fn grants(reader: &mut Reader<'_>) -> Result<Grants, Malformed> {
    let (dir, inode) = (attr(reader)?, boolean(reader)?);
    let (exclusive, new_exclusive) = (option(reader, stripe)?, option(reader, stripe)?);
    let lease = option(reader, |reader| reader.varint().map(Span))?;
    Ok(Grants { dir, inode, exclusive, new_exclusive, lease })
}
