//! Watchers: which changes a rank reports, to which user, and for how long.

use types::{AttrChange, Cred, Epoch, Errno, Ino, Rank, RenameFlags};
use wire::{
    Answer, ChangeKind, ChangeOp, Failure, NewInode, Op, RankOp, ReadOp, WatchPage, WatchPoint,
};

use crate::Settings;
use crate::tests::cluster::{Cluster, FILE, chmod, user};
use crate::tests::fixture::{Tree, guest, set_list};
use crate::watch::{WATCHERS_MAX, WATCHERS_OF_USER};

fn watch(path: &str, after: Option<WatchPoint>, wait: u32) -> Op<'_> {
    Op::Read(ReadOp::Watch { path: path.as_bytes(), after, wait })
}

fn ask(tree: &mut Cluster, cred: &Cred, path: &str, after: Option<WatchPoint>) -> WatchPage {
    match tree.answer_as(cred, watch(path, after, 0)) {
        Ok(Answer::Watched(page)) => *page,
        other => panic!("{other:?} is no page"),
    }
}

fn begin(tree: &mut Cluster, cred: &Cred, path: &str) -> WatchPoint {
    let page = ask(tree, cred, path, None);
    assert!(page.changes.is_empty() && !page.lost, "{page:?}");
    page.next
}

/// The kinds and paths of the changes behind a point.
fn lines(tree: &mut Cluster, cred: &Cred, path: &str, after: WatchPoint) -> Vec<String> {
    let page = ask(tree, cred, path, Some(after));
    assert!(!page.lost, "{page:?}");
    let shown = |name: &wire::ChangedName| String::from_utf8(name.path.clone()).unwrap();
    let line = |change: &wire::WatchedChange| {
        let at = change.at.as_ref().map_or_else(|| "?".to_owned(), shown);
        let to = change.to.as_ref().map_or_else(String::new, |to| format!(" {}", shown(to)));
        format!("{} {at}{to}", change.kind.name())
    };
    page.changes.iter().map(|(_, change)| line(change)).collect()
}

fn rename(from: (Ino, &'static str), to: (Ino, &'static str)) -> Op<'static> {
    let ((parent, name), (new_parent, new_name)) = (from, to);
    let (name, new_name) = (name.as_bytes(), new_name.as_bytes());
    let flags = RenameFlags::default();
    Op::Change(ChangeOp::Rename { parent, name, new_parent, new_name, flags })
}

#[test]
fn each_change_is_reported_once_with_its_path_at_that_time() {
    let mut tree = Tree::new();
    let (dir, file, sub, root) = (tree.dir, tree.file, tree.sub, Cred::root());
    let start = begin(&mut tree, &root, "/dir");
    let new = tree.file(sub, "new");
    tree.answer(Op::Change(ChangeOp::SetData { ino: new, data: b"ab", size: 2 })).unwrap();
    tree.answer(rename((dir, "sub"), (dir, "moved"))).unwrap();
    tree.answer(Op::Change(ChangeOp::SetAttr { ino: new, change: chmod(0o600) })).unwrap();
    let longer = AttrChange { size: Some(9), ..AttrChange::default() };
    tree.answer(Op::Change(ChangeOp::SetAttr { ino: new, change: longer })).unwrap();
    tree.answer(set_list(file, b"user.x", Some(b"1"))).unwrap();
    tree.answer(set_list(file, b"user.x", None)).unwrap();
    tree.answer(Op::Change(ChangeOp::Unlink { parent: sub, name: b"new" })).unwrap();
    tree.answer(Op::Change(ChangeOp::Rmdir { parent: dir, name: b"moved" })).unwrap();
    tree.set_policy("/dir", "consistency: rpcs\ndurability: stream\n").unwrap();
    tree.dir(Ino::ROOT, "beside");
    let expected = [
        "create /dir/sub/new",
        "content /dir/sub/new",
        "rename /dir/sub /dir/moved",
        "setattr /dir/moved/new",
        "content /dir/moved/new",
        "setxattr /dir/file",
        "removexattr /dir/file",
        "unlink /dir/moved/new",
        "rmdir /dir/moved",
        "policy /dir",
    ];
    assert_eq!(lines(&mut tree, &root, "/dir", start), expected);
    // From any position in between, the rest.
    let page = ask(&mut tree, &root, "/dir", Some(start));
    for (at, (number, change)) in page.changes.iter().enumerate() {
        assert_ne!((change.time.0, change.ino), (0, Ino(0)), "{change:?}");
        let behind = WatchPoint { next: number + 1, ..start };
        assert_eq!(lines(&mut tree, &root, "/dir", behind), expected[at + 1..]);
    }
}

#[test]
fn a_name_that_leaves_the_path_or_comes_is_half_a_rename() {
    let mut tree = Tree::new();
    let (dir, sub, root) = (tree.dir, tree.sub, Cred::root());
    let start = begin(&mut tree, &root, "/dir/sub");
    tree.answer(rename((dir, "file"), (sub, "file"))).unwrap();
    tree.answer(rename((sub, "file"), (dir, "back"))).unwrap();
    // A directory above the watched one moves.
    tree.answer(rename((Ino::ROOT, "dir"), (Ino::ROOT, "other"))).unwrap();
    tree.file(sub, "unseen");
    let expected = ["moved_to /dir/sub/file", "moved_from /dir/sub/file", "moved_from /dir"];
    assert_eq!(lines(&mut tree, &root, "/dir/sub", start), expected);
}

#[test]
fn a_user_sees_no_name_of_a_directory_that_the_user_may_not_list() {
    let mut tree = Tree::new();
    let (dir, sub, full, open) = (tree.dir, tree.sub, tree.full, tree.open);
    let start = begin(&mut tree, &guest(), "/");
    let set = |ino, mode| Op::Change(ChangeOp::SetAttr { ino, change: chmod(mode) });
    tree.answer(set(sub, 0o711)).unwrap();
    tree.file(sub, "unlisted");
    let deep = tree.dir(sub, "unlisted-dir");
    tree.file(deep, "reached");
    tree.answer(set(full, 0o700)).unwrap();
    tree.file(full, "secret");
    tree.answer(rename((full, "x"), (open, "shown"))).unwrap();
    tree.answer(rename((open, "shown"), (full, "secret2"))).unwrap();
    tree.answer(rename((full, "secret"), (full, "secret3"))).unwrap();
    // A name that was hidden at the change stays hidden.
    tree.answer(set(full, 0o755)).unwrap();
    tree.file(full, "public");
    tree.file(dir, "after");
    let expected = [
        "setattr /dir/sub",
        "create /dir/sub/unlisted-dir/reached",
        "setattr /dir/full",
        "moved_to /open/shown",
        "moved_from /open/shown",
        "setattr /dir/full",
        "create /dir/full/public",
        "create /dir/after",
    ];
    assert_eq!(lines(&mut tree, &guest(), "/", start), expected);
}

#[test]
fn the_position_of_one_user_or_path_shows_another_one_nothing() {
    let mut tree = Tree::new();
    let start = begin(&mut tree, &Cred::root(), "/");
    let dir = tree.dir;
    tree.file(dir, "a");
    for (cred, path) in [(guest(), "/"), (user(8), "/"), (Cred::root(), "/dir")] {
        let page = ask(&mut tree, &cred, path, Some(start));
        assert!(page.lost && page.changes.is_empty(), "{path} {cred:?}");
        assert!(page.next.next > start.next, "it goes on from now");
        assert_eq!(lines(&mut tree, &cred, path, page.next), [""; 0]);
    }
}

#[test]
fn a_key_watches_only_where_it_may_read() {
    let mut tree = Tree::new();
    tree.connect_limited(5, 0, &["read:/dir/sub", "write:/open"]);
    let errno = |tree: &mut Tree, path| tree.answer_to(5, watch(path, None, 0)).err();
    assert_eq!(errno(&mut tree, "/dir/sub"), None);
    for path in ["/", "/dir", "/dir/subway", "/open", "/nothing"] {
        assert!(errno(&mut tree, path).is_some(), "{path}");
    }
}

#[test]
fn a_request_waits_for_a_change_and_not_for_ever() {
    let mut tree = Tree::new();
    let (dir, root) = (tree.dir, Cred::root());
    let start = begin(&mut tree, &root, "/dir");
    let tid = tree.ask(1, watch("/dir", Some(start), 1000));
    tree.dir(Ino::ROOT, "beside");
    tree.pass(5);
    assert!(!tree.is_answered(1, tid), "that change is none of this watcher's");
    tree.file(dir, "a");
    assert!(!tree.mds(0).is_quiet(), "the next tick comes soon");
    tree.pass(2);
    let Ok(Answer::Watched(page)) = tree.reply(1, tid).result else { panic!("no page") };
    assert_eq!(page.changes.len(), 1);
    let tid = tree.ask(1, watch("/dir", Some(page.next), 1000));
    tree.pass(999);
    assert!(!tree.is_answered(1, tid));
    tree.pass(2);
    let Ok(Answer::Watched(page)) = tree.reply(1, tid).result else { panic!("no page") };
    assert!(page.changes.is_empty() && !page.lost);
}

#[test]
fn nothing_is_kept_without_a_watcher_nor_after_its_time() {
    let mut tree = Tree::on(Cluster::with(
        Settings { watch: types::Span::from_millis(50), ..Settings::default() },
        1,
    ));
    let (dir, root) = (tree.dir, Cred::root());
    tree.file(dir, "before");
    assert_eq!((tree.counted(0, "watchers"), tree.counted(0, "watched_bytes")), (0, 0));
    let start = begin(&mut tree, &root, "/dir");
    tree.file(dir, "kept");
    assert_eq!(tree.counted(0, "watchers"), 1);
    assert!(tree.counted(0, "watched_bytes") > 0);
    tree.pass(40);
    assert_eq!(lines(&mut tree, &root, "/dir", start), ["create /dir/kept"]);
    tree.pass(60);
    assert_eq!((tree.counted(0, "watchers"), tree.counted(0, "watched_bytes")), (0, 0));
    assert!(ask(&mut tree, &root, "/dir", Some(start)).lost);
}

#[test]
fn a_slow_watcher_learns_of_its_loss_and_one_that_missed_nothing_loses_nothing() {
    let mut tree =
        Tree::on(Cluster::with(Settings { watch_bytes: 2000, ..Settings::default() }, 1));
    let (dir, open, root) = (tree.dir, tree.open, Cred::root());
    let (loud, quiet) = (begin(&mut tree, &root, "/dir"), begin(&mut tree, &root, "/open"));
    for number in 0..50 {
        tree.file(dir, &format!("file{number}"));
        assert!(tree.counted(0, "watched_bytes") <= 2000);
    }
    let page = ask(&mut tree, &root, "/dir", Some(loud));
    assert!(page.lost && page.changes.is_empty());
    tree.file(dir, "next");
    assert_eq!(lines(&mut tree, &root, "/dir", page.next), ["create /dir/next"]);
    tree.file(open, "a");
    assert_eq!(lines(&mut tree, &root, "/open", quiet), ["create /open/a"]);
}

#[test]
fn a_restarted_server_reports_the_loss() {
    let mut tree = Tree::new();
    let start = begin(&mut tree, &Cred::root(), "/");
    tree.crash(0);
    tree.start(0);
    tree.connect(1);
    tree.until(|tree| tree.mds(0).is_active());
    let page = ask(&mut tree, &Cred::root(), "/", Some(start));
    assert!(page.lost && page.next.term > start.term, "{page:?}");
    let invented = WatchPoint { next: 1 << 60, ..page.next };
    assert!(ask(&mut tree, &Cred::root(), "/", Some(invented)).lost);
    let other = WatchPoint { term: Epoch(0), next: 0 };
    assert!(ask(&mut tree, &Cred::root(), "/", Some(other)).lost);
}

#[test]
fn an_inode_with_several_names_has_no_path_and_only_root_sees_its_changes() {
    let mut tree = Tree::new();
    let (dir, file, root) = (tree.dir, tree.file, Cred::root());
    tree.answer(Op::Change(ChangeOp::Link { ino: file, parent: dir, name: b"more" })).unwrap();
    let (start, other) = (begin(&mut tree, &root, "/open"), begin(&mut tree, &guest(), "/"));
    tree.answer(Op::Change(ChangeOp::SetAttr { ino: file, change: chmod(0o600) })).unwrap();
    assert_eq!(lines(&mut tree, &root, "/open", start), ["setattr ?"]);
    assert_eq!(lines(&mut tree, &guest(), "/", other), [""; 0]);
    tree.answer(Op::Change(ChangeOp::Unlink { parent: dir, name: b"more" })).unwrap();
    assert_eq!(lines(&mut tree, &guest(), "/", other), ["unlink /dir/more"]);
}

#[test]
fn an_open_file_without_a_name_has_no_line() {
    let mut tree = Tree::new();
    let (dir, root) = (tree.dir, Cred::root());
    let new = NewInode { mode: FILE, open: true, ..NewInode::default() };
    let op = Op::Change(ChangeOp::Create { parent: dir, name: b"open", new });
    let Ok(Answer::Attr(attr)) = tree.answer(op) else { panic!("no file") };
    let start = begin(&mut tree, &root, "/");
    tree.answer(Op::Change(ChangeOp::Unlink { parent: dir, name: b"open" })).unwrap();
    // Its holder keeps it by the handle alone.
    let grow = tree.answer(Op::Change(ChangeOp::Grow { ino: attr.ino, size: 9 }));
    assert_eq!(grow.err(), Some(Errno::NotFound));
    assert_eq!(lines(&mut tree, &root, "/", start), ["unlink /dir/open"]);
}

#[test]
fn a_tree_removed_at_once_is_one_line_and_its_names_have_none() {
    let mut tree = Tree::new();
    tree.set_policy("/", "consistency: rpcs\ndurability: stream\ntrash: 1h\n").unwrap();
    let (full, root) = (tree.full, Cred::root());
    let start = begin(&mut tree, &root, "/");
    let op = Op::Change(ChangeOp::Discard { parent: Ino::ROOT, name: b"dir" });
    let ino = tree.dir;
    tree.answer(op).unwrap();
    assert_eq!(lines(&mut tree, &root, "/", start), ["remove_tree /dir"]);
    let op = Op::Change(ChangeOp::Restore { ino, parent: Ino::ROOT, name: b"again" });
    tree.answer(op).unwrap();
    tree.file(full, "y");
    let op = Op::Change(ChangeOp::Discard { parent: Ino::ROOT, name: b"again" });
    tree.answer(op).unwrap();
    tree.answer(Op::Change(ChangeOp::EmptyTrash { ino })).unwrap();
    tree.until(|tree| tree.mds(0).trash.is_empty());
    let expected =
        ["remove_tree /dir", "restore /again", "create /again/full/y", "remove_tree /again"];
    assert_eq!(lines(&mut tree, &root, "/", start), expected);
}

#[test]
fn there_are_as_many_watchers_as_bits_and_no_user_has_all() {
    let mut tree = Tree::new();
    for number in 0..WATCHERS_OF_USER {
        begin(&mut tree, &guest(), &format!("/{number}"));
    }
    assert_eq!(tree.answer_as(&guest(), watch("/more", None, 0)).err(), Some(Errno::Busy));
    for number in WATCHERS_OF_USER..WATCHERS_MAX {
        begin(&mut tree, &Cred::root(), &format!("/{number}"));
    }
    let more = tree.answer(watch("/more", None, 0)).err();
    assert_eq!(more, Some(Errno::Busy));
    begin(&mut tree, &guest(), "/7");
}

#[test]
fn users_together_leave_places_for_root() {
    let mut tree = Tree::new();
    for number in 0..WATCHERS_MAX - WATCHERS_OF_USER {
        let user = user(100 + u32::try_from(number % 4).unwrap());
        begin(&mut tree, &user, &format!("/{number}"));
    }
    assert_eq!(tree.answer_as(&user(200), watch("/more", None, 0)).err(), Some(Errno::Busy));
    for number in 0..WATCHERS_OF_USER {
        begin(&mut tree, &Cred::root(), &format!("/{number}"));
    }
}

#[test]
fn a_moved_subtree_is_marked_on_both_ranks_and_judged_for_root_only() {
    let mut cluster = Cluster::with(Settings::default(), 2);
    cluster.connect(1);
    cluster.connect_to(1, 1, Epoch(0), 0);
    let dir = cluster.dir(Ino::ROOT, "dir");
    let ask_at = |cluster: &mut Cluster, rank, cred: &Cred, after| {
        let tid = cluster.tid();
        let op = watch("/", after, 0);
        let request = wire::Request::new(tid, types::Tid(tid.0 - 1), cred.clone(), op);
        cluster.send(1, rank, request);
        match cluster.reply(1, tid).result {
            Ok(Answer::Watched(page)) => Ok(*page),
            Ok(other) => panic!("{other:?} is no page"),
            Err(Failure { errno, .. }) => Err(errno),
        }
    };
    let root = Cred::root();
    let starts = [0, 1].map(|rank| ask_at(&mut cluster, rank, &root, None).unwrap().next);
    let guests = ask_at(&mut cluster, 1, &guest(), None).unwrap().next;
    cluster.file(dir, "before");
    cluster.answer(Op::Rank(RankOp::Export { dir, rank: Rank(1) })).unwrap();
    cluster.until(|cluster| cluster.mds(1).serves(dir));
    let new = NewInode { mode: FILE, ..NewInode::default() };
    let op = Op::Change(ChangeOp::Create { parent: dir, name: b"after", new });
    let tid = cluster.tid();
    cluster.send(1, 1, wire::Request::new(tid, types::Tid(tid.0 - 1), root.clone(), op));
    cluster.reply(1, tid).result.unwrap();
    let page = ask_at(&mut cluster, 0, &root, Some(starts[0])).unwrap();
    let kinds: Vec<_> = page.changes.iter().map(|(_, change)| change.kind).collect();
    assert_eq!(kinds, [ChangeKind::Create, ChangeKind::Departed]);
    let moved = (page.changes[1].1.ino, page.changes[1].1.number);
    let page = ask_at(&mut cluster, 1, &root, Some(starts[1])).unwrap();
    assert!(page.serves);
    let [(_, arrival), (_, create)] = &page.changes[..] else { panic!("{page:?}") };
    assert_eq!((arrival.kind, (arrival.ino, arrival.number)), (ChangeKind::Arrived, moved));
    assert_eq!(create.at.as_ref().map(|at| &at.path[..]), Some(&b"/dir/after"[..]));
    let blind = ask_at(&mut cluster, 1, &guest(), Some(guests));
    assert_eq!(blind, Err(Errno::Access));
}
