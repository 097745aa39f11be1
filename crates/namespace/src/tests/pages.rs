//! Pages and directories against a sorted map.

use std::collections::BTreeMap;

use proptest::prelude::*;
use types::{FileType, Ino, name_hash};

use crate::dir::Dir;
use crate::page::{Dentry, Page, Target};

/// The known target of a name: `None` is a tombstone. And whether the store does not know it.
type Known = (Option<Ino>, bool);

fn known(dentry: Dentry) -> Known {
    ((!dentry.is_tombstone()).then_some(dentry.ino), dentry.is_dirty())
}

fn target(ino: u64) -> Target {
    Target { ino: Ino(ino), file_type: FileType::Regular, remote: ino.is_multiple_of(5) }
}

#[derive(Clone, Debug)]
enum Change {
    Set(u32, Vec<u8>, u64, bool),
    Bury(u32, Vec<u8>),
    Remove(u32, Vec<u8>),
    MarkDirty(u32, Vec<u8>),
    MarkAllDirty,
    Clean,
}

/// Few hashes, so that names collide, and those at the edges.
fn hash() -> impl Strategy<Value = u32> {
    let edge = prop::sample::select(vec![0, 1, 0x7fff_ffff, 0x8000_0000, u32::MAX - 1, u32::MAX]);
    prop_oneof![2 => edge, 1 => 0..8u32, 2 => any::<u32>()]
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => prop::collection::vec(0x60..0x64u8, 1..3),
        1 => prop::collection::vec(any::<u8>(), 1..256),
    ]
}

fn change() -> impl Strategy<Value = Change> {
    let key = || (hash(), name());
    prop_oneof![
        12 => (key(), 1..50u64, any::<bool>()).prop_map(|((h, n), i, d)| Change::Set(h, n, i, d)),
        3 => key().prop_map(|(hash, name)| Change::Bury(hash, name)),
        5 => key().prop_map(|(hash, name)| Change::Remove(hash, name)),
        2 => key().prop_map(|(hash, name)| Change::MarkDirty(hash, name)),
        1 => Just(Change::MarkAllDirty),
        1 => Just(Change::Clean),
    ]
}

type Oracle = BTreeMap<(u32, Vec<u8>), Known>;

fn run(page: &mut Page, oracle: &mut Oracle, change: Change) {
    match change {
        Change::Set(hash, name, ino, dirty) => {
            let before = page.set(hash, &name, Some(target(ino)), dirty).map(known);
            assert_eq!(before, oracle.insert((hash, name), (Some(Ino(ino)), dirty)));
        }
        Change::Bury(hash, name) => {
            let before = page.set(hash, &name, None, true).map(known);
            assert_eq!(before, oracle.insert((hash, name), (None, true)));
        }
        Change::Remove(hash, name) => {
            let before = page.remove(hash, &name).map(known);
            assert_eq!(before, oracle.remove(&(hash, name)));
        }
        Change::MarkDirty(hash, name) => {
            // The inode says which of several names with one hash is meant.
            let Some((Some(ino), _)) = oracle.get(&(hash, name)).copied() else { return };
            let found = page.mark_dirty(hash, ino);
            let first = oracle.iter_mut().find(|((other, _), (named, _))| {
                *other == hash && *named == Some(ino) && !target(ino.0).remote
            });
            let clean = first.is_some_and(|(_, (_, dirty))| !std::mem::replace(dirty, true));
            assert_eq!(found, clean);
        }
        Change::MarkAllDirty => {
            page.mark_all_dirty();
            oracle.values_mut().for_each(|(_, dirty)| *dirty = true);
        }
        Change::Clean => {
            let mut visited = Vec::new();
            page.clean(|name, dentry| visited.push((name.to_vec(), known(dentry))));
            let dirty = oracle.iter().filter(|(_, (_, dirty))| *dirty);
            let expected: Vec<_> = dirty.map(|((_, name), known)| (name.clone(), *known)).collect();
            assert_eq!(visited, expected);
            oracle.retain(|_, (ino, dirty)| ino.is_some() || !*dirty);
            oracle.values_mut().for_each(|(_, dirty)| *dirty = false);
        }
    }
}

fn check(page: &Page, oracle: &Oracle) {
    let found: Vec<_> = page
        .after(None)
        .map(|(hash, name, dentry)| ((hash, name.to_vec()), known(dentry)))
        .collect();
    let expected: Vec<_> = oracle.iter().map(|(key, known)| (key.clone(), *known)).collect();
    assert_eq!(found, expected);
    for ((hash, name), expected) in oracle {
        assert_eq!(page.find(*hash, name).map(known), Some(*expected));
        let next = page.after(Some((*hash, name))).next().map(|(h, n, _)| (h, n.to_vec()));
        let after = (std::ops::Bound::Excluded((*hash, name.clone())), std::ops::Bound::Unbounded);
        assert_eq!(next, oracle.range(after).next().map(|(key, _)| key.clone()));
    }
    let dirty = oracle.values().filter(|(_, dirty)| *dirty).count();
    assert_eq!(page.dirty as usize, dirty);
}

/// Two names with one hash, in order.
fn colliding_names() -> [Vec<u8>; 2] {
    let mut known = BTreeMap::new();
    for number in 0..1_000_000 {
        let name = format!("f{number}").into_bytes();
        if let Some(earlier) = known.insert(name_hash(&name), name.clone()) {
            let mut names = [earlier, name];
            names.sort();
            return names;
        }
    }
    panic!("a million names have different hashes");
}

#[test]
fn names_of_equal_hash_are_valid_in_any_order_of_arrival() {
    let [low, high] = colliding_names();
    for names in [[&low, &high], [&high, &low]] {
        let mut page = Page::new(0, 0, 2);
        for (ino, name) in (1..).zip(names) {
            assert!(page.set(name_hash(name), name, Some(target(ino)), true).is_none());
        }
        page.validate(true);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn a_page_is_a_sorted_map(changes in prop::collection::vec(change(), 0..300)) {
        let mut page = Page::new(0, 0, 2);
        let mut oracle = Oracle::new();
        for change in changes {
            run(&mut page, &mut oracle, change);
        }
        check(&page, &oracle);
    }

    #[test]
    fn both_halves_of_a_page_are_sorted_maps(
        before in prop::collection::vec(change(), 0..200),
        after in prop::collection::vec(change(), 0..200),
    ) {
        let mut low = Page::new(0, 0, 2);
        let mut oracle = Oracle::new();
        for change in before {
            run(&mut low, &mut oracle, change);
        }
        let mut high = low.split();
        let mut high_oracle = oracle.split_off(&(0x8000_0000, Vec::new()));
        check(&low, &oracle);
        check(&high, &high_oracle);
        for change in after {
            let is_high = match &change {
                Change::Set(hash, ..)
                | Change::Bury(hash, _)
                | Change::Remove(hash, _)
                | Change::MarkDirty(hash, _) => *hash >= 0x8000_0000,
                Change::MarkAllDirty | Change::Clean => true,
            };
            if is_high {
                run(&mut high, &mut high_oracle, change);
            } else {
                run(&mut low, &mut oracle, change);
            }
        }
        check(&low, &oracle);
        check(&high, &high_oracle);
    }

    #[test]
    fn a_directory_counts_what_it_lists(
        stored in prop::collection::btree_set(0..100u32, 0..50),
        changes in prop::collection::vec((0..100u32, 0..3u8), 0..200),
    ) {
        let mut dir = Dir::new(false);
        let mut oracle = BTreeMap::new();
        for (number, change) in changes {
            let name = number.to_string().into_bytes();
            let hash = name_hash(&name);
            if change == 0 {
                let before = dir.unset(hash, &name).map(|dentry| dentry.ino);
                assert_eq!(before, oracle.remove(&(hash, name)));
            } else {
                let file_type =
                    if change == 1 { FileType::Directory } else { FileType::Regular };
                let ino = Ino(u64::from(number) + 1000 * u64::from(change));
                let before = dir.set(hash, &name, Target { ino, file_type, remote: false });
                let expected = oracle.insert((hash, name), ino);
                assert_eq!(before.map(|dentry| dentry.ino), expected);
            }
        }
        for number in stored {
            let name = number.to_string().into_bytes();
            let hash = name_hash(&name);
            let hidden = dir.find_any(hash, &name).is_some();
            let added = dir.add_stored(&name, target(u64::from(number)));
            assert_eq!(added, !hidden, "what is in memory hides what is stored");
            if added {
                oracle.insert((hash, name), Ino(u64::from(number)));
            }
        }
        let listed: Vec<_> = dir.list(None).map(|(name, d)| (name.to_vec(), d.ino)).collect();
        let expected: Vec<_> =
            oracle.iter().map(|((_, name), ino)| (name.clone(), *ino)).collect();
        assert_eq!(listed, expected);
        assert_eq!(dir.entries, oracle.len() as u64);
        let subdirs = dir.list(None).filter(|(_, d)| d.file_type() == FileType::Directory).count();
        assert_eq!(dir.subdirs, subdirs as u64);
    }
}
