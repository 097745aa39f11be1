//! Access control lists.

use types::MODE_PERMISSIONS;
use types::acl::{ACCESS_LIST, AccessList};

use crate::Extra;
use crate::inode::Inode;

/// Gives an inode a list, or takes it away. The list of an inode sets its mode, and one that says
/// no more than the mode is not kept. Bytes that are no record change nothing.
pub(super) fn set(inode: &mut Inode, extra: &mut Extra, name: &[u8], record: Option<&[u8]>) {
    let Some(record) = record else { return extra.set_xattr(name, None) };
    let Some(list) = AccessList::decode(record) else { return };
    if name != ACCESS_LIST {
        return extra.set_xattr(name, Some(record));
    }
    inode.mode = inode.mode & !MODE_PERMISSIONS | list.mode & MODE_PERMISSIONS;
    extra.set_xattr(name, (!list.is_mode_only()).then_some(record));
}
