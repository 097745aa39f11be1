//! Permissions: may a caller do that with an inode?

use types::acl::{self, ACCESS_LIST};
use types::{Cred, Errno, Ino};

use crate::Refusal;
use crate::inode::{HAS_EXTRA, Inode};
use crate::tree::InodeTree;

pub(crate) const READ: u32 = 4;
pub(crate) const WRITE: u32 = 2;
pub(crate) const EXECUTE: u32 = 1;
const STICKY: u32 = 0o1000;

impl InodeTree {
    /// Whether a caller has these permissions on an inode, by its mode and its access control list.
    /// `EACCES` if not.
    #[inline]
    pub(crate) fn allow(
        &self,
        cred: &Cred,
        ino: Ino,
        inode: &Inode,
        want: u32,
    ) -> Result<(), Refusal> {
        let is_dir = inode.is_dir();
        if cred.is_root() && (want & EXECUTE == 0 || is_dir || inode.mode & 0o111 != 0) {
            return Ok(());
        }
        self.allow_user(cred, ino, inode, want)
    }

    fn allow_user(&self, cred: &Cred, ino: Ino, inode: &Inode, want: u32) -> Result<(), Refusal> {
        let class = if cred.uid == inode.uid {
            6
        } else if inode.flags & HAS_EXTRA != 0
            && let Some(is_allowed) = self.listed(cred, ino, inode, want)
        {
            return if is_allowed { Ok(()) } else { Err(Errno::Access.into()) };
        } else if cred.in_group(inode.gid) {
            3
        } else {
            0
        };
        if (inode.mode >> class) & want == want { Ok(()) } else { Err(Errno::Access.into()) }
    }

    /// The answer of the access control list of an inode, if it has one.
    fn listed(&self, cred: &Cred, ino: Ino, inode: &Inode, want: u32) -> Option<bool> {
        let record = self.inodes.extra(ino, inode)?.xattr(ACCESS_LIST)?;
        acl::is_allowed(record, inode.mode, inode.gid, cred, want)
    }

    /// Whether a directory has an access control list, or gives one to new inodes. Its mode alone
    /// does not say who may use it, nor how inodes are made in it.
    pub(crate) fn has_lists(&self, dir: Ino) -> bool {
        let Some(inode) = self.inodes.get(dir) else { return false };
        let extra = self.inodes.extra(dir, inode);
        extra.is_some_and(|extra| extra.xattrs().any(|(name, _)| acl::is_list(name)))
    }
}

/// In a sticky directory only the owner of the entry or of the directory removes it.
pub(crate) fn sticky(cred: &Cred, dir: &Inode, entry: &Inode) -> Result<(), Refusal> {
    let owner = cred.is_root() || cred.uid == entry.uid || cred.uid == dir.uid;
    if dir.mode & STICKY == 0 || owner { Ok(()) } else { Err(Errno::NotPermitted.into()) }
}

/// `EPERM` for a caller that neither owns the inode nor is root.
pub(crate) fn owner_only(cred: &Cred, inode: &Inode) -> Result<(), Refusal> {
    if cred.is_root() || cred.uid == inode.uid { Ok(()) } else { Err(Errno::NotPermitted.into()) }
}
