//! A connection to a cluster, and the calls that need nothing but a path.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use cudele::{
    Attr, Cluster, Errno, Error, FileType, Ino, Locator, Path, RenameFlags, Result, WantsExclusive,
    XattrFlags,
};
use posix::{Caller, FileSystem, NewNode};
use types::{Cred, EntryName};
use vfs::{Vfs, VfsOptions};

use crate::failure::about;
use crate::place::{Follow, Place};

/// The name under which a directory tells and takes its policy.
const POLICY: &[u8] = b"cudele.dir.policy";

/// See the module documentation.
#[derive(Debug)]
pub struct Mount {
    /// The file system by inode number, for all calls by path.
    pub(crate) fs: Arc<dyn FileSystem>,
    /// The same file system, for the subtrees that this process decouples.
    pub(crate) vfs: Arc<Vfs>,
    pub(crate) caller: Caller,
    /// Files, directories and subtrees that are open.
    uses: AtomicUsize,
    /// The places of the open subtrees: paths into them need no request.
    subtrees: RwLock<Vec<(Path, Arc<Place>)>>,
}

/// Something that is open: its connection is not to be closed before it.
#[derive(Debug)]
pub(crate) struct Use(pub(crate) Arc<Mount>);

impl Use {
    pub(crate) fn of(mount: &Arc<Mount>) -> Self {
        mount.uses.fetch_add(1, Ordering::Relaxed);
        Self(mount.clone())
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        self.0.uses.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Mount {
    /// Connects to the cluster with a monitor at this address, in this directory, or that the
    /// environment names.
    ///
    /// # Errors
    /// `ENOENT` if nothing says where a cluster is, `ECONNREFUSED` if it does not run, `EINVAL`.
    pub fn connect(mon: Option<String>, dir: Option<PathBuf>) -> Result<Self> {
        let fs = Cluster::find(&Locator { mon, dir, ..Locator::default() })?.mount()?;
        let cred = fs.cred();
        let pid = rustix::process::getpid().as_raw_pid().cast_unsigned();
        let caller = Caller { uid: cred.uid, gid: cred.gid, pid, ids: None };
        // No process stays behind to send the changes of a program that ends without a sync, so
        // the policy has to ask for it.
        let options = VfsOptions { ahead: WantsExclusive::AsPolicySays, ..VfsOptions::default() };
        let vfs = Arc::new(Vfs::new(fs, &Path::root(), options)?);
        // There is no kernel that would have to forget anything.
        vfs.clone().start(Box::new(drop))?;
        let (uses, subtrees) = (AtomicUsize::new(0), RwLock::default());
        Ok(Self { fs: vfs.clone(), vfs, caller, uses, subtrees })
    }

    /// The last step before the connection is closed.
    ///
    /// # Errors
    /// `EBUSY` if something is open; those of writing back, and then it is still connected.
    pub fn finish(&self) -> Result<()> {
        let open = self.uses.load(Ordering::Relaxed);
        if open > 0 {
            let cause = format!("{open} files, directories or subtrees are open");
            return Err(Error::new(Errno::Busy, "connection", cause).remedy("close them first"));
        }
        self.fs.finish()?;
        self.vfs.fs().send_pending();
        Ok(())
    }

    /// A subtree is open: its root is known as long as it is, or anything in it.
    pub(crate) fn enter(&self, path: Path, root: Arc<Place>) {
        self.subtrees.write().unwrap_or_else(PoisonError::into_inner).push((path, root));
    }

    /// It is open no more.
    pub(crate) fn leave(&self, root: Ino) {
        let mut subtrees = self.subtrees.write().unwrap_or_else(PoisonError::into_inner);
        subtrees.retain(|(_, place)| place.ino != root);
    }

    /// The root of the open subtree that a path leads into, and the number of names that lead
    /// there. The path is the one under which it was opened.
    pub(crate) fn inside(&self, names: &VecDeque<Vec<u8>>) -> Option<(Arc<Place>, usize)> {
        let subtrees = self.subtrees.read().unwrap_or_else(PoisonError::into_inner);
        let begins = |path: &Path| {
            let count = path.components().len();
            let same = path.components().zip(names).all(|(wanted, name)| wanted == &name[..]);
            (same && count <= names.len()).then_some(count)
        };
        let (place, count) =
            subtrees.iter().find_map(|(path, place)| Some((place, begins(path)?)))?;
        self.vfs.is_owned(place.ino).then(|| (place.clone(), count))
    }

    pub(crate) fn cred(&self) -> &Cred {
        self.vfs.fs().cred()
    }

    /// Makes everything that was changed through this connection as durable as policies promise.
    ///
    /// # Errors
    /// `EIO`, `ENOSPC`; the error of a change that was answered and is lost.
    pub fn sync(&self) -> Result<()> {
        self.fs.finish()?;
        self.vfs.fs().sync_data()?;
        self.vfs.fs().sync().map(drop)
    }

    /// Attributes of the object at a path.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EACCES`, `ELOOP`, `EBUSY` in another client's subtree.
    pub fn stat(&self, path: &[u8], follow: Follow) -> Result<Attr> {
        let run = || {
            let place = self.object(path, follow)?;
            Ok(self.fs.attr(place.ino)?.attr)
        };
        run().map_err(|error| about(path, error))
    }

    /// Makes a directory or an empty file, as `mode` says; with a target a symbolic link.
    ///
    /// # Errors
    /// `EEXIST`, `ENOENT`, `EACCES`, `EBUSY` in another client's subtree, `EDQUOT`.
    pub fn make(&self, path: &[u8], mode: u32, target: &[u8]) -> Result<()> {
        let run = || {
            let place = self.parent(path)?;
            let new = NewNode { target, ..NewNode::of(mode) };
            let entry = self.fs.make(&self.caller, place.ino, &place.name, &new)?;
            self.fs.forget(entry.attr.ino, 1);
            Ok(())
        };
        run().map_err(|error| about(path, error))
    }

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// As [`Mount::make`]; `ENOENT` for an empty target.
    pub fn symlink(&self, target: &[u8], path: &[u8]) -> Result<()> {
        if target.is_empty() {
            return Err(Error::new(Errno::NotFound, "", "the target is empty"))
                .map_err(|error| about(path, error));
        }
        self.make(path, FileType::Symlink.mode_bits() | 0o777, target)
    }

    /// Removes a name of anything but a directory.
    ///
    /// # Errors
    /// `ENOENT`, `EISDIR`, `EACCES`, `EPERM`.
    pub fn unlink(&self, path: &[u8]) -> Result<()> {
        let run = || {
            let place = self.parent(path)?;
            self.fs.unlink(&self.caller, place.ino, &place.name)
        };
        run().map_err(|error| about(path, error))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ENOTEMPTY`, `EACCES`; `EBUSY` for the root of a decoupled subtree.
    pub fn rmdir(&self, path: &[u8]) -> Result<()> {
        let run = || {
            let place = self.parent(path)?;
            self.fs.rmdir(&self.caller, place.ino, &place.name)
        };
        run().map_err(|error| about(path, error))
    }

    /// Moves a name, and replaces an existing entry of the new name.
    ///
    /// # Errors
    /// Those of rename(2); `EXDEV` across the border of a decoupled subtree.
    pub fn rename(&self, from: &[u8], to: &[u8]) -> Result<()> {
        let old = self.parent(from).map_err(|error| about(from, error))?;
        let run = || {
            let new = self.parent(to)?;
            let (old, new) =
                (EntryName::new(old.ino, &old.name), EntryName::new(new.ino, &new.name));
            self.fs.rename(&self.caller, old, new, RenameFlags::default())
        };
        run().map_err(|error| about(from, error))
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// `EINVAL` if it is no symbolic link.
    pub fn read_link(&self, path: &[u8]) -> Result<Vec<u8>> {
        let run = || {
            let place = self.object(path, Follow::Not)?;
            if place.attr.file_type() != FileType::Symlink {
                return Err(Error::new(Errno::Invalid, "", "it is not a symbolic link"));
            }
            self.fs.read_link(place.ino)
        };
        run().map_err(|error| about(path, error))
    }

    /// The policy in force in a directory, as the text of a policy file.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`.
    pub fn policy(&self, path: &[u8]) -> Result<Vec<u8>> {
        let run = || {
            let place = self.object(path, Follow::Last)?;
            Self::check_dir(&place.attr)?;
            self.fs.xattr(&self.caller, place.ino, POLICY)
        };
        run().map_err(|error| about(path, error))
    }

    /// Sets the policy of a directory, or removes it.
    ///
    /// # Errors
    /// `EINVAL` with line and column for a text that is no policy, `EPERM`, `ENOTDIR`; `ENODATA` to
    /// remove a missing policy.
    pub fn set_policy(&self, path: &[u8], policy: Option<&[u8]>) -> Result<()> {
        let run = || {
            let place = self.object(path, Follow::Last)?;
            Self::check_dir(&place.attr)?;
            let flags = XattrFlags::default();
            self.fs.set_xattr(&self.caller, place.ino, POLICY, policy, flags)
        };
        run().map_err(|error| about(path, error))
    }

    pub(crate) fn check_dir(attr: &Attr) -> Result<()> {
        if attr.is_dir() { Ok(()) } else { Err(Error::of(Errno::NotDirectory, "")) }
    }
}
