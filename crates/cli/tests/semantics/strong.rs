//! Requests under the default policy, and their visibility to other clients.

use cudele::{Cred, NewFile, XattrChange, XattrFlags};
use types::acl::{self, ACCESS_LIST};

use crate::fixture::World;
use crate::tools::mount;

#[test]
fn an_answered_change_is_visible_to_all_clients() {
    let world = World::new();
    let clients = [mount(&world), mount(&world)];
    let dirs = clients.each_ref().map(|fs| fs.open_dir("/").unwrap());
    for number in 0..100 {
        let name = format!("f{number}");
        let (mine, yours) = (&dirs[number % 2], &dirs[(number + 1) % 2]);
        let made = mine.create(&name, &NewFile::default()).unwrap().ino;
        assert_eq!(yours.lookup(&name).unwrap().ino, made);
        yours.unlink(&name).unwrap();
        assert!(mine.lookup(&name).is_err());
    }
}

#[test]
fn attributes_are_in_the_log_of_a_strong_local_client() {
    let world = World::new();
    let fs = mount(&world);
    fs.make_dir("/dir", 0o755).unwrap();
    world.run(&["policy", "set", "/dir", "strong-local"]).done();
    let (dir, cred) = (fs.open_dir("/dir").unwrap(), Cred::root());
    let made = dir.create("f", &NewFile::default()).unwrap().ino;
    let list = acl::linux_form(&[
        (acl::USER_OBJ, 6, acl::NO_NUMBER),
        (acl::USER, 4, 4711),
        (acl::GROUP_OBJ, 0, acl::NO_NUMBER),
        (acl::MASK, 4, acl::NO_NUMBER),
        (acl::OTHER, 0, acl::NO_NUMBER),
    ]);
    let user = fs.as_user(&cred);
    let set = |name: &[u8], value: Option<&[u8]>| {
        let change = XattrChange { name, value, flags: XattrFlags::default() };
        user.set_xattr(dir.ino(), made, &change).unwrap();
    };
    set(b"user.kept", Some(b"value"));
    set(b"user.gone", Some(b"value"));
    set(b"user.gone", None);
    set(ACCESS_LIST, Some(&list));
    let mode = user.attr(made).unwrap().mode;
    world.crash();
    // Another client waits until this one has replayed its log.
    assert_eq!(user.xattr(made, b"user.kept").unwrap(), b"value");
    let other = mount(&world);
    let attr = other.stat("/dir/f").unwrap();
    assert_eq!((attr.ino, attr.mode), (made, mode));
    assert_eq!(other.get_xattr(made, b"user.kept").unwrap(), b"value");
    assert_eq!(other.get_xattr(made, ACCESS_LIST).unwrap(), list);
    assert_eq!(other.list_xattr(made).unwrap().len(), 2, "the removal is replayed, too");
}
