//! Operations on a decoupled subtree, or a branch, as a whole.

use types::bytes::{Malformed, Put, Reader};
use types::{ClientId, Epoch, Ino};

use super::parts::{flags, ino, merge_bits, put_ino, put_name};
use super::{About, MergeFlags};
use crate::UnusedNumbers;
use crate::codec::boolean;

/// Operations on a decoupled subtree, or a branch, as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "fields are those of the namespace operation of the same name")]
pub enum JobOp<'a> {
    /// Gives a subtree to one client; sent by the monitor.
    Decouple { path: &'a [u8], client: ClientId, policy: &'a [u8] },
    /// More inode numbers for a decoupled subtree or, with 0 in its place, for the client's creates
    /// in directories with an exclusive capability ([`crate::Grants::exclusive`]).
    Extend { subtree: Ino, count: u64 },
    /// Announces a merge: `bytes` of journal follow as chunks with this request's id. `object` is
    /// where the journal is kept in the object store, if it is (Global Persist). Numbers that are
    /// `unused` go back with the subtree, if it is released.
    Merge {
        subtree: Ino,
        bytes: u64,
        object: &'a [u8],
        flags: MergeFlags,
        unused: UnusedNumbers<'a>,
    },
    /// Ends a decoupling without a merge.
    Release { subtree: Ino, unused: UnusedNumbers<'a> },
    /// Makes a decoupled subtree the asking client's, and fences the client that had it.
    TakeOver { subtree: Ino },
    /// Takes a subtree for the requesting client to merge the branch of this name, with the inode
    /// numbers of that branch. With `block` other clients get EBUSY there until the end.
    Adopt { subtree: Ino, branch: &'a [u8], block: bool },
}

impl JobOp<'_> {
    /// A word for statistics and traces.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Decouple { .. } => "decouple",
            Self::Extend { .. } => "extend",
            Self::Merge { .. } => "merge",
            Self::Release { .. } => "release",
            Self::TakeOver { .. } => "takeover",
            Self::Adopt { .. } => "adopt",
        }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Decouple { path, client, policy } => {
                out.put_u8(19);
                out.put_bytes(path);
                out.put_varint(client.0);
                out.put_bytes(policy);
            }
            Self::Extend { subtree, count } => {
                put_ino(out, 20, subtree);
                out.put_varint(count);
            }
            Self::Merge { subtree, bytes, object, flags, unused } => {
                put_name(out, 21, subtree, object);
                out.put_varint(bytes);
                out.put_u8(merge_bits(flags));
                out.put_varint(flags.in_term.0);
                out.put_bytes(unused.bytes());
            }
            Self::Release { subtree, unused } => put_name(out, 22, subtree, unused.bytes()),
            Self::TakeOver { subtree } => put_ino(out, 24, subtree),
            Self::Adopt { subtree, branch, block } => {
                put_name(out, 46, subtree, branch);
                out.put_u8(u8::from(block));
            }
        }
    }
}

impl<'a> JobOp<'a> {
    /// The inodes and names that it is about.
    #[inline]
    #[must_use]
    pub fn about(&self) -> About<'a> {
        match *self {
            Self::Extend { subtree, .. }
            | Self::Merge { subtree, .. }
            | Self::Release { subtree, .. }
            | Self::TakeOver { subtree } => About::inode(subtree),
            // Requests about a path or a branch go to rank 0.
            Self::Decouple { .. } | Self::Adopt { .. } => About::default(),
        }
    }

    /// The operation with this code, if it is of this kind.
    pub(super) fn decode(code: u8, reader: &mut Reader<'a>) -> Result<Option<Self>, Malformed> {
        Ok(Some(match code {
            19 => Self::Decouple {
                path: reader.bytes()?,
                client: ClientId(reader.varint()?),
                policy: reader.bytes()?,
            },
            20 => Self::Extend { subtree: ino(reader)?, count: reader.varint()? },
            21 => {
                let (subtree, object) = (ino(reader)?, reader.bytes()?);
                let bytes = reader.varint()?;
                let [dry_run, release, check, strong_log, store, by_reference] = flags(reader, 6)?;
                let in_term = Epoch(reader.varint()?);
                let flags = MergeFlags {
                    dry_run,
                    release,
                    check,
                    strong_log,
                    store,
                    by_reference,
                    in_term,
                };
                Self::Merge {
                    subtree,
                    bytes,
                    object,
                    flags,
                    unused: UnusedNumbers::decode(reader)?,
                }
            }
            22 => Self::Release { subtree: ino(reader)?, unused: UnusedNumbers::decode(reader)? },
            24 => Self::TakeOver { subtree: ino(reader)? },
            46 => Self::Adopt {
                subtree: ino(reader)?,
                branch: reader.bytes()?,
                block: boolean(reader)?,
            },
            _ => return Ok(None),
        }))
    }
}
