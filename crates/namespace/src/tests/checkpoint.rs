//! A crash at any moment loses nothing: the stored state of each directory, at its own time each,
//! and the journal since the oldest unstored change, give the tree.

mod removed;

use std::collections::BTreeMap;

use journal::{Event, JournalBuffer};
use metastore::{DirTouch, InodeRecord, Row, RowValue, Rows};
use proptest::prelude::*;
use types::{Attr, EntryName, FileType, Ino, Origin, RenameFlags, Seq, Timestamp};

use super::tree::{self, warm};
use super::world::{At, Op, at, change_op, change_or_policy, cred, peek, plan, resolve};
use crate::{
    Capture, Cred, FreedInode, Mode, Namespace, Planned, PlannedInode, Refusal, StoredCounts,
};

/// A row as the store keeps it.
#[derive(Clone, Debug)]
enum Stored {
    Remote(Ino, FileType),
    Inode { attr: Attr, version: Seq, data: Vec<u8>, extra: Vec<u8> },
}

/// The metadata store.
#[derive(Default)]
struct Store {
    positions: BTreeMap<Ino, (Seq, DirTouch)>,
    counts: BTreeMap<Ino, (u64, u64, bool)>,
    dirs: BTreeMap<Ino, BTreeMap<Vec<u8>, Stored>>,
}

impl Store {
    fn commit(&mut self, dir: Ino, rows: &Rows) {
        let stored = self.dirs.entry(dir).or_default();
        for Row { name, value } in rows.iter() {
            let value = match value {
                RowValue::Removed => {
                    stored.remove(name);
                    continue;
                }
                RowValue::Remote { ino, file_type } => Stored::Remote(ino, file_type),
                RowValue::Inode(InodeRecord { attr, version, data, extra, .. }) => {
                    Stored::Inode { attr, version, data: data.to_vec(), extra: extra.to_vec() }
                }
            };
            stored.insert(name.to_vec(), value);
        }
    }

    fn load(&self, namespace: &mut Namespace, dir: Ino) {
        namespace.store().load(dir, self.rows(dir));
        let (position, touched) = self.positions.get(&dir).copied().unwrap_or_default();
        namespace.store().finish_load(dir, position, touched);
    }

    /// Looks names up, also such that the directory does not have.
    fn look_up(&self, namespace: &mut Namespace, dir: Ino, names: &[&'static [u8]]) {
        let mut rows = Rows::new();
        for name in names {
            let found = self.rows(dir).find(|row| row.name == *name);
            rows.push(name, found.map_or(RowValue::Removed, |row| row.value));
        }
        let (entries, subdirs, exact) = self.counts.get(&dir).copied().unwrap_or((0, 0, true));
        let counts = StoredCounts { entries, subdirs, exact, may_estimate: false };
        let (position, touched) = self.positions.get(&dir).copied().unwrap_or_default();
        namespace.store().load_names(dir, rows.iter(), counts, position, touched);
    }

    fn replace(&self, namespace: &mut Namespace, dir: Ino) {
        let (position, touched) = self.positions[&dir];
        namespace.store().replace(dir, self.rows(dir), position, touched);
    }

    fn rows(&self, dir: Ino) -> impl Iterator<Item = Row<'_>> {
        self.dirs.get(&dir).into_iter().flatten().map(|(name, stored)| {
            let value = match *stored {
                Stored::Remote(ino, file_type) => RowValue::Remote { ino, file_type },
                Stored::Inode { attr, version, ref data, ref extra } => {
                    RowValue::Inode(InodeRecord { attr, version, data, extra, pointer: None })
                }
            };
            Row { name, value }
        })
    }
}

/// A checkpoint of a directory under way.
struct Flight {
    capture: Capture,
    rows: Rows,
    since: Seq,
    position: Seq,
}

/// A server, its journal and its store.
struct Server {
    namespace: Namespace,
    journal: JournalBuffer,
    store: Store,
    flights: Vec<Flight>,
    freed: Vec<(Seq, FreedInode)>,
    /// Journals that were merged, a slice each.
    merged: Vec<JournalBuffer>,
    /// Events before this one are forgotten.
    trimmed: Seq,
    next: u64,
    /// The steps, for people.
    trace: String,
}

#[derive(Clone, Debug)]
enum Step {
    Do(Op, u8),
    /// Merges a journal.
    Merge(Vec<Op>),
    /// Begins a checkpoint of the directory of this number among those that are dirty.
    Begin(u8),
    /// Captures some rows for one of those under way.
    Capture(u8, u8),
    /// Captures the rest, and commits.
    Commit(u8),
    /// Forgets a directory that is stored.
    Evict(u8),
    /// Forgets the stored part of a directory.
    Thin(u8),
    /// Looks some names of a directory up that is not in memory, or how many it has.
    LookUp(u8, u8),
    /// Forgets the stored part of the journal, and purges removed files.
    Trim,
    /// Resolves a path, which may fetch.
    Visit(At),
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        60 => (change_or_policy(), 0..10u8).prop_map(|(op, who)| Step::Do(op, who)),
        6 => prop::collection::vec(change_op(), 1..12).prop_map(Step::Merge),
        12 => any::<u8>().prop_map(Step::Begin),
        6 => (any::<u8>(), 1..3u8).prop_map(|(flight, budget)| Step::Capture(flight, budget)),
        9 => any::<u8>().prop_map(Step::Commit),
        6 => any::<u8>().prop_map(Step::Evict),
        6 => any::<u8>().prop_map(Step::Thin),
        6 => (any::<u8>(), any::<u8>()).prop_map(|(dir, names)| Step::LookUp(dir, names)),
        3 => Just(Step::Trim),
        3 => at().prop_map(Step::Visit),
        2 => Just(Step::Crash),
    ]
}

impl Server {
    fn new() -> Self {
        let mut server = Self {
            namespace: Namespace::with_root(Timestamp(1)),
            journal: JournalBuffer::new(Seq(1), true),
            store: Store::default(),
            flights: Vec::new(),
            freed: Vec::new(),
            merged: Vec::new(),
            trimmed: Seq(1),
            next: 1,
            trace: String::new(),
        };
        while server.begin(0) {
            server.commit(0);
        }
        server
    }

    /// Runs `ask` and fetches the directories that it lacks.
    fn warm<T>(
        &mut self,
        ask: impl FnMut(&mut Namespace) -> Result<T, Refusal>,
    ) -> Result<T, types::Errno> {
        let Self { namespace, store, flights, .. } = self;
        warm(namespace, &mut |namespace, dir| fetch(namespace, store, flights, dir), ask)
    }

    fn resolve(&mut self, at: At) -> super::world::Target {
        let Self { namespace, store, flights, .. } = self;
        resolve(at, |dir, name| {
            peek(namespace, &mut |namespace, dir| fetch(namespace, store, flights, dir), dir, name)
        })
    }

    fn perform(&mut self, op: Op, who: u8) {
        let who = cred(if who > 3 { 0 } else { who });
        let (one, two) = op.places();
        let targets = (self.resolve(one), self.resolve(two));
        let fresh = (Ino(1000 + self.next), Timestamp(1000 + self.next.cast_signed()));
        let planned = self.warm(|namespace| plan(namespace, &who, op, targets, fresh));
        if let Ok(Some(planned)) = planned {
            self.execute(&planned);
        }
    }

    fn perform_planned(
        &mut self,
        plan: impl FnMut(&mut Namespace) -> Result<Planned<'static>, Refusal>,
    ) {
        let planned = self.warm(plan).expect("it is allowed");
        self.execute(&planned);
    }

    fn execute(&mut self, planned: &Planned<'_>) {
        let event = planned.event();
        let seq = self.journal.append(Origin::default(), &event);
        assert_eq!(seq, Seq(self.next));
        self.next += 1;
        self.trace += &format!("\n{seq} {event:?}");
        self.namespace.apply(seq, Mode::Live, &event);
        self.freed.extend(self.namespace.take_freed().into_iter().map(|freed| (seq, freed)));
    }

    /// Merges the journal of a client that did this blindly, in slices as a server does.
    fn merge(&mut self, ops: &[Op]) {
        let mut slice = JournalBuffer::new(Seq(1), false);
        for (at, op) in ops.iter().enumerate() {
            let (one, two) = op.places();
            let targets = (self.resolve(one), self.resolve(two));
            let number = self.next * 100 + at as u64;
            let fresh = (Ino(1_000_000 + number), Timestamp(number.cast_signed()));
            // A target that is no directory of the subtree is refused before anything is merged.
            let _ = self.warm(|namespace| namespace.getattr(targets.0.dir));
            if !self.namespace.is_dir(targets.0.dir) {
                continue;
            }
            let planned = match op.blindly(targets.0, fresh) {
                Some(planned) => Ok(Some(planned)),
                None => self.warm(|namespace| plan(namespace, &Cred::root(), *op, targets, fresh)),
            };
            let Ok(Some(planned)) = planned else { continue };
            let event = planned.event();
            self.fetch_for(|namespace| namespace.needs().in_merge(&event, |_| false));
            if matches!(event, Event::Create(_)) {
                self.trace += &format!("\n  merge at {} {event:?}", self.next);
                slice.append(Origin::default(), &event);
                self.namespace.apply(Seq(self.next), Mode::Merge, &event);
                if self.namespace.has_losses() {
                    self.record(std::mem::replace(&mut slice, JournalBuffer::new(Seq(1), false)));
                }
            } else {
                self.record(std::mem::replace(&mut slice, JournalBuffer::new(Seq(1), false)));
                let Self { journal, next, trace, .. } = self;
                self.namespace.merge_exactly(Seq(*next), &event, |event| {
                    let seq = journal.append(Origin::default(), event);
                    *trace += &format!("\n  merged {seq} {event:?}");
                    *next += 1;
                });
                self.record(JournalBuffer::new(Seq(1), false));
            }
        }
        self.record(slice);
    }

    fn fetch_for(&mut self, needs: impl Fn(&Namespace) -> Option<Ino>) {
        let Self { namespace, store, flights, .. } = self;
        while let Some(dir) = needs(namespace) {
            fetch(namespace, store, flights, dir);
        }
    }

    /// Writes down that a slice was merged.
    fn record(&mut self, mut slice: JournalBuffer) {
        let mut losses = Vec::new();
        self.namespace.take_losses().iter().for_each(|loss| loss.put(&mut losses));
        slice.close_block();
        let event = Event::Merged {
            subtree: Ino(self.merged.len() as u64),
            client: types::ClientId(1),
            object: b"",
            first: 0,
            events: 0,
            last: true,
            losses: &losses,
        };
        self.merged.push(slice);
        let seq = self.journal.append(Origin::default(), &event);
        self.next += 1;
        self.freed.extend(self.namespace.take_freed().into_iter().map(|freed| (seq, freed)));
    }

    /// Applies a slice again.
    fn remerge(namespace: &mut Namespace, store: &Store, at: (Seq, &JournalBuffer, &[u8])) {
        let (seq, slice, losses) = at;
        for block in slice.blocks() {
            let (block, _) = journal::Block::read(block, 0).expect("written just now");
            let mut events = block.events();
            while let Some(record) = events.next_event().expect("written just now") {
                while let Some(dir) = namespace.needs().again(seq, &record.event) {
                    store.load(namespace, dir);
                }
                namespace.apply(seq, Mode::Remerge, &record.event);
            }
        }
        for loss in journal::Loss::all(losses) {
            if store.positions.get(&loss.winner).is_some_and(|(position, _)| *position >= seq) {
                store.replace(namespace, loss.winner);
                namespace.drop_loser(loss.loser);
                continue;
            }
            while let Some(dir) = namespace.needs().to_lose(&loss) {
                store.load(namespace, dir);
            }
            namespace.lose_again(seq, &loss);
        }
    }

    fn begin(&mut self, pick: u8) -> bool {
        let namespace = &mut self.namespace;
        let mut dirty = namespace.dirs().directory_list();
        dirty.retain(|dir| {
            namespace.dirs().dirty_since(*dir).is_some() && !namespace.dirs().is_flushing(*dir)
        });
        if dirty.is_empty() {
            return false;
        }
        let dir = dirty[usize::from(pick) % dirty.len()];
        let since = namespace.dirs().dirty_since(dir).expect("it is dirty");
        let capture = namespace.store().begin_capture(dir).expect("it is there");
        self.trace += &format!("\nbegin {dir} since {since}");
        self.flights.push(Flight {
            capture,
            rows: Rows::new(),
            since,
            position: Seq(self.next - 1),
        });
        true
    }

    fn capture(&mut self, pick: u8, budget: u8) {
        if let Some(at) = usize::from(pick).checked_rem(self.flights.len()) {
            let flight = &mut self.flights[at];
            self.namespace.store().capture(
                &mut flight.capture,
                &mut flight.rows,
                usize::from(budget),
            );
        }
    }

    fn commit(&mut self, pick: u8) {
        if let Some(at) = usize::from(pick).checked_rem(self.flights.len()) {
            let flight = self.flights.swap_remove(at);
            self.trace += &format!("\ncommit {}", flight.capture.dir);
            commit(&mut self.namespace, &mut self.store, flight);
        }
    }

    fn trim(&mut self) {
        let dirty = self.namespace.dirtiest().map_or(Seq(u64::MAX), |(since, _)| since);
        let flying = self.flights.iter().map(|flight| flight.since).min();
        let oldest = dirty.min(flying.unwrap_or(Seq(self.next))).min(Seq(self.next));
        self.trimmed = self.trimmed.max(oldest);
        self.trace += &format!("\ntrim to {oldest}");
        let store = &mut self.store;
        self.freed.retain(|(seq, freed)| {
            if *seq < oldest && freed.is_dir {
                store.dirs.remove(&freed.ino);
            }
            *seq >= oldest
        });
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Do(op, who) => self.perform(op, who),
            Step::Merge(ops) => self.merge(&ops),
            Step::Begin(pick) => {
                self.begin(pick);
            }
            Step::Capture(pick, budget) => self.capture(pick, budget),
            Step::Commit(pick) => self.commit(pick),
            Step::Evict(pick) => {
                let all = self.namespace.dirs().directory_list();
                self.namespace
                    .store()
                    .evict(all[usize::from(pick) % all.len()], &types::Set::default());
            }
            Step::Thin(pick) => {
                let all = self.namespace.dirs().directory_list();
                self.namespace
                    .store()
                    .thin(all[usize::from(pick) % all.len()], &types::Set::default());
            }
            Step::LookUp(pick, names) => self.look_up(pick, names),
            Step::Trim => self.trim(),
            Step::Visit(at) => {
                self.resolve(at);
            }
            Step::Crash => self.crash(),
        }
    }

    /// A directory whose inode is in memory, as a request would have to see it first.
    fn look_up(&mut self, pick: u8, names: u8) {
        let Self { namespace, store, flights, .. } = self;
        let mut dirs: Vec<Ino> = store.dirs.keys().copied().collect();
        dirs.retain(|dir| namespace.is_dir(*dir) && namespace.is_anchored(*dir));
        let Some(at) = usize::from(pick).checked_rem(dirs.len()) else { return };
        let dir = dirs[at];
        if let Some(at) = flights.iter().position(|flight| flight.capture.dir == dir) {
            commit(namespace, store, flights.swap_remove(at));
        }
        let all: [&'static [u8]; 4] = [b"a", b"b", b"c", b"d"];
        let wanted = all.iter().enumerate().filter(|(bit, _)| names & 1 << bit != 0);
        let wanted: Vec<_> = wanted.map(|(_, name)| *name).collect();
        store.look_up(namespace, dir, &wanted);
        for name in wanted {
            assert!(namespace.dirs().knows_name(dir, name), "{dir}: {name:?} was looked up");
        }
    }

    fn tree(&mut self) -> tree::Tree {
        let Self { namespace, store, flights, .. } = self;
        let fetch = &mut |namespace: &mut Namespace, dir| fetch(namespace, store, flights, dir);
        tree::of_namespace(namespace, fetch)
    }

    /// Everything in memory is lost; recovery gives the same tree.
    fn crash(&mut self) {
        // Walking the tree commits checkpoints that are in its way, which must not help.
        let before = {
            let Store { dirs, positions, counts } = &self.store;
            let stored = (dirs.clone(), positions.clone(), counts.clone());
            let flights = std::mem::take(&mut self.flights);
            for flight in &flights {
                // They are in memory as a whole, or they could not be written.
                self.namespace.store().end_capture(flight.capture.dir);
            }
            let mut blind = Vec::new();
            let Self { namespace, store, .. } = self;
            let before = tree::of_namespace(namespace, &mut |namespace, dir| {
                if let Some(at) = flights.iter().position(|flight| flight.capture.dir == dir) {
                    blind.push(at);
                }
                store.load(namespace, dir);
            });
            (self.store.dirs, self.store.positions, self.store.counts) = stored;
            if blind.is_empty() { Some(before) } else { None }
        };
        self.trace += "\ncrash";
        self.recover();
        let after = self.tree();
        if let Some(before) = before {
            tree::assert_same(
                &before,
                &after,
                &format!("{}\nbefore and after a crash", self.trace),
            );
        }
    }

    fn recover(&mut self) {
        self.namespace = Namespace::new();
        self.freed.clear();
        self.store.load(&mut self.namespace, Ino::ANCHOR);
        self.namespace.replay_begins();
        self.journal.close_block();
        for block in self.journal.blocks() {
            let (block, _) = journal::Block::read(block, 0).expect("written just now");
            let mut events = block.events();
            while let Some(record) = events.next_event().expect("written just now") {
                if record.seq < self.trimmed {
                    continue;
                }
                while let Some(dir) = self.namespace.needs().again(record.seq, &record.event) {
                    assert!(!self.namespace.is_complete(dir), "{dir} was fetched before");
                    self.store.load(&mut self.namespace, dir);
                }
                if let Event::Merged { subtree, losses, .. } = record.event {
                    let slice = &self.merged[subtree.0 as usize];
                    Self::remerge(&mut self.namespace, &self.store, (record.seq, slice, losses));
                }
                self.namespace.apply(record.seq, Mode::Replay, &record.event);
            }
        }
        self.namespace.replay_ended();
        self.namespace.take_freed();
    }
}

fn commit(namespace: &mut Namespace, store: &mut Store, mut flight: Flight) {
    while !namespace.store().capture(&mut flight.capture, &mut flight.rows, 2) {}
    if !namespace.dirs().is_flushing(flight.capture.dir) {
        // It is gone, and the number of captured rows is unknown.
        return;
    }
    store.commit(flight.capture.dir, &flight.rows);
    store.counts.insert(flight.capture.dir, namespace.dirs().counts(flight.capture.dir));
    let touched = namespace.dirs().unstored_change(flight.capture.dir);
    store.positions.insert(flight.capture.dir, (flight.position, touched));
    namespace.store().end_capture(flight.capture.dir);
}

/// A directory that is being written is read when that is done.
fn fetch(namespace: &mut Namespace, store: &mut Store, flights: &mut Vec<Flight>, dir: Ino) {
    if let Some(at) = flights.iter().position(|flight| flight.capture.dir == dir) {
        commit(namespace, store, flights.swap_remove(at));
    }
    store.load(namespace, dir);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, max_shrink_iters: 20_000, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn fuzzy_checkpoints_and_the_journal_give_the_tree(
        steps in prop::collection::vec(step(), 1..250),
    ) {
        let mut server = Server::new();
        for step in steps {
            server.run(step);
        }
        server.crash();
        server.crash();
    }
}

/// The directory is stored with `d` as a second name of the inode, while the replay is still where
/// the inode has one name and `d` is another file.
#[test]
fn a_name_of_a_later_time_takes_no_link_away() {
    let root = Cred::root();
    let new = PlannedInode { mode: 0o100_644, ..PlannedInode::default() };
    let mut server = Server::new();
    server.perform_planned(|server| {
        server.plan().make(&root, EntryName::new(Ino::ROOT, b"d"), &new, Ino(8))
    });
    while server.begin(0) {
        server.commit(0);
    }
    server.trim();
    server.perform_planned(|server| {
        server.plan().make(&root, EntryName::new(Ino::ROOT, b"c"), &new, Ino(9))
    });
    server.perform_planned(|server| server.plan().unlink(&root, Ino::ROOT, b"d", Timestamp(3)));
    let link = EntryName::new(Ino::ROOT, b"d");
    server.perform_planned(|server| server.plan().link(&root, Ino(9), link, Timestamp(4)));
    server.begin(0);
    server.commit(0);
    server.recover();
    assert!(server.namespace.home_of(Ino(9)) == Some(Ino::LINKS));
    let tree = server.tree();
    for path in ["/c", "/d"] {
        assert_eq!((tree[path].attr.ino, tree[path].attr.nlink), (Ino(9), 2), "{path}");
    }
    // Both are names like any other: removing the older one leaves the other.
    server.perform_planned(|server| server.plan().unlink(&root, Ino::ROOT, b"c", Timestamp(5)));
    assert_eq!(server.tree()["/d"].attr.nlink, 1);
}

/// Missing names in memory are room that is taken: none may stay counted that is not there, and the
/// number is at hand without a look at each directory.
#[test]
fn missing_names_in_memory_are_counted() {
    let new = PlannedInode { mode: 0o040_755, ..PlannedInode::default() };
    let file = PlannedInode { mode: 0o100_644, ..PlannedInode::default() };
    let (dir, mut server) = (Ino(20), Server::new());
    server.perform_planned(|namespace| {
        namespace.plan().make(&Cred::root(), EntryName::new(Ino::ROOT, b"d"), &new, dir)
    });
    server.perform_planned(|namespace| {
        namespace.plan().make(&Cred::root(), EntryName::new(dir, b"file"), &file, Ino(22))
    });
    while server.begin(0) {
        server.commit(0);
    }
    let Server { namespace, store, .. } = &mut server;
    assert_eq!(namespace.store().thin(dir, &types::Set::default()), 1);
    store.look_up(namespace, dir, &[b"a", b"b", b"c"]);
    store.look_up(namespace, dir, &[b"a"]);
    assert_eq!(namespace.dirs().absent_at_most(), 3);
    server.perform_planned(|namespace| {
        namespace.plan().make(&Cred::root(), EntryName::new(dir, b"a"), &file, Ino(21))
    });
    server.namespace.store().count_absent();
    assert_eq!(server.namespace.dirs().absent_at_most(), 2);
    while server.begin(0) {
        server.commit(0);
    }
    assert_eq!(server.namespace.store().thin(dir, &types::Set::default()), 1);
    assert_eq!(server.namespace.dirs().absent_at_most(), 0);
}

/// The name is gone from the stored directory: only the event leads to the inode.
#[test]
fn a_lost_link_is_counted_after_a_crash() {
    let root = Cred::root();
    let mut server = Server::new();
    let new = PlannedInode { mode: 0o100_644, ..PlannedInode::default() };
    server.perform_planned(|namespace| {
        namespace.plan().make(&root, EntryName::new(Ino::ROOT, b"a"), &new, Ino(9))
    });
    server.perform_planned(|namespace| {
        namespace.plan().link(&root, Ino(9), EntryName::new(Ino::ROOT, b"b"), Timestamp(2))
    });
    while server.begin(0) {
        server.commit(0);
    }
    server.trim();
    server
        .perform_planned(|namespace| namespace.plan().unlink(&root, Ino::ROOT, b"a", Timestamp(3)));
    // The root is stored, the links are not.
    server.begin(0);
    server.commit(0);
    server.recover();
    assert_eq!(server.tree()["/b"].attr.nlink, 1);
}

/// The store has the time of its last change with its names, and an older one with its inode.
#[test]
fn a_directory_is_moved_with_the_times_of_its_names() {
    let root = Cred::root();
    let mut server = Server::new();
    let new = PlannedInode { mode: 0o040_755, time: Timestamp(2), ..PlannedInode::default() };
    server.perform_planned(|server| {
        server.plan().make(&root, EntryName::new(Ino::ROOT, b"d"), &new, Ino(8))
    });
    while server.begin(0) {
        server.commit(0);
    }
    server.trim();
    let new = PlannedInode { mode: 0o100_644, time: Timestamp(3), ..PlannedInode::default() };
    server.perform_planned(|server| {
        server.plan().make(&root, EntryName::new(Ino(8), b"f"), &new, Ino(9))
    });
    // Where `d` is named is not in memory after the crash.
    server.recover();
    while server.begin(0) {
        server.commit(0);
    }
    server.trim();
    server.recover();
    server.warm(|server| server.lookup(&root, Ino::ROOT, b"d")).expect("it is there");
    let moved = server.warm(|server| {
        let to = EntryName::new(Ino::ROOT, b"e");
        server.plan().rename(
            &root,
            EntryName::new(Ino::ROOT, b"d"),
            to,
            RenameFlags::default(),
            Timestamp(4),
        )
    });
    server.execute(&moved.expect("it is allowed").expect("the names differ"));
    let attr = server.tree()["/e"].attr;
    assert_eq!((attr.mtime, attr.ctime), (Timestamp(3), Timestamp(4)));
}

/// A merge without a journal puts a directory in the place of one that the journal makes, and takes
/// over its names. In the replay the one that the journal makes meets the one that is stored.
#[test]
fn a_merged_directory_keeps_the_names_it_took_over_after_a_crash() {
    let root = Cred::root();
    let mut server = Server::new();
    let new = |mode| PlannedInode { mode, ..PlannedInode::default() };
    let (dir, file) = (new(0o040_755), new(0o100_644));
    server.perform_planned(|server| {
        server.plan().make(&root, EntryName::new(Ino::ROOT, b"w"), &file, Ino(7))
    });
    server.perform_planned(|server| {
        server.plan().make(&root, EntryName::new(Ino::ROOT, b"x"), &file, Ino(9))
    });
    while server.begin(0) {
        server.commit(0);
    }
    server.trim();
    // For this the replay has the root fetched.
    server.perform_planned(|server| server.plan().unlink(&root, Ino::ROOT, b"w", Timestamp(2)));
    server.perform_planned(|server| {
        server.plan().make(&root, EntryName::new(Ino::ROOT, b"d"), &dir, Ino(8))
    });
    let (from, to) = (EntryName::new(Ino::ROOT, b"x"), EntryName::new(Ino(8), b"f"));
    let moved =
        server.namespace.plan().rename(&root, from, to, RenameFlags::default(), Timestamp(2));
    server.execute(&moved.expect("it is allowed").expect("the names differ"));
    let merged = Namespace::with_root(Timestamp(1));
    let merged = merged
        .plan()
        .make(&root, EntryName::new(Ino::ROOT, b"d"), &dir, Ino(20))
        .expect("it is new");
    server.namespace.set_journalled(false);
    server.namespace.apply(Seq(server.next - 1), Mode::Merge, &merged.event());
    server.namespace.set_journalled(true);
    assert_eq!(server.namespace.peek(Ino(20), b"f"), Ok(Some(Ino(9))));
    let mut announced = Vec::new();
    while server.begin(0) {
        let capture = &server.flights[0].capture;
        if capture.overtakes.is_some_and(|seq| seq >= server.trimmed) {
            announced.push(capture.dir);
        }
        server.commit(0);
    }
    server.recover();
    // The effect of `Event::Stored`, which a server puts behind all of that.
    for dir in announced {
        server.store.replace(&mut server.namespace, dir);
    }
    let tree = server.tree();
    assert_eq!((tree["/d"].attr.ino, tree["/d"].attr.size), (Ino(20), 1));
    assert_eq!(tree["/d/f"].attr.ino, Ino(9));
}

/// A file that a merge creates takes the name of another, and moves to a directory that is stored.
/// In the replay the file is known before the create is repeated, and the directory of the first
/// name is not.
#[test]
fn a_name_that_a_merge_took_stays_taken_after_a_crash() {
    let root = Cred::root();
    let mut server = Server::new();
    let new = |mode| PlannedInode { mode, ..PlannedInode::default() };
    let (dir, file) = (new(0o040_755), new(0o100_644));
    let at = |parent, name: &'static [u8]| EntryName::new(parent, name);
    for (place, new, ino) in [
        (at(Ino::ROOT, b"d"), &dir, Ino(10)),
        (at(Ino::ROOT, b"e"), &dir, Ino(11)),
        (at(Ino::ROOT, b"a"), &file, Ino(12)),
        (at(Ino(10), b"y"), &file, Ino(13)),
    ] {
        server.perform_planned(|server| server.plan().make(&root, place, new, ino));
    }
    while server.begin(0) {
        server.commit(0);
    }
    server.trim();
    // These keep the journal, and have `d` fetched.
    server.perform_planned(|server| {
        server.plan().make(&root, EntryName::new(Ino(11), b"z"), &file, Ino(14))
    });
    server.perform_planned(|server| server.plan().unlink(&root, Ino(10), b"y", Timestamp(2)));
    let merged = Namespace::with_root(Timestamp(1));
    let merged = merged
        .plan()
        .make(&root, EntryName::new(Ino::ROOT, b"a"), &file, Ino(20))
        .expect("it is new");
    let mut slice = JournalBuffer::new(Seq(1), false);
    slice.append(Origin::default(), &merged.event());
    server.namespace.apply(Seq(server.next), Mode::Merge, &merged.event());
    server.record(slice);
    let (from, to) = (at(Ino::ROOT, b"a"), at(Ino(10), b"x"));
    let moved =
        server.namespace.plan().rename(&root, from, to, RenameFlags::default(), Timestamp(3));
    server.execute(&moved.expect("it is allowed").expect("the names differ"));
    let mut dirty = server.namespace.dirs().directory_list();
    dirty.retain(|dir| server.namespace.dirs().dirty_since(*dir).is_some());
    let stored = dirty.iter().position(|dir| *dir == Ino(10)).expect("it is dirty");
    server.begin(u8::try_from(stored).expect("there are few"));
    server.commit(0);
    server.trim();
    server.crash();
    let tree = server.tree();
    assert!(!tree.contains_key("/a"), "the name came back");
    assert_eq!(tree["/d/x"].attr.ino, Ino(20));
}
