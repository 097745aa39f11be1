use types::{AttrChange, Errno, Timestamp, XattrFlags};
use wire::{Answer, ChangeOp, NewInode, Op, ReadOp};

use crate::tests::cluster::{DIR, chmod, user};
use crate::tests::fixture::{NOTHING, Tree, guest};

const NONE: AttrChange =
    AttrChange { mode: None, uid: None, gid: None, size: None, atime: None, mtime: None };
const SET: XattrFlags = XattrFlags { create: false, replace: false };

#[test]
fn a_mode_changes_and_the_file_type_stays() {
    let mut tree = Tree::new();
    let ino = tree.file;
    tree.answer(Op::Change(ChangeOp::SetAttr { ino, change: chmod(0o040_600) })).unwrap();
    assert_eq!(tree.attr(ino).mode, 0o100_600);
}

#[test]
fn a_change_of_attributes_changes_the_ctime() {
    let mut tree = Tree::new();
    let ino = tree.file;
    let before = tree.attr(ino).ctime;
    tree.pass(3);
    tree.answer(Op::Change(ChangeOp::SetAttr { ino, change: chmod(0o600) })).unwrap();
    assert!(tree.attr(ino).ctime > before);
}

#[test]
fn a_truncation_changes_length_and_mtime() {
    let mut tree = Tree::new();
    let ino = tree.file;
    let before = tree.attr(ino).mtime;
    tree.pass(3);
    tree.answer(Op::Change(ChangeOp::SetAttr {
        ino,
        change: AttrChange { size: Some(1), ..NONE },
    }))
    .unwrap();
    let after = tree.attr(ino);
    assert!(after.size == 1 && after.mtime > before);
}

#[test]
fn a_stated_mtime_is_kept() {
    let mut tree = Tree::new();
    let ino = tree.file;
    let change = AttrChange { mtime: Some(Timestamp(77)), ..NONE };
    tree.answer(Op::Change(ChangeOp::SetAttr { ino, change })).unwrap();
    assert_eq!(tree.attr(ino).mtime, Timestamp(77));
}

#[test]
fn root_changes_the_owner_of_a_file() {
    let mut tree = Tree::new();
    let ino = tree.file;
    let change = AttrChange { uid: Some(7), gid: Some(8), ..NONE };
    tree.answer(Op::Change(ChangeOp::SetAttr { ino, change })).unwrap();
    let attr = tree.attr(ino);
    assert_eq!((attr.uid, attr.gid), (7, 8));
}

#[test]
fn a_user_changes_no_mode_of_another_users_file() {
    let mut tree = Tree::new();
    let op = Op::Change(ChangeOp::SetAttr { ino: tree.file, change: chmod(0o777) });
    assert_eq!(tree.guest_refusal(op), Some(Errno::NotPermitted));
}

#[test]
fn a_user_changes_no_time_of_another_users_file_by_a_change_of_nothing() {
    let mut tree = Tree::new();
    let ino = tree.file;
    let before = tree.attr(ino);
    tree.pass(3);
    let op = Op::Change(ChangeOp::SetAttr { ino, change: NONE });
    assert_eq!(tree.guest_refusal(op), Some(Errno::NotPermitted));
    assert_eq!(tree.attr(ino), before);
    tree.answer(op).unwrap();
    assert!(tree.attr(ino).ctime > before.ctime, "the owner may");
}

#[test]
fn a_user_sets_no_time_of_another_users_symbolic_link() {
    let mut tree = Tree::new();
    let change = AttrChange { atime: Some(Timestamp(49)), ..NONE };
    let op = Op::Change(ChangeOp::SetAttr { ino: tree.link, change });
    assert_eq!(tree.guest_refusal(op), Some(Errno::NotPermitted));
    tree.answer(op).unwrap();
}

#[test]
fn a_user_gives_no_file_away() {
    let mut tree = Tree::new();
    let open = tree.open;
    assert_eq!(tree.create_refusal(&user(7), open, b"mine"), None);
    let ino = tree.lookup(open, "mine").unwrap();
    let op = Op::Change(ChangeOp::SetAttr { ino, change: AttrChange { uid: Some(8), ..NONE } });
    assert_eq!(tree.guest_refusal(op), Some(Errno::NotPermitted));
}

#[test]
fn a_user_gives_a_file_to_one_of_its_groups_only() {
    let mut tree = Tree::new();
    let open = tree.open;
    assert_eq!(tree.create_refusal(&user(7), open, b"mine"), None);
    let ino = tree.lookup(open, "mine").unwrap();
    let op =
        |gid| Op::Change(ChangeOp::SetAttr { ino, change: AttrChange { gid: Some(gid), ..NONE } });
    assert_eq!(tree.guest_refusal(op(9)), Some(Errno::NotPermitted));
    let member = types::Cred { groups: vec![9], ..guest() };
    assert_eq!(tree.answer_as(&member, op(9)), Ok(Answer::Done));
}

#[test]
fn an_owner_outside_the_group_loses_the_set_group_id_bit_of_a_directory() {
    let mut tree = Tree::new();
    let parent = tree.open;
    let change = AttrChange { mode: Some(0o2777), gid: Some(5), ..NONE };
    tree.answer(Op::Change(ChangeOp::SetAttr { ino: parent, change })).unwrap();
    let new = NewInode { mode: DIR, ..NewInode::default() };
    let op = Op::Change(ChangeOp::Create { parent, name: b"new", new });
    let Ok(Answer::Attr(made)) = tree.answer_as(&guest(), op) else { panic!() };
    assert_eq!(made.mode & 0o7777, 0o2755);
    let op = ChangeOp::SetAttr { ino: made.ino, change: chmod(0o2775) };
    tree.answer_as(&guest(), Op::Change(op)).unwrap();
    let attr = tree.attr(made.ino);
    assert_eq!((attr.gid, attr.mode & 0o7777), (5, 0o775));
}

#[test]
fn a_change_of_owner_drops_the_set_id_bits() {
    let mut tree = Tree::new();
    let open = tree.open;
    assert_eq!(tree.create_refusal(&user(7), open, b"mine"), None);
    let ino = tree.lookup(open, "mine").unwrap();
    tree.answer_as(&guest(), Op::Change(ChangeOp::SetAttr { ino, change: chmod(0o6755) })).unwrap();
    assert_eq!(tree.attr(ino).mode & 0o6000, 0o6000);
    tree.answer_as(
        &guest(),
        Op::Change(ChangeOp::SetAttr { ino, change: AttrChange { gid: Some(7), ..NONE } }),
    )
    .unwrap();
    assert_eq!(tree.attr(ino).mode & 0o6000, 0);
}

#[test]
fn a_truncation_without_write_permission_is_refused() {
    let mut tree = Tree::new();
    let op = Op::Change(ChangeOp::SetAttr {
        ino: tree.file,
        change: AttrChange { size: Some(0), ..NONE },
    });
    assert_eq!(tree.guest_refusal(op), Some(Errno::Access));
}

#[test]
fn a_truncation_of_a_directory_is_refused() {
    let mut tree = Tree::new();
    let op = Op::Change(ChangeOp::SetAttr {
        ino: tree.sub,
        change: AttrChange { size: Some(0), ..NONE },
    });
    assert_eq!(tree.refusal(op), Some(Errno::IsDirectory));
}

#[test]
fn a_truncation_of_a_symbolic_link_is_refused() {
    let mut tree = Tree::new();
    let op = Op::Change(ChangeOp::SetAttr {
        ino: tree.link,
        change: AttrChange { size: Some(0), ..NONE },
    });
    assert_eq!(tree.refusal(op), Some(Errno::Invalid));
}

#[test]
fn a_truncation_to_more_than_a_file_may_have_is_refused() {
    let mut tree = Tree::new();
    let size = Some(types::FILE_BYTES_MAX + 1);
    let op = Op::Change(ChangeOp::SetAttr { ino: tree.file, change: AttrChange { size, ..NONE } });
    assert_eq!(tree.refusal(op), Some(Errno::TooBig));
}

#[test]
fn a_user_sets_no_times_of_another_users_file() {
    let mut tree = Tree::new();
    let change = AttrChange { mtime: Some(Timestamp(1)), ..NONE };
    let op = Op::Change(ChangeOp::SetAttr { ino: tree.file, change });
    assert_eq!(tree.guest_refusal(op), Some(Errno::NotPermitted));
}

#[test]
fn a_change_of_an_unknown_inode_is_stale() {
    let mut tree = Tree::new();
    let op = Op::Change(ChangeOp::SetAttr { ino: NOTHING, change: chmod(0o600) });
    assert_eq!(tree.refusal(op), Some(Errno::Stale));
}

#[test]
fn an_access_sets_a_later_access_time_and_no_earlier_one() {
    let mut tree = Tree::new();
    let ino = tree.file;
    let before = tree.attr(ino);
    let later = Timestamp(before.atime.0 + 1000);
    tree.answer(Op::Change(ChangeOp::Accessed { ino, at: later })).unwrap();
    tree.answer(Op::Change(ChangeOp::Accessed { ino, at: before.atime })).unwrap();
    let after = tree.attr(ino);
    assert_eq!((after.atime, after.ctime), (later, before.ctime));
}

#[test]
fn an_access_of_an_unknown_inode_is_stale() {
    let mut tree = Tree::new();
    let op = Op::Change(ChangeOp::Accessed { ino: NOTHING, at: Timestamp(1) });
    assert_eq!(tree.refusal(op), Some(Errno::Stale));
}

fn set<'a>(tree: &Tree, name: &'a [u8], value: Option<&'a [u8]>, flags: XattrFlags) -> Op<'a> {
    Op::Change(ChangeOp::SetXattr { ino: tree.file, name, value, flags })
}

#[test]
fn an_extended_attribute_is_returned_as_it_was_set() {
    let mut tree = Tree::new();
    let op = set(&tree, b"user.a", Some(b"1"), SET);
    tree.answer(op).unwrap();
    let op = Op::Read(ReadOp::GetXattr { ino: tree.file, name: b"user.a" });
    assert_eq!(tree.answer(op), Ok(Answer::Data(b"1".to_vec())));
}

#[test]
fn extended_attributes_are_listed_by_name() {
    let mut tree = Tree::new();
    for name in [&b"user.a"[..], b"user.b"] {
        let op = set(&tree, name, Some(b"1"), SET);
        tree.answer(op).unwrap();
    }
    let op = Op::Read(ReadOp::ListXattr { ino: tree.file });
    let Ok(Answer::Names(mut names)) = tree.answer(op) else { panic!() };
    names.sort_unstable();
    assert_eq!(names, [b"user.a", b"user.b"]);
}

#[test]
fn a_removed_extended_attribute_has_no_value() {
    let mut tree = Tree::new();
    let (one, none) = (set(&tree, b"user.a", Some(b"1"), SET), set(&tree, b"user.a", None, SET));
    tree.answer(one).unwrap();
    tree.answer(none).unwrap();
    let op = Op::Read(ReadOp::GetXattr { ino: tree.file, name: b"user.a" });
    assert_eq!(tree.refusal(op), Some(Errno::NoData));
}

#[test]
fn a_missing_extended_attribute_is_neither_read_nor_removed() {
    let mut tree = Tree::new();
    let op = Op::Read(ReadOp::GetXattr { ino: tree.file, name: b"user.a" });
    assert_eq!(tree.refusal(op), Some(Errno::NoData));
    let op = set(&tree, b"user.a", None, SET);
    assert_eq!(tree.refusal(op), Some(Errno::NoData));
}

#[test]
fn an_extended_attribute_is_created_once() {
    let mut tree = Tree::new();
    let flags = XattrFlags { create: true, replace: false };
    let op = set(&tree, b"user.a", Some(b"1"), flags);
    assert_eq!(tree.refusal(op), None);
    let op = set(&tree, b"user.a", Some(b"2"), flags);
    assert_eq!(tree.refusal(op), Some(Errno::Exists));
}

#[test]
fn a_missing_extended_attribute_is_not_replaced() {
    let mut tree = Tree::new();
    let flags = XattrFlags { create: false, replace: true };
    let op = set(&tree, b"user.a", Some(b"1"), flags);
    assert_eq!(tree.refusal(op), Some(Errno::NoData));
}

#[test]
fn a_user_sets_no_extended_attribute_of_another_users_file() {
    let mut tree = Tree::new();
    let op = set(&tree, b"user.a", Some(b"1"), SET);
    assert_eq!(tree.guest_refusal(op), Some(Errno::NotPermitted));
}

#[test]
fn an_extended_attribute_with_an_illegal_name_is_refused() {
    let mut tree = Tree::new();
    for name in [&b""[..], b"a\0b"] {
        let op = set(&tree, name, Some(b"1"), SET);
        assert_eq!(tree.refusal(op), Some(Errno::Invalid), "{name:?}");
    }
}

#[test]
fn an_extended_attribute_with_a_name_that_is_too_long_is_refused() {
    let mut tree = Tree::new();
    let name = [b'x'; 256];
    let op = set(&tree, &name, Some(b"1"), SET);
    assert_eq!(tree.refusal(op), Some(Errno::Range));
}

#[test]
fn an_extended_attribute_that_is_too_large_is_refused() {
    let mut tree = Tree::new();
    let value = vec![0; 65_537];
    let op = set(&tree, b"user.a", Some(&value), SET);
    assert_eq!(tree.refusal(op), Some(Errno::TooBig));
}

#[test]
fn extended_attributes_that_are_too_large_together_are_refused() {
    let mut tree = Tree::new();
    let value = vec![0; 65_536];
    let op = set(&tree, b"user.a", Some(&value), SET);
    assert_eq!(tree.refusal(op), None);
    let op = set(&tree, b"user.b", Some(&value), SET);
    assert_eq!(tree.refusal(op), Some(Errno::TooBig));
}

#[test]
fn an_extended_attribute_of_an_unknown_inode_is_stale() {
    let mut tree = Tree::new();
    let op = Op::Change(ChangeOp::SetXattr {
        ino: NOTHING,
        name: b"user.a",
        value: Some(b"1"),
        flags: SET,
    });
    assert_eq!(tree.refusal(op), Some(Errno::Stale));
    assert_eq!(
        tree.refusal(Op::Read(ReadOp::GetXattr { ino: NOTHING, name: b"user.a" })),
        Some(Errno::Stale)
    );
    assert_eq!(tree.refusal(Op::Read(ReadOp::ListXattr { ino: NOTHING })), Some(Errno::Stale));
}
