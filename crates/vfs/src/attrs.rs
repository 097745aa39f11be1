//! Attributes and extended attributes.

use cudele::{Attr, AttrChange, Errno, Error, Fs, Ino, Result, XattrFlags};
use posix::{Caller, Entry};
use types::quota::QuotaReport;
use types::{XattrChange, acl, quota};

use crate::caller::OnBehalf;
use crate::content::ContentCx;
use crate::open::FilesCx;
use crate::shared::lost_name;
use crate::tree::{Tree, Trees};

/// The reported size of a store that does not know its own, in bytes: room for the largest file.
const SPACE_UNKNOWN: u64 = cudele::FILE_BYTES_MAX;

const SET_UID: u32 = 0o4000;
const SET_GID: u32 = 0o2000;

/// Attributes, with all that their changes may touch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttrsCx<'a> {
    pub(crate) fs: &'a Fs,
    pub(crate) trees: &'a Trees,
    pub(crate) content: ContentCx<'a>,
    pub(crate) files: FilesCx<'a>,
}

impl AttrsCx<'_> {
    /// The attributes of an inode.
    ///
    /// # Errors
    /// `ESTALE`.
    pub(crate) fn attr(&self, ino: Ino) -> Result<Entry> {
        if let Some(attr) = self.nameless(ino) {
            return Ok(self.trees.lent_attr(attr));
        }
        let private = self.is_private(ino);
        let stored = self.trees.stored_attr(ino);
        if private && !self.is_private(ino) {
            // Another client has opened it since, or it was closed: the answer may be older than
            // that.
            return self.attr(ino);
        }
        match stored {
            // Another client has removed its last name, but it is open here.
            Err(error) if lost_name(&error) && self.files.lost_elsewhere(ino) => self.attr(ino),
            // A directory that was removed here while it was open.
            Err(error) if error.errno == Errno::Stale => {
                let attr = self.trees.nodes().gone(ino).ok_or(error)?;
                Ok(self.trees.lent_attr(attr))
            }
            stored => Ok(self.trees.lent_attr(self.trees.as_open(stored?))),
        }
    }

    /// Changes attributes, `is_open` if through an open file: then permission to change its length
    /// was given when it was opened.
    ///
    /// # Errors
    /// `EPERM`, `EACCES`, `EINVAL`, `EISDIR`, `EFBIG`, `ENOSPC`, `EROFS`.
    pub(crate) fn set_attr(
        &self,
        caller: &Caller,
        ino: Ino,
        change: &AttrChange,
        is_open: bool,
    ) -> Result<Entry> {
        self.trees.check_writable()?;
        if let Some(size) = change.size {
            self.files.truncate(caller, ino, size, is_open)?;
        }
        let mut rest = AttrChange { size: None, ..*change };
        if rest.mode.is_none() && (rest.uid.is_some() || rest.gid.is_some()) {
            // Whoever it is: Linux takes them away from root, too.
            rest.mode = self.without_set_id(ino)?;
        }
        if self.change_nameless(ino, &rest) {
            return self.attr(ino);
        }
        if !rest.is_empty() {
            self.write_back_times(ino, &rest)?;
            match self.trees.change_attr(caller, ino, &rest) {
                Err(error) if error.errno == Errno::NotFound && self.files.lost_elsewhere(ino) => {
                    self.change_nameless(ino, &rest);
                }
                changed => changed?,
            }
        }
        self.attr(ino)
    }

    /// A caller without the right to keep them loses set-user-id and set-group-id of a written
    /// file.
    ///
    /// # Errors
    /// `EIO`, `ESTALE`.
    pub(crate) fn drop_set_id(&self, ino: Ino) -> Result<()> {
        let Some(mode) = self.without_set_id(ino)? else { return Ok(()) };
        let change = AttrChange { mode: Some(mode), ..AttrChange::default() };
        self.set_attr(&Caller::SELF, ino, &change, true).map(|_| ())
    }

    /// The permissions without set-user-id and set-group-id, if that changes them. Of directories
    /// they mean something else.
    fn without_set_id(&self, ino: Ino) -> Result<Option<u32>> {
        let attr = self.attr(ino)?.attr;
        // So does set-group-id without execution by the group.
        let drop = if attr.mode & 0o010 == 0 { SET_UID } else { SET_UID | SET_GID };
        Ok((!attr.is_dir() && attr.mode & drop != 0).then_some(attr.mode & 0o7777 & !drop))
    }

    /// The value of an extended attribute.
    ///
    /// # Errors
    /// `ENODATA`, `ESTALE`; `EOPNOTSUPP` for a list where the mount has none.
    pub(crate) fn xattr(&self, caller: &Caller, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.check_lists(name)?;
        self.trees.run(
            ino,
            caller,
            |user| user.xattr(ino, name),
            |subtree| subtree.xattr(ino, name),
        )
    }

    /// A file system that stores lists and does not enforce them leaves copies with the permissions
    /// from before a list was set (`cp -p`, `mv`); one that refuses lists gets a `chmod` instead.
    fn check_lists(&self, name: &[u8]) -> Result<()> {
        if self.trees.options.no_access_lists && acl::is_list(name) {
            return Err(Error::of(Errno::NotSupported, "access control list"));
        }
        Ok(())
    }

    /// The names of all extended attributes, sorted.
    ///
    /// # Errors
    /// `ESTALE`.
    pub(crate) fn xattrs(&self, caller: &Caller, ino: Ino) -> Result<Vec<Vec<u8>>> {
        self.trees.run(ino, caller, |user| user.xattrs(ino), |subtree| subtree.xattrs(ino))
    }

    /// Sets or, without a value, removes an extended attribute.
    ///
    /// # Errors
    /// `EPERM`, `ENODATA`, `EEXIST`, `EFBIG`, `ERANGE`, `EROFS`; for an access control list also
    /// `EINVAL`, `EACCES` for a default list of a file, and `EOPNOTSUPP` where the mount has none.
    pub(crate) fn set_xattr(
        &self,
        caller: &Caller,
        ino: Ino,
        name: &[u8],
        value: Option<&[u8]>,
        flags: XattrFlags,
    ) -> Result<()> {
        self.trees.check_writable()?;
        self.check_lists(name)?;
        // A list of a caller outside the group of the file takes set-group-id away, without an
        // error, so all groups of the caller are needed here.
        let cred = acl::is_list(name).then(|| caller.cred());
        let (home, change) = (self.trees.home(ino), XattrChange { name, value, flags });
        self.trees.run(
            ino,
            caller,
            |user| user.acting(cred.as_ref()).set_xattr(home, ino, &change),
            |subtree| {
                if let Some(cred) = &cred {
                    subtree.act_as(cred);
                }
                subtree.set_xattr(ino, name, value, flags)
            },
        )
    }

    /// How full the file system is at an inode, which may be under quotas. One that does not know
    /// has room: programs that ask before they write must not take it for full.
    ///
    /// # Errors
    /// `EIO`.
    pub(crate) fn space(&self, ino: Ino) -> Result<cudele::Space> {
        let store = match self.fs.store().space() {
            Err(error) if error.errno == Errno::NotSupported => {
                cudele::Space::of_bytes(SPACE_UNKNOWN, SPACE_UNKNOWN)
            }
            known => known?,
        };
        // Without an answer, `df` shows the store.
        let quotas = self.quotas(ino).ok().and_then(|text| QuotaReport::parse_all(&text).ok());
        Ok(quotas.unwrap_or_default().iter().fold(store, cudele::Space::within))
    }

    /// The quotas that hold at an inode, as text ([`quota::REPORT`]). Those of a decoupled subtree
    /// are those of its root.
    ///
    /// # Errors
    /// `ENODATA` if there are none.
    pub(crate) fn quotas(&self, ino: Ino) -> Result<Vec<u8>> {
        let ino = if let Tree::Owned(owned) = self.trees.tree(ino) { owned.root() } else { ino };
        self.trees.walked(ino, || self.fs.get_xattr(ino, quota::REPORT))
    }

    /// The attributes, for something that is gone from the namespace but open.
    fn nameless(&self, ino: Ino) -> Option<Attr> {
        let file = self.trees.nodes().file(ino).cloned()?;
        file.nameless()
    }

    /// Whether a file is open here, and not shared: this process knows its latest content.
    fn is_private(&self, ino: Ino) -> bool {
        if !self.trees.nodes().any_open() {
            return false;
        }
        let file = self.trees.nodes().file(ino).cloned();
        file.is_some_and(|file| !file.held().shared)
    }

    fn change_nameless(&self, ino: Ino, change: &AttrChange) -> bool {
        let file = self.trees.nodes().file(ino).cloned();
        file.is_some_and(|file| file.change_nameless(change))
    }

    /// A change of times is not to be undone by a flush that comes later.
    pub(crate) fn write_back_times(&self, ino: Ino, change: &AttrChange) -> Result<()> {
        let file = self.trees.nodes().file(ino).cloned();
        match file {
            Some(file) if change.atime.is_some() || change.mtime.is_some() => {
                let mut content = file.held();
                content.accessed = content.accessed.filter(|_| change.atime.is_none());
                self.content.write_back(ino, &mut content)?;
                content.forget_written(change);
                Ok(())
            }
            Some(_) | None => Ok(()),
        }
    }
}
