//! Takes over the work of a dead client (F-19): on its machine, on a machine with its disk, or
//! anywhere if its journal is in the object store.
//!
//! The client is fenced first: the metadata server rejects its messages, and a store with such a
//! function shuts it out, so that its journals are complete when they are read. They are then
//! copied to the disk of this machine under a new client, so that a crash of this machine is only
//! one more to recover from.

use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

use journal::{SegmentHeader, Writer};
use types::{ClientId, Errno, Error, Path, Result};
use wire::DecoupledSubtree;

use crate::mechanism::keep_part;
use crate::state::io_error;
use crate::subtree::Earlier;
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
            let journals = found.iter().map(|(left, _)| left.clone()).collect();
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
        let mut next = 1;
        for (left, journal) in &found {
            let writer = Writer::Client { client: fs.client(), subtree: known.ino };
            let header = SegmentHeader { writer, epoch: granted.epoch, first_seq: journal.first };
            let mut bytes = header.encode().to_vec();
            bytes.extend_from_slice(journal.bytes.get(bytes.len()..).unwrap_or_default());
            keep_part(&state, journal.first, &bytes)?;
            next = next.max(left.first + left.events);
        }
        state.set_owner(&SubtreeOwner {
            cluster: fs.cluster_id().to_owned(),
            path: path.to_string(),
            ino: known.ino.0,
            client: fs.client().0,
            ranges: vec![(granted.range.start, granted.range.end)],
            epoch: granted.epoch.0,
            policy: known.policy.clone(),
            next_seq: next,
            reached: next,
            merged_in: None,
            empty: false,
            objects: Vec::new(),
            // The dead client may have used any of its numbers.
            used: granted.range.end.saturating_sub(1),
            exact: false,
            unused: Vec::new(),
            adopted: found.iter().filter(|(left, _)| left.stored).map(name).collect(),
        })?;
        let journals = found.into_iter().map(|(left, _)| left).collect();
        let subtree = Some(Subtree::attach(fs, path.clone())?);
        Ok(Recovered { from, journals, subtree })
    }
}

fn name((left, _): &(RecoveredJournal, Earlier)) -> String {
    left.name.clone()
}

/// The journals of a subtree, oldest first; of two that begin at the same event the longer one.
fn find(
    fs: &crate::Fs,
    known: &DecoupledSubtree,
    disk: Option<&FilePath>,
) -> Result<Vec<(RecoveredJournal, Earlier)>> {
    let mut found: Vec<(RecoveredJournal, Earlier)> = Vec::new();
    let mut add = |name: String, bytes: Vec<u8>, stored: bool| -> Result<()> {
        let journal = Earlier::read(name.clone(), bytes, None)?;
        let header = SegmentHeader::decode(&journal.bytes).map_err(|e| e.in_journal(&name))?;
        let own = matches!(header.writer, Writer::Client { subtree, .. } if subtree == known.ino);
        let (first, events) = (journal.first.0, journal.events());
        if own && events > 0 {
            found.push((RecoveredJournal { name, stored, events, first }, journal));
        }
        Ok(())
    };
    for file in files(fs.cluster_id(), known, disk)? {
        let bytes = std::fs::read(&file).map_err(|error| io_error(&file, &error))?;
        add(file.display().to_string(), bytes, false)?;
    }
    let prefix = format!("journal/client/{:016x}.", known.ino.0);
    let grant = format!(".{:x}.", known.range.start);
    for object in fs.store().list(&prefix)? {
        // Other objects belong to earlier decouplings, and recovery may still need them.
        if object[prefix.len()..].contains(&grant) {
            let (bytes, _) = fs.store().get(&object)?;
            // A client may be gone in the middle of its first write.
            if client::IntactJournal::is_begun(&bytes) {
                add(object, bytes, true)?;
            }
        }
    }
    found.sort_by_key(|(left, _)| (left.first, std::cmp::Reverse(left.events)));
    found.dedup_by_key(|(left, _)| left.first);
    Ok(found)
}

/// The journals on this machine's disk, or below a directory: the state directory of the client
/// that is gone, or the one of the subtree in it.
fn files(cluster: &str, known: &DecoupledSubtree, disk: Option<&FilePath>) -> Result<Vec<PathBuf>> {
    let Some(disk) = disk else { return StateDir::of(cluster, known.ino)?.journals() };
    let below = disk.join("subtrees").join(cluster).join(format!("{:016x}", known.ino.0));
    StateDir::at(if below.is_dir() { &below } else { disk }).journals()
}
