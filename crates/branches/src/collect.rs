//! Deletes unused objects: snapshots, layers, kept manifests with their runs, and content.
//!
//! The table of snapshots and the objects of the branches decide everything, and each step may be
//! interrupted and repeated. Each step first reads the list that could grow, so that an object that
//! comes into use during the step is not deleted.
//!
//! Invariant: nothing is deleted that a branch, or a snapshot that a branch needs, can lead to.

use std::collections::{BTreeMap, BTreeSet};

use engine::{change_snapshots, purge_data, read_snapshots};
use journal::{Event, SegmentReader};
use metastore::{
    BranchState, LAYER_PREFIX, Manifest, ObjectName, PURGE_PREFIX, Purge, Snapshots, parse_layer,
    parse_retained, retained_name,
};
use objstore::ObjectStore;
use types::{DirFragId, Errno, Error, Ino, Result, Stripe};

use crate::Branches;

/// The number of attempts while other processes make branches.
const LOOKS_MAX: usize = 1000;

/// The objects that were deleted, or would be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Snapshots that no branch needs.
    pub snapshots: u64,
    /// Layers that no branch has.
    pub layers: u64,
    /// Kept manifests that no snapshot needs.
    pub manifests: u64,
    /// Runs and value segments that only those listed.
    pub runs: u64,
    /// Files whose content was to be deleted later, or belonged to a process that died.
    pub contents: u64,
    /// Bytes of the layers, manifests and runs.
    pub bytes: u64,
    /// The names of the objects, content apart.
    pub objects: Vec<String>,
}

impl Branches {
    /// Removes a branch, and content that no other branch has. The next [`Branches::collect`]
    /// deletes its layers and its snapshot, unless other branches need them.
    ///
    /// # Errors
    /// `ENOENT`; `EBUSY` if a process works on the branch or merges it, or another branch shares
    /// its layers.
    pub fn remove(&self, name: &str) -> Result<()> {
        let _lock = self.lock(name)?;
        let (branch, version) = self.read(name)?;
        if branch.state == BranchState::Merging {
            return Err(Error::new(Errno::Busy, name, "the branch is being merged")
                .remedy("let that end: `cudele branch merge`"));
        }
        let child = self.list()?.into_iter().find(|other| {
            other.name != name && other.branch.layers.iter().any(|layer| layer.owner == branch.id)
        });
        if let Some(child) = child {
            let cause = format!("the branch {} goes out from it and shares its layers", child.name);
            return Err(Error::new(Errno::Busy, name, cause).remedy("remove that one first"));
        }
        let mut made = BTreeMap::new();
        if branch.state != BranchState::Merged {
            for layer in branch.layers.iter().filter(|layer| layer.owner == branch.id) {
                // An unreadable layer names no content.
                if let Ok(bytes) = crate::view::read_layer(&*self.store, layer) {
                    content_of(&bytes, &mut made);
                }
            }
        }
        self.delete_if(name, version)?;
        for (ino, MadeContent { stripe, size }) in made {
            if size > 0 {
                purge_data(&*self.store, ino, stripe.pool(), stripe.count(size))?;
            }
        }
        Ok(())
    }

    /// Deletes unused objects, or only counts them.
    ///
    /// # Errors
    /// The error of the store; `EBADMSG` if the table or a branch is damaged: then nothing is
    /// deleted.
    pub fn collect(&self, dry_run: bool) -> Result<Collected> {
        let mut collected = Collected::default();
        let snapshots = self.forget_snapshots(dry_run, &mut collected)?;
        self.collect_layers(dry_run, &mut collected)?;
        self.collect_retained(&snapshots, dry_run, &mut collected)?;
        self.collect_content(&snapshots, dry_run, &mut collected)?;
        self.collect_leftovers(dry_run, &mut collected)?;
        Ok(collected)
    }

    /// Forgets snapshots without a branch. A branch is written before its snapshot, so the table is
    /// read first; if the table changes before it is replaced, the step starts over.
    fn forget_snapshots(&self, dry_run: bool, collected: &mut Collected) -> Result<Snapshots> {
        let count = |snapshots: &Snapshots| snapshots.live().len() as u64;
        if dry_run {
            let (mut snapshots, _) = read_snapshots(&*self.store)?;
            let (before, needed) = (count(&snapshots), self.needed()?);
            snapshots.retain(|snapshot| needed.contains(&snapshot.id));
            collected.snapshots = before - count(&snapshots);
            return Ok(snapshots);
        }
        change_snapshots(&*self.store, |snapshots| {
            let (before, needed) = (count(snapshots), self.needed()?);
            snapshots.retain(|snapshot| needed.contains(&snapshot.id));
            collected.snapshots = before - count(snapshots);
            Ok(snapshots.clone())
        })
    }

    /// The snapshots that branches need.
    fn needed(&self) -> Result<BTreeSet<u64>> {
        let branches = self.list()?.into_iter();
        let needs = branches.filter(|info| info.branch.state != BranchState::Merged);
        Ok(needs.map(|info| info.branch.snapshot).collect())
    }

    /// The layers in the store, and the branches. Layers are written before the branches that list
    /// them, so they are listed first. A new branch may list the layers of another branch, which
    /// may be joined by the time the new one is read: the maker of a branch notes it in the table.
    pub(crate) fn consistent_list(&self) -> Result<(Vec<String>, Vec<crate::BranchInfo>)> {
        for _ in 0..LOOKS_MAX {
            let (before, _) = read_snapshots(&*self.store)?;
            let (layers, branches) = (self.store.list(LAYER_PREFIX)?, self.list()?);
            let (after, _) = read_snapshots(&*self.store)?;
            if after.changes == before.changes {
                return Ok((layers, branches));
            }
        }
        Err(Error::new(Errno::Again, "branches", "others make branches all the time")
            .remedy("call it again"))
    }

    fn collect_layers(&self, dry_run: bool, collected: &mut Collected) -> Result<()> {
        let (layers, branches) = self.consistent_list()?;
        let listed = branches.iter().flat_map(|info| &info.branch.layers);
        let listed: BTreeSet<_> = listed.map(|layer| (layer.owner, layer.number)).collect();
        for name in layers {
            let Some(layer) = parse_layer(&name).filter(|layer| !listed.contains(layer)) else {
                continue;
            };
            let owner = branches.iter().find(|info| info.branch.id == layer.0);
            // Its writer may be about to list it.
            let lock = owner.map(|owner| (owner, self.lock(&owner.name)));
            if let Some((owner, lock)) = &lock {
                let busy = lock.is_err();
                let now = || self.read(&owner.name).map(|(branch, _)| branch.layers);
                let has = |it: &metastore::Layer| (it.owner, it.number) == layer;
                if busy || now()?.iter().any(has) {
                    continue;
                }
            }
            collected.bytes += size_of(&*self.store, &name)?;
            collected.layers += 1;
            if !dry_run {
                self.store.delete(&name)?;
            }
            collected.objects.push(name);
        }
        Ok(())
    }

    fn collect_retained(
        &self,
        snapshots: &Snapshots,
        dry_run: bool,
        collected: &mut Collected,
    ) -> Result<()> {
        let mut dirs: BTreeMap<DirFragId, ()> = BTreeMap::new();
        for name in self.store.list("dirs/")? {
            if let Some((dir, _)) = parse_retained(&name)
                && let Some(ObjectName::Manifest(dir)) =
                    ObjectName::parse(&format!("{dir}/manifest"))
            {
                dirs.insert(dir, ());
            }
        }
        for dir in dirs.into_keys() {
            self.collect_dir(dir, snapshots, dry_run, collected)?;
        }
        Ok(())
    }

    fn collect_dir(
        &self,
        dir: DirFragId,
        snapshots: &Snapshots,
        dry_run: bool,
        collected: &mut Collected,
    ) -> Result<()> {
        let store = &*self.store;
        // In this order: a manifest that is replaced after the first read was kept before, and the
        // second read finds it.
        let current = read_manifest(store, dir, &metastore::manifest_name(dir))?;
        let names = store.list(&metastore::retained_prefix(dir))?;
        let numbers: BTreeSet<u64> =
            names.iter().filter_map(|name| Some(parse_retained(name)?.1)).collect();
        let (mut since, mut unneeded) = (None, Vec::new());
        let mut listed: BTreeSet<String> = current.iter().flat_map(objects_of).collect();
        for number in numbers {
            let Some(kept) = read_manifest(store, dir, &retained_name(dir, number))? else {
                continue;
            };
            if snapshots.needs(since, number) {
                listed.extend(objects_of(&kept));
            } else {
                unneeded.push((number, kept));
            }
            since = Some(number);
        }
        let mut gone = BTreeSet::new();
        for (number, kept) in unneeded {
            let runs = kept.runs.iter().map(|run| (metastore::run_name(dir, run.id), run.bytes));
            let values = kept.values.iter();
            let values = values.map(|it| (metastore::values_name(dir, it.id), it.bytes));
            for (name, bytes) in runs.chain(values) {
                if !listed.contains(&name) && gone.insert(name.clone()) {
                    collected.bytes += bytes;
                    collected.runs += 1;
                    if !dry_run {
                        store.delete(&name)?;
                    }
                    collected.objects.push(name);
                }
            }
            // Behind its runs: interrupted, it leads to them again.
            let name = retained_name(dir, number);
            collected.bytes += size_of(store, &name)?;
            collected.manifests += 1;
            if !dry_run {
                store.delete(&name)?;
            }
            collected.objects.push(name);
        }
        Ok(())
    }

    fn collect_content(
        &self,
        snapshots: &Snapshots,
        dry_run: bool,
        collected: &mut Collected,
    ) -> Result<()> {
        for name in self.store.list(PURGE_PREFIX)? {
            let Some(Purge { number, ino, pool, stripes }) = Purge::parse(&name) else { continue };
            if snapshots.needs(None, number) {
                continue;
            }
            collected.contents += 1;
            if !dry_run {
                purge_data(&*self.store, ino, pool, stripes)?;
                self.store.delete(&name)?;
            }
            collected.objects.push(name);
        }
        Ok(())
    }
}

/// The runs and value segments that a manifest lists.
fn objects_of(manifest: &Manifest) -> impl Iterator<Item = String> {
    let dir = manifest.dirfrag;
    let runs = manifest.runs.iter().map(move |run| metastore::run_name(dir, run.id));
    runs.chain(manifest.values.iter().map(move |it| metastore::values_name(dir, it.id)))
}

fn read_manifest(store: &dyn ObjectStore, dir: DirFragId, name: &str) -> Result<Option<Manifest>> {
    match store.get(name) {
        Ok((bytes, _)) => Ok(Some(Manifest::decode_as(dir, &bytes)?)),
        Err(error) if error.errno == Errno::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn size_of(store: &dyn ObjectStore, name: &str) -> Result<u64> {
    match store.stat(name) {
        Ok(stat) => Ok(stat.size),
        Err(error) if error.errno == Errno::NotFound => Ok(0),
        Err(error) => Err(error),
    }
}

/// The content of a file that a branch made.
struct MadeContent {
    stripe: Stripe,
    /// The largest length of it in the store, in bytes.
    size: u64,
}

/// Adds the files that a layer made.
fn content_of(layer: &[u8], made: &mut BTreeMap<Ino, MadeContent>) {
    let mut learn = |event: &Event<'_>| match *event {
        Event::Create(ref new) => {
            made.insert(new.ino, MadeContent { stripe: new.stripe, size: 0 });
        }
        Event::SetData { ino, data: [], size, .. } => {
            if let Some(known) = made.get_mut(&ino) {
                known.size = known.size.max(size);
            }
        }
        Event::SetData { .. }
        | Event::SetAttr { .. }
        | Event::Link { .. }
        | Event::Unlink { .. }
        | Event::Rmdir { .. }
        | Event::Rename { .. }
        | Event::SetXattr { .. }
        | Event::SetPolicy { .. }
        | Event::Session { .. }
        | Event::Merged { .. }
        | Event::Stored { .. } => {}
    };
    let Ok(mut reader) = SegmentReader::open(layer) else { return };
    while let Ok(Some(block)) = reader.next_block() {
        let mut events = block.events();
        while let Ok(Some(record)) = events.next_event() {
            learn(&record.event);
        }
    }
}
