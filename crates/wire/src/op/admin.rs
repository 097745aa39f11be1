//! Operations that have the server write something down.

use types::bytes::{Malformed, Put, Reader};
use types::{EntryName, Ino};

use super::About;
use super::parts::{ino, put_name, put_number};

/// Operations that have the server write something down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "fields are those of the namespace operation of the same name")]
pub enum AdminOp<'a> {
    /// Writes everything to the metadata store and trims the journal.
    Checkpoint,
    /// Takes a snapshot of a directory and everything visible below it. The requester chooses an
    /// unused `id` (BF-03).
    Snapshot { dir: Ino, id: u64 },
    /// Writes all of a directory to the metadata store, for a client that reads it there (U-04): of
    /// the one under a name, or of `parent` itself if the name is empty. Answered after that, with
    /// its attributes; numbers of entries and links are left out.
    WriteDown { parent: Ino, name: &'a [u8] },
}

impl AdminOp<'_> {
    /// A word for statistics and traces.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Checkpoint => "checkpoint",
            Self::Snapshot { .. } => "snapshot",
            Self::WriteDown { .. } => "writedown",
        }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Checkpoint => out.put_u8(23),
            Self::Snapshot { dir, id } => put_number(out, 45, dir, id),
            Self::WriteDown { parent, name } => put_name(out, 38, parent, name),
        }
    }
}

impl<'a> AdminOp<'a> {
    /// The inodes and names that it is about.
    #[inline]
    #[must_use]
    pub fn about(&self) -> About<'a> {
        match *self {
            Self::WriteDown { parent: dir, name: b"" } | Self::Snapshot { dir, .. } => {
                About::inode(dir)
            }
            Self::WriteDown { parent, name } => About::name(EntryName::new(parent, name)),
            Self::Checkpoint => About::default(),
        }
    }

    /// The operation with this code, if it is of this kind.
    pub(super) fn decode(code: u8, reader: &mut Reader<'a>) -> Result<Option<Self>, Malformed> {
        Ok(Some(match code {
            23 => Self::Checkpoint,
            45 => Self::Snapshot { dir: ino(reader)?, id: reader.varint()? },
            38 => Self::WriteDown { parent: ino(reader)?, name: reader.bytes()? },
            _ => return Ok(None),
        }))
    }
}
