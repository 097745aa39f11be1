//! Snapshots, taken and dropped at random: each must show the model at its moment, after any later
//! changes, merges, compactions and crashes.
//!
//! That moment is when the server has the table of snapshots replaced. Changes wait until the
//! server has the result, so a snapshot without a reply shows that moment, too.

use std::collections::BTreeMap;

use client::BranchView;
use engine::{change_snapshots, load_dir_at, read_snapshots};
use metastore::Snapshot;
use metastore::request::StoreOp;
use namespace::Refusal;
use types::{Attr, Cred, Ino, Seq};

use super::Requests;
use crate::call::{Call, CallKind};
use crate::oracle::Violation;
use crate::region::{Region, RegionKind};
use crate::tree::{self, Item, Tree};
use crate::world::Routes;

/// So many are kept at most: the oldest are forgotten.
const KEPT_MAX: usize = 4;

/// The required content of snapshots.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    /// By id.
    expected: BTreeMap<u64, Expected>,
    last_id: u64,
}

/// The namespace at the moment of a snapshot, and the known part of it.
#[derive(Debug)]
struct Expected {
    tree: Tree,
    regions: Vec<Region>,
}

impl Requests {
    /// The server has a snapshot taken: nothing is changed before it hears of that.
    pub(crate) fn note_snapshot(&mut self, op: &StoreOp) {
        let StoreOp::TakeSnapshot { snapshot } = op else { return };
        let known = read_snapshots(&self.world.memory).map(|(table, _)| table);
        if known.is_ok_and(|table| table.get(snapshot.id).is_some()) {
            // The request was repeated, and the snapshot stays the same.
            return;
        }
        let mut regions = self.oracle.regions.clone();
        for region in &mut regions {
            // A merge that is done is part of the model when it is answered.
            let unknown =
                region.kind == RegionKind::Decoupled && (region.closed || region.owner.is_some());
            region.known &= !unknown;
        }
        let expected = Expected { tree: tree::of_model(&self.oracle.model), regions };
        self.snapshots.expected.insert(snapshot.id, expected);
    }

    /// Takes a snapshot, compares one, or forgets one.
    pub(crate) fn use_snapshots(&mut self) {
        let live = self.live_snapshots();
        match self.world.rng.below(4) {
            0 if !live.is_empty() => {
                let snapshot = live[self.world.rng.index(live.len())].clone();
                self.compare_snapshot(&snapshot, "under way");
            }
            1 if !live.is_empty() => self.forget_snapshot(&live),
            _ => self.ask_for_snapshot(),
        }
    }

    fn ask_for_snapshot(&mut self) {
        let live = self.live_snapshots();
        if live.len() >= KEPT_MAX {
            self.forget_snapshot(&live);
        }
        let roots: Vec<Ino> = self.oracle.regions.iter().map(|region| region.root).collect();
        let dir = if self.world.rng.percent(50) { Ino::ROOT } else { self.world.rng.pick(&roots) };
        self.snapshots.last_id += 1;
        let id = self.snapshots.last_id;
        self.world.note(format_args!("$ snapshot {id} of {dir}"));
        self.begin(0, Call::root(CallKind::Snapshot { dir, id }), None, Vec::new());
    }

    /// Unneeded objects are dropped.
    fn forget_snapshot(&mut self, live: &[Snapshot]) {
        let Snapshot { id, number, .. } = live[self.world.rng.index(live.len())];
        self.world.note(format_args!("$ forget snapshot {number}"));
        let forgotten = change_snapshots(&self.world.memory, |table| {
            table.retain(|snapshot| snapshot.id != id);
            Ok(())
        });
        self.world.check(forgotten.map_err(|error| error.to_string()));
        self.snapshots.expected.remove(&id);
    }

    fn live_snapshots(&mut self) -> Vec<Snapshot> {
        match read_snapshots(&self.world.memory) {
            Ok((table, _)) => table.live().cloned().collect(),
            Err(error) => {
                self.world.check(Err(error.to_string()));
                Vec::new()
            }
        }
    }

    /// Compares all snapshots that there are.
    pub(crate) fn compare_snapshots(&mut self, when: &str) {
        for snapshot in self.live_snapshots() {
            self.compare_snapshot(&snapshot, when);
        }
    }

    fn compare_snapshot(&mut self, snapshot: &Snapshot, when: &str) {
        let Snapshot { number, id, .. } = *snapshot;
        let Some(Expected { tree, regions }) = self.snapshots.expected.get(&id) else {
            return self.world.check(Err(format!("nobody took snapshot {number}")));
        };
        let top = String::from_utf8_lossy(&snapshot.path).into_owned();
        let top = top.trim_end_matches('/');
        let result = self.read_snapshot(snapshot, top).and_then(|actual| {
            let expected = below(tree, top);
            compare(&expected, &actual, regions).map_err(|text| format!("another tree:{text}"))
        });
        self.world.tally.count("snapshots compared", 1);
        let about = |text| format!("snapshot {number} of {top}/ {when}: {text}");
        self.world.check(result.map_err(about));
    }

    /// The content of the snapshot with an id, below its path.
    pub(crate) fn snapshot_of(&mut self, id: u64, top: &str) -> Result<Tree, Violation> {
        let live = self.live_snapshots();
        let snapshot = live.iter().find(|snapshot| snapshot.id == id);
        let snapshot = snapshot.ok_or_else(|| format!("no snapshot has the id {id}"))?;
        self.read_snapshot(snapshot, top)
    }

    /// The content of a snapshot for a reader of the store.
    fn read_snapshot(&self, snapshot: &Snapshot, top: &str) -> Result<Tree, Violation> {
        let mut view = BranchView::new(&snapshot.root, Seq(1));
        let mut tree = Tree::new();
        let mut todo = vec![(top.to_owned(), snapshot.root.ino)];
        while let Some((path, ino)) = todo.pop() {
            let load = |view: &mut BranchView, refusal| self.load(view, snapshot.number, refusal);
            let item = loop {
                match item_of(&view, ino) {
                    Ok(item) => break item,
                    Err(refusal) => {
                        load(&mut view, refusal).map_err(|it| format!("{path}: {it}"))?
                    }
                }
            };
            while item.attr.is_dir() {
                match view.namespace().list(&Cred::root(), ino, None, usize::MAX, true) {
                    Ok(entries) => {
                        let entries = entries.into_iter();
                        todo.extend(entries.map(|it| {
                            let name = String::from_utf8_lossy(&it.name).into_owned();
                            (format!("{path}/{name}"), it.attr.ino)
                        }));
                        break;
                    }
                    Err(refusal) => {
                        load(&mut view, refusal).map_err(|it| format!("{path}: {it}"))?
                    }
                }
            }
            tree.insert(path, item);
        }
        Ok(tree)
    }

    fn load(&self, view: &mut BranchView, number: u64, refusal: Refusal) -> Result<(), Violation> {
        let Refusal::Cold(dir) = refusal else { return Err(format!("{refusal:?}")) };
        let loaded = load_dir_at(&self.world.memory, dir, number);
        let loaded = loaded.map_err(|error| error.to_string())?;
        view.load(dir, loaded.as_ref());
        Ok(())
    }
}

fn item_of(view: &BranchView, ino: Ino) -> Result<Item, Refusal> {
    let namespace = view.namespace();
    let mut item = Item { attr: namespace.getattr(ino)?, ..Item::default() };
    if !item.attr.is_dir() {
        item.data = namespace.data(ino)?.to_vec();
    }
    for name in namespace.xattr_names(ino)? {
        item.xattrs.insert(name.to_vec(), namespace.xattr(ino, name)?.to_vec());
    }
    Ok(item)
}

/// The part of a tree that is at a path and below.
fn below(tree: &Tree, top: &str) -> Tree {
    let is_below = |path: &str| {
        path.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let known = tree.iter().filter(|(path, _)| is_below(path));
    let mut tree: Tree = known.map(|(path, item)| (path.clone(), item.clone())).collect();
    if let Some(root) = tree.get_mut(top) {
        // A snapshot has the attributes of its root; all other data of an inode is with its name.
        root.xattrs.clear();
    }
    tree
}

fn compare(expected: &Tree, actual: &Tree, regions: &[Region]) -> Result<(), Violation> {
    let unknown = |path: &str| regions.iter().any(|region| !region.known && region.holds(path));
    let blur = |tree: &Tree| -> Tree {
        let blurred = |item: &Item| {
            let attr = regions.iter().fold(item.attr, |attr, region| region.blur(&attr));
            Item { attr: Attr { stripe: types::Stripe::default(), ..attr }, ..item.clone() }
        };
        tree.iter().map(|(path, item)| (path.clone(), blurred(item))).collect()
    };
    let differences = tree::differences(&blur(expected), &blur(actual), unknown);
    if differences.is_empty() { Ok(()) } else { Err(differences) }
}
