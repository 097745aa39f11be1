//! Permissions: may a caller do that with an inode?

use types::{Cred, Errno};

use crate::Refusal;
use crate::inode::Inode;

pub(crate) const READ: u32 = 4;
pub(crate) const WRITE: u32 = 2;
pub(crate) const EXECUTE: u32 = 1;
const STICKY: u32 = 0o1000;

/// Whether a caller has these permissions on an inode. `EACCES` if not.
pub(crate) fn allow(cred: &Cred, inode: &Inode, want: u32) -> Result<(), Refusal> {
    let is_dir = inode.is_dir();
    if cred.is_root() && (want & EXECUTE == 0 || is_dir || inode.mode & 0o111 != 0) {
        return Ok(());
    }
    let class = if cred.uid == inode.uid {
        6
    } else if cred.in_group(inode.gid) {
        3
    } else {
        0
    };
    if (inode.mode >> class) & want == want { Ok(()) } else { Err(Errno::Access.into()) }
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
