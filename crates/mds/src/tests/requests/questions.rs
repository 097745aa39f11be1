use types::{Errno, Ino};
use wire::{Answer, ChangeOp, Op, ReadOp, SessionOp};

use crate::tests::cluster::chmod;
use crate::tests::fixture::{LONG, NOTHING, Tree};

fn walk(tree: &mut Tree, base: Ino, path: &[u8]) -> Result<(Ino, Option<Ino>), Errno> {
    match tree.answer(Op::Read(ReadOp::Walk { base, path }))? {
        Answer::Walked { parent, attr } => Ok((parent, attr.map(|attr| attr.ino))),
        other => panic!("{other:?} is no answer to a walk"),
    }
}

#[test]
fn a_lookup_finds_the_inode_of_a_name() {
    let mut tree = Tree::new();
    let (dir, file) = (tree.dir, tree.file);
    assert_eq!(tree.lookup(dir, "file"), Ok(file));
}

#[test]
fn a_lookup_of_a_missing_name_is_refused() {
    let mut tree = Tree::new();
    let dir = tree.dir;
    assert_eq!(tree.lookup(dir, "nothing"), Err(Errno::NotFound));
}

#[test]
fn a_lookup_in_a_file_is_refused() {
    let mut tree = Tree::new();
    let file = tree.file;
    assert_eq!(tree.lookup(file, "x"), Err(Errno::NotDirectory));
}

#[test]
fn a_lookup_in_an_unknown_directory_is_stale() {
    let mut tree = Tree::new();
    assert_eq!(tree.lookup(NOTHING, "x"), Err(Errno::Stale));
}

#[test]
fn a_lookup_without_search_permission_is_refused() {
    let mut tree = Tree::new();
    let dir = tree.dir;
    tree.answer(Op::Change(ChangeOp::SetAttr { ino: dir, change: chmod(0o744) })).unwrap();
    let refusal = tree.guest_refusal(Op::Read(ReadOp::Lookup { parent: dir, name: b"file" }));
    assert_eq!(refusal, Some(Errno::Access));
}

#[test]
fn a_lookup_of_an_illegal_name_is_refused() {
    let mut tree = Tree::new();
    let parent = tree.dir;
    for name in [&b""[..], b".", b"..", b"a/b", b"a\0"] {
        assert_eq!(
            tree.refusal(Op::Read(ReadOp::Lookup { parent, name })),
            Some(Errno::Invalid),
            "{name:?}"
        );
    }
}

#[test]
fn a_lookup_of_a_name_that_is_too_long_is_refused() {
    let mut tree = Tree::new();
    let parent = tree.dir;
    let refusal = tree.refusal(Op::Read(ReadOp::Lookup { parent, name: &LONG }));
    assert_eq!(refusal, Some(Errno::NameTooLong));
}

#[test]
fn a_walk_ends_at_the_inode_of_a_path() {
    let mut tree = Tree::new();
    let full = tree.full;
    let x = tree.lookup(full, "x");
    assert_eq!(walk(&mut tree, Ino::ROOT, b"/dir/full/x"), Ok((full, x.ok())));
}

#[test]
fn a_walk_begins_in_any_directory() {
    let mut tree = Tree::new();
    let (dir, sub) = (tree.dir, tree.sub);
    assert_eq!(walk(&mut tree, dir, b"sub"), Ok((dir, Some(sub))));
}

#[test]
fn a_walk_to_the_root_ends_at_the_root() {
    let mut tree = Tree::new();
    assert_eq!(walk(&mut tree, Ino::ROOT, b"/"), Ok((Ino::ROOT, Some(Ino::ROOT))));
}

#[test]
fn a_walk_to_a_missing_last_name_returns_its_directory() {
    let mut tree = Tree::new();
    let dir = tree.dir;
    assert_eq!(walk(&mut tree, Ino::ROOT, b"/dir/nothing"), Ok((dir, None)));
}

#[test]
fn a_walk_through_a_missing_name_is_refused() {
    let mut tree = Tree::new();
    assert_eq!(walk(&mut tree, Ino::ROOT, b"/nothing/x"), Err(Errno::NotFound));
}

#[test]
fn a_walk_through_a_file_is_refused() {
    let mut tree = Tree::new();
    assert_eq!(walk(&mut tree, Ino::ROOT, b"/dir/file/x"), Err(Errno::NotDirectory));
}

#[test]
fn a_walk_up_is_refused() {
    let mut tree = Tree::new();
    assert_eq!(walk(&mut tree, Ino::ROOT, b"/dir/../dir"), Err(Errno::Invalid));
}

#[test]
fn a_walk_through_a_closed_directory_is_refused() {
    let mut tree = Tree::new();
    let dir = tree.dir;
    tree.answer(Op::Change(ChangeOp::SetAttr { ino: dir, change: chmod(0o700) })).unwrap();
    let refusal = tree.guest_refusal(Op::Read(ReadOp::Walk { base: Ino::ROOT, path: b"/dir/sub" }));
    assert_eq!(refusal, Some(Errno::Access));
}

#[test]
fn the_attributes_of_a_directory_count_its_names() {
    let mut tree = Tree::new();
    let dir = tree.dir;
    let attr = tree.attr(dir);
    assert_eq!((attr.size, attr.nlink), (4, 4), "four names, two of them directories");
}

#[test]
fn the_attributes_of_an_unknown_inode_are_stale() {
    let mut tree = Tree::new();
    assert_eq!(tree.refusal(Op::Read(ReadOp::GetAttr { ino: NOTHING })), Some(Errno::Stale));
}

#[test]
fn the_content_of_a_small_file_is_returned() {
    let mut tree = Tree::new();
    let ino = tree.file;
    assert_eq!(tree.answer(Op::Read(ReadOp::GetData { ino })), Ok(Answer::Data(b"abc".to_vec())));
}

#[test]
fn the_target_of_a_symbolic_link_is_returned() {
    let mut tree = Tree::new();
    let ino = tree.link;
    assert_eq!(tree.answer(Op::Read(ReadOp::GetData { ino })), Ok(Answer::Data(b"file".to_vec())));
}

#[test]
fn content_without_read_permission_is_refused() {
    let mut tree = Tree::new();
    let ino = tree.file;
    tree.answer(Op::Change(ChangeOp::SetAttr { ino, change: chmod(0o600) })).unwrap();
    assert_eq!(tree.guest_refusal(Op::Read(ReadOp::GetData { ino })), Some(Errno::Access));
}

#[test]
fn the_content_of_an_unknown_inode_is_stale() {
    let mut tree = Tree::new();
    assert_eq!(tree.refusal(Op::Read(ReadOp::GetData { ino: NOTHING })), Some(Errno::Stale));
}

#[test]
fn a_listing_has_each_name_once() {
    let mut tree = Tree::new();
    let dir = tree.dir;
    assert_eq!(tree.names(dir), ["file", "full", "link", "sub"]);
}

#[test]
fn a_listing_continues_behind_a_name() {
    let mut tree = Tree::new();
    let dir = tree.dir;
    let mut found = Vec::new();
    let mut after: Option<Vec<u8>> = None;
    loop {
        let op = Op::Read(ReadOp::List { dir, after: after.as_deref(), limit: 1, attrs: true });
        let Ok(Answer::Entries { entries, more }) = tree.answer(op) else { panic!() };
        assert!(entries.len() <= 1, "a listing has no more names than asked for");
        found.extend(entries.into_iter().map(|(name, _)| name));
        after = found.last().cloned();
        if !more {
            break;
        }
    }
    found.sort_unstable();
    assert_eq!(found, [&b"file"[..], b"full", b"link", b"sub"]);
}

#[test]
fn a_listing_of_an_empty_directory_is_empty() {
    let mut tree = Tree::new();
    let sub = tree.sub;
    assert!(tree.names(sub).is_empty());
}

#[test]
fn a_listing_of_a_file_is_refused() {
    let mut tree = Tree::new();
    let dir = tree.file;
    let op = Op::Read(ReadOp::List { dir, after: None, limit: 1, attrs: false });
    assert_eq!(tree.refusal(op), Some(Errno::NotDirectory));
}

#[test]
fn a_listing_without_read_permission_is_refused() {
    let mut tree = Tree::new();
    let dir = tree.dir;
    tree.answer(Op::Change(ChangeOp::SetAttr { ino: dir, change: chmod(0o711) })).unwrap();
    let op = Op::Read(ReadOp::List { dir, after: None, limit: 1, attrs: false });
    assert_eq!(tree.guest_refusal(op), Some(Errno::Access));
}

#[test]
fn a_listing_of_an_unknown_directory_is_stale() {
    let mut tree = Tree::new();
    let op = Op::Read(ReadOp::List { dir: NOTHING, after: None, limit: 1, attrs: false });
    assert_eq!(tree.refusal(op), Some(Errno::Stale));
}

#[test]
fn the_default_policy_has_no_source() {
    let mut tree = Tree::new();
    let dir = tree.dir;
    let Ok(Answer::Policy(policy)) = tree.answer(Op::Read(ReadOp::GetPolicy { dir })) else {
        panic!()
    };
    assert_eq!((policy.policy.as_str(), policy.source), ("", Ino(0)));
}

#[test]
fn the_policy_of_an_unknown_directory_is_stale() {
    let mut tree = Tree::new();
    assert_eq!(tree.refusal(Op::Read(ReadOp::GetPolicy { dir: NOTHING })), Some(Errno::Stale));
}

#[test]
fn an_inode_that_no_client_holds_is_held_by_no_client() {
    let mut tree = Tree::new();
    let ino = tree.dir;
    let nobody = 0_u64.to_le_bytes().to_vec();
    assert_eq!(tree.answer(Op::Session(SessionOp::Held { ino })), Ok(Answer::Data(nobody)));
}
