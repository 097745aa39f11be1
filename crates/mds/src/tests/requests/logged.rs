//! The log of requests of a user. Forged, it changes nothing that the user may not change; repeated
//! after a crash, it undoes nothing that the rank's own journal has.

use journal::{Create, Event, InodeSnapshot};
use types::{Attr, AttrChange, ClientId, Cred, Ino, RenameFlags, Timestamp};
use wire::{Answer, ChangeOp, JobOp, MergeFlags, MergeReport, Message, Op, ReadOp, UnusedNumbers};

use crate::MdsInput;
use crate::tests::cluster::{DIR, FILE, chmod, user};
use crate::tests::fixture::{Tree, guest, log_of};

/// Strong consistency with local durability.
const LOGS: &str = "consistency: rpcs+local_persist\n";
const TIME: Timestamp = Timestamp(5);
/// Later than all that happens in a test.
const FUTURE: Timestamp = Timestamp(i64::MAX / 2);

/// Client 1 merges a log of a user.
fn merge(tree: &mut Tree, cred: &Cred, events: &[Event<'_>]) -> MergeReport {
    let subtree = tree.open;
    let bytes = log_of(ClientId(1), subtree, events);
    let (length, unused) = (bytes.len() as u64, UnusedNumbers::default());
    let flags = MergeFlags { strong_log: true, ..MergeFlags::default() };
    let op = JobOp::Merge { subtree, bytes: length, object: b"", flags, unused };
    let tid = tree.ask_as(1, cred, Op::Job(op));
    let conn = tree.conn(1, 0);
    tree.input(0, MdsInput::Message(conn, Message::Chunk { tid, bytes: &bytes }));
    tree.settle();
    match tree.reply(1, tid).result {
        Ok(Answer::Merged(report)) => *report,
        other => panic!("{other:?} is no merge"),
    }
}

/// A create by a user.
fn create<'a>(cred: &Cred, parent: Ino, name: &'a str, ino: Ino, mode: u32) -> Event<'a> {
    let Cred { uid, gid, .. } = *cred;
    let (name, times) = (name.as_bytes(), Create { time: TIME, ..Create::default() });
    Event::Create(Create { parent, name, ino, mode, uid, gid, mtime: TIME, atime: TIME, ..times })
}

fn write(ino: Ino, home: Ino) -> Event<'static> {
    Event::SetData { ino, home, data: b"forged", size: 6, time: TIME }
}

fn attr(tree: &mut Tree, ino: Ino) -> Attr {
    match tree.answer(Op::Read(ReadOp::GetAttr { ino })) {
        Ok(Answer::Attr(attr)) => attr,
        other => panic!("{other:?} is no inode"),
    }
}

fn names(tree: &mut Tree, dir: Ino) -> Vec<String> {
    let op = ReadOp::List { dir, after: None, limit: 100, attrs: false };
    match tree.answer(Op::Read(op)) {
        Ok(Answer::Entries { entries, .. }) => {
            let name = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
            let mut names: Vec<String> = entries.iter().map(|(it, _)| name(it)).collect();
            names.sort();
            names
        }
        other => panic!("{other:?} is no list"),
    }
}

fn tree() -> Tree {
    let mut tree = Tree::new();
    tree.set_policy("/open", LOGS).unwrap();
    tree
}

#[test]
fn a_log_brings_the_work_of_its_user_back() {
    let mut tree = tree();
    let (open, me) = (tree.open, guest());
    let [dir, file] = [Ino(1 << 50), Ino((1 << 50) + 1)];
    let change = AttrChange { size: Some(9), ..AttrChange::default() };
    let events = [
        create(&me, open, "mine", dir, DIR | 0o755),
        create(&me, dir, "file", file, FILE),
        write(file, dir),
        Event::SetAttr { ino: file, home: dir, change: chmod(0o400), time: TIME },
        Event::SetAttr { ino: file, home: dir, change, time: TIME },
        Event::SetXattr { ino: file, home: dir, name: b"user.x", value: Some(b"1"), time: TIME },
    ];
    let report = merge(&mut tree, &me, &events);
    assert_eq!((report.created, report.rejected), (2, 0), "{report:?}");
    let found = attr(&mut tree, file);
    assert_eq!((found.uid, found.mode, found.size), (7, 0o100_400, 9));
    // A second time, nothing changes.
    let report = merge(&mut tree, &me, &events);
    assert_eq!(report.rejected, 0, "{report:?}");
    assert_eq!(names(&mut tree, dir), ["file"]);
}

#[test]
fn a_log_does_not_take_an_inode_of_another_user() {
    let mut tree = tree();
    let (open, dir, file, me) = (tree.open, tree.dir, tree.file, guest());
    let full = tree.full;
    tree.answer(Op::Change(ChangeOp::SetAttr { ino: dir, change: chmod(0o700) })).unwrap();
    let before = attr(&mut tree, file);
    let mut snapshot = InodeSnapshot { attr: before, data: b"", extra: b"" };
    snapshot.attr.nlink = 2;
    let (inode, time, home) = (snapshot, TIME, dir);
    let larger = AttrChange { size: Some(1 << 30), ..AttrChange::default() };
    let report = merge(
        &mut tree,
        &me,
        &[
            // The log says that it made the files of root.
            create(&me, open, "taken", file, FILE),
            create(&me, open, "tree", full, DIR | 0o755),
            write(file, open),
            Event::SetAttr { ino: file, home, change: larger, time },
            Event::SetXattr { ino: file, home, name: b"user.x", value: Some(b"1"), time },
            Event::Link { parent: open, name: b"link", ino: file, home, inode, time },
            create(&me, full, "in the tree", Ino(1 << 50), FILE),
            Event::Unlink { parent: full, name: b"x", ino: Ino(0), time },
        ],
    );
    assert_eq!(names(&mut tree, open), [""; 0], "{report:?}");
    assert_eq!(names(&mut tree, full), ["x"]);
    assert_eq!(attr(&mut tree, file), before);
}

#[test]
fn a_log_does_not_take_a_linked_file_of_another_user() {
    let mut tree = tree();
    let (open, dir, file, me) = (tree.open, tree.dir, tree.file, guest());
    tree.answer(Op::Change(ChangeOp::Link { ino: file, parent: dir, name: b"second" })).unwrap();
    let before = attr(&mut tree, file);
    let report =
        merge(&mut tree, &me, &[create(&me, open, "taken", file, FILE), write(file, open)]);
    assert_eq!(names(&mut tree, open), [""; 0], "{report:?}");
    assert_eq!(attr(&mut tree, file), before);
}

#[test]
fn a_log_changes_nothing_of_other_users_in_the_same_subtree() {
    let mut tree = tree();
    let (open, me, other) = (tree.open, guest(), user(8));
    let make = |tree: &mut Tree, parent, name: &str, mode| {
        let new = wire::NewInode { mode, data: b"abc", size: 3, ..wire::NewInode::default() };
        let new = if mode & 0o170_000 == DIR & 0o170_000 {
            wire::NewInode { data: b"", size: 0, ..new }
        } else {
            new
        };
        let op = ChangeOp::Create { parent, name: name.as_bytes(), new };
        match tree.answer_as(&other, Op::Change(op)) {
            Ok(Answer::Attr(attr)) => attr.ino,
            answer => panic!("{answer:?} is no inode"),
        }
    };
    let closed = make(&mut tree, open, "closed", 0o040_700);
    let inside = make(&mut tree, closed, "inside", FILE | 0o666);
    let shown = make(&mut tree, open, "shown", FILE);
    let sticky = make(&mut tree, open, "sticky", 0o041_777);
    let kept = make(&mut tree, sticky, "kept", FILE);
    let before = [inside, shown, kept].map(|ino| attr(&mut tree, ino));
    let (time, exchanged, replaced) = (TIME, None, Ino(0));
    let moved = InodeSnapshot { attr: before[0], data: b"", extra: b"" };
    let (new_parent, new_name) = (open, b"stolen".as_slice());
    let inode = moved;
    let rename = |parent, name: &'static [u8], moved| Event::Rename {
        parent,
        name,
        new_parent,
        new_name,
        moved,
        exchanged,
        replaced,
        time: FUTURE,
    };
    let of_kept = InodeSnapshot { attr: before[2], data: b"", extra: b"" };
    let new = Ino(1 << 50);
    let of_shown = InodeSnapshot { attr: before[1], data: b"", extra: b"" };
    let of_new = InodeSnapshot { attr: Attr { ino: new, uid: 7, gid: 7, ..before[1] }, ..of_shown };
    let report = merge(
        &mut tree,
        &me,
        &[
            write(inside, closed),
            write(shown, open),
            Event::Unlink { parent: closed, name: b"inside", ino: Ino(0), time },
            Event::Unlink { parent: sticky, name: b"kept", ino: Ino(0), time },
            create(&me, closed, "new", new, FILE),
            create(&me, sticky, "kept", Ino(new.0 + 1), FILE),
            create(&me, open, "closed", Ino(new.0 + 2), FILE),
            Event::Link { parent: open, name: b"link", ino: inside, home: closed, inode, time },
            rename(closed, b"inside", moved),
            rename(sticky, b"kept", of_kept),
            // It changes no name, but it would set the time of the last change.
            rename(open, b"nothing", of_shown),
            exchange(rename(open, b"nothing", of_new), of_shown),
        ],
    );
    assert_eq!(names(&mut tree, open), ["closed", "shown", "sticky"], "{report:?}");
    assert_eq!(names(&mut tree, closed), ["inside"]);
    assert_eq!(names(&mut tree, sticky), ["kept"]);
    assert_eq!([inside, shown, kept].map(|ino| attr(&mut tree, ino)), before);
    assert_eq!(report.rejected, 12, "{report:?}");
    // The user may do the same as a request where the rights allow it.
    let report = merge(&mut tree, &me, &[create(&me, sticky, "own", Ino(new.0 + 3), FILE)]);
    assert_eq!((report.created, report.rejected), (1, 0));
    let flags = RenameFlags::default();
    let op =
        ChangeOp::Rename { parent: sticky, name: b"own", new_parent: open, new_name: b"o", flags };
    tree.answer_as(&me, Op::Change(op)).unwrap();
}

/// A file with the names `foo` and `bar`, which the rank's journal has. Its last change is newer
/// than any log of these tests.
fn linked_file(tree: &mut Tree) -> Attr {
    let (parent, new) = (tree.open, wire::NewInode { mode: FILE, ..wire::NewInode::default() });
    let op = ChangeOp::Create { parent, name: b"foo", new };
    let Ok(Answer::Attr(made)) = tree.answer(Op::Change(op)) else { panic!() };
    tree.answer(Op::Change(ChangeOp::Link { ino: made.ino, parent, name: b"bar" })).unwrap();
    attr(tree, made.ino)
}

/// The exchange of a moved inode with this one.
fn exchange<'a>(rename: Event<'a>, back: InodeSnapshot<'a>) -> Event<'a> {
    let Event::Rename { parent, name, new_parent, new_name, moved, replaced, time, .. } = rename
    else {
        panic!("{rename:?} moves nothing");
    };
    let exchanged = Some(back);
    Event::Rename { parent, name, new_parent, new_name, moved, exchanged, replaced, time }
}

#[test]
fn a_repeated_log_leaves_later_names_and_attributes() {
    let mut tree = tree();
    let (open, root, time) = (tree.open, Cred::root(), TIME);
    let linked = linked_file(&mut tree);
    let [gone, moved, left, swapped] = [0, 1, 2, 3].map(|number| Ino((1 << 50) + number));
    let swap = InodeSnapshot { attr: linked, data: b"", extra: b"" };
    let rename = |name: &'static [u8], new_name: &'static [u8], ino| {
        let attr = Attr { ino, mode: FILE, nlink: 1, ..Attr::default() };
        let (moved, replaced) = (InodeSnapshot { attr, data: b"", extra: b"" }, Ino(0));
        let (parent, new_parent, exchanged) = (open, open, None);
        Event::Rename { parent, name, new_parent, new_name, moved, exchanged, replaced, time }
    };
    let (ino, home) = (linked.ino, open);
    let report = merge(
        &mut tree,
        &root,
        &[
            create(&root, open, "foo", ino, FILE),
            create(&root, open, "bar", gone, FILE),
            Event::Unlink { parent: open, name: b"bar", ino: Ino(0), time },
            create(&root, open, "bar", moved, FILE),
            rename(b"bar", b"moved", moved),
            create(&root, open, "left", left, FILE),
            rename(b"left", b"bar", left),
            create(&root, open, "swapped", swapped, FILE),
            exchange(rename(b"swapped", b"bar", swapped), swap),
            rename(b"bar", b"foo", ino),
            Event::SetXattr { ino, home, name: b"user.x", value: Some(b"1"), time },
            Event::SetAttr { ino, home, change: chmod(0o600), time },
            write(ino, home),
        ],
    );
    assert_eq!(names(&mut tree, open), ["bar", "foo", "moved"], "{report:?}");
    assert_eq!(attr(&mut tree, ino), linked);
    assert_eq!(tree.lookup(open, "moved"), Ok(moved));
}

/// The server's journal has both names of a linked file, and not that the file was exchanged with
/// another one before.
#[test]
fn a_repeated_log_keeps_the_names_of_an_exchanged_and_linked_file() {
    let mut tree = tree();
    let (open, root) = (tree.open, Cred::root());
    let made = linked_file(&mut tree);
    let (linked, other, dir) = (made.ino, Ino(1 << 50), Ino((1 << 50) + 1));
    let snapshot = |ino| InodeSnapshot { attr: Attr { ino, ..made }, data: b"", extra: b"" };
    let (inode, home, time) = (snapshot(linked), open, TIME);
    let report = merge(
        &mut tree,
        &root,
        &[
            create(&root, open, "foo", other, FILE),
            create(&root, open, "dir", dir, DIR | 0o755),
            create(&root, dir, "b", linked, FILE),
            Event::Rename {
                parent: open,
                name: b"foo",
                new_parent: dir,
                new_name: b"b",
                moved: snapshot(other),
                exchanged: Some(snapshot(linked)),
                replaced: Ino(0),
                time,
            },
            Event::Link { parent: open, name: b"bar", ino: linked, home, inode, time },
        ],
    );
    assert_eq!(names(&mut tree, open), ["bar", "dir", "foo"], "{report:?}");
    assert_eq!(names(&mut tree, dir), ["b"]);
    let foo = tree.lookup(open, "foo");
    assert_eq!((foo, attr(&mut tree, linked).nlink), (Ok(linked), 2), "{report:?}");
    assert_eq!(tree.lookup(dir, "b"), Ok(other));
}
