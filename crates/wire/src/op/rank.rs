//! Operations that move a subtree, a directory or a name to another rank.

use types::bytes::{Malformed, Put, Reader};
use types::{Ino, Rank};

use super::About;
use super::parts::{ino, put_ino, put_name};
use crate::map::rank;

/// Operations that move a subtree, a directory or a name to another rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "fields are those of the namespace operation of the same name")]
pub enum RankOp<'a> {
    /// Has a directory and everything below it served by another rank, while clients work there
    /// (B-03). Answered when that rank is the authority.
    Export { dir: Ino, rank: Rank },
    /// Of another rank only: moves a directory to a rank, because one rank must serve both ends of
    /// a link or rename; for a file, the directory that has its only name. Pinned subtrees stay.
    /// The user needs write permission there. Answered as `Export`.
    Colocate { ino: Ino, rank: Rank },
    /// Splits a directory, or a fragment of one, into eight fragments by the hashes of its names,
    /// while clients work there (B-04). Answered at the end.
    Split { dir: Ino },
    /// Joins the fragments of a directory again. All of them must be on the directory's rank.
    Join { dir: Ino },
    /// Of another rank only: reserves the place of a name that the rank gives away, in this
    /// directory (F-13). `moved` is the record of the name.
    Arrive { dir: Ino, moved: &'a [u8] },
}

impl RankOp<'_> {
    /// A word for statistics and traces.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Export { .. } => "export",
            Self::Colocate { .. } => "gather",
            Self::Split { .. } => "split",
            Self::Join { .. } => "join",
            Self::Arrive { .. } => "arrive",
        }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Export { dir, rank } => {
                put_ino(out, 37, dir);
                out.put_varint(u64::from(rank.0));
            }
            Self::Colocate { ino, rank } => {
                put_ino(out, 52, ino);
                out.put_varint(u64::from(rank.0));
            }
            Self::Split { dir } => put_ino(out, 47, dir),
            Self::Join { dir } => put_ino(out, 48, dir),
            Self::Arrive { dir, moved } => put_name(out, 53, dir, moved),
        }
    }
}

impl<'a> RankOp<'a> {
    /// The inodes and names that it is about.
    #[inline]
    #[must_use]
    pub fn about(&self) -> About<'static> {
        match *self {
            Self::Export { dir, .. }
            | Self::Colocate { ino: dir, .. }
            | Self::Split { dir }
            | Self::Join { dir }
            | Self::Arrive { dir, .. } => About::inode(dir),
        }
    }

    /// The operation with this code, if it is of this kind.
    pub(super) fn decode(code: u8, reader: &mut Reader<'a>) -> Result<Option<Self>, Malformed> {
        Ok(Some(match code {
            37 => Self::Export { dir: ino(reader)?, rank: rank(reader)? },
            52 => Self::Colocate { ino: ino(reader)?, rank: rank(reader)? },
            47 => Self::Split { dir: ino(reader)? },
            48 => Self::Join { dir: ino(reader)? },
            53 => Self::Arrive { dir: ino(reader)?, moved: reader.bytes()? },
            _ => return Ok(None),
        }))
    }
}
