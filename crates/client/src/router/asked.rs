//! The requests that a route makes.
//!
//! A route does not own the names of the caller's request: the caller gives the request with each
//! input. The route keeps the directories, which redirects change, and the paths and names that
//! came with redirects.

use types::{AttrChange, Ino, Rank};
use wire::Op;

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
            Self::GetAttr(ino) => Op::GetAttr { ino },
            Self::SetAttr(ino, change) => Op::SetAttr { ino, change },
            Self::Walk(base, ref path) => Op::Walk { base, path },
            Self::List { dir, ref after, limit, attrs } => {
                Op::List { dir, after: after.as_deref(), limit, attrs }
            }
            Self::Export(dir, rank) => Op::Export { dir, rank },
            Self::Split(dir) => Op::Split { dir },
            Self::Join(dir) => Op::Join { dir },
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
                if let Op::List { dir: leaf, .. } = aimed {
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
    let first = if let Op::Lookup { parent: dir, .. }
    | Op::Create { parent: dir, .. }
    | Op::Link { parent: dir, .. }
    | Op::Unlink { parent: dir, .. }
    | Op::Rmdir { parent: dir, .. }
    | Op::Rename { parent: dir, .. }
    | Op::WriteDown { parent: dir, .. }
    | Op::Walk { base: dir, .. } = *op
    {
        Some(dir)
    } else {
        None
    };
    let second = if let Op::Rename { new_parent, .. } = *op { Some(new_parent) } else { None };
    (first, second)
}

/// The same request in other directories.
fn in_dirs(mut op: Op<'_>, dir: Option<Ino>, new_dir: Option<Ino>) -> Op<'_> {
    if let Op::Lookup { parent: at, .. }
    | Op::Create { parent: at, .. }
    | Op::Link { parent: at, .. }
    | Op::Unlink { parent: at, .. }
    | Op::Rmdir { parent: at, .. }
    | Op::Rename { parent: at, .. }
    | Op::WriteDown { parent: at, .. }
    | Op::Walk { base: at, .. } = &mut op
    {
        *at = dir.unwrap_or(*at);
    }
    if let Op::Rename { new_parent, .. } = &mut op {
        *new_parent = new_dir.unwrap_or(*new_parent);
    }
    op
}

/// The other directory, or the inode, that a request is about.
#[must_use]
pub fn second(op: &Op<'_>) -> Option<Ino> {
    if let Op::Rename { parent, new_parent, .. } = *op {
        (parent != new_parent).then_some(new_parent)
    } else if let Op::Link { ino, .. } = *op {
        Some(ino)
    } else {
        None
    }
}
/// The inode that decides which rank a request is for.
#[must_use]
pub fn named(op: &Op<'_>) -> Option<Ino> {
    match *op {
        Op::Lookup { parent, .. }
        | Op::Create { parent, .. }
        | Op::Link { parent, .. }
        | Op::Unlink { parent, .. }
        | Op::Rmdir { parent, .. }
        | Op::WriteDown { parent, .. }
        | Op::Rename { parent, .. } => Some(parent),
        Op::Walk { base: ino, .. }
        | Op::GetAttr { ino }
        | Op::SetAttr { ino, .. }
        | Op::Accessed { ino, .. }
        | Op::GetXattr { ino, .. }
        | Op::ListXattr { ino }
        | Op::SetXattr { ino, .. }
        | Op::GetData { ino }
        | Op::SetData { ino, .. }
        | Op::List { dir: ino, .. }
        | Op::GetPolicy { dir: ino }
        | Op::Open { ino, .. }
        | Op::Close { ino, .. }
        | Op::Reopen { ino, .. }
        | Op::Yield { ino }
        | Op::Grow { ino, .. }
        | Op::Append { ino, .. }
        | Op::Lock { ino, .. }
        | Op::CancelLock { ino, .. }
        | Op::GetLock { ino, .. }
        | Op::Export { dir: ino, .. }
        | Op::Colocate { ino, .. }
        | Op::Split { dir: ino }
        | Op::Join { dir: ino }
        | Op::Arrive { dir: ino, .. }
        | Op::Snapshot { dir: ino, .. }
        | Op::Return { dir: ino } => Some(ino),
        Op::Extend { subtree, .. }
        | Op::Merge { subtree, .. }
        | Op::Release { subtree, .. }
        | Op::TakeOver { subtree } => Some(subtree),
        // Requests about a path or a branch go to rank 0; the rest is about no inode.
        Op::Held { .. }
        | Op::Sync
        | Op::AwaitAsync
        | Op::Checkpoint
        | Op::SetPolicy { .. }
        | Op::Decouple { .. }
        | Op::Adopt { .. } => None,
    }
}

/// Whether a request is about a decoupled subtree as a whole.
pub(super) fn is_of_subtree(op: &Op<'_>) -> bool {
    matches!(op, Op::Extend { .. } | Op::Merge { .. } | Op::Release { .. } | Op::TakeOver { .. })
}
