//! The server does not write a removed directory, so the store may have stale rows of it: they name
//! inodes that moved away before the journal begins. A replay reads these rows.

use types::{AttrChange, EntryName, Ino, RenameFlags, Timestamp};

use super::Server;
use crate::{Cred, PlannedInode};

const A: Ino = Ino(10);
const B: Ino = Ino(11);
/// Moved from `a` to `b` before the journal begins.
const MOVED: Ino = Ino(12);
/// Removed from `a` by the journal.
const FILE: Ino = Ino(13);
/// An empty directory, and a file in `b`.
const EMPTY: Ino = Ino(14);
const OTHER: Ino = Ino(15);

/// The events between the begin of the journal and the removal of `a`.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Between {
    Nothing,
    /// A name in the moved directory, which changes its times.
    Name,
    /// The same, and then a change in `b`.
    NameAndOther,
    /// New permissions of the moved directory.
    Mode,
}

fn create(server: &mut Server, parent: Ino, name: &'static [u8], mode: u32, ino: Ino) {
    let time = Timestamp(server.next.cast_signed());
    let new = PlannedInode { mode, time, ..PlannedInode::default() };
    server.perform_planned(|namespace| {
        namespace.plan().make(&Cred::root(), EntryName::new(parent, name), &new, ino)
    });
}

fn rename(server: &mut Server, from: EntryName<'static>, to: EntryName<'static>) {
    let time = Timestamp(server.next.cast_signed());
    let planned = server.warm(|namespace| {
        namespace.plan().rename(&Cred::root(), from, to, RenameFlags::default(), time)
    });
    server.execute(&planned.expect("it is allowed").expect("the names differ"));
}

fn unlink(server: &mut Server, parent: Ino, name: &'static [u8]) {
    let time = Timestamp(server.next.cast_signed());
    server.perform_planned(|namespace| namespace.plan().unlink(&Cred::root(), parent, name, time));
}

/// Writes a directory to the store.
fn store(server: &mut Server, dir: Ino) {
    let namespace = &mut server.namespace;
    let mut dirty = namespace.dirs().directory_list();
    dirty.retain(|dir| namespace.dirs().dirty_since(*dir).is_some());
    let at = dirty.iter().position(|known| *known == dir).expect("it is dirty");
    assert!(server.begin(u8::try_from(at).expect("there are few")));
    server.commit(0);
}

fn store_all(server: &mut Server) {
    while server.begin(0) {
        server.commit(0);
    }
    server.trim();
}

/// A server crashes; the arguments choose the events, and the directories that the store has.
fn crash(between: Between, replaces: bool, stores_root: bool, stores_b: bool) {
    let mut server = Server::new();
    create(&mut server, Ino::ROOT, b"a", 0o040_755, A);
    create(&mut server, Ino::ROOT, b"b", 0o040_755, B);
    create(&mut server, Ino::ROOT, b"e", 0o040_755, EMPTY);
    create(&mut server, A, b"moved", 0o040_755, MOVED);
    create(&mut server, A, b"file", 0o100_644, FILE);
    create(&mut server, B, b"other", 0o100_644, OTHER);
    store_all(&mut server);

    rename(&mut server, EntryName::new(A, b"moved"), EntryName::new(B, b"moved"));
    store(&mut server, B);
    store(&mut server, Ino::ROOT);
    let begin = types::Seq(server.next);
    // This is never stored, so the journal begins here once `a` is gone.
    create(&mut server, EMPTY, b"unstored", 0o100_644, Ino(17));
    unlink(&mut server, A, b"file");
    match between {
        Between::Nothing => {}
        Between::Name | Between::NameAndOther => {
            create(&mut server, MOVED, b"x", 0o100_644, Ino(16));
        }
        Between::Mode => {
            let change = AttrChange { mode: Some(0o700), ..AttrChange::default() };
            let time = Timestamp(server.next.cast_signed());
            server.perform_planned(|namespace| {
                namespace.plan().setattr(&Cred::root(), MOVED, &change, time)
            });
        }
    }
    if between == Between::NameAndOther {
        unlink(&mut server, B, b"other");
    }
    if replaces {
        rename(&mut server, EntryName::new(Ino::ROOT, b"e"), EntryName::new(Ino::ROOT, b"a"));
    } else {
        let time = Timestamp(server.next.cast_signed());
        server.perform_planned(|namespace| {
            namespace.plan().rmdir(&Cred::root(), Ino::ROOT, b"a", time)
        });
    }
    if stores_root {
        store(&mut server, Ino::ROOT);
    }
    if stores_b && server.namespace.dirs().dirty_since(B).is_some() {
        store(&mut server, B);
    }
    server.trim();
    assert_eq!(server.trimmed, begin);
    server.crash();
    server.crash();
    let tree = server.tree();
    assert_eq!(tree["/b/moved"].attr.ino, MOVED);
    assert_eq!(tree.contains_key("/b/other"), between != Between::NameAndOther);
    assert!(!server.namespace.knows(FILE));
    assert_eq!(server.namespace.dirs().dirty_since(A), None, "a removed directory is not written");
}

#[test]
fn an_inode_keeps_its_new_place_when_its_old_directory_is_removed() {
    for between in [Between::Nothing, Between::Name, Between::NameAndOther, Between::Mode] {
        for replaces in [false, true] {
            for stores_root in [false, true] {
                for stores_b in [false, true] {
                    println!("{between:?}, {replaces}, {stores_root}, {stores_b}");
                    crash(between, replaces, stores_root, stores_b);
                }
            }
        }
    }
}
