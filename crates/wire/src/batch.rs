//! Requests that a client has answered itself and sends together ([`crate::Request::is_async`]).
//!
//! Batches have many changes, each much like the one before. So each holds only its difference: a
//! create of one more file in the same directory is its name and about four bytes. The bytes are
//! documented in `docs/formats/wire.md`.

use types::bytes::{Malformed, Put, Reader};
use types::{Cred, Ino, Seq, Tid, Timestamp};

use crate::codec::{cred, put_cred};
use crate::message::stripe;
use crate::op::ino;
use crate::{ChangeOp, NewInode, Op, Replay, Request, SessionOp};

/// The request number follows the one before.
const NEXT: u8 = 1;
/// The client's acknowledgement is the same.
const ACKED: u8 = 1 << 1;
/// The same user.
const CRED: u8 = 1 << 2;
/// The same position and stripe.
const ORDER: u8 = 1 << 3;
/// The inode number follows the one that was given before.
const INO: u8 = 1 << 4;
/// A create like the one before, in the same directory: its name follows, instead of an operation.
const LIKE: u8 = 1 << 5;
const KNOWN: u8 = NEXT | ACKED | CRED | ORDER | INO | LIKE;

/// Requests sent together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch<'a> {
    pub(crate) bytes: &'a [u8],
}

impl<'a> Batch<'a> {
    /// The bytes of a [`BatchWriter`].
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// The requests in their order.
    #[must_use]
    pub fn requests(self) -> Requests<'a> {
        let replay = Some(Replay::default());
        let request =
            Request::new(Tid(0), Tid(0), Cred::root(), Op::Session(SessionOp::AwaitAsync));
        let request = Request { replay, is_async: true, ..request };
        Requests { reader: Reader::new(self.bytes), request, given: Ino(0), like: None }
    }
}

/// Reads a batch.
#[derive(Debug)]
pub struct Requests<'a> {
    reader: Reader<'a>,
    /// The newest.
    request: Request<'a>,
    given: Ino,
    like: Option<(Ino, NewInode<'a>)>,
}

impl<'a> Requests<'a> {
    /// The next request, if there is one.
    ///
    /// # Errors
    /// If the bytes are none. Requests before them are good.
    pub fn read(&mut self) -> Result<Option<&Request<'a>>, Malformed> {
        if self.reader.is_at_end() {
            return Ok(None);
        }
        let Self { reader, request, given, like } = self;
        let start = *reader;
        let flags = reader.u8()?;
        let has = |flag: u8| flags & flag != 0;
        if flags & !KNOWN != 0 {
            return Err(start.malformed("known flags"));
        }
        let before = request.replay.unwrap_or_default();
        request.tid =
            Tid(if has(NEXT) { request.tid.0.wrapping_add(1) } else { reader.varint()? });
        if !has(ACKED) {
            request.acked = Tid(request.tid.0.saturating_sub(reader.varint()?));
        }
        if !has(CRED) {
            request.cred = cred(reader)?;
        }
        let (seq, stripe) = if has(ORDER) {
            (before.seq, before.stripe)
        } else {
            (Seq(reader.varint()?), stripe(reader)?)
        };
        let ino = if has(INO) { Ino(given.0.wrapping_add(1)) } else { ino(reader)? };
        if ino != Ino(0) {
            *given = ino;
        }
        let time = Timestamp(before.time.0.wrapping_add(reader.signed()?));
        request.replay = Some(Replay { seq, ino, time, stripe });
        request.op = match *like {
            Some((parent, new)) if has(LIKE) => {
                Op::Change(ChangeOp::Create { parent, name: reader.bytes()?, new })
            }
            _ if has(LIKE) => return Err(start.malformed("a create like the one before")),
            _ => Op::decode(reader)?,
        };
        if let Op::Change(ChangeOp::Create { parent, new, .. }) = request.op {
            *like = Some((parent, NewInode { data: &[], ..new }));
        }
        Ok(Some(request))
    }
}

/// Whether two users are the same. Mostly neither has further groups: comparing none with none is
/// left out, because a call of `memcmp` costs more than the rest of this.
fn is_same_user(one: &Cred, other: &Cred) -> bool {
    let bare = one.groups.is_empty() && other.groups.is_empty();
    one.uid == other.uid && one.gid == other.gid && (bare || one.groups == other.groups)
}

/// Whether two new inodes differ in nothing, and have no content; compared as above.
fn is_like(before: &NewInode<'_>, new: &NewInode<'_>) -> bool {
    let NewInode { mode, umask, owner, rdev, size, mtime, atime, data, open } = *new;
    data.is_empty()
        && (mode, owner, rdev, size) == (before.mode, before.owner, before.rdev, before.size)
        && (mtime, atime, open, umask) == (before.mtime, before.atime, before.open, before.umask)
}

fn without_content(new: &NewInode<'_>) -> NewInode<'static> {
    let NewInode { mode, umask, owner, rdev, size, mtime, atime, data: _, open } = *new;
    NewInode { mode, umask, owner, rdev, size, mtime, atime, data: &[], open }
}

/// Writes a batch.
#[derive(Debug, Default)]
pub struct BatchWriter {
    bytes: Vec<u8>,
    tid: Tid,
    acked: Tid,
    cred: Cred,
    replay: Replay,
    given: Ino,
    like: Option<(Ino, NewInode<'static>)>,
}

impl BatchWriter {
    /// Appends a request, which was answered as `replay` says.
    pub fn push(&mut self, tid: Tid, acked: Tid, cred: &Cred, replay: Replay, op: &Op<'_>) {
        let first = self.bytes.is_empty();
        let creates = if let Op::Change(ChangeOp::Create { parent, name, ref new }) = *op {
            Some((parent, name, new))
        } else {
            None
        };
        let like = creates.filter(|(parent, _, new)| {
            self.like.is_some_and(|(dir, before)| dir == *parent && is_like(&before, new))
        });
        let same = [
            (NEXT, tid.0 == self.tid.0.wrapping_add(1)),
            (ACKED, acked == self.acked),
            (CRED, is_same_user(cred, &self.cred)),
            (ORDER, (replay.seq, replay.stripe) == (self.replay.seq, self.replay.stripe)),
            (INO, replay.ino != Ino(0) && replay.ino.0 == self.given.0.wrapping_add(1)),
            (LIKE, like.is_some()),
        ];
        let bits = same.into_iter().filter(|(_, same)| *same && !first);
        let flags = bits.fold(0, |flags, (flag, _)| flags | flag);
        let out = &mut self.bytes;
        out.put_u8(flags);
        if flags & NEXT == 0 {
            out.put_varint(tid.0);
        }
        if flags & ACKED == 0 {
            out.put_varint(tid.0.saturating_sub(acked.0));
        }
        if flags & CRED == 0 {
            put_cred(out, cred);
            self.cred.clone_from(cred);
        }
        if flags & ORDER == 0 {
            out.put_varint(replay.seq.0);
            out.put_varint(replay.stripe.code().into());
        }
        if flags & INO == 0 {
            out.put_varint(replay.ino.0);
        }
        let time = if first { 0 } else { self.replay.time.0 };
        out.put_signed(replay.time.0.wrapping_sub(time));
        match like {
            Some((_, name, _)) if flags & LIKE != 0 => out.put_bytes(name),
            _ => op.encode(out),
        }
        (self.tid, self.acked, self.replay) = (tid, acked, replay);
        if replay.ino != Ino(0) {
            self.given = replay.ino;
        }
        self.like = creates.map(|(parent, _, new)| (parent, without_content(new))).or(self.like);
    }

    /// The batch.
    #[must_use]
    pub fn batch(&self) -> Batch<'_> {
        Batch { bytes: &self.bytes }
    }

    /// How long it is, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }
}
