use types::{Errno, Ino, RenameFlags};
use wire::{Answer, ChangeOp, Op, ReadOp};

use crate::tests::cluster::{chmod, user};
use crate::tests::fixture::{LONG, NOTHING, Tree};

const PLAIN: RenameFlags = RenameFlags { no_replace: false, exchange: false };
const NO_REPLACE: RenameFlags = RenameFlags { no_replace: true, exchange: false };
const EXCHANGE: RenameFlags = RenameFlags { no_replace: false, exchange: true };

fn op<'a>(from: (Ino, &'a [u8]), to: (Ino, &'a [u8]), flags: RenameFlags) -> Op<'a> {
    Op::Change(ChangeOp::Rename {
        parent: from.0,
        name: from.1,
        new_parent: to.0,
        new_name: to.1,
        flags,
    })
}

/// Renames in the directory of the tree.
fn in_dir<'a>(tree: &Tree, from: &'a [u8], to: &'a [u8], flags: RenameFlags) -> Op<'a> {
    op((tree.dir, from), (tree.dir, to), flags)
}

#[test]
fn a_rename_moves_a_name() {
    let mut tree = Tree::new();
    let (dir, file) = (tree.dir, tree.file);
    let rename = in_dir(&tree, b"file", b"new", PLAIN);
    assert_eq!(tree.answer(rename), Ok(Answer::Done));
    assert_eq!(tree.lookup(dir, "new"), Ok(file));
    assert_eq!(tree.lookup(dir, "file"), Err(Errno::NotFound));
}

#[test]
fn a_rename_moves_a_directory_with_its_names() {
    let mut tree = Tree::new();
    let (dir, full, open) = (tree.dir, tree.full, tree.open);
    tree.answer(op((dir, b"full"), (open, b"full"), PLAIN)).unwrap();
    assert_eq!(tree.lookup(open, "full"), Ok(full));
    assert_eq!(tree.names(full), ["x"]);
    assert_eq!((tree.attr(dir).nlink, tree.attr(open).nlink), (3, 3));
}

#[test]
fn a_rename_replaces_a_file() {
    let mut tree = Tree::new();
    let (dir, file) = (tree.dir, tree.file);
    let other = tree.file(dir, "other");
    let rename = in_dir(&tree, b"file", b"other", PLAIN);
    tree.answer(rename).unwrap();
    assert_eq!(tree.lookup(dir, "other"), Ok(file));
    assert_eq!(tree.refusal(Op::Read(ReadOp::GetAttr { ino: other })), Some(Errno::Stale));
}

#[test]
fn a_rename_replaces_an_empty_directory() {
    let mut tree = Tree::new();
    let (dir, full) = (tree.dir, tree.full);
    let rename = in_dir(&tree, b"full", b"sub", PLAIN);
    tree.answer(rename).unwrap();
    assert_eq!(tree.lookup(dir, "sub"), Ok(full));
}

#[test]
fn a_rename_over_a_directory_with_names_is_refused() {
    let mut tree = Tree::new();
    let rename = in_dir(&tree, b"sub", b"full", PLAIN);
    assert_eq!(tree.refusal(rename), Some(Errno::NotEmpty));
}

#[test]
fn a_rename_of_a_file_over_a_directory_is_refused() {
    let mut tree = Tree::new();
    let rename = in_dir(&tree, b"file", b"sub", PLAIN);
    assert_eq!(tree.refusal(rename), Some(Errno::IsDirectory));
}

#[test]
fn a_rename_of_a_directory_over_a_file_is_refused() {
    let mut tree = Tree::new();
    let rename = in_dir(&tree, b"sub", b"file", PLAIN);
    assert_eq!(tree.refusal(rename), Some(Errno::NotDirectory));
}

#[test]
fn a_rename_that_must_not_replace_is_refused_over_a_name() {
    let mut tree = Tree::new();
    let rename = in_dir(&tree, b"file", b"link", NO_REPLACE);
    assert_eq!(tree.refusal(rename), Some(Errno::Exists));
}

#[test]
fn a_rename_that_must_not_replace_moves_to_a_free_name() {
    let mut tree = Tree::new();
    let (dir, file) = (tree.dir, tree.file);
    let rename = in_dir(&tree, b"file", b"new", NO_REPLACE);
    tree.answer(rename).unwrap();
    assert_eq!(tree.lookup(dir, "new"), Ok(file));
}

#[test]
fn an_exchange_swaps_two_names() {
    let mut tree = Tree::new();
    let (dir, file, full) = (tree.dir, tree.file, tree.full);
    let rename = in_dir(&tree, b"file", b"full", EXCHANGE);
    tree.answer(rename).unwrap();
    assert_eq!((tree.lookup(dir, "full"), tree.lookup(dir, "file")), (Ok(file), Ok(full)));
}

#[test]
fn an_exchange_with_a_missing_name_is_refused() {
    let mut tree = Tree::new();
    let rename = in_dir(&tree, b"file", b"nothing", EXCHANGE);
    assert_eq!(tree.refusal(rename), Some(Errno::NotFound));
}

#[test]
fn an_exchange_that_must_not_replace_is_refused() {
    let mut tree = Tree::new();
    let flags = RenameFlags { no_replace: true, exchange: true };
    let rename = in_dir(&tree, b"file", b"link", flags);
    assert_eq!(tree.refusal(rename), Some(Errno::Invalid));
}

#[test]
fn a_rename_of_a_missing_name_is_refused() {
    let mut tree = Tree::new();
    let rename = in_dir(&tree, b"nothing", b"new", PLAIN);
    assert_eq!(tree.refusal(rename), Some(Errno::NotFound));
}

#[test]
fn a_rename_of_a_directory_below_itself_is_refused() {
    let mut tree = Tree::new();
    let rename = op((Ino::ROOT, b"dir"), (tree.full, b"dir"), PLAIN);
    assert_eq!(tree.refusal(rename), Some(Errno::Invalid));
}

#[test]
fn a_rename_to_the_same_name_changes_nothing() {
    let mut tree = Tree::new();
    let dir = tree.dir;
    let before = tree.attr(dir);
    tree.pass(3);
    let rename = in_dir(&tree, b"file", b"file", PLAIN);
    assert_eq!(tree.answer(rename), Ok(Answer::Done));
    assert_eq!(tree.attr(dir), before);
}

#[test]
fn a_rename_into_a_file_is_refused() {
    let mut tree = Tree::new();
    let rename = op((tree.dir, b"sub"), (tree.file, b"x"), PLAIN);
    assert_eq!(tree.refusal(rename), Some(Errno::NotDirectory));
}

#[test]
fn a_rename_into_an_unknown_directory_is_stale() {
    let mut tree = Tree::new();
    let rename = op((tree.dir, b"file"), (NOTHING, b"x"), PLAIN);
    assert_eq!(tree.refusal(rename), Some(Errno::Stale));
}

#[test]
fn a_rename_without_write_permission_is_refused() {
    let mut tree = Tree::new();
    let rename = op((tree.dir, b"file"), (tree.open, b"x"), PLAIN);
    assert_eq!(tree.guest_refusal(rename), Some(Errno::Access));
}

#[test]
fn a_rename_of_another_users_directory_to_another_parent_is_refused() {
    let mut tree = Tree::new();
    let open = tree.open;
    let other = tree.make(Ino::ROOT, "other", 0o040_777);
    tree.dir(open, "theirs");
    let rename = op((open, b"theirs"), (other, b"mine"), PLAIN);
    assert_eq!(tree.guest_refusal(rename), Some(Errno::Access), "its parent would change");
}

#[test]
fn a_rename_over_another_users_file_in_a_sticky_directory_is_refused() {
    let mut tree = Tree::new();
    let open = tree.open;
    tree.answer(Op::Change(ChangeOp::SetAttr { ino: open, change: chmod(0o1777) })).unwrap();
    tree.file(open, "theirs");
    assert_eq!(tree.create_refusal(&user(7), open, b"mine"), None);
    let rename = op((open, b"mine"), (open, b"theirs"), PLAIN);
    assert_eq!(tree.guest_refusal(rename), Some(Errno::NotPermitted));
}

#[test]
fn a_rename_to_an_illegal_name_is_refused() {
    let mut tree = Tree::new();
    for name in [&b""[..], b".", b"..", b"a/b"] {
        let rename = in_dir(&tree, b"file", name, PLAIN);
        assert_eq!(tree.refusal(rename), Some(Errno::Invalid), "{name:?}");
    }
}

#[test]
fn a_rename_to_a_name_that_is_too_long_is_refused() {
    let mut tree = Tree::new();
    let rename = in_dir(&tree, b"file", &LONG, PLAIN);
    assert_eq!(tree.refusal(rename), Some(Errno::NameTooLong));
}
