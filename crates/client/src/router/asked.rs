//! The requests that a route makes.
//!
//! A route does not own the names of the caller's request: the caller gives the request with each
//! input. The route keeps the directories, which redirects change, and the paths and names that
//! came with redirects.

use types::{AttrChange, Ino, Rank};
use wire::{ChangeOp, Op, RankOp, ReadOp};

use crate::FragmentMap;

/// A request of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// The caller's request, in these directories if it names any.
    Given {
        dir: Option<Ino>,
        new_dir: Option<Ino>,
    },
    GetAttr(Ino),
    SetAttr(Ino, AttrChange),
    Walk(Ino, Vec<u8>),
    List {
        dir: Ino,
        after: Option<Vec<u8>>,
        limit: u32,
        attrs: bool,
    },
    Export(Ino, Rank),
    Split(Ino),
    Join(Ino),
}

impl Asked {
    pub(super) const AS_GIVEN: Self = Self::Given { dir: None, new_dir: None };

    /// The caller's request.
    pub(super) fn of(given: &Op<'_>) -> Self {
        let (dir, new_dir) = dirs(given);
        Self::Given { dir, new_dir }
    }

    /// The request itself; `given` is the caller's.
    pub(super) fn op<'a>(&'a self, given: Op<'a>) -> Op<'a> {
        match *self {
            Self::Given { dir, new_dir } => in_dirs(given, dir, new_dir),
            Self::GetAttr(ino) => Op::Read(ReadOp::GetAttr { ino }),
            Self::SetAttr(ino, change) => Op::Change(ChangeOp::SetAttr { ino, change }),
            Self::Walk(base, ref path) => Op::Read(ReadOp::Walk { base, path }),
            Self::List { dir, ref after, limit, attrs } => {
                Op::Read(ReadOp::List { dir, after: after.as_deref(), limit, attrs })
            }
            Self::Export(dir, rank) => Op::Rank(RankOp::Export { dir, rank }),
            Self::Split(dir) => Op::Rank(RankOp::Split { dir }),
            Self::Join(dir) => Op::Rank(RankOp::Join { dir }),
        }
    }

    /// The same request for the fragments that have its names.
    pub(super) fn aimed(&self, fragments: &FragmentMap, given: Op<'_>) -> Self {
        if fragments.is_empty() {
            return self.clone();
        }
        let aimed = fragments.aim(self.op(given));
        let (at, new_at) = dirs(&aimed);
        let mut asked = self.clone();
        match &mut asked {
            Self::Given { dir, new_dir } => (*dir, *new_dir) = (at, new_at),
            Self::Walk(dir, _) => *dir = at.unwrap_or(*dir),
            Self::List { dir, .. } => {
                if let Op::Read(ReadOp::List { dir: leaf, .. }) = aimed {
                    *dir = leaf;
                }
            }
            Self::GetAttr(_)
            | Self::SetAttr(..)
            | Self::Export(..)
            | Self::Split(_)
            | Self::Join(_) => {}
        }
        asked
    }
}

/// The directories that have the names that a request is about.
pub(super) fn dirs(op: &Op<'_>) -> (Option<Ino>, Option<Ino>) {
    let mut op = *op;
    let [first, second] = op.dirs_mut();
    (first.copied(), second.copied())
}

/// The same request in other directories.
fn in_dirs(mut op: Op<'_>, dir: Option<Ino>, new_dir: Option<Ino>) -> Op<'_> {
    for (at, other) in op.dirs_mut().into_iter().zip([dir, new_dir]) {
        if let (Some(at), Some(other)) = (at, other) {
            *at = other;
        }
    }
    op
}

/// The other directory, or the inode, that a request is about.
#[must_use]
pub fn second(op: &Op<'_>) -> Option<Ino> {
    let about = op.about();
    about.second.filter(|_| about.second != about.inode)
}

/// The inode that decides which rank a request is for.
#[must_use]
pub fn named(op: &Op<'_>) -> Option<Ino> {
    op.about().inode
}
