//! Trees that are removed at once, and the trash in which they can be kept.
//!
//! A metadata server removes a whole tree with one event if it may ([`Dir::discard`]). Where it may
//! not, [`Dir::remove_tree`] removes the names one by one, as `rm -r` does.

use std::sync::Arc;

use types::{Attr, Errno, Error, Path, Rank, Result, TrashEntry};
use wire::{Answer, ChangeOp, Op, ReadOp};

use crate::fs::unexpected;
use crate::{Dir, DirEntry, Fs};

/// Removed trees asked for at a time.
const LIST_LIMIT: u32 = 1024;
/// Other clients may add names while a tree is removed: so many times it is listed again.
const ROUNDS_MAX: u32 = 100;

/// A removed tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemovedTree {
    /// The path of the tree before its removal, its remover, and the end of its time.
    pub entry: TrashEntry,
    /// The rank that has it.
    pub rank: Rank,
    /// Its root; the ctime is the time of the removal.
    pub attr: Attr,
}

impl RemovedTree {
    /// The path that it had, if the server knows it.
    #[must_use]
    pub fn path(&self) -> Option<Path> {
        let path = &self.entry.path;
        if path.first() == Some(&b'/') { Path::parse(path).ok() } else { None }
    }
}

/// A request was not executed, and the names of the tree can be removed one by one: the caller is
/// not root, a part of the tree belongs to another client or rank, the name is too long for the
/// trash, or the server serves the job of a branch.
fn must_go_name_by_name(error: &Error) -> bool {
    matches!(
        error.errno,
        Errno::NotPermitted | Errno::Busy | Errno::NameTooLong | Errno::NotSupported
    )
}

impl Dir {
    /// Removes a directory with everything below it by one request, whatever its size. `false` if
    /// the server does not do that for this tree, and the names must be removed one by one.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EACCES`.
    pub fn discard(&self, name: impl AsRef<[u8]>) -> Result<bool> {
        if self.is_logged() {
            // The log on this machine has no event for a whole tree.
            return Ok(false);
        }
        let name = name.as_ref();
        match self.call(Op::Change(ChangeOp::Discard { parent: self.ino(), name }), name) {
            Ok(_) => Ok(true),
            Err(error) if must_go_name_by_name(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes a directory with everything below it: by one request if the server does that for
    /// this tree, else name by name. Returns whether one request was enough.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, and those of the removal of each name: then a part may be gone.
    pub fn remove_tree(&self, name: impl AsRef<[u8]>) -> Result<bool> {
        let name = name.as_ref();
        let attr = self.lookup(name)?;
        if !attr.is_dir() {
            return Err(self.about(Error::of(Errno::NotDirectory, ""), name));
        }
        if self.discard(name)? {
            return Ok(true);
        }
        let own = DirEntry { name: name.to_vec(), attr };
        let mut way = vec![(self.enter(name, attr.ino)?, own, Vec::new(), 0)];
        while let Some((dir, own, left, rounds)) = way.last_mut() {
            let Some(DirEntry { name, attr }) = left.pop() else {
                let name = own.name.clone();
                *left = dir.list()?;
                *rounds += 1;
                if left.is_empty() || *rounds > ROUNDS_MAX {
                    way.pop();
                    let above = way.last().map_or(self, |(dir, ..)| dir);
                    gone(above.rmdir(&name))?;
                }
                continue;
            };
            if attr.is_dir() {
                let below = dir.enter(&name, attr.ino)?;
                way.push((below, DirEntry { name, attr }, Vec::new(), 0));
            } else {
                gone(dir.unlink(&name))?;
            }
        }
        Ok(false)
    }
}

/// Another client may be faster.
fn gone(removed: Result<()>) -> Result<()> {
    match removed {
        Err(error) if error.errno == Errno::NotFound => Ok(()),
        result => result,
    }
}

impl Fs {
    /// Removes a directory with everything below it. See [`Dir::remove_tree`].
    ///
    /// # Errors
    /// As [`Dir::remove_tree`]; `EINVAL` for the root.
    pub fn remove_tree(self: &Arc<Self>, path: impl AsRef<[u8]>) -> Result<bool> {
        let (dir, name) = self.open_parent(path)?;
        dir.remove_tree(name)
    }

    /// The removed trees that this user may restore, of all ranks, the latest removal last.
    ///
    /// # Errors
    /// `EIO` if a server does not answer.
    pub fn trash(&self) -> Result<Vec<RemovedTree>> {
        let mut all = Vec::new();
        for rank in self.present_ranks()? {
            all.extend(self.trash_of(rank)?);
        }
        all.sort_by_key(|tree| (tree.attr.ctime, tree.entry.ino));
        Ok(all)
    }

    /// The same of one rank, in no order.
    pub(crate) fn trash_of(&self, rank: Rank) -> Result<Vec<RemovedTree>> {
        let link = self.link_to(rank)?;
        let mut all = Vec::new();
        let mut after: Option<Vec<u8>> = None;
        loop {
            let op = ReadOp::ListTrash { after: after.as_deref(), limit: LIST_LIMIT };
            let answer = link.request(self.cred(), Op::Read(op), &[])?;
            let Answer::Entries { entries, more } = answer else { return Err(unexpected(&answer)) };
            after = entries.last().map(|(name, _)| name.clone());
            let known = entries.into_iter().filter_map(|(name, attr)| {
                Some(RemovedTree { entry: TrashEntry::decode(&name)?, rank, attr })
            });
            all.extend(known);
            if !more || after.is_none() {
                return Ok(all);
            }
        }
    }

    /// Gives a removed tree its name back, or the one of a path. Returns the path.
    ///
    /// # Errors
    /// `ENOENT` if its time is over, or the directory of the path does not exist; `EEXIST` if the
    /// name does; `EPERM` for a tree of another user; `EACCES`.
    pub fn restore(self: &Arc<Self>, tree: &RemovedTree, to: Option<&Path>) -> Result<Path> {
        let ino = tree.entry.ino;
        let Some(path) = to.cloned().or_else(|| tree.path()) else {
            // Only the number of its directory is known.
            let (parent, name) = (tree.entry.parent, tree.entry.name());
            self.call(Op::Change(ChangeOp::Restore { ino, parent, name })).map_err(|error| {
                error
                    .about(types::quote::quoted(name))
                    .remedy("name a path: its own was too long for the trash")
            })?;
            return Ok(Path::parse(name)?);
        };
        let (dir, name) = self.open_parent(path.to_bytes()).map_err(|error| {
            let remedy = "make the directory that had it, or name another path";
            if error.errno == Errno::NotFound { error.remedy(remedy) } else { error }
        })?;
        dir.call(Op::Change(ChangeOp::Restore { ino, parent: dir.ino(), name: &name }), &name)?;
        Ok(path)
    }

    /// Has the room of a removed tree given back before its time.
    ///
    /// # Errors
    /// `ENOENT` if it is gone, `EPERM` for a tree of another user.
    pub fn empty_trash(&self, tree: &RemovedTree) -> Result<()> {
        let op = Op::Change(ChangeOp::EmptyTrash { ino: tree.entry.ino });
        let done = self.link_to(tree.rank)?.request(self.cred(), op, &[]);
        let done = done.map(drop).map_err(|error| {
            let errno = if error.errno == Errno::Stale { Errno::NotFound } else { error.errno };
            Error { errno, ..error }
        });
        done.map_err(|error| error.about(types::quote::quoted(&tree.entry.path)))
    }
}
