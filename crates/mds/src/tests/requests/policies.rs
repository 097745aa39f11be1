use types::{ClientId, Errno, Ino};
use wire::{Answer, ChangeOp, Op, ReadOp};

use crate::tests::fixture::{Tree, guest};

const SAFE: &str = "consistency: rpcs\ndurability: stream\nack: safe\n";
const VOLATILE: &str = "consistency: rpcs\ndurability: none\n";

fn source(tree: &mut Tree, dir: Ino) -> Ino {
    match tree.answer(Op::Read(ReadOp::GetPolicy { dir })) {
        Ok(Answer::Policy(policy)) => policy.source,
        other => panic!("{other:?} is no policy"),
    }
}

#[test]
fn a_policy_is_in_force_for_everything_below() {
    let mut tree = Tree::new();
    let (dir, sub, open) = (tree.dir, tree.sub, tree.open);
    tree.set_policy("/dir", SAFE).unwrap();
    assert_eq!((source(&mut tree, sub), source(&mut tree, open)), (dir, Ino(0)));
}

#[test]
fn the_nearest_policy_is_in_force() {
    let mut tree = Tree::new();
    let sub = tree.sub;
    tree.set_policy("/dir", SAFE).unwrap();
    tree.set_policy("/dir/sub", VOLATILE).unwrap();
    assert_eq!(source(&mut tree, sub), sub);
}

#[test]
fn a_removed_policy_is_not_in_force() {
    let mut tree = Tree::new();
    let dir = tree.dir;
    tree.set_policy("/dir", SAFE).unwrap();
    tree.set_policy("/dir", "").unwrap();
    assert_eq!(source(&mut tree, dir), Ino(0));
}

#[test]
fn a_missing_policy_is_not_removed() {
    let mut tree = Tree::new();
    assert_eq!(tree.set_policy("/dir", ""), Err(Errno::NoData));
}

#[test]
fn a_text_that_is_no_policy_is_refused() {
    let mut tree = Tree::new();
    assert_eq!(tree.set_policy("/dir", "nonsense: 1\n"), Err(Errno::Invalid));
}

#[test]
fn a_policy_of_a_missing_directory_is_refused() {
    let mut tree = Tree::new();
    assert_eq!(tree.set_policy("/nothing", SAFE), Err(Errno::NotFound));
}

#[test]
fn a_policy_of_a_file_is_refused() {
    let mut tree = Tree::new();
    assert_eq!(tree.set_policy("/dir/file", SAFE), Err(Errno::NotDirectory));
}

#[test]
fn a_policy_of_another_users_directory_is_refused() {
    let mut tree = Tree::new();
    let (path, policy, client) = (&b"/dir"[..], SAFE.as_bytes(), ClientId(0));
    let op = Op::Change(ChangeOp::SetPolicy { path, policy, client });
    assert_eq!(tree.answer_as(&guest(), op), Err(Errno::NotPermitted));
}

#[test]
fn a_policy_with_a_pool_without_its_number_is_refused() {
    let mut tree = Tree::new();
    let policy = "consistency: rpcs\ndurability: stream\ndata_pool: fast\n";
    assert_eq!(tree.set_policy("/dir", policy), Err(Errno::Invalid));
}

#[test]
fn a_change_under_a_safe_policy_is_answered_when_it_is_durable() {
    let mut tree = Tree::new();
    let dir = tree.dir;
    tree.set_policy("/dir", SAFE).unwrap();
    tree.pass(20);
    tree.holds = |op| matches!(op, metastore::request::StoreOp::Append { .. });
    let tid = tree.ask(1, Op::Change(ChangeOp::Unlink { parent: dir, name: b"file" }));
    tree.pass(20);
    assert!(!tree.is_answered(1, tid));
    tree.let_go();
    let reply = tree.reply(1, tid);
    assert!(reply.result.is_ok() && reply.seq <= reply.safe);
}

#[test]
fn a_change_under_a_volatile_policy_is_not_journalled() {
    let mut tree = Tree::new();
    let dir = tree.dir;
    tree.set_policy("/dir", VOLATILE).unwrap();
    tree.pass(20);
    let before = tree.counted(0, "journal_last");
    let tid = tree.ask(1, Op::Change(ChangeOp::Unlink { parent: dir, name: b"file" }));
    assert_eq!(tree.reply(1, tid).seq, types::Seq(0));
    assert_eq!(tree.counted(0, "journal_last"), before);
}

#[test]
fn a_rename_into_a_journalled_directory_is_journalled() {
    let mut tree = Tree::new();
    let (dir, open) = (tree.dir, tree.open);
    tree.set_policy("/dir", VOLATILE).unwrap();
    let (name, flags) = (&b"file"[..], Default::default());
    let op =
        Op::Change(ChangeOp::Rename { parent: dir, name, new_parent: open, new_name: name, flags });
    let tid = tree.ask(1, op);
    assert!(tree.reply(1, tid).seq.0 > 0);
}

#[test]
fn a_stricter_policy_is_answered_when_the_store_has_the_directory() {
    let mut tree = Tree::new();
    let dir = tree.dir;
    tree.set_policy("/dir", VOLATILE).unwrap();
    tree.file(dir, "in-memory");
    assert!(!tree.store.names_in(dir).contains(&"in-memory".to_owned()));
    tree.set_policy("/dir", SAFE).unwrap();
    assert!(tree.store.names_in(dir).contains(&"in-memory".to_owned()));
}

#[test]
fn a_policy_says_where_the_entries_of_a_directory_are() {
    use wire::StateStorage;
    let mut tree = Tree::new();
    let dir = tree.dir;
    let kept = |tree: &mut Tree| match tree.answer(Op::Read(ReadOp::GetPolicy { dir })) {
        Ok(Answer::Policy(policy)) => policy.storage,
        other => panic!("{other:?} is no policy"),
    };
    tree.checkpoint();
    assert_eq!(kept(&mut tree), StateStorage::Stored);
    tree.file(dir, "a");
    assert_eq!(kept(&mut tree), StateStorage::Applied);
    tree.pass(20);
    assert_eq!(kept(&mut tree), StateStorage::Journalled);
    tree.set_policy("/dir", VOLATILE).unwrap();
    tree.file(dir, "b");
    assert_eq!(kept(&mut tree), StateStorage::Memory);
}
