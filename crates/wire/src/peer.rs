//! Messages between two metadata servers: the steps of a transfer between their ranks, and requests
//! of one rank to another.
//!
//! ```text
//! peer := version:u8 sender:rank term:epoch receiver:rank body:u8 (fields)
//! body := 0 (hello) | 1 (transfer) | 2 (ask) | 3 (answer)
//! transfer := giver:rank number:varint step:u8 (fields)
//! ask := number:varint cred operation
//! answer := number:varint (answer or failure)
//! ```
//!
//! A connection carries these messages one way, so each of them names both ranks. The version is in
//! each message: a server refuses a version that it does not know, and the sender's transfer ends
//! as if there was no answer.

use types::bytes::{Malformed, Put, Reader};
use types::{Cred, Epoch, Errno, Ino, Rank};

use crate::codec::{cred, put_cred, put_result, result, string};
use crate::map::rank;
use crate::op::{Op, ino};
use crate::{Answer, Failure};

/// The version that is written, and the only one that is read.
pub const PEER_VERSION: u8 = 3;

/// A message from one rank to another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerMessage<'a> {
    /// The rank of the sender.
    pub from: Rank,
    /// The term of the sender.
    pub term: Epoch,
    /// The rank of the receiver.
    pub to: Rank,
    /// The content.
    pub body: PeerBody<'a>,
}

/// The content of a [`PeerMessage`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerBody<'a> {
    /// The first message of a connection: it is short, as first messages must be.
    Hello,
    /// A step of a transfer.
    Transfer {
        /// The rank that has the payload.
        giver: Rank,
        /// The giver's number of the transfer.
        number: u64,
        /// The step.
        step: TransferStep,
    },
    /// The sender needs the receiver to execute an operation. It repeats this until it has the
    /// answer.
    Ask {
        /// The sender's number of the question.
        number: u64,
        /// The user.
        cred: Cred,
        /// The operation.
        op: Op<'a>,
    },
    /// The answer to an `Ask`.
    Answer {
        /// The receiver's number of the question.
        number: u64,
        /// The answer.
        result: Result<Answer, Failure>,
    },
}

/// A step of a transfer, as one of its two ranks sends it to the other one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransferStep {
    /// Giver to taker: reserve the place of this subtree.
    AskSubtree {
        /// The root of the subtree.
        root: Ino,
    },
    /// Taker to giver: the place is reserved under this fence; 0 if the payload needs no place.
    Reserved {
        /// The taker's number in the list of subtrees.
        fence: u64,
    },
    /// Taker to giver: the payload cannot come.
    Refused {
        /// The error number.
        errno: Errno,
        /// The reason, for a person.
        why: String,
    },
    /// Giver to taker: the list has the record.
    Committed,
    /// Giver to taker: the payload stays.
    Stayed,
}

impl PeerMessage<'_> {
    /// Appends the message's bytes.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let Self { from, term, to, body } = self;
        out.put_u8(PEER_VERSION);
        out.put_varint(u64::from(from.0));
        out.put_varint(term.0);
        out.put_varint(u64::from(to.0));
        match body {
            PeerBody::Hello => out.put_u8(0),
            PeerBody::Transfer { giver, number, step } => {
                out.put_u8(1);
                out.put_varint(u64::from(giver.0));
                out.put_varint(*number);
                step.encode(out);
            }
            PeerBody::Ask { number, cred, op } => {
                out.put_u8(2);
                out.put_varint(*number);
                put_cred(out, cred);
                op.encode(out);
            }
            PeerBody::Answer { number, result } => {
                out.put_u8(3);
                out.put_varint(*number);
                put_result(out, result, Answer::encode);
            }
        }
    }
}

impl<'a> PeerMessage<'a> {
    /// Reads a message.
    ///
    /// # Errors
    /// If the bytes are not one, or of another version.
    pub(crate) fn decode(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let start = *reader;
        if reader.u8()? != PEER_VERSION {
            return Err(start.malformed("a known version of the messages between servers"));
        }
        let (from, term, to) = (rank(reader)?, Epoch(reader.varint()?), rank(reader)?);
        let start = *reader;
        let body = match reader.u8()? {
            0 => PeerBody::Hello,
            1 => PeerBody::Transfer {
                giver: rank(reader)?,
                number: reader.varint()?,
                step: TransferStep::decode(reader)?,
            },
            2 => PeerBody::Ask {
                number: reader.varint()?,
                cred: cred(reader)?,
                op: Op::decode(reader)?,
            },
            3 => PeerBody::Answer {
                number: reader.varint()?,
                result: result(reader, Answer::decode)?,
            },
            _ => return Err(start.malformed("a known message between servers")),
        };
        Ok(Self { from, term, to, body })
    }
}

impl TransferStep {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::AskSubtree { root } => {
                out.put_u8(1);
                out.put_varint(root.0);
            }
            Self::Reserved { fence } => {
                out.put_u8(2);
                out.put_varint(*fence);
            }
            Self::Refused { errno, why } => {
                out.put_u8(3);
                out.put_u16(errno.code());
                out.put_bytes(why.as_bytes());
            }
            Self::Committed => out.put_u8(4),
            Self::Stayed => out.put_u8(5),
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let start = *reader;
        Ok(match reader.u8()? {
            1 => Self::AskSubtree { root: ino(reader)? },
            2 => Self::Reserved { fence: reader.varint()? },
            3 => Self::Refused { errno: Errno::from_code(reader.u16()?), why: string(reader)? },
            4 => Self::Committed,
            5 => Self::Stayed,
            _ => return Err(start.malformed("a known step of a transfer")),
        })
    }
}
