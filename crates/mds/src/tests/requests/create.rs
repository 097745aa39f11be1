use types::{Errno, FileType, INLINE_BYTES_MAX, Ino, SYMLINK_BYTES_MAX};
use wire::{Answer, ChangeOp, NewInode, Op};

use crate::tests::cluster::{DIR, FILE, LINK, user};
use crate::tests::fixture::{LONG, NOTHING, Tree, guest};
use types::Cred;

fn create(tree: &mut Tree, new: NewInode<'_>) -> Result<types::Attr, Errno> {
    let parent = tree.dir;
    match tree.answer(Op::Change(ChangeOp::Create { parent, name: b"new", new }))? {
        Answer::Attr(attr) => Ok(attr),
        other => panic!("{other:?} is no answer to a create"),
    }
}

#[test]
fn a_created_file_is_found_under_its_name() {
    let mut tree = Tree::new();
    let dir = tree.dir;
    let new = tree.file(dir, "new");
    assert_eq!(tree.lookup(dir, "new"), Ok(new));
}

#[test]
fn a_create_belongs_to_the_user_that_asked() {
    let mut tree = Tree::new();
    let new = NewInode { mode: FILE, ..NewInode::default() };
    let op = Op::Change(ChangeOp::Create { parent: tree.open, name: b"new", new });
    let Ok(Answer::Attr(attr)) = tree.answer_as(&guest(), op) else { panic!() };
    assert_eq!((attr.uid, attr.gid), (7, 7));
}

#[test]
fn a_create_in_a_set_gid_directory_inherits_its_group() {
    let mut tree = Tree::new();
    let parent = tree.open;
    let change = types::AttrChange { mode: Some(0o2777), gid: Some(5), ..Default::default() };
    tree.answer(Op::Change(ChangeOp::SetAttr { ino: parent, change })).unwrap();
    let new = NewInode { mode: DIR, ..NewInode::default() };
    let op = Op::Change(ChangeOp::Create { parent, name: b"new", new });
    let Ok(Answer::Attr(attr)) = tree.answer_as(&guest(), op) else { panic!() };
    assert_eq!((attr.gid, attr.mode & 0o2000), (5, 0o2000), "a directory hands it on");
}

#[test]
fn root_creates_files_of_other_users() {
    let mut tree = Tree::new();
    let attr =
        create(&mut tree, NewInode { mode: FILE, owner: Some((8, 9)), ..Default::default() });
    assert_eq!(attr.map(|attr| (attr.uid, attr.gid)), Ok((8, 9)));
}

#[test]
fn a_user_creates_no_file_of_another_user() {
    let mut tree = Tree::new();
    let new = NewInode { mode: FILE, owner: Some((8, 8)), ..NewInode::default() };
    let op = Op::Change(ChangeOp::Create { parent: tree.open, name: b"new", new });
    assert_eq!(tree.guest_refusal(op), Some(Errno::NotPermitted));
}

#[test]
fn a_create_keeps_the_times_that_the_client_states() {
    let mut tree = Tree::new();
    let (mtime, atime) = (Some(types::Timestamp(7)), Some(types::Timestamp(8)));
    let attr = create(&mut tree, NewInode { mode: FILE, mtime, atime, ..Default::default() });
    let attr = attr.unwrap();
    assert_eq!((Some(attr.mtime), Some(attr.atime)), (mtime, atime));
}

#[test]
fn a_created_device_keeps_its_number() {
    let mut tree = Tree::new();
    let mode = FileType::CharDevice.mode_bits() | 0o600;
    let attr = create(&mut tree, NewInode { mode, rdev: 1234, ..NewInode::default() });
    assert_eq!(attr.map(|attr| attr.rdev), Ok(1234));
}

#[test]
fn a_created_directory_is_empty_and_has_two_links() {
    let mut tree = Tree::new();
    let attr = create(&mut tree, NewInode { mode: DIR, ..NewInode::default() }).unwrap();
    assert_eq!((attr.nlink, attr.size), (2, 0));
}

#[test]
fn a_create_of_an_existing_name_is_refused() {
    let mut tree = Tree::new();
    let dir = tree.dir;
    assert_eq!(tree.create_refusal(&Cred::root(), dir, b"file"), Some(Errno::Exists));
}

#[test]
fn a_create_in_a_file_is_refused() {
    let mut tree = Tree::new();
    let file = tree.file;
    assert_eq!(tree.create_refusal(&Cred::root(), file, b"x"), Some(Errno::NotDirectory));
}

#[test]
fn a_create_in_an_unknown_directory_is_stale() {
    let mut tree = Tree::new();
    assert_eq!(tree.create_refusal(&Cred::root(), NOTHING, b"x"), Some(Errno::Stale));
}

#[test]
fn a_create_without_write_permission_is_refused() {
    let mut tree = Tree::new();
    let dir = tree.dir;
    assert_eq!(tree.create_refusal(&user(7), dir, b"x"), Some(Errno::Access));
}

#[test]
fn a_create_with_an_illegal_name_is_refused() {
    let mut tree = Tree::new();
    let dir = tree.dir;
    for name in [&b""[..], b".", b"..", b"a/b", b"a\0b"] {
        let refusal = tree.create_refusal(&Cred::root(), dir, name);
        assert_eq!(refusal, Some(Errno::Invalid), "{name:?}");
    }
}

#[test]
fn a_create_with_a_name_that_is_too_long_is_refused() {
    let mut tree = Tree::new();
    let dir = tree.dir;
    assert_eq!(tree.create_refusal(&Cred::root(), dir, &LONG), Some(Errno::NameTooLong));
}

#[test]
fn a_create_without_a_file_type_is_refused() {
    let mut tree = Tree::new();
    let new = NewInode { mode: 0o644, ..NewInode::default() };
    assert_eq!(create(&mut tree, new), Err(Errno::Invalid));
}

#[test]
fn a_create_with_more_content_than_may_be_inline_is_refused() {
    let mut tree = Tree::new();
    let data = vec![0; INLINE_BYTES_MAX + 1];
    let size = data.len() as u64;
    let new = NewInode { mode: FILE, data: &data, size, ..NewInode::default() };
    assert_eq!(create(&mut tree, new), Err(Errno::TooBig));
}

#[test]
fn a_create_of_a_file_that_is_too_long_is_refused() {
    let mut tree = Tree::new();
    let new = NewInode { mode: FILE, size: types::FILE_BYTES_MAX + 1, ..NewInode::default() };
    assert_eq!(create(&mut tree, new), Err(Errno::TooBig));
}

#[test]
fn a_symbolic_link_has_the_length_of_its_target() {
    let mut tree = Tree::new();
    let new = NewInode { mode: LINK, data: b"target", ..NewInode::default() };
    assert_eq!(create(&mut tree, new).map(|attr| attr.size), Ok(6));
}

#[test]
fn a_symbolic_link_without_a_target_is_refused() {
    let mut tree = Tree::new();
    for data in [&b""[..], b"a\0b"] {
        let new = NewInode { mode: LINK, data, ..NewInode::default() };
        assert_eq!(create(&mut tree, new), Err(Errno::Invalid), "{data:?}");
    }
}

#[test]
fn a_symbolic_link_with_a_target_that_is_too_long_is_refused() {
    let mut tree = Tree::new();
    let data = vec![b'x'; SYMLINK_BYTES_MAX + 1];
    let new = NewInode { mode: LINK, data: &data, ..NewInode::default() };
    assert_eq!(create(&mut tree, new), Err(Errno::NameTooLong));
}

#[test]
fn a_refused_create_takes_no_inode_number() {
    let mut tree = Tree::new();
    let dir = tree.dir;
    let before = tree.file(dir, "before");
    tree.create_refusal(&Cred::root(), dir, b"file");
    assert_eq!(tree.file(dir, "after"), Ino(before.0 + 1));
}

#[test]
fn a_create_changes_the_times_of_its_directory() {
    let mut tree = Tree::new();
    let dir = tree.dir;
    let before = tree.attr(dir);
    tree.pass(5);
    tree.file(dir, "new");
    let after = tree.attr(dir);
    assert!(after.mtime > before.mtime && after.ctime > before.ctime);
    assert_eq!(after.btime, before.btime);
}

#[test]
fn a_file_that_is_created_open_is_open() {
    let mut tree = Tree::new();
    let new = NewInode { mode: FILE, open: true, ..NewInode::default() };
    create(&mut tree, new).unwrap();
    assert_eq!(tree.counted(0, "open_files"), 1);
}
