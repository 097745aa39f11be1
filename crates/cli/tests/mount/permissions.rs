//! Permissions of files that are copied and moved into a mount.

use std::os::unix::fs::PermissionsExt;

use types::acl;

use crate::mounts::{Mount, cluster, script, transcript};

/// A program that copies a file with its permissions sets an access control list with the same
/// meaning, or, where there are none, the permissions.
#[test]
fn copies_and_what_is_moved_in_keep_their_permissions() {
    let Some(world) = cluster() else { return };
    let mount = Mount::new(&world);
    let outside = world.path("outside");
    std::fs::write(&outside, b"content").unwrap();
    let text = "chmod 754 \"$2\" && cp -p \"$2\" \"$1/copied\" && cp -p \"$1/copied\" \"$1/again\" && \
                mv \"$2\" \"$1/moved\" && stat -c %a \"$1/copied\" \"$1/again\" \"$1/moved\"";
    let (well, said) =
        transcript(&mut script(text, &[mount.at().as_os_str(), outside.as_os_str()]));
    assert!(well, "{said}");
    assert_eq!(said, "754\n754\n754\n");
    let file = mount.path("copied");
    let flags = rustix::fs::XattrFlags::empty();
    // For the owner, the group and all other users, as `chmod` sets them.
    let tags = [(acl::USER_OBJ, 6), (acl::GROUP_OBJ, 4), (acl::OTHER, 4)];
    let list = acl::linux_form(&tags.map(|(tag, permissions)| (tag, permissions, acl::NO_NUMBER)));
    rustix::fs::setxattr(&file, "system.posix_acl_access", &list, flags).unwrap();
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o644);
    mount.end();
    // Without lists, programs get the error that has them set the mode.
    let mount = Mount::with(&world, &["-o", "noacl"]);
    let set = rustix::fs::setxattr(mount.path("copied"), "system.posix_acl_access", &list, flags);
    assert_eq!(set, Err(rustix::io::Errno::OPNOTSUPP));
    mount.end();
}
