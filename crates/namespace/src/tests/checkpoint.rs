//! A crash at any moment loses nothing: what the metadata store has of each directory, at its own
//! time each, and the journal since the oldest change that it does not have, give the tree.

use std::collections::BTreeMap;

use journal::JournalBuffer;
use metastore::{InodeRecord, Row, RowValue, Rows};
use proptest::prelude::*;
use types::{Attr, FileType, Ino, Origin, Seq, Timestamp};

use super::tree::{self, warm};
use super::world::{At, Op, at, change_or_policy, cred, peek, plan, resolve};
use crate::{Capture, Cred, Freed, Mode, Namespace, NewInode, Planned, Refusal};

/// A row as the store keeps it.
#[derive(Clone, Debug)]
enum Stored {
    Remote(Ino, FileType),
    Inode { attr: Attr, version: Seq, data: Vec<u8>, extra: Vec<u8> },
}

/// The metadata store.
#[derive(Default)]
struct Store {
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
                RowValue::Inode(InodeRecord { attr, version, data, extra }) => {
                    Stored::Inode { attr, version, data: data.to_vec(), extra: extra.to_vec() }
                }
            };
            stored.insert(name.to_vec(), value);
        }
    }

    fn load(&self, namespace: &mut Namespace, dir: Ino) {
        let rows = self.dirs.get(&dir).into_iter().flatten().map(|(name, stored)| {
            let value = match *stored {
                Stored::Remote(ino, file_type) => RowValue::Remote { ino, file_type },
                Stored::Inode { attr, version, ref data, ref extra } => {
                    RowValue::Inode(InodeRecord { attr, version, data, extra })
                }
            };
            Row { name, value }
        });
        namespace.load(dir, rows);
        namespace.finish_load(dir, types::Seq(0));
    }
}

/// A checkpoint of a directory under way.
struct Flight {
    capture: Capture,
    rows: Rows,
    since: Seq,
}

/// A server, its journal and its store.
struct Server {
    namespace: Namespace,
    journal: JournalBuffer,
    store: Store,
    flights: Vec<Flight>,
    freed: Vec<(Seq, Freed)>,
    /// Events before this one are forgotten.
    trimmed: Seq,
    next: u64,
    /// What happened, for people.
    trace: String,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Do(Op, u8),
    /// Begins a checkpoint of the directory of this number among those that are dirty.
    Begin(u8),
    /// Captures some rows for one of those under way.
    Capture(u8, u8),
    /// Captures the rest, and commits.
    Commit(u8),
    /// Forgets a directory that is stored.
    Evict(u8),
    /// Forgets the part of the journal that is stored, and purges what was removed.
    Trim,
    /// Resolves a path, which may fetch.
    Visit(At),
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        60 => (change_or_policy(), 0..10u8).prop_map(|(op, who)| Step::Do(op, who)),
        12 => any::<u8>().prop_map(Step::Begin),
        6 => (any::<u8>(), 1..3u8).prop_map(|(flight, budget)| Step::Capture(flight, budget)),
        9 => any::<u8>().prop_map(Step::Commit),
        6 => any::<u8>().prop_map(Step::Evict),
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
            trimmed: Seq(1),
            next: 1,
            trace: String::new(),
        };
        while server.begin(0) {
            server.commit(0);
        }
        server
    }

    /// Runs `ask` and fetches what it lacks.
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
            self.carry_out(&planned);
        }
    }

    fn perform_planned(
        &mut self,
        plan: impl FnMut(&mut Namespace) -> Result<Planned<'static>, Refusal>,
    ) {
        let planned = self.warm(plan).expect("it is allowed");
        self.carry_out(&planned);
    }

    fn carry_out(&mut self, planned: &Planned<'_>) {
        let event = planned.event();
        let seq = self.journal.append(Origin::default(), &event);
        assert_eq!(seq, Seq(self.next));
        self.next += 1;
        self.trace += &format!("\n{seq} {event:?}");
        self.namespace.apply(seq, Mode::Live, &event);
        self.freed.extend(self.namespace.take_freed().into_iter().map(|freed| (seq, freed)));
    }

    fn begin(&mut self, pick: u8) -> bool {
        let namespace = &mut self.namespace;
        let mut dirty = namespace.directory_list();
        dirty.retain(|dir| namespace.dirty_since(*dir).is_some() && !namespace.is_flushing(*dir));
        if dirty.is_empty() {
            return false;
        }
        let dir = dirty[usize::from(pick) % dirty.len()];
        let since = namespace.dirty_since(dir).expect("it is dirty");
        let capture = namespace.begin_capture(dir).expect("it is there");
        self.trace += &format!("\nbegin {dir} since {since}");
        self.flights.push(Flight { capture, rows: Rows::new(), since });
        true
    }

    fn capture(&mut self, pick: u8, budget: u8) {
        if let Some(at) = usize::from(pick).checked_rem(self.flights.len()) {
            let flight = &mut self.flights[at];
            self.namespace.capture(&mut flight.capture, &mut flight.rows, usize::from(budget));
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
            Step::Begin(pick) => {
                self.begin(pick);
            }
            Step::Capture(pick, budget) => self.capture(pick, budget),
            Step::Commit(pick) => self.commit(pick),
            Step::Evict(pick) => {
                let all = self.namespace.directory_list();
                self.namespace.evict(all[usize::from(pick) % all.len()]);
            }
            Step::Trim => self.trim(),
            Step::Visit(at) => {
                self.resolve(at);
            }
            Step::Crash => self.crash(),
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
            let stored = self.store.dirs.clone();
            let flights = std::mem::take(&mut self.flights);
            for flight in &flights {
                // They are in memory as a whole, or they could not be written.
                self.namespace.end_capture(flight.capture.dir);
            }
            let mut blind = Vec::new();
            let Self { namespace, store, .. } = self;
            let before = tree::of_namespace(namespace, &mut |namespace, dir| {
                if let Some(at) = flights.iter().position(|flight| flight.capture.dir == dir) {
                    blind.push(at);
                }
                store.load(namespace, dir);
            });
            self.store.dirs = stored;
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
        self.journal.close_block();
        for block in self.journal.blocks() {
            let (block, _) = journal::Block::read(block, 0).expect("written just now");
            let mut events = block.events();
            while let Some(record) = events.next_event().expect("written just now") {
                if record.seq < self.trimmed {
                    continue;
                }
                while let Some(dir) = self.namespace.needs(&record.event) {
                    assert!(!self.namespace.is_complete(dir), "{dir} was fetched before");
                    self.store.load(&mut self.namespace, dir);
                }
                self.namespace.apply(record.seq, Mode::Replay, &record.event);
            }
        }
        self.namespace.take_freed();
    }
}

fn commit(namespace: &mut Namespace, store: &mut Store, mut flight: Flight) {
    while !namespace.capture(&mut flight.capture, &mut flight.rows, 2) {}
    store.commit(flight.capture.dir, &flight.rows);
    namespace.end_capture(flight.capture.dir);
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
    let new = NewInode { mode: 0o100_644, ..NewInode::default() };
    let mut server = Server::new();
    server.perform_planned(|server| server.plan_create(&root, (Ino::ROOT, b"d"), &new, Ino(8)));
    while server.begin(0) {
        server.commit(0);
    }
    server.trim();
    server.perform_planned(|server| server.plan_create(&root, (Ino::ROOT, b"c"), &new, Ino(9)));
    server.perform_planned(|server| server.plan_unlink(&root, Ino::ROOT, b"d", Timestamp(3)));
    let link = (Ino::ROOT, b"d".as_slice());
    server.perform_planned(|server| server.plan_link(&root, Ino(9), link, Timestamp(4)));
    server.begin(0);
    server.commit(0);
    server.recover();
    assert!(server.namespace.home_of(Ino(9)) == Some(Ino::LINKS));
    let tree = server.tree();
    for path in ["/c", "/d"] {
        assert_eq!((tree[path].attr.ino, tree[path].attr.nlink), (Ino(9), 2), "{path}");
    }
    // Both are names like any other: removing the older one leaves the other.
    server.perform_planned(|server| server.plan_unlink(&root, Ino::ROOT, b"c", Timestamp(5)));
    assert_eq!(server.tree()["/d"].attr.nlink, 1);
}

/// The name is gone from the stored directory: only the event leads to the inode.
#[test]
fn a_lost_link_is_counted_after_a_crash() {
    let root = Cred::root();
    let mut server = Server::new();
    let new = NewInode { mode: 0o100_644, ..NewInode::default() };
    server
        .perform_planned(|namespace| namespace.plan_create(&root, (Ino::ROOT, b"a"), &new, Ino(9)));
    server.perform_planned(|namespace| {
        namespace.plan_link(&root, Ino(9), (Ino::ROOT, b"b"), Timestamp(2))
    });
    while server.begin(0) {
        server.commit(0);
    }
    server.trim();
    server.perform_planned(|namespace| namespace.plan_unlink(&root, Ino::ROOT, b"a", Timestamp(3)));
    // The root is stored, the links are not.
    server.begin(0);
    server.commit(0);
    server.recover();
    assert_eq!(server.tree()["/b"].attr.nlink, 1);
}
