use types::{Errno, INLINE_BYTES_MAX};
use wire::{Answer, ChangeOp, Op, ReadOp, SessionOp};

use crate::tests::cluster::chmod;
use crate::tests::fixture::{NOTHING, Tree, guest};

#[test]
fn inline_content_is_replaced_with_its_length() {
    let mut tree = Tree::new();
    let ino = tree.file;
    tree.answer(Op::Change(ChangeOp::SetData { ino, data: b"longer", size: 6 })).unwrap();
    assert_eq!(
        tree.answer(Op::Read(ReadOp::GetData { ino })),
        Ok(Answer::Data(b"longer".to_vec()))
    );
    assert_eq!(tree.attr(ino).size, 6);
}

#[test]
fn content_of_a_directory_is_refused() {
    let mut tree = Tree::new();
    let op = Op::Change(ChangeOp::SetData { ino: tree.sub, data: b"x", size: 1 });
    assert_eq!(tree.refusal(op), Some(Errno::IsDirectory));
}

#[test]
fn content_of_a_symbolic_link_is_not_replaced() {
    let mut tree = Tree::new();
    let op = Op::Change(ChangeOp::SetData { ino: tree.link, data: b"x", size: 1 });
    assert_eq!(tree.refusal(op), Some(Errno::Invalid));
}

#[test]
fn content_that_is_longer_than_its_file_is_refused() {
    let mut tree = Tree::new();
    let op = Op::Change(ChangeOp::SetData { ino: tree.file, data: b"abc", size: 2 });
    assert_eq!(tree.refusal(op), Some(Errno::Invalid));
}

#[test]
fn content_that_is_too_long_to_be_inline_is_refused() {
    let mut tree = Tree::new();
    let data = vec![0; INLINE_BYTES_MAX + 1];
    let op = Op::Change(ChangeOp::SetData { ino: tree.file, data: &data, size: data.len() as u64 });
    assert_eq!(tree.refusal(op), Some(Errno::TooBig));
}

#[test]
fn content_of_a_file_that_would_be_too_long_is_refused() {
    let mut tree = Tree::new();
    let op = Op::Change(ChangeOp::SetData {
        ino: tree.file,
        data: b"",
        size: types::FILE_BYTES_MAX + 1,
    });
    assert_eq!(tree.refusal(op), Some(Errno::TooBig));
}

#[test]
fn content_without_write_permission_is_not_replaced() {
    let mut tree = Tree::new();
    let op = Op::Change(ChangeOp::SetData { ino: tree.file, data: b"x", size: 1 });
    assert_eq!(tree.guest_refusal(op), Some(Errno::Access));
}

#[test]
fn content_of_an_unknown_inode_is_not_replaced() {
    let mut tree = Tree::new();
    let op = Op::Change(ChangeOp::SetData { ino: NOTHING, data: b"x", size: 1 });
    assert_eq!(tree.refusal(op), Some(Errno::Stale));
}

fn length(answer: Result<Answer, Errno>) -> u64 {
    match answer {
        Ok(Answer::Attr(attr)) => attr.size,
        other => panic!("{other:?} has no length"),
    }
}

#[test]
fn a_file_grows_to_a_length_and_does_not_shrink() {
    let mut tree = Tree::new();
    let ino = tree.file;
    assert_eq!(length(tree.answer(Op::Change(ChangeOp::Grow { ino, size: 10 }))), 10);
    assert_eq!(length(tree.answer(Op::Change(ChangeOp::Grow { ino, size: 5 }))), 10);
}

#[test]
fn an_append_makes_a_file_longer_by_its_length() {
    let mut tree = Tree::new();
    let ino = tree.file;
    assert_eq!(length(tree.answer(Op::Change(ChangeOp::Append { ino, length: 4 }))), 7);
    assert_eq!(length(tree.answer(Op::Change(ChangeOp::Append { ino, length: 4 }))), 11);
}

#[test]
fn an_append_beyond_all_numbers_is_refused() {
    let mut tree = Tree::new();
    let op = Op::Change(ChangeOp::Append { ino: tree.file, length: u64::MAX });
    assert_eq!(tree.refusal(op), Some(Errno::TooBig));
}

#[test]
fn an_append_beyond_the_largest_file_is_refused() {
    let mut tree = Tree::new();
    let op = Op::Change(ChangeOp::Append { ino: tree.file, length: types::FILE_BYTES_MAX });
    assert_eq!(tree.refusal(op), Some(Errno::TooBig));
}

#[test]
fn a_directory_does_not_grow() {
    let mut tree = Tree::new();
    let op = Op::Change(ChangeOp::Grow { ino: tree.sub, size: 1 });
    assert_eq!(tree.refusal(op), Some(Errno::IsDirectory));
}

#[test]
fn a_file_does_not_grow_without_write_permission() {
    let mut tree = Tree::new();
    let op = Op::Change(ChangeOp::Grow { ino: tree.file, size: 10 });
    assert_eq!(tree.guest_refusal(op), Some(Errno::Access));
}

#[test]
fn a_file_that_is_open_for_writing_grows_whatever_its_mode_is() {
    let mut tree = Tree::new();
    let ino = tree.file;
    tree.answer(Op::Change(ChangeOp::SetAttr { ino, change: chmod(0o666) })).unwrap();
    tree.answer_as(&guest(), Op::Session(SessionOp::Open { ino, write: true })).unwrap();
    tree.answer(Op::Change(ChangeOp::SetAttr { ino, change: chmod(0o444) })).unwrap();
    assert_eq!(length(tree.answer_as(&guest(), Op::Change(ChangeOp::Grow { ino, size: 10 }))), 10);
}

#[test]
fn an_unknown_file_does_not_grow() {
    let mut tree = Tree::new();
    assert_eq!(
        tree.refusal(Op::Change(ChangeOp::Grow { ino: NOTHING, size: 1 })),
        Some(Errno::Stale)
    );
    assert_eq!(
        tree.refusal(Op::Change(ChangeOp::Append { ino: NOTHING, length: 1 })),
        Some(Errno::Stale)
    );
}

#[test]
fn a_repeated_append_makes_a_file_longer_once() {
    let mut tree = Tree::new();
    let ino = tree.file;
    let tid = tree.tid();
    let op = Op::Change(ChangeOp::Append { ino, length: 4 });
    let request = wire::Request::new(tid, types::Tid(0), types::Cred::root(), op);
    for _ in 0..2 {
        tree.replies.remove(&(1, tid));
        tree.send(1, 0, request.clone());
        assert_eq!(length(tree.reply(1, tid).result.map_err(|failure| failure.errno)), 7);
    }
    assert_eq!(tree.attr(ino).size, 7);
}
