use types::{Errno, RenameFlags};
use wire::{ChangeOp, Op, ReadOp};

use crate::tests::fixture::{LONG, NOTHING, Tree};

#[test]
fn a_linked_file_has_two_names_and_one_inode() {
    let mut tree = Tree::new();
    let (open, ino) = (tree.open, tree.file);
    tree.answer(Op::Change(ChangeOp::Link { ino, parent: open, name: b"second" })).unwrap();
    assert_eq!(tree.lookup(open, "second"), Ok(ino));
    assert_eq!(tree.attr(ino).nlink, 2);
}

#[test]
fn a_linked_file_stays_until_its_last_name_is_removed() {
    let mut tree = Tree::new();
    let (dir, open, ino) = (tree.dir, tree.open, tree.file);
    tree.answer(Op::Change(ChangeOp::Link { ino, parent: open, name: b"second" })).unwrap();
    tree.answer(Op::Change(ChangeOp::Unlink { parent: dir, name: b"file" })).unwrap();
    assert_eq!(tree.attr(ino).nlink, 1);
    tree.answer(Op::Change(ChangeOp::Unlink { parent: open, name: b"second" })).unwrap();
    assert_eq!(tree.refusal(Op::Read(ReadOp::GetAttr { ino })), Some(Errno::Stale));
}

#[test]
fn a_rename_between_two_names_of_one_file_changes_nothing() {
    let mut tree = Tree::new();
    let (dir, ino) = (tree.dir, tree.file);
    tree.answer(Op::Change(ChangeOp::Link { ino, parent: dir, name: b"second" })).unwrap();
    let flags = RenameFlags::default();
    let (name, new_name) = (&b"file"[..], &b"second"[..]);
    tree.answer(Op::Change(ChangeOp::Rename {
        parent: dir,
        name,
        new_parent: dir,
        new_name,
        flags,
    }))
    .unwrap();
    assert_eq!((tree.lookup(dir, "file"), tree.lookup(dir, "second")), (Ok(ino), Ok(ino)));
}

#[test]
fn a_link_to_a_directory_is_refused() {
    let mut tree = Tree::new();
    let op = Op::Change(ChangeOp::Link { ino: tree.sub, parent: tree.open, name: b"x" });
    assert_eq!(tree.refusal(op), Some(Errno::NotPermitted));
}

#[test]
fn a_link_over_an_existing_name_is_refused() {
    let mut tree = Tree::new();
    let op = Op::Change(ChangeOp::Link { ino: tree.file, parent: tree.dir, name: b"link" });
    assert_eq!(tree.refusal(op), Some(Errno::Exists));
}

#[test]
fn a_link_of_an_unknown_inode_is_stale() {
    let mut tree = Tree::new();
    let op = Op::Change(ChangeOp::Link { ino: NOTHING, parent: tree.dir, name: b"x" });
    assert_eq!(tree.refusal(op), Some(Errno::Stale));
}

#[test]
fn a_link_in_an_unknown_directory_is_stale() {
    let mut tree = Tree::new();
    let op = Op::Change(ChangeOp::Link { ino: tree.file, parent: NOTHING, name: b"x" });
    assert_eq!(tree.refusal(op), Some(Errno::Stale));
}

#[test]
fn a_link_in_a_file_is_refused() {
    let mut tree = Tree::new();
    let op = Op::Change(ChangeOp::Link { ino: tree.link, parent: tree.file, name: b"x" });
    assert_eq!(tree.refusal(op), Some(Errno::NotDirectory));
}

#[test]
fn a_link_without_write_permission_is_refused() {
    let mut tree = Tree::new();
    let op = Op::Change(ChangeOp::Link { ino: tree.file, parent: tree.dir, name: b"x" });
    assert_eq!(tree.guest_refusal(op), Some(Errno::Access));
}

#[test]
fn a_link_with_an_illegal_name_is_refused() {
    let mut tree = Tree::new();
    let (ino, parent) = (tree.file, tree.dir);
    assert_eq!(
        tree.refusal(Op::Change(ChangeOp::Link { ino, parent, name: b"a/b" })),
        Some(Errno::Invalid)
    );
    assert_eq!(
        tree.refusal(Op::Change(ChangeOp::Link { ino, parent, name: &LONG })),
        Some(Errno::NameTooLong)
    );
}
