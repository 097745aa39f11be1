//! Snapshots in a store: the objects that must be kept before a directory is changed, and
//! directories as they were (BF-03, E-04).
//!
//! A writer that replaces or deletes a manifest reads the table of snapshots first, then the
//! manifest. If the table has a snapshot, the manifest is put under the number of the newest one
//! before it is replaced, unless there is one of that number: then the directory was changed since
//! already. Runs and value segments that a kept manifest lists are not deleted. A reader of a
//! directory as it was reads the manifest first and then looks for kept ones, so that no change can
//! slip in between.
//!
//! Invariant: after any interruption, a snapshot reads as it was taken.

use std::collections::BTreeSet;

use metastore::request::{LoadedDir, rank_name};
use metastore::{
    Manifest, Purge, Rows, RunId, SNAPSHOTS_MAX, SNAPSHOTS_NAME, Snapshot, Snapshots,
    parse_retained, retained_name, retained_prefix, run_name, values_name,
};
use objstore::{Expect, ObjectStore, PutOutcome, Store, Version};
use types::{DirFragId, Errno, Error, Frag, Ino, Pool, Rank, Result};

use crate::execute::{optional, read_manifest, read_runs, resolve};

/// The most attempts to replace an object that other processes replace at the same time.
const TRIES_MAX: usize = 10_000;

/// The table of snapshots, and its version in the store; `None` if there never was one.
///
/// # Errors
/// The store's error; `EBADMSG` if it is damaged.
pub fn read_snapshots(store: &dyn ObjectStore) -> Result<(Snapshots, Option<Version>)> {
    Ok(match optional(store.get(SNAPSHOTS_NAME))? {
        Some((bytes, version)) => (Snapshots::decode(&bytes)?, Some(version)),
        None => (Snapshots::default(), None),
    })
}

/// Changes the table of snapshots: `change` is called on the present table, again if another
/// process was faster.
///
/// # Errors
/// The error of the store or of `change`.
pub fn change_snapshots<T>(
    store: &dyn ObjectStore,
    mut change: impl FnMut(&mut Snapshots) -> Result<T>,
) -> Result<T> {
    for _ in 0..TRIES_MAX {
        let (mut snapshots, version) = read_snapshots(store)?;
        let before = snapshots.clone();
        let result = change(&mut snapshots)?;
        if snapshots == before {
            return Ok(result);
        }
        snapshots.changes += 1;
        let expect = version.map_or(Expect::Absent, Expect::Is);
        if let PutOutcome::Done(_) = store.put(SNAPSHOTS_NAME, &snapshots.encode(), expect)? {
            return Ok(result);
        }
    }
    Err(Error::new(Errno::Again, SNAPSHOTS_NAME, "others replace it all the time"))
}

/// Takes a snapshot, and returns its number. The store must have all of the subtree, and no change
/// may happen before this returns. A repetition with the same id does nothing.
///
/// # Errors
/// `ENOSPC` if there are as many as there may be; the store's error: then it may have been taken.
pub fn take_snapshot(store: &dyn ObjectStore, snapshot: &Snapshot) -> Result<u64> {
    change_snapshots(store, |snapshots| {
        if let Some(known) = snapshots.get(snapshot.id) {
            return Ok(known.number);
        }
        let full = || {
            let cause = format!("there are {SNAPSHOTS_MAX} snapshots");
            Error::new(Errno::NoSpace, SNAPSHOTS_NAME, cause).remedy(
                "remove branches that nobody needs (`cudele branch rm`), then `cudele branch gc`",
            )
        };
        snapshots.take(snapshot.clone()).ok_or_else(full)
    })
}

/// A directory as it was when a snapshot was taken; `None` if the store did not have it.
/// [`Ino::LINKS`] is that of all ranks together: a reader of the store does not know the ranks.
///
/// # Errors
/// The store's error; `EBADMSG` if an object is damaged.
pub fn load_dir_at(store: &dyn Store, dir: Ino, number: u64) -> Result<Option<LoadedDir>> {
    if dir == Ino::LINKS { load_links_at(store, number) } else { load_one_at(store, dir, number) }
}

/// The numbers of [`Ino::LINKS`] of each rank.
///
/// # Errors
/// The store's error.
pub fn links_dirs(store: &dyn ObjectStore) -> Result<Vec<Ino>> {
    let mut dirs = vec![Ino::LINKS];
    for rank in (1..=u16::MAX).map(Rank) {
        // Ranks are numbered without gaps, and each has a table.
        if optional(store.get(&rank_name(rank)))?.is_none() {
            break;
        }
        dirs.push(Ino::links_of(rank));
    }
    Ok(dirs)
}

fn load_links_at(store: &dyn Store, number: u64) -> Result<Option<LoadedDir>> {
    let mut all = Vec::new();
    for dir in links_dirs(store)? {
        all.extend(load_one_at(store, dir, number)?);
    }
    if all.len() < 2 {
        return Ok(all.pop());
    }
    let mut merged: Vec<_> = all.iter().flat_map(|loaded| loaded.rows.iter()).collect();
    merged.sort_by(|left, right| left.name.cmp(right.name));
    let mut rows = Rows::new();
    merged.iter().for_each(|row| rows.push(row.name, row.value));
    let mut manifest = all[0].manifest.clone();
    manifest.entries = all.iter().map(|loaded| loaded.manifest.entries).sum();
    Ok(Some(LoadedDir { manifest, rows }))
}

fn load_one_at(store: &dyn Store, dir: Ino, number: u64) -> Result<Option<LoadedDir>> {
    let Some(manifest) = manifest_at(store, whole(dir), number)? else { return Ok(None) };
    let rows = match manifest.runs.is_empty() {
        true => Rows::new(),
        false => {
            let rows = metastore::merge(&manifest, &read_runs(store, &manifest)?)?;
            resolve(store, manifest.dirfrag, rows)?
        }
    };
    Ok(Some(LoadedDir { manifest, rows }))
}

/// The manifest of a directory as it was when a snapshot was taken, if the store had one.
pub(crate) fn manifest_at(
    store: &dyn Store,
    dir: DirFragId,
    number: u64,
) -> Result<Option<Manifest>> {
    // In this order: a manifest that is replaced in between is kept before that.
    let current = read_manifest(store, dir)?.map(|(manifest, _)| manifest);
    let kept = find_retained(store, dir, number)?;
    Ok(kept.or(current))
}

/// The manifest that was replaced first since a snapshot.
fn find_retained(store: &dyn Store, dir: DirFragId, number: u64) -> Result<Option<Manifest>> {
    if !store.lists_what_it_finds() {
        return guess_retained(store, dir, number);
    }
    let names = store.list(&retained_prefix(dir))?;
    let numbers = names.iter().filter_map(|name| Some(parse_retained(name)?.1));
    let found = numbers.filter(|kept| *kept >= number).min();
    found.map_or(Ok(None), |number| read_retained(store, dir, number))
}

/// The same for a store in which a list costs as much as its size.
fn guess_retained(
    store: &dyn ObjectStore,
    dir: DirFragId,
    number: u64,
) -> Result<Option<Manifest>> {
    for number in number..=read_snapshots(store)?.0.taken {
        if let Some(kept) = read_retained(store, dir, number)? {
            return Ok(Some(kept));
        }
    }
    Ok(None)
}

fn read_retained(store: &dyn ObjectStore, dir: DirFragId, number: u64) -> Result<Option<Manifest>> {
    let name = retained_name(dir, number);
    let Some((bytes, _)) = optional(store.get(&name))? else { return Ok(None) };
    let manifest = Manifest::decode_as(dir, &bytes).map_err(|error| error.about(name))?;
    Ok(Some(manifest))
}

fn whole(ino: Ino) -> DirFragId {
    DirFragId { ino, frag: Frag::WHOLE }
}

/// The runs and segments that a kept manifest lists.
#[derive(Debug, Default)]
pub(crate) struct Spared {
    runs: BTreeSet<RunId>,
    values: BTreeSet<RunId>,
}

impl Spared {
    fn of(manifest: &Manifest) -> Self {
        Self {
            runs: manifest.runs.iter().map(|run| run.id).collect(),
            values: manifest.values.iter().map(|segment| segment.id).collect(),
        }
    }
}

/// The objects that a directory's manifest no longer lists.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unlisted<'s> {
    pub(crate) runs: &'s [RunId],
    /// The value segments among them.
    pub(crate) values: &'s [RunId],
}

/// The objects that a writer must keep. Made before it reads the objects that it changes.
pub(crate) struct Keeper<'a> {
    store: &'a dyn ObjectStore,
    number: Option<u64>,
}

impl<'a> Keeper<'a> {
    pub(crate) fn new(store: &'a dyn ObjectStore) -> Result<Self> {
        Ok(Self { store, number: read_snapshots(store)?.0.keep_as() })
    }

    /// Whether no snapshot needs anything but the present state.
    pub(crate) fn is_free(&self) -> bool {
        self.number.is_none()
    }

    /// The number of the first run of a directory without a manifest. It may have had one, with
    /// runs that a snapshot needs: after a crash a removed directory may be written again. Those
    /// have smaller numbers, because no snapshot needs runs that are newer than the newest
    /// snapshot.
    pub(crate) fn first_run(&self) -> u64 {
        self.number.map_or(1, |number| (number << 32) | 1)
    }

    /// Whether an unlisted run may be deleted. An earlier kept manifest may list a client's run:
    /// after a crash it may be attached again to a removed directory.
    pub(crate) fn may_delete(&self, run: RunId, spared: &Spared) -> bool {
        !spared.runs.contains(&run) && (self.is_free() || !run.is_clients())
    }

    /// The names of unlisted objects that may be deleted.
    pub(crate) fn deletable<'s>(
        &'s self,
        dirfrag: DirFragId,
        unlisted: Unlisted<'s>,
        spared: &'s Spared,
    ) -> impl Iterator<Item = String> + 's {
        let Unlisted { runs, values } = unlisted;
        let runs = runs.iter().filter(|run| self.may_delete(**run, spared));
        let values = values.iter().filter(|segment| !spared.values.contains(segment));
        runs.map(move |run| run_name(dirfrag, *run))
            .chain(values.map(move |segment| values_name(dirfrag, *segment)))
    }

    /// Keeps a manifest that is about to be replaced or deleted; None means a directory that the
    /// store does not have. Returns the objects that must stay. They include an earlier kept run,
    /// if the manifest still lists it.
    pub(crate) fn keep(&self, dir: DirFragId, manifest: Option<&Manifest>) -> Result<Spared> {
        let Some(number) = self.number else { return Ok(Spared::default()) };
        let nothing = Manifest::new(dir);
        let manifest = manifest.unwrap_or(&nothing);
        let name = retained_name(dir, number);
        match self.store.put(&name, &manifest.encode(), Expect::Absent)? {
            PutOutcome::Done(_) => Ok(Spared::of(manifest)),
            PutOutcome::Conflict(_) => {
                let kept = read_retained(self.store, dir, number)?;
                Ok(Spared::of(kept.as_ref().unwrap_or(manifest)))
            }
        }
    }

    /// Records content that is to be deleted when no snapshot needs it. Returns whether it must
    /// stay now.
    pub(crate) fn puts_off(&self, ino: Ino, pool: Pool, stripes: u64) -> Result<bool> {
        let Some(number) = self.number else { return Ok(false) };
        let note = Purge { number, ino, pool, stripes };
        let _ = self.store.put(&note.name(), b"", Expect::Any)?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
