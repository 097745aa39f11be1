//! Takes over the work of a dead client (F-19): on its machine, on a machine with its disk, or
//! anywhere if its journal is in the object store.
//!
//! The client is fenced first: the metadata server rejects its messages, and a store with such a
//! function shuts it out, so that its journals are complete when they are read. They are then
//! copied to the disk of this machine under a new client, so that a crash of this machine is only
//! one more to recover from.

use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

use client::{Earlier, LeftJournals, OwnerNote};
use types::{ClientId, Errno, Error, Path, Result};
use wire::DecoupledSubtree;

use crate::mechanism::keep_part;
use crate::state::io_error;
use crate::{Cluster, StateDir, Subtree, SubtreeOwner};

/// A journal of a dead client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveredJournal {
    /// A file, or an object of the store.
    pub name: String,
    /// Whether it is an object.
    pub stored: bool,
    /// Events that are intact.
    pub events: u64,
    /// Position of the first.
    pub first: u64,
}

/// The result of a recovery, or of a search.
#[derive(Debug)]
pub struct Recovered {
    /// The client that had the subtree.
    pub from: ClientId,
    /// Its journals, oldest first.
    pub journals: Vec<RecoveredJournal>,
    /// The subtree, ready to be merged or discarded; none if it was only looked for.
    pub subtree: Option<Subtree>,
}

impl Cluster {
    /// Takes over a decoupled subtree of a dead client, with its journals below the directory
    /// `disk` of this machine, or in the object store. With `look`, nothing changes.
    ///
    /// # Errors
    /// `ENOENT` if there is no journal: the changes of the client are lost with it. `EPERM` except
    /// for root and the owner of the directory. `EBADMSG` for a journal with a hole.
    pub fn recover(
        self: &Arc<Self>,
        path: &Path,
        known: &DecoupledSubtree,
        disk: Option<&FilePath>,
        look: bool,
    ) -> Result<Recovered> {
        let fs = self.mount()?;
        let from = known.client;
        if look {
            let found = find(&fs, known, disk)?;
            let journals = found.iter().map(RecoveredJournal::of).collect();
            return Ok(Recovered { from, journals, subtree: None });
        }
        if find(&fs, known, disk)?.is_empty() {
            let cause = format!("{from} left no journal here or in the store");
            return Err(Error::new(Errno::NotFound, path.to_string(), cause).remedy(
                "name its disk with --from; `cudele discard --force` gives up what it had",
            ));
        }
        let granted = fs.take_over(known.ino).map_err(|error| error.about(path.to_string()))?;
        // The metadata server cannot reject the client's own writes of content and journal objects.
        fs.store().shut_out(from)?;
        // Its writes until the fencing count.
        let found = find(&fs, known, disk)?;
        let state = StateDir::of(fs.cluster_id(), known.ino)?;
        for journal in &found {
            let bytes = journal.of_client(fs.client(), known.ino, granted.epoch);
            keep_part(&state, journal.first, &bytes)?;
        }
        let (range, epoch) = (granted.range, granted.epoch);
        let note = OwnerNote::taken_over(fs.client(), range, epoch, &found);
        let (cluster, at) = (fs.cluster_id().to_owned(), path.to_string());
        state.set_owner(&SubtreeOwner::new(cluster, at, known.ino, known.policy.clone(), note))?;
        let journals = found.iter().map(RecoveredJournal::of).collect();
        let subtree = Some(Subtree::attach(fs, path.clone())?);
        Ok(Recovered { from, journals, subtree })
    }
}

impl RecoveredJournal {
    fn of(journal: &Earlier) -> Self {
        let (name, stored) = (journal.name.clone(), journal.object.is_some());
        Self { name, stored, events: journal.events(), first: journal.first.0 }
    }
}

/// The journals of a subtree, oldest first.
fn find(fs: &crate::Fs, known: &DecoupledSubtree, disk: Option<&FilePath>) -> Result<Vec<Earlier>> {
    let mut left = LeftJournals::new(known.ino, known.range);
    for file in files(fs.cluster_id(), known, disk)? {
        let bytes = std::fs::read(&file).map_err(|error| io_error(&file, &error))?;
        left.add_file(file.display().to_string(), bytes)?;
    }
    for object in fs.store().list(&left.prefix())? {
        if left.is_one(&object) {
            let (bytes, _) = fs.store().get(&object)?;
            left.add_object(object, bytes)?;
        }
    }
    Ok(left.in_order())
}

/// The journals on this machine's disk, or below a directory: the state directory of the client
/// that is gone, or the one of the subtree in it.
fn files(cluster: &str, known: &DecoupledSubtree, disk: Option<&FilePath>) -> Result<Vec<PathBuf>> {
    let Some(disk) = disk else { return StateDir::of(cluster, known.ino)?.journals() };
    let below = disk.join("subtrees").join(cluster).join(format!("{:016x}", known.ino.0));
    StateDir::at(if below.is_dir() { &below } else { disk }).journals()
}
