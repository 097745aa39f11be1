//! Operations on the state of a session: open files, locks, capabilities, answers.

use types::bytes::{Malformed, Put, Reader};
use types::{Ino, Lock};

use super::parts::{flags, ino, put_ino, put_number};
use super::{About, Access};
use crate::codec::{boolean, lock, put_lock};

/// Operations on the state of a session: open files, locks, capabilities, answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "fields are those of the namespace operation of the same name")]
pub enum SessionOp {
    /// Answered when everything this client was told is durable (`fsync`).
    Sync,
    /// Opens a file: its attributes and inline content, and whether it is shared. Opening it twice
    /// is opening it once; reading and writing count apart.
    Open { ino: Ino, write: bool },
    /// Ends one or more `Open` of this kind.
    Close { ino: Ino, write: bool },
    /// Registers the client's open file at a server that does not know it.
    Reopen { ino: Ino, access: Access },
    /// The answer to a recall: unwritten data is written, and the file is shared from now on. For
    /// the root of a subtree that the client has decoupled: its journal is merged.
    Yield { ino: Ino },
    /// Sets, changes or gives up a lock. With `wait` it is answered when the lock is set.
    Lock { ino: Ino, lock: Lock, wait: bool },
    /// Ends a pending wait for a lock.
    CancelLock { ino: Ino, lock: Lock },
    /// The first lock of another owner that this one would have to wait for.
    GetLock { ino: Ino, lock: Lock },
    /// The client remembers nothing about a directory any more, and gives its capability back.
    Return { dir: Ino },
    /// Answered when everything is carried out that the client sent before without waiting for an
    /// answer ([`crate::Request::is_async`]), with the position of the last of it.
    AwaitAsync,
    /// The client that may still have runs linked in a directory with this number: the owner of the
    /// decoupled subtree with this root, or of the number. The answer is the client's number as
    /// eight bytes, 0 for none.
    Held { ino: Ino },
}

impl SessionOp {
    /// A word for statistics and traces.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Sync => "sync",
            Self::Open { .. } => "open",
            Self::Close { .. } => "close",
            Self::Reopen { .. } => "reopen",
            Self::Yield { .. } => "yield",
            Self::Lock { .. } => "lock",
            Self::CancelLock { .. } => "cancellock",
            Self::GetLock { .. } => "getlock",
            Self::Return { .. } => "return",
            Self::AwaitAsync => "settle",
            Self::Held { .. } => "held",
        }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Sync => out.put_u8(16),
            Self::Open { ino, write } => put_number(out, 25, ino, u64::from(write)),
            Self::Close { ino, write } => put_number(out, 26, ino, u64::from(write)),
            Self::Reopen { ino, access } => {
                put_ino(out, 27, ino);
                let Access { read, write, shared } = access;
                out.put_u8(u8::from(read) | u8::from(write) << 1 | u8::from(shared) << 2);
            }
            Self::Yield { ino } => put_ino(out, 28, ino),
            Self::Lock { ino, ref lock, wait } => {
                put_ino(out, 31, ino);
                put_lock(out, lock);
                out.put_u8(u8::from(wait));
            }
            Self::CancelLock { ino, ref lock } => {
                put_ino(out, 32, ino);
                put_lock(out, lock);
            }
            Self::GetLock { ino, ref lock } => {
                put_ino(out, 33, ino);
                put_lock(out, lock);
            }
            Self::Return { dir } => put_ino(out, 35, dir),
            Self::AwaitAsync => out.put_u8(36),
            Self::Held { ino } => put_ino(out, 39, ino),
        }
    }
}

impl SessionOp {
    /// The inodes and names that it is about.
    #[inline]
    #[must_use]
    pub fn about(&self) -> About<'static> {
        let dir = if let Self::Return { dir } = *self { Some(dir) } else { None };
        dir.or(self.open_file()).map_or_else(About::default, About::inode)
    }

    /// The file whose open and lock state it is about.
    #[inline]
    #[must_use]
    pub fn open_file(&self) -> Option<Ino> {
        match *self {
            Self::Open { ino, .. }
            | Self::Close { ino, .. }
            | Self::Reopen { ino, .. }
            | Self::Yield { ino }
            | Self::Lock { ino, .. }
            | Self::CancelLock { ino, .. }
            | Self::GetLock { ino, .. } => Some(ino),
            Self::Sync | Self::AwaitAsync | Self::Held { .. } | Self::Return { .. } => None,
        }
    }

    /// The operation with this code, if it is of this kind.
    pub(super) fn decode(code: u8, reader: &mut Reader<'_>) -> Result<Option<Self>, Malformed> {
        Ok(Some(match code {
            16 => Self::Sync,
            25 => Self::Open { ino: ino(reader)?, write: boolean(reader)? },
            26 => Self::Close { ino: ino(reader)?, write: boolean(reader)? },
            27 => {
                let ino = ino(reader)?;
                let [read, write, shared, ..] = flags(reader, 3)?;
                Self::Reopen { ino, access: Access { read, write, shared } }
            }
            28 => Self::Yield { ino: ino(reader)? },
            31 => Self::Lock { ino: ino(reader)?, lock: lock(reader)?, wait: boolean(reader)? },
            32 => Self::CancelLock { ino: ino(reader)?, lock: lock(reader)? },
            33 => Self::GetLock { ino: ino(reader)?, lock: lock(reader)? },
            35 => Self::Return { dir: ino(reader)? },
            36 => Self::AwaitAsync,
            39 => Self::Held { ino: ino(reader)? },
            _ => return Ok(None),
        }))
    }
}
