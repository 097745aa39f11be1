//! Removes the garbage of merges by reference: carries out [`client::FragmentObjects`].

use client::FragmentObjects;
use metastore::run_name;
use types::{ClientId, Errno, Result};

use crate::Fs;
use crate::mechanism::get;

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

impl Fs {
    /// Finds runs that clients left behind, and proofs, and removes them unless `look`. Takes as
    /// long as listing all directories of the object store.
    ///
    /// # Errors
    /// The error of the store or the server. Objects that were removed before stay removed.
    pub fn sweep_runs(&self, look: bool) -> Result<SweptRuns> {
        let mut swept = SweptRuns::default();
        let store = &**self.store();
        for (dirfrag, found) in FragmentObjects::sort(store.list("dirs/")?) {
            swept.runs += found.runs.len() as u64;
            if found.runs.is_empty() {
                continue;
            }
            let is_held = self.holder(dirfrag.ino)? != ClientId(0);
            let mut lists = Vec::new();
            for name in found.lists(dirfrag) {
                lists.extend(get(self, &name)?);
            }
            for run in found.unlisted(dirfrag, &lists).unwrap_or_default() {
                if is_held {
                    swept.held += 1;
                    continue;
                }
                let name = run_name(dirfrag, run);
                // Another sweep may have been quicker.
                let Some(bytes) = self.size_of(&name)? else { continue };
                (swept.garbage, swept.bytes) = (swept.garbage + 1, swept.bytes + bytes);
                if !look {
                    store.delete(&name)?;
                }
            }
        }
        let journals = store.list("journal/client/")?;
        for (journal, proof) in client::lone_proofs(&journals, store.list("journal/proof/")?) {
            // A proof written since then is of a journal that may be there by now.
            if self.size_of(&journal)?.is_none() {
                swept.proofs += 1;
                if !look {
                    store.delete(&proof)?;
                }
            }
        }
        Ok(swept)
    }

    /// The bytes of an object, if it exists.
    pub(crate) fn size_of(&self, object: &str) -> Result<Option<u64>> {
        match self.store().stat(object) {
            Ok(stat) => Ok(Some(stat.size)),
            Err(error) if error.errno == Errno::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}
