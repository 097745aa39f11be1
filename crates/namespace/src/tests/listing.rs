//! A listing that is asked for in parts, while other names come and go.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use types::{Cred, EntryName, Ino, Seq, Timestamp};

use crate::{Mode, Namespace, PlannedInode};

struct Directory {
    namespace: Namespace,
    next: u64,
}

impl Directory {
    fn create(&mut self, name: &[u8]) {
        self.next += 1;
        let new = PlannedInode { mode: 0o100_644, time: Timestamp(2), ..PlannedInode::default() };
        let ino = Ino(1000 + self.next);
        let planned =
            self.namespace.plan().make(&Cred::root(), EntryName::new(Ino::ROOT, name), &new, ino);
        if let Ok(planned) = planned {
            self.namespace.apply(Seq(self.next), Mode::Live, &planned.event());
        }
    }

    fn unlink(&mut self, name: &[u8]) {
        self.next += 1;
        let planned = self.namespace.plan().unlink(&Cred::root(), Ino::ROOT, name, Timestamp(3));
        if let Ok(planned) = planned {
            self.namespace.apply(Seq(self.next), Mode::Live, &planned.event());
        }
    }
}

fn lasting(number: u16) -> Vec<u8> {
    format!("lasting-{number}").into_bytes()
}

fn passing(number: u8) -> Vec<u8> {
    format!("passing-{number}").into_bytes()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(128) })]

    #[test]
    fn every_lasting_name_is_listed_once_and_none_twice(
        lasting_names in 0..200u16,
        chunk in 1..20usize,
        changes in prop::collection::vec((any::<bool>(), any::<u8>()), 0..400),
        changes_per_chunk in 0..20usize,
        forget_cursor in any::<bool>(),
    ) {
        let mut directory = Directory { namespace: Namespace::with_root(Timestamp(1)), next: 0 };
        for number in 0..lasting_names {
            directory.create(&lasting(number));
        }
        for number in 0..100 {
            directory.create(&passing(number));
        }
        let mut changes = changes.into_iter();
        let mut seen = BTreeMap::new();
        let mut cursor: Option<Vec<u8>> = None;
        loop {
            let after = cursor.as_deref();
            let entries = directory
                .namespace
                .list(&Cred::root(), Ino::ROOT, after, chunk, false)
                .unwrap();
            prop_assert!(entries.len() <= chunk);
            let Some(last) = entries.last() else { break };
            cursor = Some(last.name.clone());
            for entry in entries {
                *seen.entry(entry.name).or_insert(0) += 1;
            }
            if forget_cursor && cursor.as_ref().is_some_and(|name| name.starts_with(b"passing")) {
                directory.unlink(cursor.as_deref().unwrap());
            }
            for (come, number) in changes.by_ref().take(changes_per_chunk) {
                let name = passing(number);
                if come { directory.create(&name) } else { directory.unlink(&name) }
            }
        }
        prop_assert!(seen.values().all(|count| *count == 1));
        let lasting: BTreeSet<_> = (0..lasting_names).map(lasting).collect();
        prop_assert!(lasting.iter().all(|name| seen.contains_key(name)));
    }
}

#[test]
fn a_listing_with_attributes_shows_what_stat_shows() {
    let mut directory = Directory { namespace: Namespace::with_root(Timestamp(1)), next: 0 };
    for number in 0..50 {
        directory.create(&lasting(number));
    }
    let namespace = &directory.namespace;
    let entries = namespace.list(&Cred::root(), Ino::ROOT, None, usize::MAX, true).unwrap();
    assert_eq!(entries.len(), 50);
    for entry in entries {
        assert_eq!(Ok(entry.attr), namespace.lookup(&Cred::root(), Ino::ROOT, &entry.name));
    }
}
