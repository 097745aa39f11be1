//! Snapshots in a store: what must be kept before a directory is changed, and directories as they were
//! (BF-03, E-04).
//!
//! Whoever replaces or deletes a manifest reads the table of snapshots first, then the manifest. If
//! somebody needs a snapshot, the manifest is put under the number of the newest one before it is
//! replaced, unless there is one of that number: then it was changed since already. Runs and value
//! segments that a kept manifest lists are not deleted. Who reads a directory as it was reads the manifest
//! first and then looks for what is kept, so that nothing can slip in between.
//!
//! Invariant: whatever is interrupted, a snapshot reads as it was taken.

use std::collections::BTreeSet;

use metastore::request::{LoadedDir, rank_name};
use metastore::{
    Manifest, Purge, Rows, RunId, SNAPSHOTS_MAX, SNAPSHOTS_NAME, Snapshot, Snapshots, kept_name,
    kept_prefix, parse_kept, run_name, values_name,
};
use types::{DirFragId, Errno, Error, Frag, Ino, Pool, Rank, Result};

use crate::carry::{optional, read_manifest, read_runs, resolve};
use crate::{Expect, ObjectStore, Outcome, Version};

/// So many others may replace an object before this process does.
const TRIES_MAX: usize = 10_000;

/// The table of snapshots, and its version in the store; `None` if there never was one.
///
/// # Errors
/// What the store said; `EBADMSG` if it is damaged.
pub fn read_snapshots(store: &dyn ObjectStore) -> Result<(Snapshots, Option<Version>)> {
    Ok(match optional(store.get(SNAPSHOTS_NAME))? {
        Some((bytes, version)) => (Snapshots::decode(&bytes)?, Some(version)),
        None => (Snapshots::default(), None),
    })
}

/// Changes the table of snapshots: `change` is called on what it is, again if somebody else was faster.
///
/// # Errors
/// What the store or `change` said.
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
        if let Outcome::Done(_) = store.put(SNAPSHOTS_NAME, &snapshots.encode(), expect)? {
            return Ok(result);
        }
    }
    Err(Error::new(Errno::Again, SNAPSHOTS_NAME, "others replace it all the time"))
}

/// Takes a snapshot, and returns its number. The store must say all of the subtree, and nothing of it may
/// be changed before this returns. Asked again with the same id, nothing happens.
///
/// # Errors
/// `ENOSPC` if there are as many as there may be; what the store said: then it may have been taken.
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

/// A directory as it was when a snapshot was taken; `None` if the store had nothing of it. [`Ino::LINKS`] is that
/// of all ranks together: whoever reads the store does not ask who serves what.
///
/// # Errors
/// What the store said; `EBADMSG` if something is damaged.
pub fn load_dir_at(store: &dyn ObjectStore, dir: Ino, number: u64) -> Result<Option<LoadedDir>> {
    if dir == Ino::LINKS { load_links_at(store, number) } else { load_one_at(store, dir, number) }
}

/// What [`Ino::LINKS`] of each rank is called.
///
/// # Errors
/// What the store said.
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

fn load_links_at(store: &dyn ObjectStore, number: u64) -> Result<Option<LoadedDir>> {
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

fn load_one_at(store: &dyn ObjectStore, dir: Ino, number: u64) -> Result<Option<LoadedDir>> {
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
    store: &dyn ObjectStore,
    dir: DirFragId,
    number: u64,
) -> Result<Option<Manifest>> {
    // In this order: what is replaced in between is kept before that.
    let current = read_manifest(store, dir)?.map(|(manifest, _)| manifest);
    let kept = find_kept(store, dir, number)?;
    Ok(kept.or(current))
}

/// The manifest that was replaced first since a snapshot.
fn find_kept(store: &dyn ObjectStore, dir: DirFragId, number: u64) -> Result<Option<Manifest>> {
    if !store.lists_what_it_finds() {
        return guess_kept(store, dir, number);
    }
    let names = store.list(&kept_prefix(dir))?;
    let numbers = names.iter().filter_map(|name| Some(parse_kept(name)?.1));
    let found = numbers.filter(|kept| *kept >= number).min();
    found.map_or(Ok(None), |number| read_kept(store, dir, number))
}

/// The same where a list costs what the whole store holds.
fn guess_kept(store: &dyn ObjectStore, dir: DirFragId, number: u64) -> Result<Option<Manifest>> {
    for number in number..=read_snapshots(store)?.0.taken {
        if let Some(kept) = read_kept(store, dir, number)? {
            return Ok(Some(kept));
        }
    }
    Ok(None)
}

fn read_kept(store: &dyn ObjectStore, dir: DirFragId, number: u64) -> Result<Option<Manifest>> {
    let name = kept_name(dir, number);
    let Some((bytes, _)) = optional(store.get(&name))? else { return Ok(None) };
    let manifest = Manifest::decode_as(dir, &bytes).map_err(|error| error.about(name))?;
    Ok(Some(manifest))
}

fn whole(ino: Ino) -> DirFragId {
    DirFragId { ino, frag: Frag::WHOLE }
}

/// What a manifest that was kept lists.
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

/// What somebody who changes the store must keep. Made before anything is read that is to be changed.
pub(crate) struct Keeper<'a> {
    store: &'a dyn ObjectStore,
    number: Option<u64>,
}

impl<'a> Keeper<'a> {
    pub(crate) fn new(store: &'a dyn ObjectStore) -> Result<Self> {
        Ok(Self { store, number: read_snapshots(store)?.0.keep_as() })
    }

    /// Whether nobody needs anything but what is there now.
    pub(crate) fn is_free(&self) -> bool {
        self.number.is_none()
    }

    /// The number of the first run of a directory of which the store has no manifest. It may have had one, whose
    /// runs somebody needs: after a crash a directory that was removed may be written once more. Those
    /// have smaller numbers, because what is made since the newest snapshot is kept for nobody.
    pub(crate) fn first_run(&self) -> u64 {
        self.number.map_or(1, |number| (number << 32) | 1)
    }

    /// Whether a run that is not listed any more may go. One of a client may be listed by something that was
    /// kept earlier: after a crash it may be attached once more to a directory that was removed.
    pub(crate) fn may_delete(&self, run: RunId, spared: &Spared) -> bool {
        !spared.runs.contains(&run) && (self.is_free() || !run.is_clients())
    }

    /// The names of what is not listed any more and may go.
    pub(crate) fn deletable<'s>(
        &'s self,
        dirfrag: DirFragId,
        (runs, values): (&'s [RunId], &'s [RunId]),
        spared: &'s Spared,
    ) -> impl Iterator<Item = String> + 's {
        let runs = runs.iter().filter(|run| self.may_delete(**run, spared));
        let values = values.iter().filter(|segment| !spared.values.contains(segment));
        runs.map(move |run| run_name(dirfrag, *run))
            .chain(values.map(move |segment| values_name(dirfrag, *segment)))
    }

    /// Keeps a manifest that is about to be replaced or deleted; none stands for a directory of which
    /// the store has nothing. Returns what must stay. A run that was kept earlier is listed there
    /// too, if the manifest still lists it.
    pub(crate) fn keep(&self, dir: DirFragId, manifest: Option<&Manifest>) -> Result<Spared> {
        let Some(number) = self.number else { return Ok(Spared::default()) };
        let nothing = Manifest::new(dir);
        let manifest = manifest.unwrap_or(&nothing);
        let name = kept_name(dir, number);
        match self.store.put(&name, &manifest.encode(), Expect::Absent)? {
            Outcome::Done(_) => Ok(Spared::of(manifest)),
            Outcome::Conflict(_) => {
                let kept = read_kept(self.store, dir, number)?;
                Ok(Spared::of(kept.as_ref().unwrap_or(manifest)))
            }
        }
    }

    /// Notes content that is to be deleted when nobody needs it. Returns whether it must not be now.
    pub(crate) fn puts_off(&self, (ino, pool): (Ino, Pool), stripes: u64) -> Result<bool> {
        let Some(number) = self.number else { return Ok(false) };
        let note = Purge { number, ino, pool, stripes };
        let _ = self.store.put(&note.name(), b"", Expect::Any)?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
