use std::collections::BTreeMap;
use std::convert::Infallible;

use journal::{Create, InodeSnapshot};
use types::Timestamp;

use super::super::journal_of;
use super::*;

const ROOT: Ino = Ino(10);
const OWN: InoRange = InoRange { start: 1000, end: 2000 };

type Names = BTreeMap<(u64, &'static str), Attr>;

/// A snapshot and a trunk, as names.
#[derive(Default)]
struct Both {
    base: Names,
    trunk: Names,
}

impl Both {
    fn new(names: &[(u64, &'static str, Attr)]) -> Self {
        let names: Names = names.iter().map(|(dir, name, attr)| ((*dir, *name), *attr)).collect();
        Self { base: names.clone(), trunk: names }
    }
}

fn find(names: &Names, dir: Ino, name: &[u8]) -> Option<Attr> {
    let name = std::str::from_utf8(name).unwrap();
    names.iter().find(|((in_dir, known), _)| (*in_dir, *known) == (dir.0, name)).map(|(_, it)| *it)
}

impl Sides for Both {
    type Error = Infallible;

    fn base(&mut self, dir: Ino, name: &[u8]) -> Result<Option<Attr>, Infallible> {
        Ok(find(&self.base, dir, name))
    }

    fn trunk(&mut self, dir: Ino, name: &[u8]) -> Result<Option<Attr>, Infallible> {
        Ok(find(&self.trunk, dir, name))
    }

    fn base_name(&mut self, dir: Ino, ino: Ino) -> Result<Option<Vec<u8>>, Infallible> {
        let mut all = self.base.iter();
        let found = all.find(|((in_dir, _), attr)| *in_dir == dir.0 && attr.ino == ino);
        Ok(found.map(|((_, name), _)| name.as_bytes().to_vec()))
    }
}

fn file(ino: u64) -> Attr {
    Attr { ino: Ino(ino), mode: FileType::Regular.mode_bits() | 0o644, nlink: 1, ..Attr::default() }
}

fn dir(ino: u64) -> Attr {
    Attr { ino: Ino(ino), mode: FileType::Directory.mode_bits() | 0o755, ..Attr::default() }
}

fn create<'a>(parent: u64, name: &'a str, attr: Attr) -> Event<'a> {
    let (parent, name) = (Ino(parent), name.as_bytes());
    Event::Create(Create { parent, name, ino: attr.ino, mode: attr.mode, ..Create::default() })
}

fn unlink(parent: u64, name: &str, ino: u64) -> Event<'_> {
    let (parent, ino, time) = (Ino(parent), Ino(ino), Timestamp(1));
    Event::Unlink { parent, name: name.as_bytes(), ino, time }
}

fn rename<'a>(from: (u64, &'a str), to: (u64, &'a str), attr: Attr) -> Event<'a> {
    Event::Rename {
        parent: Ino(from.0),
        name: from.1.as_bytes(),
        new_parent: Ino(to.0),
        new_name: to.1.as_bytes(),
        moved: InodeSnapshot { attr, ..InodeSnapshot::default() },
        exchanged: None,
        replaced: Ino(0),
        time: Timestamp(1),
    }
}

fn layer(events: &[Event<'_>]) -> Vec<Vec<u8>> {
    let mut buffer = JournalBuffer::new(Seq(1), false);
    for event in events {
        buffer.append(Origin::default(), event);
    }
    buffer.close_block();
    vec![journal_of(ROOT, Seq(1), buffer.blocks())]
}

/// The names in conflict, and how many events are left if the trunk wins.
fn judged(events: &[Event<'_>], both: &mut Both) -> (Vec<String>, u64) {
    let layers = layer(events);
    let found = conflicts(&layers, &[OWN], both).unwrap();
    let name = |clash: &ConflictingName| String::from_utf8_lossy(&clash.name).into_owned();
    let names = found.clashes.iter().map(name).collect();
    let blocks = joined(&layers, Some(&found)).unwrap();
    let bytes = journal_of(ROOT, Seq(1), &blocks);
    let mut left = 0;
    each(&[bytes], |_, _| {
        left += 1;
        Ok::<(), LayerError<Infallible>>(())
    })
    .unwrap();
    assert_eq!(left + found.left_out(), events.len() as u64);
    (names, left)
}

#[test]
fn a_name_unchanged_in_the_trunk_is_no_conflict() {
    let mut both = Both::new(&[(10, "a", file(20)), (10, "d", dir(21)), (21, "b", file(22))]);
    // Unrelated changes beside it, also in the same directory.
    both.trunk.insert((21, "other"), file(30));
    both.trunk.insert((10, "d"), Attr { mtime: Timestamp(9), ctime: Timestamp(9), ..dir(21) });
    let events = [
        unlink(10, "a", 20),
        create(10, "a", file(1000)),
        create(21, "new", file(1001)),
        rename((21, "b"), (10, "b"), file(22)),
        create(10, "made", dir(1002)),
        create(1002, "in it", file(1003)),
    ];
    assert_eq!(judged(&events, &mut both), (vec![], 6));
}

#[test]
fn conflicting_changes_are_left_out_with_their_dependents() {
    let mut both = Both::new(&[(10, "a", file(20)), (10, "b", file(21)), (10, "c", file(22))]);
    both.trunk.insert((10, "a"), Attr { ctime: Timestamp(5), ..file(20) });
    both.trunk.remove(&(10, "b"));
    both.trunk.insert((10, "new"), file(30));
    let change = Event::SetAttr {
        ino: Ino(21),
        home: ROOT,
        change: types::AttrChange::default(),
        time: Timestamp(1),
    };
    let events = [
        unlink(10, "a", 20),
        create(10, "a", file(1000)),
        change,
        create(10, "new", dir(1001)),
        create(1001, "in it", dir(1002)),
        create(1002, "below", file(1003)),
        unlink(10, "c", 22),
    ];
    assert_eq!(judged(&events, &mut both), (vec!["a".into(), "b".into(), "new".into()], 1));
}

#[test]
fn directories_that_both_made_are_compared_name_by_name() {
    let mut both = Both::default();
    both.trunk.insert((10, "d"), dir(30));
    both.trunk.insert((30, "same"), file(31));
    both.trunk.insert((30, "sub"), dir(32));
    both.trunk.insert((32, "deep"), file(33));
    let events = [
        create(10, "d", dir(1000)),
        create(1000, "same", file(1001)),
        create(1000, "mine", file(1002)),
        create(1000, "sub", dir(1003)),
        create(1003, "deep", file(1004)),
        create(1003, "mine too", file(1005)),
    ];
    assert_eq!(judged(&events, &mut both), (vec!["same".into(), "deep".into()], 4));
}

#[test]
fn a_temporary_file_renamed_over_a_conflict_is_left_out_too() {
    let mut both = Both::new(&[(10, "a", file(20))]);
    both.trunk.insert((10, "a"), file(30));
    let events = [
        create(10, "a.tmp", file(1000)),
        rename((10, "a.tmp"), (10, "a"), file(1000)),
        create(10, "other", file(1001)),
    ];
    assert_eq!(judged(&events, &mut both), (vec!["a".into()], 1));
}

#[test]
fn changes_of_an_interrupted_merge_are_no_conflict() {
    let mut both = Both::new(&[]);
    both.trunk.insert((10, "a"), file(1000));
    assert_eq!(judged(&[create(10, "a", file(1000))], &mut both), (vec![], 1));
}
