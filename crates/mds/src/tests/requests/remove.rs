use types::{Errno, Ino};
use wire::{Answer, ChangeOp, Op, ReadOp, SessionOp};

use crate::tests::cluster::{chmod, user};
use crate::tests::fixture::{LONG, NOTHING, Tree};

#[test]
fn an_unlinked_name_is_not_found() {
    let mut tree = Tree::new();
    let dir = tree.dir;
    tree.answer(Op::Change(ChangeOp::Unlink { parent: dir, name: b"file" })).unwrap();
    assert_eq!(tree.lookup(dir, "file"), Err(Errno::NotFound));
}

#[test]
fn an_unlinked_inode_is_stale() {
    let mut tree = Tree::new();
    let (dir, file) = (tree.dir, tree.file);
    tree.answer(Op::Change(ChangeOp::Unlink { parent: dir, name: b"file" })).unwrap();
    assert_eq!(tree.refusal(Op::Read(ReadOp::GetAttr { ino: file })), Some(Errno::Stale));
}

#[test]
fn an_unlink_of_a_missing_name_is_refused() {
    let mut tree = Tree::new();
    let op = Op::Change(ChangeOp::Unlink { parent: tree.dir, name: b"nothing" });
    assert_eq!(tree.refusal(op), Some(Errno::NotFound));
}

#[test]
fn an_unlink_of_a_directory_is_refused() {
    let mut tree = Tree::new();
    let op = Op::Change(ChangeOp::Unlink { parent: tree.dir, name: b"sub" });
    assert_eq!(tree.refusal(op), Some(Errno::IsDirectory));
}

#[test]
fn an_unlink_in_a_file_is_refused() {
    let mut tree = Tree::new();
    let op = Op::Change(ChangeOp::Unlink { parent: tree.file, name: b"x" });
    assert_eq!(tree.refusal(op), Some(Errno::NotDirectory));
}

#[test]
fn an_unlink_in_an_unknown_directory_is_stale() {
    let mut tree = Tree::new();
    let op = Op::Change(ChangeOp::Unlink { parent: NOTHING, name: b"x" });
    assert_eq!(tree.refusal(op), Some(Errno::Stale));
}

#[test]
fn an_unlink_without_write_permission_is_refused() {
    let mut tree = Tree::new();
    let op = Op::Change(ChangeOp::Unlink { parent: tree.dir, name: b"file" });
    assert_eq!(tree.guest_refusal(op), Some(Errno::Access));
}

#[test]
fn an_unlink_of_another_users_file_in_a_sticky_directory_is_refused() {
    let mut tree = Tree::new();
    let open = tree.open;
    tree.answer(Op::Change(ChangeOp::SetAttr { ino: open, change: chmod(0o1777) })).unwrap();
    tree.file(open, "x");
    let op = Op::Change(ChangeOp::Unlink { parent: open, name: b"x" });
    assert_eq!(tree.guest_refusal(op), Some(Errno::NotPermitted));
}

#[test]
fn an_unlink_of_an_own_file_in_a_sticky_directory_succeeds() {
    let mut tree = Tree::new();
    let open = tree.open;
    tree.answer(Op::Change(ChangeOp::SetAttr { ino: open, change: chmod(0o1777) })).unwrap();
    assert_eq!(tree.create_refusal(&user(7), open, b"x"), None);
    assert_eq!(tree.guest_refusal(Op::Change(ChangeOp::Unlink { parent: open, name: b"x" })), None);
}

#[test]
fn an_unlink_of_a_name_that_is_too_long_is_refused() {
    let mut tree = Tree::new();
    let op = Op::Change(ChangeOp::Unlink { parent: tree.dir, name: &LONG });
    assert_eq!(tree.refusal(op), Some(Errno::NameTooLong));
}

#[test]
fn a_removed_directory_is_not_found() {
    let mut tree = Tree::new();
    let (dir, sub) = (tree.dir, tree.sub);
    tree.answer(Op::Change(ChangeOp::Rmdir { parent: dir, name: b"sub" })).unwrap();
    assert_eq!(tree.lookup(dir, "sub"), Err(Errno::NotFound));
    assert_eq!(tree.lookup(sub, "x"), Err(Errno::Stale));
}

#[test]
fn a_removed_directory_takes_a_link_of_its_parent() {
    let mut tree = Tree::new();
    let dir = tree.dir;
    let before = tree.attr(dir).nlink;
    tree.answer(Op::Change(ChangeOp::Rmdir { parent: dir, name: b"sub" })).unwrap();
    assert_eq!(tree.attr(dir).nlink, before - 1);
}

#[test]
fn a_removal_of_a_missing_directory_is_refused() {
    let mut tree = Tree::new();
    let op = Op::Change(ChangeOp::Rmdir { parent: tree.dir, name: b"nothing" });
    assert_eq!(tree.refusal(op), Some(Errno::NotFound));
}

#[test]
fn a_removal_of_a_file_as_a_directory_is_refused() {
    let mut tree = Tree::new();
    let op = Op::Change(ChangeOp::Rmdir { parent: tree.dir, name: b"file" });
    assert_eq!(tree.refusal(op), Some(Errno::NotDirectory));
}

#[test]
fn a_removal_of_a_directory_with_names_is_refused() {
    let mut tree = Tree::new();
    let op = Op::Change(ChangeOp::Rmdir { parent: tree.dir, name: b"full" });
    assert_eq!(tree.refusal(op), Some(Errno::NotEmpty));
}

#[test]
fn a_removal_of_a_directory_without_write_permission_is_refused() {
    let mut tree = Tree::new();
    let op = Op::Change(ChangeOp::Rmdir { parent: tree.dir, name: b"sub" });
    assert_eq!(tree.guest_refusal(op), Some(Errno::Access));
}

#[test]
fn a_removal_of_another_users_directory_in_a_sticky_directory_is_refused() {
    let mut tree = Tree::new();
    let open = tree.open;
    tree.answer(Op::Change(ChangeOp::SetAttr { ino: open, change: chmod(0o1777) })).unwrap();
    tree.dir(open, "x");
    let op = Op::Change(ChangeOp::Rmdir { parent: open, name: b"x" });
    assert_eq!(tree.guest_refusal(op), Some(Errno::NotPermitted));
}

#[test]
fn a_removal_in_an_unknown_directory_is_stale() {
    let mut tree = Tree::new();
    let op = Op::Change(ChangeOp::Rmdir { parent: NOTHING, name: b"x" });
    assert_eq!(tree.refusal(op), Some(Errno::Stale));
}

#[test]
fn the_content_of_a_removed_file_is_purged() {
    let mut tree = Tree::new();
    let (dir, file) = (tree.dir, tree.file);
    tree.answer(Op::Change(ChangeOp::Grow { ino: file, size: 10 << 20 })).unwrap();
    tree.answer(Op::Change(ChangeOp::SetData { ino: file, data: b"", size: 10 << 20 })).unwrap();
    tree.answer(Op::Change(ChangeOp::Unlink { parent: dir, name: b"file" })).unwrap();
    tree.until(|tree| tree.counted(0, "purged") == 1);
    assert_eq!(tree.counted(0, "purges_waiting"), 0);
}

#[test]
fn a_removed_file_that_is_open_is_purged_at_its_close() {
    let mut tree = Tree::new();
    let (dir, ino) = (tree.dir, tree.file);
    tree.answer(Op::Change(ChangeOp::SetData { ino, data: b"", size: 10 << 20 })).unwrap();
    tree.answer(Op::Session(SessionOp::Open { ino, write: false })).unwrap();
    tree.answer(Op::Change(ChangeOp::Unlink { parent: dir, name: b"file" })).unwrap();
    tree.pass(5000);
    assert_eq!(tree.counted(0, "purged"), 0, "the file is open");
    tree.answer(Op::Session(SessionOp::Close { ino, write: false })).unwrap();
    tree.until(|tree| tree.counted(0, "purged") == 1);
}

#[test]
fn an_open_file_without_a_name_is_not_found() {
    let mut tree = Tree::new();
    let (dir, ino) = (tree.dir, tree.file);
    tree.answer(Op::Session(SessionOp::Open { ino, write: false })).unwrap();
    tree.answer(Op::Change(ChangeOp::Unlink { parent: dir, name: b"file" })).unwrap();
    assert_eq!(tree.refusal(Op::Read(ReadOp::GetAttr { ino })), Some(Errno::NotFound));
}

#[test]
fn a_removed_name_can_be_made_again() {
    let mut tree = Tree::new();
    let (dir, before) = (tree.dir, tree.file);
    tree.answer(Op::Change(ChangeOp::Unlink { parent: dir, name: b"file" })).unwrap();
    let after = tree.file(dir, "file");
    assert!(after > before, "an inode number is given once");
    assert_eq!(tree.names(dir).len(), 4);
}

#[test]
fn the_root_is_not_removed() {
    let mut tree = Tree::new();
    let op = Op::Change(ChangeOp::Rmdir { parent: Ino::ROOT, name: b".." });
    assert_eq!(tree.answer(op), Err::<Answer, _>(Errno::Invalid));
}
