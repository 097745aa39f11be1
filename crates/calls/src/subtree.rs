//! Subtrees that this process has decoupled.

use std::sync::Arc;

use cudele::{Completion, Errno, Error, Ino, NewFile, Policy, Result};
use vfs::Ending;

use crate::failure::about;
use crate::mount::{Mount, Use};
use crate::place::Follow;

/// A decoupled subtree that is open. It stays this client's until it is merged or discarded.
#[derive(Debug)]
pub struct OpenSubtree {
    open: Use,
    root: Ino,
    path: Vec<u8>,
}

impl OpenSubtree {
    /// Takes a subtree for this client alone, under a policy or the one in force there.
    ///
    /// # Errors
    /// `EBUSY` if another client has it, `EINVAL` if the policy does not decouple, `ENOENT`,
    /// `ENOTDIR`, `EACCES`.
    pub fn decouple(mount: &Arc<Mount>, path: &[u8], policy: Option<&[u8]>) -> Result<Self> {
        let run = || {
            let at = cudele::parse_path(path)?;
            let policy = match policy {
                Some(text) => {
                    let text = std::str::from_utf8(text).map_err(|_| {
                        Error::new(Errno::Invalid, "", "the policy is not UTF-8 text")
                    })?;
                    Policy::from_name_or_text(text)?.policy
                }
                None => mount.vfs.fs().policy(path)?.0,
            };
            mount.vfs.decouple(&at, &policy)
        };
        let root = run().map_err(|error| about(path, error))?;
        let entered = Self::entered(mount, root, path);
        // Without a handle the subtree is unreachable, and it is still empty.
        entered.inspect_err(|_| drop(mount.vfs.end(root, Ending::Discard)))
    }

    /// Continues the work that an earlier process of this user left on this machine.
    ///
    /// # Errors
    /// `ENOENT` if this machine does not own one there, `EBADMSG` if a journal is damaged.
    pub fn attach(mount: &Arc<Mount>, path: &[u8]) -> Result<Self> {
        let run = || {
            let fs = mount.vfs.fs();
            let owner = cudele::StateDir::owner_at(fs.cluster_id(), &cudele::parse_path(path)?)?;
            let owner = owner.ok_or_else(|| {
                Error::new(
                    Errno::NotFound,
                    "",
                    "this machine does not own a decoupled subtree here",
                )
                .remedy("decouple it first, or attach on the machine that did")
            })?;
            // The subtree belongs to its owner, so the owner's client continues the work, not this
            // one.
            fs.cluster().mount_as(owner.client())?.attach(path)
        };
        let subtree = run().map_err(|error| about(path, error))?;
        let root = mount.vfs.adopt(subtree);
        Self::entered(mount, root, path)
    }

    /// It is decoupled: from now on the way into it is known.
    fn entered(mount: &Arc<Mount>, root: Ino, path: &[u8]) -> Result<Self> {
        let run = || {
            let place = mount.object(path, Follow::Last)?;
            mount.enter(cudele::parse_path(path)?, Arc::new(place));
            Ok(())
        };
        run().map_err(|error| about(path, error))?;
        Ok(Self { open: Use::of(mount), root, path: path.to_vec() })
    }

    /// The inode number of its root, in which to append.
    #[must_use]
    pub fn root(&self) -> Ino {
        self.root
    }

    /// Appends the creation of a file with content, or of a directory, without checking for an
    /// existing name.
    ///
    /// # Errors
    /// `EINVAL`, `ENAMETOOLONG` for the name, `EDQUOT`; `ENOSPC` and `EIO` for large content.
    pub fn append(&self, parent: Ino, name: &[u8], what: &NewFile<'_>) -> Result<Ino> {
        let mount = &self.open.0;
        let appended = mount.vfs.in_owned(self.root, mount.cred(), |subtree| {
            if what.file_type == cudele::FileType::Directory {
                return subtree.create(parent, name, what);
            }
            let mut content = what.data;
            let new = NewFile { data: &[], ..*what };
            subtree.create_file(parent, name, &new, &mut content).map(|(ino, _)| ino)
        });
        appended.map_err(|error| self.about(error))
    }

    /// Events that are held and not merged yet.
    ///
    /// # Errors
    /// `EINVAL` if it was given back.
    pub fn pending(&self) -> Result<u64> {
        let mount = &self.open.0;
        let pending =
            mount.vfs.in_owned(self.root, mount.cred(), |subtree| Ok(subtree.pending_events()));
        pending.map_err(|error| self.about(error))
    }

    /// Makes the journal as durable as the policy promises; other clients see no more of it.
    ///
    /// # Errors
    /// `EIO`, `ENOSPC`; the subtree keeps its journal.
    pub fn persist(&self) -> Result<()> {
        self.open.0.vfs.persist_owned(self.root).map_err(|error| self.about(error))
    }

    /// Publishes the journal so far to other clients, under any policy.
    ///
    /// # Errors
    /// The errors of the mechanisms; the subtree keeps its journal.
    pub fn sync(&self) -> Result<Completion> {
        self.open.0.vfs.sync_owned(self.root).map_err(|error| self.about(error))
    }

    /// Ends the work in the given way.
    ///
    /// # Errors
    /// As [`OpenSubtree::sync`].
    pub fn end(&self, ending: Ending) -> Result<Completion> {
        self.open.0.vfs.end(self.root, ending).map_err(|error| self.about(error))
    }

    /// Ends successful work as the policy demands, and returns the ending: merged, kept, or
    /// discarded if the policy keeps nothing.
    ///
    /// # Errors
    /// As [`OpenSubtree::end`].
    pub fn finish(&self) -> Result<(Ending, Completion)> {
        let policy = self.open.0.vfs.owned_policy(self.root);
        let given_back = || Error::of(Errno::Stale, "subtree");
        let ending = Ending::of(&policy.ok_or_else(given_back).map_err(|error| self.about(error))?);
        Ok((ending, self.end(ending)?))
    }

    fn about(&self, error: Error) -> Error {
        about(&self.path, error)
    }
}

impl Drop for OpenSubtree {
    fn drop(&mut self) {
        self.open.0.leave(self.root);
    }
}
