//! Garbage of merges by reference: runs that no directory lists, and proofs of journals that are
//! gone.
//!
//! A client that dies before its merge leaves its runs, and so does one whose merge is rejected.
//! Invariant: a run that a living client may still link stays, and so does an unknown object. First
//! the objects are listed, then the servers name the owners of their directories, then the lists of
//! the directories are read. A client that had its subtree when its run was seen either still has
//! it at the second step, or has merged, and then the list has its runs.

use std::collections::BTreeMap;

use metastore::request::proof_name;
use metastore::{Manifest, ObjectName, RunId, run_name};
use objstore::ObjectStore;
use types::{ClientId, DirFragId, Errno, Error, Ino, Result};

use crate::Fs;

/// What was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SweptRuns {
    /// Runs of clients that were looked at.
    pub runs: u64,
    /// Runs that no directory lists, and no client may link.
    pub garbage: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// No directory lists them, and a client may link them yet.
    pub held: u64,
    /// Proofs of journals that are gone.
    pub proofs: u64,
}

/// The objects of a directory fragment in the store.
#[derive(Debug, Default)]
struct FragmentObjects {
    runs: Vec<RunId>,
    /// Objects that may list runs.
    others: Vec<String>,
}

impl Fs {
    /// Finds runs that clients left behind, and proofs, and removes them unless `look`. Takes as
    /// long as listing all directories of the object store.
    ///
    /// # Errors
    /// The error of the store or the server. Objects that were removed before stay removed.
    pub fn sweep_runs(&self, look: bool) -> Result<SweptRuns> {
        let mut swept = SweptRuns::default();
        let store = &**self.store();
        for (dirfrag, FragmentObjects { runs, others }) in found(store)? {
            swept.runs += runs.len() as u64;
            if runs.is_empty() {
                continue;
            }
            let is_held = self.holder(dirfrag.ino)? != ClientId(0);
            let Some(listed) = listed(store, dirfrag, &others)? else { continue };
            for run in runs.into_iter().filter(|run| !listed.contains(run)) {
                if is_held {
                    swept.held += 1;
                    continue;
                }
                let name = run_name(dirfrag, run);
                let bytes = match store.stat(&name) {
                    Ok(stat) => stat.size,
                    // Somebody was quicker.
                    Err(error) if error.errno == Errno::NotFound => continue,
                    Err(error) => return Err(error),
                };
                (swept.garbage, swept.bytes) = (swept.garbage + 1, swept.bytes + bytes);
                if !look {
                    store.delete(&name)?;
                }
            }
        }
        let journals = store.list("journal/client/")?;
        let wanted: Vec<String> = journals.iter().map(|journal| proof_name(journal)).collect();
        for proof in store.list("journal/proof/")? {
            // A proof written since then is of a journal that may be there by now.
            let is_new = || store.stat(&proof.replacen("proof", "client", 1));
            if !wanted.contains(&proof) && is_absent(is_new())? {
                swept.proofs += 1;
                if !look {
                    store.delete(&proof)?;
                }
            }
        }
        Ok(swept)
    }
}

fn is_absent(found: Result<objstore::Stat>) -> Result<bool> {
    match found {
        Ok(_) => Ok(false),
        Err(error) if error.errno == Errno::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

/// Runs of clients by directory, and the other objects there.
fn found(store: &dyn ObjectStore) -> Result<BTreeMap<DirFragId, FragmentObjects>> {
    let mut all: BTreeMap<DirFragId, FragmentObjects> = BTreeMap::new();
    let mut strange: Vec<(Ino, String)> = Vec::new();
    for name in store.list("dirs/")? {
        match ObjectName::parse(&name) {
            Some(ObjectName::Run(dirfrag, run)) if run.is_clients() => {
                all.entry(dirfrag).or_default().runs.push(run);
            }
            Some(ObjectName::Manifest(dirfrag)) => {
                all.entry(dirfrag).or_default().others.push(name);
            }
            Some(
                ObjectName::Run(..)
                | ObjectName::Values(..)
                | ObjectName::Data(..)
                | ObjectName::Sums(..),
            ) => {}
            // It may list runs, in a way that a later release knows.
            None => {
                let ino = name.strip_prefix("dirs/").and_then(|rest| rest.get(..16));
                let ino = ino.and_then(|digits| u64::from_str_radix(digits, 16).ok());
                strange.extend(ino.map(|ino| (Ino(ino), name)));
            }
        }
    }
    for (ino, name) in strange {
        let parts = all.iter_mut().filter(|(dirfrag, _)| dirfrag.ino == ino);
        parts.for_each(|(_, found)| found.others.push(name.clone()));
    }
    Ok(all)
}

/// The runs that a directory lists; nothing if it cannot be told.
fn listed(
    store: &dyn ObjectStore,
    dirfrag: DirFragId,
    others: &[String],
) -> Result<Option<Vec<RunId>>> {
    let mut listed = Vec::new();
    let manifest = metastore::manifest_name(dirfrag);
    // One may have come since the names were listed.
    let names = others.iter().filter(|name| **name != manifest).chain([&manifest]);
    for name in names {
        match store.get(name) {
            Ok((bytes, _)) => match Manifest::decode_as(dirfrag, &bytes) {
                Ok(manifest) => listed.extend(manifest.runs.iter().map(|run| run.id)),
                Err(_) => return Ok(None),
            },
            Err(Error { errno: Errno::NotFound, .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Some(listed))
}
