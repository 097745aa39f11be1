//! What a decoupled client appends, and what it does not.

use namespace::{NewInode, Refusal};
use types::{Attr, ClientId, Cred, Epoch, Errno, Ino, InoRange, Seq};

use crate::{Decoupled, Grant};

#[test]
fn what_is_checked_before_it_is_appended_is_existence_and_permission() {
    let attr =
        |ino, mode, uid, gid| Attr { ino: Ino(ino), mode, uid, gid, nlink: 2, ..Attr::default() };
    let grant = Grant {
        client: ClientId(1),
        root: attr(5, 0o042_775, 1, 7),
        range: InoRange { start: 100, end: 200 },
        epoch: Epoch(1),
        empty: true,
        check: true,
    };
    let mut subtree = Decoupled::new(grant, Seq(1));
    let [member, stranger] = [7, 8].map(|gid| Cred { uid: 2, gid: 9, groups: vec![gid] });
    let new = NewInode { mode: 0o040_755, ..NewInode::default() };
    let mut create = |cred: &Cred, new| subtree.create_checked(cred, Ino(5), b"d", new);
    assert_eq!(create(&stranger, &new), Err(Refusal::Errno(Errno::Access)));
    let of_root = NewInode { owner: Some((0, 0)), ..new };
    assert_eq!(create(&member, &of_root), Err(Refusal::Errno(Errno::NotPermitted)));
    assert_eq!(create(&member, &new), Ok(Ino(100)));
    assert_eq!(create(&member, &new), Err(Refusal::Errno(Errno::Exists)));
    assert_eq!((subtree.events(), subtree.inodes_left()), (1, 99));
    let made = subtree.view().namespace().getattr(Ino(100)).unwrap();
    assert_eq!((made.mode, made.uid, made.gid), (0o042_755, 2, 7), "as in a set-id directory");
}
