//! Lists subtrees by rank, and moves them between ranks while clients work in them (B-02).

use metastore::{SUBTREES_NAME, Subtrees};
use types::{Errno, Error, Frag, Ino, Rank, Result};
use wire::{Answer, Op};

use crate::{Cluster, Fs};

/// Subtrees that are moved for one to move, at most.
const MOVES_MAX: usize = 8192;

/// A subtree that was given to a rank, or back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pinned {
    /// Its path when it was moved.
    pub path: Vec<u8>,
    /// Its root.
    pub root: Ino,
    /// Who serves it.
    pub rank: Rank,
    /// How often it was moved.
    pub moves: u64,
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
    pub fn pinned(&self) -> Result<Vec<Pinned>> {
        let store = objstore::open_existing(&self.status()?.store)?;
        let list = match store.get(SUBTREES_NAME) {
            Ok((bytes, _)) => Subtrees::decode(&bytes)?,
            Err(error) if error.errno == Errno::NotFound => Subtrees::default(),
            Err(error) => return Err(error),
        };
        let mut pinned: Vec<Pinned> = list
            .iter()
            .map(|subtree| Pinned {
                path: subtree.path.clone(),
                root: subtree.root,
                rank: subtree.rank,
                moves: subtree.moves,
                pinned: subtree.pinned,
                fragment: subtree.part.map(|part| (part.dir, part.frag)),
            })
            .collect();
        let key = |it: &Pinned| it.fragment.map(|(dir, frag)| (dir, frag.value, frag.bits));
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
        let mut todo = vec![(dir, rank)];
        for _ in 0..MOVES_MAX {
            let Some((dir, rank)) = todo.last().copied() else { return Ok(()) };
            if let Answer::Elsewhere(inner) = self.call(Op::Export { dir, rank })? {
                // It comes to where the directory is before that one goes.
                todo.push((inner.root, self.place(dir)));
            } else {
                todo.pop();
            }
        }
        Err(Error::new(Errno::Busy, dir.to_string(), "subtrees in it move all the time"))
    }

    /// Leaves it to the balancer which rank serves a directory. Nothing moves for that.
    ///
    /// # Errors
    /// As [`Fs::pin`].
    pub fn unpin(&self, dir: Ino) -> Result<()> {
        self.call(Op::Export { dir, rank: Rank::NONE }).map(drop)
    }
}
