use journal::{Create, Event, InodeSnapshot};
use types::{Attr, Cred, EntryName, Errno, Ino, RenameFlags, Timestamp};

use crate::{Model, ModelOutcome, New};

const DIR: u32 = 0o040_755;
const FILE: u32 = 0o100_644;

fn created<'a>(parent: Ino, name: &'a [u8], ino: u64, mode: u32) -> Event<'a> {
    Event::Create(Create { parent, name, ino: Ino(ino), mode, ..Create::default() })
}

fn apply(model: &mut Model, event: &Event<'_>) -> ModelOutcome {
    model.apply(event, |_, _| ())
}

#[test]
fn links_are_counted_and_the_last_one_frees_the_inode() {
    let root = Cred::root();
    let mut model = Model::with_root(Timestamp(1));
    let new = New { mode: FILE, ..New::default() };
    model.create(&root, EntryName::new(Ino::ROOT, b"a"), &new, Ino(9)).unwrap();
    model.link(&root, Ino(9), EntryName::new(Ino::ROOT, b"b"), Timestamp(2)).unwrap();
    assert_eq!(model.getattr(Ino(9)).unwrap().nlink, 2);
    model.unlink(&root, EntryName::new(Ino::ROOT, b"a"), Timestamp(3)).unwrap();
    assert_eq!(model.getattr(Ino(9)).unwrap().ctime, Timestamp(3));
    model.unlink(&root, EntryName::new(Ino::ROOT, b"b"), Timestamp(4)).unwrap();
    assert_eq!(model.getattr(Ino(9)), Err(Errno::Stale));
}

#[test]
fn a_directory_does_not_move_below_itself() {
    let root = Cred::root();
    let mut model = Model::with_root(Timestamp(1));
    let new = New { mode: DIR, ..New::default() };
    model.create(&root, EntryName::new(Ino::ROOT, b"a"), &new, Ino(9)).unwrap();
    model.create(&root, EntryName::new(Ino(9), b"b"), &new, Ino(10)).unwrap();
    let flags = RenameFlags::default();
    let moved = model.rename(
        &root,
        EntryName::new(Ino::ROOT, b"a"),
        EntryName::new(Ino(10), b"c"),
        flags,
        Timestamp(2),
    );
    assert_eq!(moved, Err(Errno::Invalid));
    let attr = Attr { ino: Ino(9), mode: DIR, ..Attr::default() };
    let event = Event::Rename {
        parent: Ino::ROOT,
        name: b"a",
        new_parent: Ino(10),
        new_name: b"c",
        moved: InodeSnapshot { attr, ..InodeSnapshot::default() },
        exchanged: None,
        replaced: Ino(0),
        time: Timestamp(3),
    };
    assert_eq!(apply(&mut model, &event), ModelOutcome::Rejected);
}

#[test]
fn a_directory_that_wins_a_name_keeps_the_other_names_in_it() {
    let mut model = Model::with_root(Timestamp(1));
    apply(&mut model, &created(Ino::ROOT, b"d", 9, DIR));
    apply(&mut model, &created(Ino(9), b"x", 10, FILE));
    let outcome = apply(&mut model, &created(Ino::ROOT, b"d", 20, DIR));
    assert_eq!(outcome, ModelOutcome::Replaced(Ino(9)));
    assert_eq!(model.peek(Ino(20), b"x"), Some(Ino(10)));
    assert!(model.node(Ino(9)).is_none());
}
