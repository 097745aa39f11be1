//! Branches (E-04), which need the object store only (E-01): makes, lists, publishes and removes
//! them. [`SnapshotView`] reads a branch. [`Work`] changes it, or the server of a [`BranchJob`]
//! (crate `jobserver`).
//!
//! Invariant: a branch is one object, and every change of it is one compare-and-swap. A lock keeps
//! two processes from working on one branch; the comparison stops a process that has lost the lock
//! without knowing.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "I/O edge: a branch is objects of a store, and the clock times its changes"
)]

mod collect;
mod comparison;
mod files;
mod filesystem;
mod job;
mod leftover;
mod merge;
mod offline_snapshot;
mod squash;
mod view;
mod work;

use std::sync::Arc;

use client::MadeDirs;
use cudele::Fs;
use engine::{change_snapshots, read_snapshots};
use metastore::{BRANCH_PREFIX, Branch, Snapshot, is_branch_name};
use objstore::{Expect, LockGuard, PutOutcome, Store, Version};
use types::{Errno, Error, InoRange, Map, Path, Result, Seq};

pub use client::Composed;
pub use collect::Collected;
pub use files::BranchFiles;
pub use filesystem::BranchFs;
pub use job::BranchJob;
pub use merge::BranchMerge;
pub use metastore::{BranchState, Conflict};
pub use view::SnapshotView;
pub use work::Work;

/// The branches of a store.
#[derive(Clone, Debug)]
pub struct Branches {
    store: Arc<dyn Store>,
}

/// The facts of a branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchInfo {
    /// Its name.
    pub name: String,
    /// The path of its root when its snapshot was taken; the root of the namespace before that.
    pub path: Path,
    /// Its object.
    pub branch: Branch,
    /// The number of its snapshot; `None` before the snapshot is taken, and when it is no longer
    /// needed.
    pub snapshot: Option<u64>,
}

impl Branches {
    /// The branches of the store at this address.
    ///
    /// # Errors
    /// As [`objstore::open_existing`].
    pub fn open(url: &str) -> Result<Self> {
        Ok(Self::of(objstore::open_existing(url)?))
    }

    /// The branches of a store.
    #[must_use]
    pub fn of(store: Arc<dyn Store>) -> Self {
        Self { store }
    }

    /// All of them, by name.
    ///
    /// # Errors
    /// The error of the store; `EBADMSG` for a damaged object.
    pub fn list(&self) -> Result<Vec<BranchInfo>> {
        let mut all = Vec::new();
        for object in self.store.list(BRANCH_PREFIX)? {
            let Some(name) = object.strip_prefix(BRANCH_PREFIX) else { continue };
            match self.get(name) {
                Ok(info) => all.push(info),
                // It was removed just now.
                Err(error) if error.errno == Errno::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    }

    /// One of them.
    ///
    /// # Errors
    /// `ENOENT`, `EINVAL` for a name that no branch can have, `EBADMSG`.
    pub fn get(&self, name: &str) -> Result<BranchInfo> {
        let (branch, _) = self.read(name)?;
        let (snapshots, _) = read_snapshots(&*self.store)?;
        let snapshot = snapshots.get(branch.snapshot);
        let path = snapshot.map_or(&b"/"[..], |snapshot| &snapshot.path);
        let path = cudele::parse_path(path)?;
        let snapshot = snapshot.map(|snapshot| snapshot.number);
        Ok(BranchInfo { name: name.to_owned(), path, branch, snapshot })
    }

    /// Makes a branch of a directory. With servers, the branch has every name that is visible when
    /// this returns, and every change that was acknowledged before the call; without servers (`fs`
    /// is `None`), the store must be at rest. After an interruption, it may be called again.
    ///
    /// # Errors
    /// `EEXIST`; `EINVAL` for an invalid name of a branch; `EBUSY` if a server uses a store that
    /// must be at rest, or a part of the directory has a server of its own; the errors of the path.
    pub fn create(&self, name: &str, path: &Path, fs: Option<&Fs>) -> Result<BranchInfo> {
        check_name(name)?;
        let _lock = self.lock(name)?;
        match self.read(name) {
            Ok((known, version)) if known.state == BranchState::Begun => {
                self.delete_if(name, version)?;
            }
            Ok(_) => return Err(exists(name)),
            Err(error) if error.errno == Errno::NotFound => {}
            Err(error) => return Err(error),
        }
        // The object comes first: it keeps a garbage collection from deleting the snapshot.
        let (id, snapshot) = (random()?, random()?);
        let mut branch = Branch { id, snapshot, time: cudele::now(), ..Branch::default() };
        let version = self.put(name, &branch, Expect::Absent)?;
        match fs {
            Some(fs) => fs.snapshot(path, snapshot),
            None => offline_snapshot::take(&*self.store, path, snapshot),
        }?;
        let (snapshots, _) = read_snapshots(&*self.store)?;
        let taken = snapshots.get(snapshot).ok_or_else(|| lost(name))?;
        (branch.state, branch.root) = (BranchState::Open, taken.root.ino);
        self.put(name, &branch, Expect::Is(version))?;
        self.get(name)
    }

    /// Makes a branch that begins as a copy of another branch, and shares all its layers.
    ///
    /// # Errors
    /// `EEXIST`, `ENOENT`; `EBUSY` if a process works on either branch.
    pub fn create_from(&self, name: &str, from: &str) -> Result<BranchInfo> {
        check_name(name)?;
        let _lock = self.lock(name)?;
        // The lock keeps the other branch from being removed.
        let _from_lock = self.lock(from)?;
        let (parent, _) = self.read(from)?;
        if !matches!(parent.state, BranchState::Open | BranchState::Published) {
            let cause = format!("it is {}", parent.state.word());
            return Err(Error::new(Errno::Invalid, from, cause)
                .remedy("make a branch of the directory itself: the trunk has what was in it"));
        }
        let branch = Branch {
            id: random()?,
            state: BranchState::Open,
            time: cudele::now(),
            changes: 0,
            from: from.to_owned(),
            inherited: parent.layers.len(),
            ..parent
        };
        let made = self.put(name, &branch, Expect::Absent);
        made.map_err(|error| if error.errno == Errno::Stale { exists(name) } else { error })?;
        // A garbage collection that has not seen this branch must start over.
        change_snapshots(&*self.store, |snapshots| {
            snapshots.changes += 1;
            snapshots.get(branch.snapshot).map(drop).ok_or_else(|| lost(from))
        })?;
        self.get(name)
    }

    /// Declares a branch complete: it does not change any more, and waits to be merged (E-05). One
    /// compare-and-swap.
    ///
    /// # Errors
    /// `ENOENT`; `EBUSY` if a process works on the branch; `EINVAL` if it is not open.
    pub fn publish(&self, name: &str) -> Result<BranchInfo> {
        let _lock = self.lock(name)?;
        let (mut branch, version) = self.read(name)?;
        match branch.state {
            BranchState::Open => {
                branch.state = BranchState::Published;
                self.put(name, &branch, Expect::Is(version))?;
            }
            // It was done, and the answer was lost.
            BranchState::Published => {}
            BranchState::Begun | BranchState::Merging | BranchState::Merged => {
                let cause = format!("the branch is {}", branch.state.word());
                return Err(Error::new(Errno::Invalid, name, cause)
                    .remedy("`cudele branch show` says more"));
            }
        }
        self.get(name)
    }

    /// A view of one branch, or of several on top of each other in this order: the last branch with
    /// a name wins, and directories that several branches made are one directory (D-01). Nothing is
    /// merged.
    ///
    /// # Errors
    /// `ENOENT`; `EINVAL` if they are not of one directory, or not ready; `EBADMSG`.
    pub fn view(&self, names: &[&str]) -> Result<SnapshotView> {
        loop {
            let before = self.changes_of(names);
            match self.view_now(names) {
                // Layers were joined after this view was begun, and the old ones were deleted.
                Err(error) if error.errno == Errno::NotFound => {
                    if self.changes_of(names) == before {
                        return Err(error);
                    }
                }
                view => return view,
            }
        }
    }

    /// How often branches were replaced, as far as there are such.
    fn changes_of(&self, names: &[&str]) -> Vec<Option<u64>> {
        let changes = |name: &&str| self.read(name).ok().map(|(branch, _)| branch.changes);
        names.iter().map(changes).collect()
    }

    fn view_now(&self, names: &[&str]) -> Result<SnapshotView> {
        let mut branches = Vec::new();
        for name in names {
            let (branch, _) = self.read(name)?;
            if branch.state == BranchState::Begun {
                return Err(Error::new(Errno::Invalid, *name, "it was not made completely")
                    .remedy("make it again by the same command, or remove it"));
            }
            branches.push((*name, branch));
        }
        let (snapshots, _) = read_snapshots(&*self.store)?;
        let mut base: Option<&Snapshot> = None;
        for (name, branch) in &branches {
            let snapshot = snapshots.get(branch.snapshot).ok_or_else(|| lost(name))?;
            if base.is_some_and(|base| base.root.ino != snapshot.root.ino) {
                let cause = "it goes out from another directory than the others";
                return Err(Error::new(Errno::Invalid, *name, cause)
                    .remedy("name branches of one directory"));
            }
            // The newer state of the trunk is below all branches.
            base = base.filter(|base| base.number >= snapshot.number).or(Some(snapshot));
        }
        let base = base.ok_or_else(|| Error::new(Errno::Invalid, "", "no branch is named"))?;
        if let [(name, branch)] = &branches[..] {
            return self.view_of(name, branch);
        }
        let next = branches.last().map(|(_, branch)| branch.next_seq()).unwrap_or_default();
        let mut view = SnapshotView::new(self.store.clone(), base, next)?;
        // Branches share layers, and may have joined them: the events of each writer count, not the
        // layers.
        let mut seen: Map<u64, Seq> = Map::default();
        let mut made = MadeDirs::default();
        for layer in branches.iter().flat_map(|(_, branch)| &branch.layers) {
            let known = seen.entry(layer.owner).or_default();
            let last = Seq((layer.first.0 + layer.events).saturating_sub(1));
            if last > *known {
                view.compose(layer, *known, &mut made)?;
                *known = last;
            }
        }
        Ok(view)
    }

    /// A view of a branch as this object of it says.
    fn view_of(&self, name: &str, branch: &Branch) -> Result<SnapshotView> {
        let (snapshots, _) = read_snapshots(&*self.store)?;
        let snapshot = snapshots.get(branch.snapshot).ok_or_else(|| lost(name))?;
        let mut view = SnapshotView::new(self.store.clone(), snapshot, branch.next_seq())?;
        branch.layers.iter().try_for_each(|layer| view.replay(layer))?;
        Ok(view)
    }

    /// Locks a branch to work on it, until the result is dropped.
    ///
    /// # Errors
    /// `ENOENT`; `EBUSY` if another process works on the branch; `EINVAL` if it is not open;
    /// `EBADMSG`.
    pub fn work_on(&self, name: &str) -> Result<Work> {
        let lock = self.lock(name)?;
        let (branch, version) = self.open_branch(name)?;
        let view = self.view_of(name, &branch)?;
        Ok(Work::new(self.clone(), name, branch, version, view, lock))
    }

    /// A branch that can be worked on.
    fn open_branch(&self, name: &str) -> Result<(Branch, Version)> {
        let (branch, version) = self.read(name)?;
        if branch.state == BranchState::Open {
            return Ok((branch, version));
        }
        let cause = format!("the branch is {}", branch.state.word());
        Err(Error::new(Errno::Invalid, name, cause)
            .remedy("work on a branch of it: `cudele branch create NAME --from BRANCH`"))
    }

    /// The store that has the branches.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Locks a branch against changes by other processes. The lock ends with this process.
    fn lock(&self, name: &str) -> Result<Box<dyn LockGuard>> {
        check_name(name)?;
        let owner = std::process::id().to_string();
        let lock = self.store.lock(&format!("branches/lock/{name}"), &owner);
        lock.map_err(|error| {
            if error.errno != Errno::Busy {
                return error;
            }
            Error::new(Errno::Busy, name, "somebody works on this branch")
                .remedy("wait until that process ends, or end it")
        })
    }

    fn read(&self, name: &str) -> Result<(Branch, Version)> {
        check_name(name)?;
        let object = format!("{BRANCH_PREFIX}{name}");
        match self.store.get(&object) {
            Ok((bytes, version)) => Ok((Branch::decode(&object, &bytes)?, version)),
            Err(error) if error.errno == Errno::NotFound => {
                Err(Error::new(Errno::NotFound, name, "there is no branch of this name")
                    .remedy("`cudele branch ls` lists them"))
            }
            Err(error) => Err(error),
        }
    }

    /// Replaces the object of a branch. `changes` is incremented.
    fn put(&self, name: &str, branch: &Branch, expect: Expect) -> Result<Version> {
        let next = Branch { changes: branch.changes + 1, ..branch.clone() };
        let bytes = next.encode();
        match self.store.put(&format!("{BRANCH_PREFIX}{name}"), &bytes, expect)? {
            PutOutcome::Done(version) => Ok(version),
            // An earlier attempt that failed may have been carried out all the same.
            PutOutcome::Conflict(Some(version)) if version == Version::of(&bytes) => Ok(version),
            PutOutcome::Conflict(_) => {
                Err(Error::new(Errno::Stale, name, "somebody else has changed the branch")
                    .remedy("look at it (`cudele branch show`), and do again what is to be done"))
            }
        }
    }

    /// Removes the object of a branch, which must be of this version.
    fn delete_if(&self, name: &str, version: Version) -> Result<()> {
        let object = format!("{BRANCH_PREFIX}{name}");
        // Only the holder of the lock changes the branch.
        if self.store.get(&object)?.1 != version {
            return Err(Error::new(Errno::Stale, name, "somebody else has changed the branch"));
        }
        self.store.delete(&object)?;
        self.store.sync(objstore::SyncScope::Object(&object))
    }

    /// Takes inode numbers that no other process has.
    fn grant(&self, count: u64) -> Result<InoRange> {
        change_snapshots(&*self.store, |snapshots| {
            let full = || Error::new(Errno::NoSpace, "branches", "there are no inode numbers left");
            snapshots.grant(count).ok_or_else(full)
        })
    }
}

fn check_name(name: &str) -> Result<()> {
    if is_branch_name(name) {
        return Ok(());
    }
    let cause = "not the name of a branch: up to 100 letters, digits, `-`, `_` and `.`";
    Err(Error::new(Errno::Invalid, format!("{name:?}"), cause).remedy("choose another name"))
}

fn exists(name: &str) -> Error {
    Error::new(Errno::Exists, name, "there is a branch of this name").remedy("choose another name")
}

fn lost(name: &str) -> Error {
    Error::new(Errno::NotFound, name, "the snapshot of this branch is not there any more")
        .remedy("it was merged, or is being removed; make a branch anew")
}

/// A random number that no other process has: the identity of a branch, of a snapshot, or of a
/// cluster.
///
/// # Errors
/// The error of the operating system's source of random numbers.
pub fn random() -> Result<u64> {
    let number = getrandom::u64().map_err(|error| {
        Error::new(Errno::Io, "the identity of a branch", format!("no random number: {error}"))
    })?;
    Ok(number.max(1))
}
