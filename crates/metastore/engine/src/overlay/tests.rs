use metastore::request::{StoreOp, StoreResult};
use metastore::{InodeRecord, RowValue, Rows, Snapshot, data_name};
use types::{Attr, Ino, Pool, Seq};

use super::*;
use crate::{execute, purge_data, take_snapshot};

const DIR: Ino = Ino(500);
const OWN: InoRange = InoRange { start: 1000, end: 2000 };

fn commit(store: &dyn Store, names: &[&str]) {
    let mut rows = Rows::new();
    for (number, name) in (1..).zip(names) {
        let attr = Attr { ino: Ino(number), mode: 0o100_644, nlink: 1, ..Attr::default() };
        rows.push(name.as_bytes(), RowValue::Inode(InodeRecord { attr, ..InodeRecord::default() }));
    }
    let (counts, position, touched) = ((0, 0, false), Seq(1), Default::default());
    let op = StoreOp::CommitDir { ino: DIR, rows, counts, position, touched, attach: None };
    assert!(execute(store, op).is_ok());
}

fn names(store: &dyn Store) -> Vec<String> {
    match execute(store, StoreOp::LoadDir { ino: DIR }) {
        Ok(StoreResult::Dir(loaded)) => {
            let name = |row: metastore::Row<'_>| String::from_utf8_lossy(row.name).into_owned();
            loaded.rows.iter().map(name).collect()
        }
        Ok(StoreResult::Missing) => Vec::new(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn neither_side_sees_what_the_other_writes() {
    let base = Memory::new();
    commit(&base, &["a"]);
    let number = take_snapshot(&base, &Snapshot { id: 1, ..Snapshot::default() }).unwrap();
    let overlay = Overlay::new(Arc::new(base.clone()), number, OWN);
    // More commits than a directory may have runs: so both merge, and delete unneeded runs.
    for round in 0..20 {
        commit(&base, &[&format!("trunk{round}")]);
        commit(&overlay, &[&format!("own{round:02}")]);
        let seen = names(&overlay);
        assert_eq!(seen.len(), round + 2, "{seen:?}");
        assert!(seen.iter().all(|name| name == "a" || name.starts_with("own")), "{seen:?}");
    }
    assert_eq!(names(&base).len(), 21);
    assert!(execute(&overlay, StoreOp::PurgeDir { ino: DIR }).is_ok());
    assert_eq!(names(&overlay), [""; 0]);
    commit(&overlay, &["anew"]);
    assert_eq!(names(&overlay), ["anew"]);
    assert_eq!(names(&base).len(), 21);
}

#[test]
fn an_overlay_reads_all_content_and_changes_only_its_own() {
    let base = Memory::new();
    let (own, other) = (Ino(1500), Ino(7));
    let name = |ino| data_name(ino, Pool::USUAL, 0);
    let _ = base.put(&name(other), b"theirs", Expect::Any).unwrap();
    let overlay = Overlay::new(Arc::new(base.clone()), 1, OWN);
    assert_eq!(overlay.get(&name(other)).unwrap().0, b"theirs");
    let refused = overlay.put(&name(other), b"mine", Expect::Any).unwrap_err();
    assert_eq!(refused.errno, Errno::ReadOnly);
    assert_eq!(overlay.append(&name(other), b"mine").unwrap_err().errno, Errno::ReadOnly);
    assert_eq!(overlay.write_range(&name(other), 0, b"mine").unwrap_err().errno, Errno::ReadOnly);
    let _ = overlay.put(&name(own), b"mine", Expect::Any).unwrap();
    assert_eq!(base.get(&name(own)).unwrap().0, b"mine");
    for ino in [own, other] {
        assert!(purge_data(&overlay, ino, Pool::USUAL, 1).is_ok());
    }
    assert_eq!(base.list("data/").unwrap(), [name(other)]);
}

#[test]
fn a_journal_stays_whatever_is_trimmed() {
    let base = Memory::new();
    let overlay = Overlay::new(Arc::new(base.clone()), 1, OWN);
    overlay.append("journal/mds.0000/0", b"one").unwrap();
    assert!(!overlay.delete("journal/mds.0000/0").unwrap());
    assert_eq!(overlay.get("journal/mds.0000/0").unwrap().0, b"one");
    overlay.append("rank/0000", b"table").unwrap();
    assert!(overlay.delete("rank/0000").unwrap());
    assert_eq!(base.list("").unwrap(), [""; 0]);
}
