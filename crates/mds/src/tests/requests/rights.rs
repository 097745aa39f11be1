//! The rights of keys with rules.

use types::{AttrChange, ClientId, Errno, Ino, RenameFlags};
use wire::{
    AdminOp, Answer, ChangeOp, JobOp, MergeFlags, NewInode, Op, RankOp, ReadOp, SessionOp,
    UnusedNumbers,
};

use crate::MdsInput;
use crate::tests::cluster::FILE;
use crate::tests::fixture::{NOTHING, Tree};
use crate::tests::transcripts::journal_of;

/// The client with the limited key.
const LIMITED: u64 = 5;

fn tree(rules: &[&str]) -> Tree {
    let mut tree = Tree::new();
    tree.connect_limited(LIMITED, 0, rules);
    tree
}

fn refusal(tree: &mut Tree, op: Op<'_>) -> Option<Errno> {
    tree.answer_to(LIMITED, op).err()
}

fn create(parent: Ino, name: &[u8]) -> Op<'_> {
    let new = NewInode { mode: FILE, ..NewInode::default() };
    Op::Change(ChangeOp::Create { parent, name, new })
}

fn lookup(parent: Ino, name: &[u8]) -> Op<'_> {
    Op::Read(ReadOp::Lookup { parent, name })
}

fn get_attr(ino: Ino) -> Op<'static> {
    Op::Read(ReadOp::GetAttr { ino })
}

fn list(dir: Ino) -> Op<'static> {
    Op::Read(ReadOp::List { dir, after: None, limit: 10, attrs: true })
}

#[test]
fn a_key_changes_only_the_subtrees_of_its_rules() {
    let mut tree = tree(&["read:/", "read,write:/dir/sub"]);
    let (dir, sub, file) = (tree.dir, tree.sub, tree.file);
    assert_eq!(refusal(&mut tree, create(sub, b"new")), None);
    assert_eq!(refusal(&mut tree, create(dir, b"new")), Some(Errno::Access));
    let change = AttrChange { mode: Some(0o600), ..AttrChange::default() };
    let chmod = |ino| Op::Change(ChangeOp::SetAttr { ino, change });
    assert_eq!(refusal(&mut tree, chmod(file)), Some(Errno::Access));
    assert_eq!(refusal(&mut tree, chmod(sub)), None);
    // A name is that of its directory: the subtree itself stays where it is.
    let rename = |parent, name, new_parent, new_name| {
        let flags = RenameFlags::default();
        Op::Change(ChangeOp::Rename { parent, name, new_parent, new_name, flags })
    };
    for (from, name, to) in [(dir, b"sub".as_slice(), sub), (sub, b"new", dir), (dir, b"file", sub)]
    {
        let refused = refusal(&mut tree, rename(from, name, to, b"x"));
        assert_eq!(refused, Some(Errno::Access), "{name:?}");
    }
    assert_eq!(refusal(&mut tree, rename(sub, b"new", sub, b"x")), None);
    // A second name in the own subtree gives no right to the file.
    let link = Op::Change(ChangeOp::Link { ino: file, parent: sub, name: b"mine" });
    assert_eq!(refusal(&mut tree, link), Some(Errno::Access));
    assert_eq!(refusal(&mut tree, Op::Session(SessionOp::Open { ino: file, write: false })), None);
    let write = Op::Session(SessionOp::Open { ino: file, write: true });
    assert_eq!(refusal(&mut tree, write), Some(Errno::Access));
}

#[test]
fn a_key_sees_the_way_to_its_subtree_and_nothing_beside_it() {
    let mut tree = tree(&["read:/dir/full"]);
    let (dir, full, file) = (tree.dir, tree.full, tree.file);
    for (parent, name) in [(Ino::ROOT, b"dir".as_slice()), (dir, b"full"), (full, b"x")] {
        assert_eq!(refusal(&mut tree, lookup(parent, name)), None, "{name:?}");
    }
    let walk = |path| Op::Read(ReadOp::Walk { base: Ino::ROOT, path });
    for path in [b"/".as_slice(), b"/dir", b"/dir/full/x"] {
        assert_eq!(refusal(&mut tree, walk(path)), None, "{path:?}");
    }
    assert_eq!(refusal(&mut tree, walk(b"/dir/file")), Some(Errno::Access));
    // Whether a name exists beside the way is not told either.
    for (parent, name) in [(dir, b"file".as_slice()), (dir, b"none"), (Ino::ROOT, b"open")] {
        assert_eq!(refusal(&mut tree, lookup(parent, name)), Some(Errno::Access), "{name:?}");
    }
    assert_eq!(refusal(&mut tree, get_attr(dir)), None);
    assert_eq!(refusal(&mut tree, get_attr(file)), Some(Errno::Access));
    assert_eq!(refusal(&mut tree, list(full)), None);
    assert_eq!(refusal(&mut tree, list(dir)), Some(Errno::Access));
    let data = Op::Read(ReadOp::GetData { ino: file });
    assert_eq!(refusal(&mut tree, data), Some(Errno::Access));
    let trash = Op::Read(ReadOp::ListTrash { after: None, limit: 10 });
    assert_eq!(refusal(&mut tree, trash), Some(Errno::Access));
    assert_eq!(refusal(&mut tree, create(full, b"new")), Some(Errno::ReadOnly));
}

#[test]
fn an_inode_that_is_not_in_memory_is_walked_to_again() {
    let mut tree = Tree::of_two_ranks();
    tree.connect_limited(LIMITED, 0, &["read,write:/dir"]);
    let dir = tree.dir;
    for op in [get_attr(NOTHING), lookup(NOTHING, b"x"), create(NOTHING, b"x"), list(NOTHING)] {
        assert_eq!(refusal(&mut tree, op), Some(Errno::Stale), "{op:?}");
    }
    // Another rank has it: its place is not known here, and a program copies.
    let open = tree.open;
    let new_parent = tree.dir(open, "below");
    tree.answer(Op::Rank(RankOp::Export { dir: open, rank: types::Rank(1) })).unwrap();
    let flags = RenameFlags::default();
    let (name, new_name) = (b"file", b"x");
    let rename = ChangeOp::Rename { parent: dir, name, new_parent, new_name, flags };
    assert_eq!(refusal(&mut tree, Op::Change(rename)), Some(Errno::CrossDevice));
}

#[test]
fn a_refusal_tells_no_path_that_the_client_did_not_state() {
    let mut tree = tree(&["read:/dir/full"]);
    let (sub, file) = (tree.sub, tree.file);
    for op in [get_attr(file), list(sub), lookup(sub, b"x"), create(sub, b"x")] {
        let tid = tree.ask(LIMITED, op);
        let Err(failure) = tree.reply(LIMITED, tid).result else { panic!("{op:?}") };
        assert!(
            !failure.text.contains("/dir/sub") && !failure.text.contains("/dir/file"),
            "{op:?}"
        );
    }
    let walk = Op::Read(ReadOp::Walk { base: Ino::ROOT, path: b"/dir/file" });
    let tid = tree.ask(LIMITED, walk);
    let Err(failure) = tree.reply(LIMITED, tid).result else { panic!("it is refused") };
    assert!(failure.text.contains("lacks read:/dir/file; it has read:/dir/full"), "{failure:?}");
}

#[test]
fn a_limited_key_takes_over_no_session() {
    let mut tree = tree(&["read,write:/dir/full"]);
    tree.connect(6);
    let (file, full) = (tree.file, tree.full);
    tree.answer_to(6, Op::Session(SessionOp::Open { ino: file, write: true })).unwrap();
    let before = tree.closed.len();
    tree.connect_limited(6, 0, &["read,write:/dir/full"]);
    assert_eq!(tree.closed[before..], [6], "the connection that said it is client 6");
    // A client comes back with its own key.
    let before = tree.closed.len();
    tree.connect_limited(LIMITED, 0, &["read,write:/dir/full"]);
    assert_eq!(refusal(&mut tree, list(full)), None);
    assert!(!tree.closed[before..].is_empty(), "its connection before ends");
}

#[test]
fn a_removed_tree_is_not_restored_into_the_own_subtree() {
    let mut tree = tree(&["read,write:/dir/sub"]);
    let sub = tree.sub;
    let restore = ChangeOp::Restore { ino: Ino(77), parent: sub, name: b"x" };
    assert_eq!(refusal(&mut tree, Op::Change(restore)), Some(Errno::Access));
}

#[test]
fn a_file_with_two_names_takes_a_right_that_every_rule_gives() {
    let write = |ino| Op::Session(SessionOp::Open { ino, write: true });
    for (rules, refused) in [
        (&["read,write:/dir/sub"][..], None),
        (&["read:/dir/full", "read,write:/dir/sub"], Some(Errno::Access)),
    ] {
        let mut tree = tree(rules);
        let (file, sub) = (tree.file, tree.sub);
        let link = ChangeOp::Link { ino: file, parent: sub, name: b"second" };
        tree.answer(Op::Change(link)).unwrap();
        assert_eq!(refusal(&mut tree, get_attr(file)), Some(Errno::Access), "not shown yet");
        assert_eq!(refusal(&mut tree, lookup(sub, b"second")), None);
        assert_eq!(refusal(&mut tree, get_attr(file)), None);
        assert_eq!(refusal(&mut tree, write(file)), refused, "{rules:?}");
    }
}

#[test]
fn an_open_file_is_read_where_others_move_it() {
    let mut tree = tree(&["read,write:/dir/full"]);
    let (full, open) = (tree.full, tree.open);
    let file = tree.lookup(full, "x").unwrap();
    assert_eq!(refusal(&mut tree, Op::Session(SessionOp::Open { ino: file, write: false })), None);
    let flags = RenameFlags::default();
    let (name, new_name) = (b"x", b"x");
    let rename = ChangeOp::Rename { parent: full, name, new_parent: open, new_name, flags };
    tree.answer(Op::Change(rename)).unwrap();
    assert_eq!(refusal(&mut tree, Op::Read(ReadOp::GetData { ino: file })), None);
    let grow = Op::Change(ChangeOp::Grow { ino: file, size: 9 });
    assert_eq!(refusal(&mut tree, grow), Some(Errno::Access), "it is open for reading");
}

#[test]
fn each_mechanism_takes_its_right() {
    let mut tree = tree(&["read,write:/", "decouple:/dir"]);
    let (dir, open) = (tree.dir, tree.open);
    let path = b"/dir".as_slice();
    let policy = ChangeOp::SetPolicy { path, policy: b"", client: ClientId(LIMITED) };
    let merge = JobOp::Merge {
        subtree: dir,
        bytes: 0,
        object: b"",
        flags: MergeFlags::default(),
        unused: UnusedNumbers::default(),
    };
    for op in [
        Op::Change(policy),
        Op::Job(merge),
        Op::Job(JobOp::TakeOver { subtree: dir }),
        Op::Job(JobOp::Adopt { subtree: dir, branch: b"b", block: false }),
        Op::Job(JobOp::Release { subtree: open, unused: UnusedNumbers::default() }),
        Op::Rank(RankOp::Split { dir }),
        Op::Admin(AdminOp::Snapshot { dir, id: 9 }),
    ] {
        assert_eq!(refusal(&mut tree, op), Some(Errno::NotPermitted), "{op:?}");
    }
    // Given the right, the operation itself decides.
    let release = JobOp::Release { subtree: dir, unused: UnusedNumbers::default() };
    assert_ne!(refusal(&mut tree, Op::Job(release)), Some(Errno::NotPermitted));
}

#[test]
fn a_key_without_the_right_to_merge_unchecked_merges_checked() {
    for (rules, rejected) in [
        (["read,write,decouple,merge:/dir"], 1),
        (["read,write,decouple,merge,merge-unchecked:/dir"], 0),
    ] {
        let mut tree = tree(&rules);
        let subtree = tree.sub;
        let policy = "consistency: append_client_journal+volatile_apply\ndurability: none\n\
                      interfere_policy: allow\ncheck: none\n";
        let (path, policy) = (b"/dir/sub".as_slice(), policy.as_bytes());
        let decouple = JobOp::Decouple { path, client: ClientId(LIMITED), policy };
        let Ok(Answer::Decoupled(given)) = tree.monitor(Op::Job(decouple)) else { panic!() };
        // Another client makes a name that the journal has, too.
        tree.file(subtree, "a");
        let bytes = journal_of(subtree, LIMITED, given.epoch, &[("a", given.range.start)]);
        let (object, unused) = (b"".as_slice(), UnusedNumbers::default());
        let flags = MergeFlags::default();
        let length = bytes.len() as u64;
        let merge = JobOp::Merge { subtree, bytes: length, object, flags, unused };
        let tid = tree.ask(LIMITED, Op::Job(merge));
        let conn = tree.conn(LIMITED, 0);
        let chunk = wire::Message::Chunk { tid, bytes: &bytes };
        tree.input(0, MdsInput::Message(conn, chunk));
        tree.settle();
        let Ok(Answer::Merged(report)) = tree.reply(LIMITED, tid).result else { panic!() };
        assert_eq!(report.rejected, rejected, "{rules:?}: {report:?}");
    }
}
