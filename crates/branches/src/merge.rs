//! The trunk takes a published branch in (E-04): by value, as the journal of a decoupled client.
//!
//! 1. The object of the branch says that it is being merged, as which client, and by which rule.
//! 2. The server gives that client the directory, with the inode numbers of the branch
//!    (`JobOp::Adopt`).
//! 3. The layers are joined to one journal, without the changes that are left to the trunk, and the
//!    journal goes into the store; then the object of the branch names it.
//! 4. The server merges the journal, and answers when the metadata store has the result; other
//!    clients may use the directory again. Then the object of the branch is marked as merged.
//!
//! Invariant: after a kill at any step, the next process that merges the branch continues as the
//! same client with the same journal. If the object names a journal that is gone, the journal was
//! merged and stored.

use std::sync::Arc;

use client::{BranchConflicts, ConflictingName, LayerError};
use cudele::{Cluster, Fs};
use journal::{SegmentHeader, Writer};
use metastore::request::client_journal_name;
use metastore::{Branch, BranchState, Conflict, MergeBegun};
use objstore::{Expect, Version};
use types::{Epoch, Errno, Error, Ino, Path, Result, Seq};
use wire::{MergeFlags, MergeReport, UnusedNumbers};

use crate::comparison::BranchComparison;
use crate::{BranchInfo, Branches};

/// The result of the merge of one branch.
#[derive(Clone, Debug, Default)]
pub struct BranchMerge {
    /// Whether the trunk has it now.
    pub merged: bool,
    /// The report of the metadata server.
    pub report: MergeReport,
    /// Names that both have changed. Not looked for where the branch wins.
    pub conflicts: Vec<Path>,
    /// Events of the branch that are left out because the trunk wins.
    pub left_out: u64,
}

impl Branches {
    /// Merges a published branch into the trunk, or continues an interrupted merge. With `dry_run`
    /// nothing changes. If the trunk wins conflicts, or they end the merge, other clients get
    /// `EBUSY` in the directory until the merge ends, so that the comparison stays valid.
    ///
    /// # Errors
    /// `ENOENT`; `EINVAL` if the branch is not published; `EBUSY` if another process merges it, or
    /// a client has the directory, one above or one below; `ESTALE` if the directory was removed.
    pub fn merge(
        &self,
        cluster: &Arc<Cluster>,
        name: &str,
        rule: Conflict,
        dry_run: bool,
    ) -> Result<BranchMerge> {
        let _lock = self.lock(name)?;
        let (mut branch, mut version) = self.read(name)?;
        match branch.state {
            BranchState::Merged => {
                return Ok(BranchMerge { merged: true, ..BranchMerge::default() });
            }
            BranchState::Published | BranchState::Merging => {}
            BranchState::Begun | BranchState::Open => {
                let cause = format!("the branch is {}", branch.state.word());
                return Err(Error::new(Errno::Invalid, name, cause)
                    .remedy("publish it first: `cudele publish`"));
            }
        }
        let begun = branch.state == BranchState::Merging && !branch.merge.journal.is_empty();
        let conflict = if begun { branch.merge.conflict } else { rule };
        if branch.merge.client.0 == 0 {
            // The process that continues after a crash is the same client, with the same numbers.
            branch.merge = MergeBegun { client: cluster.register()?, ..MergeBegun::default() };
            version = self.note(name, &mut branch, version)?;
        }
        let merger = Merger {
            branches: self,
            fs: cluster.mount_as(branch.merge.client)?,
            name,
            path: self.get(name)?.path,
        };
        if dry_run {
            return merger.dry_run(&branch, conflict);
        }
        if branch.state != BranchState::Merging || branch.merge.conflict != conflict {
            branch.state = BranchState::Merging;
            branch.merge.conflict = conflict;
            version = self.note(name, &mut branch, version)?;
        }
        let merged = merger.merge(&mut branch, &mut version)?;
        if merged.merged {
            branch.state = BranchState::Merged;
        } else {
            // It can be merged by another rule.
            branch.state = BranchState::Published;
        }
        branch.merge = MergeBegun::default();
        self.note(name, &mut branch, version)?;
        Ok(merged)
    }

    /// The branches that wait for a merge, or for the rest of one, oldest first.
    ///
    /// # Errors
    /// As [`Branches::list`].
    pub fn waiting(&self) -> Result<Vec<BranchInfo>> {
        let mut all = self.list()?;
        let waits = |info: &BranchInfo| {
            matches!(info.branch.state, BranchState::Published | BranchState::Merging)
        };
        all.retain(waits);
        all.sort_by_key(|info| (info.branch.time, info.name.clone()));
        Ok(all)
    }

    pub(crate) fn note(
        &self,
        name: &str,
        branch: &mut Branch,
        version: Version,
    ) -> Result<Version> {
        let version = self.put(name, branch, Expect::Is(version))?;
        branch.changes += 1;
        Ok(version)
    }

    /// The layers that the trunk lacks: those of the branch below this one may be merged.
    fn unmerged_layers(&self, branch: &Branch) -> Result<Vec<Vec<u8>>> {
        let inherits = branch.layers.iter().any(|layer| layer.owner != branch.id);
        let others = if inherits { self.list()? } else { Vec::new() };
        let is_merged = |owner: u64| {
            let of = others.iter().find(|info| info.branch.id == owner);
            of.is_some_and(|info| info.branch.state == BranchState::Merged)
        };
        let layers = branch
            .layers
            .iter()
            .filter(|layer| layer.owner == branch.id || !is_merged(layer.owner));
        layers.map(|layer| crate::view::read_layer(&*self.store, layer)).collect()
    }
}

struct Merger<'a> {
    branches: &'a Branches,
    fs: Arc<Fs>,
    name: &'a str,
    path: Path,
}

impl Merger<'_> {
    fn merge(&self, branch: &mut Branch, version: &mut Version) -> Result<BranchMerge> {
        let mut merged = BranchMerge::default();
        // A named journal was written while this client had the directory. If it has it no longer,
        // it gave the directory back at the end of the merge.
        let begun = !branch.merge.journal.is_empty();
        if !begun {
            let block = branch.merge.conflict != Conflict::Branch;
            let epoch = self.adopt(branch.root, block)?;
            let layers = self.branches.unmerged_layers(branch)?;
            let found = self.compare(branch, &layers)?;
            merged.conflicts = self.paths(branch, &found)?;
            merged.left_out = found.left_out();
            if branch.merge.conflict == Conflict::Fail && !found.clashes.is_empty() {
                self.release(branch.root)?;
                return Ok(merged);
            }
            let (object, bytes) = self.journal(branch, &layers, &found, epoch)?;
            let Some(bytes) = bytes else {
                // Nothing was done in it, or nothing is left of that.
                self.release(branch.root)?;
                return Ok(BranchMerge { merged: true, ..merged });
            };
            let _ = self.branches.store.put(&object, &bytes, Expect::Any)?;
            branch.merge.journal = object;
            *version = self.branches.note(self.name, branch, *version)?;
        }
        let flags = MergeFlags { release: true, store: true, ..MergeFlags::default() };
        let object = &branch.merge.journal;
        let result = self.fs.merge_object(branch.root, object, flags, UnusedNumbers::default());
        merged.report = match result {
            Ok(report) => report,
            Err(error) if begun && matches!(error.errno, Errno::Stale | Errno::Busy) => {
                MergeReport::default()
            }
            // An earlier attempt succeeded, and its answer was lost.
            Err(error) if self.is_gone(&error, object)? => {
                self.release(branch.root)?;
                MergeReport::default()
            }
            Err(error) => return Err(error.about(self.name)),
        };
        // The server deletes the object, when no recovery needs it any more.
        Ok(BranchMerge { merged: true, ..merged })
    }

    fn is_gone(&self, error: &Error, object: &str) -> Result<bool> {
        if error.errno != Errno::NotFound {
            return Ok(false);
        }
        match self.branches.store.stat(object) {
            Err(error) if error.errno == Errno::NotFound => Ok(true),
            Ok(_) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn dry_run(&self, branch: &Branch, conflict: Conflict) -> Result<BranchMerge> {
        let epoch = self.adopt(branch.root, false)?;
        let result = self.try_out(branch, conflict, epoch);
        self.release(branch.root)?;
        result
    }

    fn try_out(&self, branch: &Branch, conflict: Conflict, epoch: Epoch) -> Result<BranchMerge> {
        let layers = self.branches.unmerged_layers(branch)?;
        let mut asked = branch.clone();
        asked.merge.conflict = conflict;
        let found = self.compare(&asked, &layers)?;
        let mut merged = BranchMerge {
            conflicts: self.paths(branch, &found)?,
            left_out: found.left_out(),
            ..BranchMerge::default()
        };
        if conflict == Conflict::Fail && !found.clashes.is_empty() {
            return Ok(merged);
        }
        if let (_, Some(bytes)) = self.journal(&asked, &layers, &found, epoch)? {
            let flags = MergeFlags { dry_run: true, ..MergeFlags::default() };
            merged.report =
                self.fs.merge_journal(branch.root, &bytes, flags, UnusedNumbers::default())?;
        }
        Ok(merged)
    }

    /// Takes the directory.
    fn adopt(&self, root: Ino, block: bool) -> Result<Epoch> {
        self.fs.adopt(root, &self.path, self.name, block)
    }

    fn release(&self, root: Ino) -> Result<()> {
        match self.fs.release(root) {
            Err(error) if error.errno == Errno::Stale => Ok(()),
            result => result,
        }
    }

    /// The names that both have changed. Not called if the branch wins.
    fn compare(&self, branch: &Branch, layers: &[Vec<u8>]) -> Result<BranchConflicts> {
        if branch.merge.conflict == Conflict::Branch {
            return Ok(BranchConflicts::default());
        }
        let mut both = BranchComparison::new(self.branches, &self.fs, self.name, branch)?;
        client::conflicts(layers, &branch.ranges, &mut both).map_err(|error| match error {
            LayerError::Damaged(error) => error.in_journal(self.name),
            LayerError::Fetch(error) => error,
        })
    }

    /// The journal that is merged, and the name of its object; none if it says nothing.
    fn journal(
        &self,
        branch: &Branch,
        layers: &[Vec<u8>],
        found: &BranchConflicts,
        epoch: Epoch,
    ) -> Result<(String, Option<Vec<u8>>)> {
        let left = (branch.merge.conflict == Conflict::Trunk).then_some(found);
        let blocks = client::joined(layers, left).map_err(|error| error.in_journal(self.name))?;
        let (client, subtree) = (branch.merge.client, branch.root);
        let grant = branch.ranges.first().copied().unwrap_or_default();
        let object = client_journal_name(subtree, client, grant, 0);
        if blocks.is_empty() {
            return Ok((object, None));
        }
        let writer = Writer::Client { client, subtree };
        let header = SegmentHeader { writer, epoch, first_seq: Seq(1) };
        let mut bytes = header.encode().to_vec();
        blocks.iter().for_each(|block| bytes.extend_from_slice(block));
        Ok((object, Some(bytes)))
    }

    /// The paths of names, as they are in the branch.
    fn paths(&self, branch: &Branch, found: &BranchConflicts) -> Result<Vec<Path>> {
        if found.clashes.is_empty() {
            return Ok(Vec::new());
        }
        let mut both = BranchComparison::new(self.branches, &self.fs, self.name, branch)?;
        let path = |ConflictingName { dir, name }: &ConflictingName| {
            Ok(both.path_in(*dir, found)?.join(name))
        };
        found.clashes.iter().map(path).collect()
    }
}
