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
use metastore::{Manifest, ObjectName, RunId, manifest_name};
use types::{DirFragId, Ino};

/// The objects of a directory fragment in the store.
#[derive(Debug, Default)]
pub struct FragmentObjects {
    /// Runs of clients.
    pub runs: Vec<RunId>,
    /// Objects that may list runs.
    lists: Vec<String>,
}

impl FragmentObjects {
    /// Sorts the names of all objects of directories by fragment.
    #[must_use]
    pub fn sort(names: Vec<String>) -> BTreeMap<DirFragId, Self> {
        let mut all: BTreeMap<DirFragId, Self> = BTreeMap::new();
        let mut strange: Vec<(Ino, String)> = Vec::new();
        for name in names {
            match ObjectName::parse(&name) {
                Some(ObjectName::Run(dirfrag, run)) if run.is_clients() => {
                    all.entry(dirfrag).or_default().runs.push(run);
                }
                Some(ObjectName::Manifest(dirfrag)) => {
                    all.entry(dirfrag).or_default().lists.push(name);
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
            parts.for_each(|(_, found)| found.lists.push(name.clone()));
        }
        all
    }

    /// The objects that may list runs, now: a manifest may have come since the names were listed.
    #[must_use]
    pub fn lists(&self, dirfrag: DirFragId) -> Vec<String> {
        let manifest = manifest_name(dirfrag);
        let others = self.lists.iter().filter(|name| **name != manifest).cloned();
        others.chain([manifest.clone()]).collect()
    }

    /// The runs that no list has, of which these are the contents; nothing if one cannot be read.
    #[must_use]
    pub fn unlisted(&self, dirfrag: DirFragId, lists: &[Vec<u8>]) -> Option<Vec<RunId>> {
        let mut unlisted = self.runs.clone();
        for bytes in lists {
            let manifest = Manifest::decode_as(dirfrag, bytes).ok()?;
            unlisted.retain(|run| manifest.runs.iter().all(|listed| listed.id != *run));
        }
        Some(unlisted)
    }
}

/// The proofs without a journal, each with the journal that may be there by now.
#[must_use]
pub fn lone_proofs(journals: &[String], proofs: Vec<String>) -> Vec<(String, String)> {
    let wanted: Vec<String> = journals.iter().map(|journal| proof_name(journal)).collect();
    let lone = proofs.into_iter().filter(|proof| !wanted.contains(proof));
    lone.map(|proof| (proof.replacen("proof", "client", 1), proof)).collect()
}

#[cfg(test)]
mod tests {
    use metastore::run_name;
    use types::Frag;

    use super::*;

    #[test]
    fn a_run_that_no_list_has_is_garbage_unless_a_list_cannot_be_read() {
        let dirfrag = DirFragId { ino: Ino(7), frag: Frag::WHOLE };
        let (clients, servers) = (RunId::of_client(Ino(9), 3), RunId(4));
        let strange = "dirs/0000000000000007.later".to_owned();
        let names = vec![run_name(dirfrag, clients), run_name(dirfrag, servers), strange.clone()];
        let all = FragmentObjects::sort(names);
        let found = &all[&dirfrag];
        assert_eq!(found.runs, [clients], "a server deletes its own runs");
        assert_eq!(found.lists(dirfrag), [strange, manifest_name(dirfrag)]);
        assert_eq!(found.unlisted(dirfrag, &[]), Some(vec![clients]));
        assert_eq!(found.unlisted(dirfrag, &[b"of a later release".to_vec()]), None);
    }

    #[test]
    fn a_proof_without_its_journal_is_garbage() {
        let journals = ["journal/client/1".to_owned()];
        let proofs = ["journal/proof/1", "journal/proof/2"].map(str::to_owned).to_vec();
        let lone = lone_proofs(&journals, proofs);
        assert_eq!(lone, [("journal/client/2".to_owned(), "journal/proof/2".to_owned())]);
    }
}
