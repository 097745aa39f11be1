//! Lists subtrees by rank, and moves, splits and joins them while clients work there (B-02, B-04).

use client::Route;
use metastore::{SUBTREES_NAME, Subtrees};
use types::{Errno, Frag, Ino, Rank, Result, Timestamp};
use wire::{Answer, Op, RankOp};

use crate::{Cluster, Fs};

/// A subtree that was given to a rank, or back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinnedSubtree {
    /// Its path when it was moved.
    pub path: Vec<u8>,
    /// Its root.
    pub root: Ino,
    /// Who serves it.
    pub rank: Rank,
    /// How often it was moved.
    pub moves: u64,
    /// When it was moved last; 0 if that is not known.
    pub moved: Timestamp,
    /// A user has pinned it to the rank: the balancer leaves it there.
    pub pinned: bool,
    /// If it is a fragment of a directory that is split, the directory and which names it has.
    pub fragment: Option<(Ino, Frag)>,
}

impl Cluster {
    /// The subtrees that were ever given to a rank, by path.
    ///
    /// # Errors
    /// If the store cannot be read; `EBADMSG` if the list in it is damaged.
    pub fn pinned(&self) -> Result<Vec<PinnedSubtree>> {
        let store = objstore::open_existing(&self.status()?.store)?;
        let list = match store.get(SUBTREES_NAME) {
            Ok((bytes, _)) => Subtrees::decode(&bytes)?,
            Err(error) if error.errno == Errno::NotFound => Subtrees::default(),
            Err(error) => return Err(error),
        };
        let mut pinned: Vec<PinnedSubtree> = list
            .iter()
            .map(|subtree| PinnedSubtree {
                path: subtree.path.clone(),
                root: subtree.root,
                rank: subtree.rank,
                moves: subtree.moves,
                moved: subtree.moved,
                pinned: subtree.pinned,
                fragment: subtree.part.map(|part| (part.dir, part.frag)),
            })
            .collect();
        let key = |it: &PinnedSubtree| it.fragment.map(|(dir, frag)| (dir, frag.value, frag.bits));
        pinned.sort_by(|a, b| a.path.cmp(&b.path).then_with(|| key(a).cmp(&key(b))));
        Ok(pinned)
    }
}

impl Fs {
    /// Moves a directory and the tree below it to a rank, while clients work there. Subtrees in it
    /// that the rank serves already become a part of it.
    ///
    /// # Errors
    /// `EBUSY` with the reason if it cannot move; `EAGAIN` if the rank is not active; `EPERM`
    /// except for root and the owner of the namespace.
    pub fn pin(&self, dir: Ino, rank: Rank) -> Result<()> {
        self.drive_own(Route::pin(dir, rank)).map(drop)
    }

    /// Leaves it to the balancer which rank serves a directory. Nothing moves for that.
    ///
    /// # Errors
    /// As [`Fs::pin`].
    pub fn unpin(&self, dir: Ino) -> Result<()> {
        self.call(Op::Rank(RankOp::Export { dir, rank: Rank::NONE })).map(drop)
    }

    /// Splits a directory, or a fragment of one, into eight fragments by the hashes of its names,
    /// while clients work there, and moves them to these ranks in turn; without ranks they stay. A
    /// split directory keeps its fragments and their fragments, which move to the ranks.
    ///
    /// # Errors
    /// `EBUSY` with the reason if the directory cannot be split; `EPERM` except for root and the
    /// owner of the namespace; the errors of [`Fs::pin`].
    pub fn split(&self, dir: Ino, ranks: &[Rank]) -> Result<()> {
        self.drive_own(Route::split(dir, ranks.to_vec())).map(drop)
    }

    /// Joins the fragments of a directory while clients work there. Fragments on other ranks return
    /// first.
    ///
    /// # Errors
    /// `EBUSY` with the reason if they cannot be joined; `EPERM` except for root and the owner of
    /// the namespace, unless the directory is empty.
    pub fn join(&self, dir: Ino) -> Result<()> {
        self.drive_own(Route::join(dir)).map(drop)
    }

    /// The hidden directories with the names of a split directory, in the order of hashes, each
    /// with its rank; none if it is not split.
    ///
    /// # Errors
    /// `ESTALE`, `EIO`.
    pub fn fragments(&self, dir: Ino) -> Result<Vec<(Ino, Rank)>> {
        let answer = self.drive_own(Route::fragments_of(dir))?;
        let Answer::Fragments(fragments) = answer else { return Ok(Vec::new()) };
        Ok(fragments.parts.to_vec())
    }
}
