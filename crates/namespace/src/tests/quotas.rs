//! The use of a quota equals the result of a walk after any changes, and limits hold.

use std::collections::BTreeSet;

use journal::Event;
use proptest::prelude::*;
use types::quota::{LIMITS, QuotaLimits, QuotaReport, Usage};
use types::{
    AttrChange, Cred, EntryName, Errno, Ino, RenameFlags, Seq, Timestamp, XattrChange, XattrFlags,
};

use super::tree::{no_fetch, warm};
use super::world::{any_op, cred, peek, plan, resolve};
use crate::{Mode, Namespace, PlannedInode, Refusal};

const DIR: u32 = 0o040_755;
const FILE: u32 = 0o100_644;

/// A namespace with quotas; every event has the next position.
struct Bench {
    namespace: Namespace,
    seq: u64,
}

impl Bench {
    fn new() -> Self {
        let mut namespace = Namespace::with_root(Timestamp(1));
        namespace.enforce_quotas();
        let mut bench = Self { namespace, seq: 100 };
        let change = AttrChange { mode: Some(0o777), ..AttrChange::default() };
        bench.live(|bench| {
            let change = bench.namespace.plan().setattr(&Cred::root(), Ino::ROOT, &change, time());
            Ok(bench.namespace.apply(Seq(1), Mode::Live, &change?.event()))
        });
        bench
    }

    /// `/a`, `/b` and `/a/a` have limits, and all of them have files and directories.
    fn populated() -> Self {
        let mut bench = Self::new();
        for name in [b"a", b"b", b"c"] {
            let dir = bench.make(Ino::ROOT, name, DIR, 0).unwrap();
            if name != b"c" {
                bench.limit(dir, "inodes=100000");
            }
            let below = [b"a", b"b"].map(|name| bench.make(dir, name, DIR, 0).unwrap());
            if name == b"a" {
                bench.limit(below[0], "bytes=100000");
            }
            for (number, dir) in (1..).zip([dir, below[0], below[1]]) {
                bench.make(dir, b"c", FILE, number).unwrap();
                bench.make(dir, b"d", DIR, 0).unwrap();
            }
        }
        bench
    }

    fn live<T>(&mut self, act: impl FnOnce(&mut Self) -> Result<T, Refusal>) -> T {
        act(self).unwrap()
    }

    fn apply(&mut self, mode: Mode, event: &Event<'_>) {
        self.seq += 1;
        self.namespace.apply(Seq(self.seq), mode, event);
        self.namespace.validate();
    }

    fn make(&mut self, dir: Ino, name: &[u8], mode: u32, size: u64) -> Result<Ino, Errno> {
        let ino = Ino(self.seq + 1);
        let new = PlannedInode { mode, size, time: time(), ..PlannedInode::default() };
        let planned =
            self.namespace.plan().make(&Cred::root(), EntryName::new(dir, name), &new, ino);
        let planned = planned.map_err(errno)?;
        self.apply(Mode::Live, &planned.event());
        Ok(ino)
    }

    fn limit(&mut self, dir: Ino, limits: &str) {
        let value = (!limits.is_empty()).then_some(limits.as_bytes());
        let change = XattrChange { name: LIMITS, value, flags: XattrFlags::default() };
        let planned = self.namespace.plan().setxattr(&Cred::root(), dir, change, time()).unwrap();
        self.apply(Mode::Live, &planned.event());
    }

    /// Counts to the end, in slices of a few names.
    fn count(&mut self) {
        for _ in 0..10_000 {
            if !self.namespace.is_counting_quotas() {
                return;
            }
            for dir in self.namespace.count_quotas(3, |_| true) {
                no_fetch(&mut self.namespace, dir);
            }
        }
        panic!("the count ends");
    }

    fn rename(&mut self, from: (Ino, &[u8]), to: (Ino, &[u8])) -> Result<(), Errno> {
        let (from, to) = (EntryName::new(from.0, from.1), EntryName::new(to.0, to.1));
        let flags = RenameFlags::default();
        let planned = self.namespace.plan().rename(&Cred::root(), from, to, flags, time());
        let planned = planned.map_err(errno)?.expect("another name");
        self.apply(Mode::Live, &planned.event());
        Ok(())
    }

    fn used(&self, dir: Ino) -> (u64, u64) {
        let QuotaReport { used: Usage { inodes, bytes }, is_counted, .. } =
            self.namespace.quotas_of(dir)[0];
        assert!(is_counted, "{dir}");
        (inodes, bytes)
    }

    /// The same, by looking at every name.
    fn walked(&mut self, root: Ino) -> Usage {
        let (mut used, mut seen) = (Usage::default(), BTreeSet::new());
        let tree = &self.namespace.tree;
        let mut todo = vec![root];
        // A removed tree may be of a directory that was removed, too.
        let removed = &tree.quotas.trashed;
        let mut top = 0;
        while let Some(above) = todo.get(top).copied() {
            let below = removed.iter().filter(|(_, of)| tree.is_within(**of, above));
            let new: Vec<Ino> =
                below.map(|(tree, _)| *tree).filter(|it| !todo.contains(it)).collect();
            todo.extend(new);
            top += 1;
        }
        while let Some(dir) = todo.pop() {
            let list =
                |namespace: &mut Namespace| namespace.list(&cred(0), dir, None, usize::MAX, true);
            for entry in warm(&mut self.namespace, &mut no_fetch, list).unwrap() {
                if seen.insert(entry.attr.ino) {
                    let is_dir = entry.attr.is_dir();
                    let bytes = if is_dir { 0 } else { entry.attr.size };
                    used = used.plus(Usage { inodes: 1, bytes });
                    todo.extend(is_dir.then_some(entry.attr.ino));
                }
            }
        }
        used
    }

    fn assert_counted(&mut self) {
        self.count();
        let mut roots: Vec<Ino> = self.namespace.quota_roots().collect();
        roots.retain(|root| self.namespace.path_of(*root).is_some());
        roots.sort_unstable();
        for root in roots {
            let used = self.namespace.quotas_of(root)[0].used;
            assert_eq!(used, self.walked(root), "{root}");
        }
    }
}

fn time() -> Timestamp {
    Timestamp(9)
}

fn errno(refusal: Refusal) -> Errno {
    match refusal {
        Refusal::Errno(errno) => errno,
        Refusal::Cold(dir) => panic!("{dir} is in memory"),
    }
}

#[test]
fn limits_hold_in_a_directory_and_below_it() {
    let mut bench = Bench::new();
    let top = bench.make(Ino::ROOT, b"top", DIR, 0).unwrap();
    let below = bench.make(top, b"below", DIR, 0).unwrap();
    bench.limit(top, "inodes=3 bytes=100");
    bench.count();
    assert_eq!(bench.used(below), (1, 0), "the directory itself does not count");
    bench.make(below, b"a", FILE, 60).unwrap();
    assert_eq!(bench.make(below, b"b", FILE, 41), Err(Errno::Quota));
    let file = bench.make(below, b"b", FILE, 40).unwrap();
    assert_eq!(bench.make(top, b"c", DIR, 0), Err(Errno::Quota));
    let grow = |bench: &Bench, size| {
        let change = AttrChange { size: Some(size), ..AttrChange::default() };
        bench.namespace.plan().setattr(&Cred::root(), file, &change, time()).map(drop)
    };
    assert_eq!(grow(&bench, 41), Err(Errno::Quota.into()));
    assert_eq!(grow(&bench, 0), Ok(()));
    let data = bench.namespace.plan().setdata(&Cred::root(), file, b"", 41, time());
    assert_eq!(data.map(drop), Err(Errno::Quota.into()));
    // A lower limit refuses more, and takes nothing away.
    bench.limit(top, "inodes=1");
    assert_eq!(grow(&bench, 1 << 30), Ok(()), "there is no limit of bytes");
    assert_eq!(bench.make(Ino::ROOT, b"elsewhere", FILE, 1 << 40).map(drop), Ok(()));
    bench.limit(top, "");
    assert!(bench.namespace.quotas_of(below).is_empty());
    assert!(bench.make(below, b"d", FILE, 0).is_ok());
}

#[test]
fn each_of_several_quotas_above_one_another_holds() {
    let mut bench = Bench::new();
    let outer = bench.make(Ino::ROOT, b"outer", DIR, 0).unwrap();
    let inner = bench.make(outer, b"inner", DIR, 0).unwrap();
    bench.limit(outer, "inodes=3");
    bench.limit(inner, "inodes=9 bytes=10");
    bench.count();
    bench.make(inner, b"a", FILE, 10).unwrap();
    assert_eq!((bench.used(inner), bench.used(outer)), ((1, 10), (2, 10)));
    assert_eq!(bench.make(inner, b"b", FILE, 1), Err(Errno::Quota), "bytes of the inner one");
    bench.make(inner, b"b", FILE, 0).unwrap();
    assert_eq!(bench.make(inner, b"c", FILE, 0), Err(Errno::Quota), "inodes of the outer one");
    // Within the outer quota a file moves although the outer quota is full.
    bench.rename((inner, b"a"), (outer, b"a")).unwrap();
    assert_eq!((bench.used(inner), bench.used(outer)), ((1, 0), (3, 10)));
    bench.assert_counted();
}

#[test]
fn a_tree_and_a_hard_link_do_not_leave_their_quota() {
    let mut bench = Bench::new();
    let home = bench.make(Ino::ROOT, b"home", DIR, 0).unwrap();
    bench.limit(home, "inodes=4 bytes=50");
    let tree = bench.make(home, b"tree", DIR, 0).unwrap();
    let file = bench.make(tree, b"file", FILE, 30).unwrap();
    bench.count();
    assert_eq!(bench.rename((home, b"tree"), (Ino::ROOT, b"tree")), Err(Errno::CrossDevice));
    let link = |bench: &Bench, dir| {
        let entry = EntryName::new(dir, b"second");
        bench.namespace.plan().link(&Cred::root(), file, entry, time()).map(drop)
    };
    assert_eq!(link(&bench, Ino::ROOT), Err(Errno::CrossDevice.into()));
    assert!(link(&bench, home).is_ok());
    let large = bench.make(Ino::ROOT, b"large", FILE, 21).unwrap();
    assert_eq!(bench.rename((Ino::ROOT, b"large"), (home, b"large")), Err(Errno::Quota));
    // It takes the place of a file, and so of its bytes.
    assert_eq!(bench.rename((Ino::ROOT, b"large"), (tree, b"file")), Ok(()));
    assert_eq!(bench.used(home), (2, 21));
    assert_eq!(bench.namespace.home_of(large), Some(tree));
    bench.rename((tree, b"file"), (Ino::ROOT, b"large")).unwrap();
    bench.assert_counted();
    assert_eq!(bench.used(home), (1, 0));
}

#[test]
fn a_removed_tree_with_limits_counts_where_it_was_until_it_is_reaped() {
    let mut bench = Bench::new();
    let outer = bench.make(Ino::ROOT, b"outer", DIR, 0).unwrap();
    let inner = bench.make(outer, b"inner", DIR, 0).unwrap();
    bench.limit(outer, "inodes=9");
    bench.limit(inner, "inodes=9");
    let file = bench.make(inner, b"file", FILE, 5).unwrap();
    bench.count();
    let entry = EntryName::new(outer, b"inner");
    let planned = bench.namespace.plan().discard(&Cred::root(), entry, b"kept", time()).unwrap();
    bench.apply(Mode::Live, &planned.event());
    assert_eq!(bench.used(outer), (1, 5), "the file, not the root of the tree");
    bench.apply(
        Mode::Live,
        &Event::Unlink { parent: inner, name: b"file", ino: file, time: time() },
    );
    assert_eq!(bench.used(outer), (0, 0));
    let planned = bench.namespace.plan().reaped(b"kept", time()).unwrap();
    bench.apply(Mode::Live, &planned.event());
    assert_eq!(bench.used(outer), (0, 0));
    bench.assert_counted();
}

#[test]
fn changes_during_a_count_are_counted_once() {
    let mut bench = Bench::new();
    let home = bench.make(Ino::ROOT, b"home", DIR, 0).unwrap();
    let old = bench.make(home, b"old", DIR, 0).unwrap();
    bench.make(old, b"file", FILE, 5).unwrap();
    bench.limit(home, "inodes=9");
    assert!(bench.namespace.count_quotas(1, |_| true).is_empty());
    assert!(!bench.namespace.quotas_of(home)[0].is_counted, "/users/old is still to be counted");
    // The count comes to one of them only.
    let new = bench.make(home, b"new", DIR, 0).unwrap();
    bench.make(new, b"file", FILE, 7).unwrap();
    bench.make(old, b"other", FILE, 11).unwrap();
    bench.rename((home, b"old"), (new, b"old")).unwrap();
    bench.assert_counted();
    assert_eq!(bench.used(home), (5, 23));
}

#[test]
fn a_file_with_two_names_counts_once() {
    let mut bench = Bench::new();
    let home = bench.make(Ino::ROOT, b"home", DIR, 0).unwrap();
    bench.limit(home, "inodes=9");
    let file = bench.make(home, b"one", FILE, 30).unwrap();
    bench.count();
    let entry = EntryName::new(home, b"two");
    let planned = bench.namespace.plan().link(&Cred::root(), file, entry, time()).unwrap();
    bench.apply(Mode::Live, &planned.event());
    assert_eq!(bench.used(home), (1, 30));
    for (name, used) in [(b"one", (1, 30)), (b"two", (0, 0))] {
        let planned = bench.namespace.plan().unlink(&Cred::root(), home, name, time()).unwrap();
        bench.apply(Mode::Live, &planned.event());
        assert_eq!(bench.used(home), used);
        bench.assert_counted();
    }
}

#[test]
fn names_of_a_linked_file_that_move_ahead_of_a_count_are_counted() {
    let mut bench = Bench::new();
    let home = bench.make(Ino::ROOT, b"home", DIR, 0).unwrap();
    let dirs = [b"a", b"b"].map(|name| bench.make(home, name, DIR, 0).unwrap());
    bench.limit(home, "inodes=9");
    // The limited directory, and one of the two.
    bench.namespace.count_quotas(3, |_| true);
    let is_visited = |dir: &Ino| {
        bench.namespace.tree.quotas.visited(home).is_some_and(|visited| visited.contains(dir))
    };
    let (to, from): (Vec<Ino>, Vec<Ino>) = dirs.iter().partition(|dir| is_visited(dir));
    let (to, from) = (to[0], from[0]);
    let file = bench.make(from, b"one", FILE, 30).unwrap();
    let entry = EntryName::new(from, b"two");
    let planned = bench.namespace.plan().link(&Cred::root(), file, entry, time()).unwrap();
    bench.apply(Mode::Live, &planned.event());
    for name in [b"one", b"two"] {
        bench.rename((from, name), (to, name)).unwrap();
    }
    bench.assert_counted();
    assert_eq!(bench.used(home), (3, 30));
}

#[test]
fn only_root_sets_limits_and_only_on_directories() {
    let mut bench = Bench::new();
    let (file, dir) = (
        bench.make(Ino::ROOT, b"file", FILE, 0).unwrap(),
        bench.make(Ino::ROOT, b"dir", DIR, 0).unwrap(),
    );
    let own = AttrChange { uid: Some(1), ..AttrChange::default() };
    let planned = bench.namespace.plan().setattr(&Cred::root(), dir, &own, time()).unwrap();
    bench.apply(Mode::Live, &planned.event());
    let set = |namespace: &Namespace, who: &Cred, ino, value: &[u8]| {
        let change = XattrChange { name: LIMITS, value: Some(value), flags: XattrFlags::default() };
        namespace.plan().setxattr(who, ino, change, time()).map(drop).map_err(errno)
    };
    let limits = b"inodes=1";
    assert_eq!(set(&bench.namespace, &cred(1), dir, limits), Err(Errno::NotPermitted));
    assert_eq!(set(&bench.namespace, &cred(0), file, limits), Err(Errno::NotDirectory));
    assert_eq!(set(&bench.namespace, &cred(0), dir, b"many"), Err(Errno::Invalid));
    assert_eq!(set(&bench.namespace, &cred(0), dir, limits), Ok(()));
    let view = Namespace::with_root(Timestamp(1));
    assert_eq!(set(&view, &cred(0), Ino::ROOT, limits), Err(Errno::NotSupported));
}

#[test]
fn a_decoupled_subtree_pays_in_advance() {
    let mut bench = Bench::new();
    let home = bench.make(Ino::ROOT, b"home", DIR, 0).unwrap();
    bench.limit(home, "inodes=10");
    let job = bench.make(home, b"job", DIR, 0).unwrap();
    bench.count();
    bench.namespace.reserve([(job, 8)].into_iter());
    bench.make(home, b"last", FILE, 0).unwrap();
    assert_eq!(bench.make(home, b"more", FILE, 0), Err(Errno::Quota));
    assert!(bench.make(job, b"own", FILE, 0).is_ok(), "the subtree has them reserved");
    assert!(bench.namespace.quota_without_room(home, 1).is_some());
    bench.namespace.reserve(std::iter::empty());
    assert!(bench.make(home, b"more", FILE, 0).is_ok());
    assert_eq!(QuotaLimits::parse(b"inodes=10").unwrap(), bench.namespace.quotas_of(job)[0].limits);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Directories get limits while they are empty, so that the walk and the quotas agree about
    /// files with several names. A merged event may be a create over a name that exists.
    #[test]
    fn the_use_is_what_a_walk_finds(
        ops in prop::collection::vec((any_op(), 0..6u8, 0..36u8), 1..120)
    ) {
        let mut bench = Bench::populated();
        for (op, who, chance) in ops {
            // Most operations are root's, and succeed.
            let who = cred(if who == 0 { 1 } else { 0 });
            let (ino, time) = (Ino(bench.seq + 1000), Timestamp(1000));
            let (one, two) = op.places();
            let mut at = |place| {
                resolve(place, |dir, name| peek(&mut bench.namespace, &mut no_fetch, dir, name))
            };
            let targets = (at(one), at(two));
            let merges = chance < 3;
            let planned = warm(&mut bench.namespace, &mut no_fetch, |namespace| {
                plan(namespace, &who, op, targets, (ino, time))
            });
            let blind = op.blindly(targets.0, (ino, time)).filter(|_| merges);
            if let Some(planned) = blind.or(planned.ok().flatten()) {
                let mode = if merges { Mode::Merge } else { Mode::Live };
                bench.apply(mode, &planned.event());
                bench.namespace.take_losses();
                let is_made = matches!(planned.event(), Event::Create(create)
                    if create.file_type() == types::FileType::Directory);
                if is_made && !merges && chance % 2 == 0 {
                    bench.limit(ino, "inodes=100000");
                }
            }
            match chance {
                20 => bench.assert_counted(),
                // A slice of a count.
                21..=30 => drop(bench.namespace.count_quotas(1, |_| true)),
                // The count begins again.
                31..=35 => bench.namespace.tree.quotas.doubt_all(),
                _ => {}
            }
        }
        bench.assert_counted();
    }
}
