//! A decoupled subtree: this client's own until it is merged or discarded.

mod background;
mod complete;
mod earlier;
mod materialise;
mod placed;
mod sync;
mod unused;
mod view;

use std::io::Read;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use client::{Earlier, OwnerNote, SubtreeJob};
use namespace::PlannedInode;
use objstore::Presence;
use policy::{Check, Mechanism};
use types::{
    Attr, AttrChange, ClientId, Cred, EntryName, Errno, Error, Ino, Path, Result, Set, Stripe,
    StripedFile, Timestamp,
};
use wire::{Answer, JobOp, Op};

pub(crate) use background::Written;
pub use materialise::Materialised;
pub use placed::Placed;
use sync::{Offered, Syncer};

use crate::data::ContentStart;
use crate::fs::unexpected;
use crate::state::Share;
use crate::{Fs, NewFile, Policy, StateDir, SubtreeOwner};

/// See the module documentation.
///
/// A create appends to a journal in memory: no request, no check for existence (M-03).
/// [`Subtree::complete`] executes the mechanisms of the policy. A drop without it loses the changes
/// since the last completion, as the policy says.
#[derive(Debug)]
pub struct Subtree {
    fs: Arc<Fs>,
    path: Path,
    /// The journals, and the note of this machine.
    job: SubtreeJob,
    state: StateDir,
    /// The file of this machine; its note is the job's.
    owner: SubtreeOwner,
    time: Timestamp,
    /// Events left until the time is read again.
    time_for: u32,
    /// Merges in the background, if there are any.
    syncer: Option<Syncer>,
    /// Merges on demand of other clients, if the policy has that.
    offered: Option<Offered>,
    /// Runs of the pending events, if the policy merges by reference.
    written: Option<Written>,
    /// The identity for changes and questions.
    cred: Cred,
    /// Inodes of the base without content and extended attributes in the view.
    bare: Set<Ino>,
    /// A directory may give its new inodes an access control list: they are made against the view.
    inherits: bool,
    /// Set when the disk of this machine names the owner: then other processes may attach.
    share: OnceLock<Share>,
    /// Whether it is known which numbers were used: by this process, or in a journal.
    exact: bool,
    /// Whether the disk says that there may be content for numbers that no journal has.
    content_noted: AtomicBool,
    /// Lets a recovery shut this process out of the store.
    _entered: Presence,
}

/// Events that share one reading of the coarse clock.
const EVENTS_PER_TIME: u32 = 32;

impl Subtree {
    pub(crate) fn decouple(fs: Arc<Fs>, path: Path, policy: &Policy) -> Result<Self> {
        if !policy.is_decoupled() {
            return Err(Error::new(
                Errno::Invalid,
                path.to_string(),
                "the policy does not contain append_client_journal, so nothing is decoupled",
            )
            .remedy(
                "set it with `cudele policy set`, or choose a decoupled policy such as batchfs",
            ));
        }
        let policy = &fs.cluster().numbered(policy)?;
        let entered = fs.store().enter(fs.client())?;
        let text = policy.to_yaml();
        let before = owned_before(&fs, &path)?;
        let answer = fs
            .cluster()
            .decouple(&path.to_bytes(), fs.client(), &text)
            .map_err(|error| error.about(path.to_string()))?;
        let over =
            |owner: &SubtreeOwner| owner.client() != fs.client() || owner.merged_in.is_some();
        if let Some((state, _)) = before.filter(|(_, owner)| over(owner)) {
            // The state of an earlier decoupling is of no use.
            state.remove()?;
        }
        let note = OwnerNote::granted(fs.client(), &answer);
        let (cluster, at) = (fs.cluster_id().to_owned(), path.to_string());
        let owner = SubtreeOwner {
            exact: true,
            ..SubtreeOwner::new(cluster, at, answer.root.ino, text, note)
        };
        let mut subtree = Self::new(fs, path, policy.clone(), owner, answer.root, entered)?;
        subtree.look_at_root()?;
        subtree.sync_as_policy_says()?;
        if policy.persists() {
            subtree.remember()?;
        }
        Ok(subtree)
    }

    /// Attaches to the state of an earlier process on this machine: the ownership, and the journals
    /// of Local Persist.
    pub(crate) fn attach(fs: Arc<Fs>, path: Path) -> Result<Self> {
        // Before the first request: the server does not answer a client whose work was taken over,
        // so a client with an answer has entered before that.
        let entered = fs.store().enter(fs.client())?;
        let root = fs.stat_owned(&path)?;
        let state = StateDir::of(fs.cluster_id(), root.ino)?;
        // No other process may change the state that this one reads.
        let share = if state.path().is_dir() { Some(Share::new(&state)?) } else { None };
        let Some(owner) = state.owner()? else {
            return Err(Error::new(
                Errno::NotFound,
                path.to_string(),
                "this machine does not own a decoupled subtree here",
            )
            .remedy("decouple it first, or attach on the machine that did"));
        };
        // A change of policy may have ended with its process before it was noted here.
        let (in_force, _) = fs.policy_at(root.ino)?;
        let noted = || Policy::parse(&owner.policy).map(|parsed| parsed.policy);
        let policy = if in_force.is_decoupled() { in_force } else { noted()? };
        let owner = SubtreeOwner { policy: policy.to_yaml(), ..owner };
        let mut subtree = Self::new(fs, path, policy, owner, root, entered)?;
        subtree.share = share.map_or_else(OnceLock::new, OnceLock::from);
        subtree.look_at_root()?;
        subtree.job.inner.skip_used(subtree.job.note.used);
        subtree.load_journals()?;
        subtree.sync_as_policy_says()?;
        Ok(subtree)
    }

    fn new(
        fs: Arc<Fs>,
        path: Path,
        policy: Policy,
        owner: SubtreeOwner,
        root: Attr,
        entered: Presence,
    ) -> Result<Self> {
        let cred = fs.cred().clone();
        let exact = owner.exact;
        let bare = Set::from_iter([root.ino]);
        Ok(Self {
            state: StateDir::of(fs.cluster_id(), root.ino)?,
            fs,
            path,
            job: SubtreeJob::new(owner.note(), root, policy),
            owner,
            time: crate::now_coarse(),
            time_for: 0,
            syncer: None,
            offered: None,
            written: None,
            cred,
            bare,
            inherits: false,
            share: OnceLock::new(),
            exact,
            content_noted: AtomicBool::new(false),
            _entered: entered,
        })
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its policy.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.job.policy
    }

    /// The file system client behind it.
    #[must_use]
    pub fn fs(&self) -> &Arc<Fs> {
        &self.fs
    }

    /// Whether its directories may have access control lists, or give them to new inodes, as far as
    /// this process has seen.
    #[must_use]
    pub fn has_lists(&mut self) -> bool {
        let root = self.root();
        let has_view = self.job.inner.has_view();
        self.inherits || has_view && self.job.inner.view().namespace().has_lists(root)
    }

    /// Its root directory.
    #[must_use]
    pub fn root(&self) -> Ino {
        self.job.inner.root()
    }

    /// Works from now on for this user, or for the user of this process' key in the place of root:
    /// the owner of new files, with the permissions that count.
    pub fn act_as(&mut self, cred: &Cred) {
        let cred = self.fs.served_as(cred);
        if self.cred != *cred {
            self.cred = cred.into_owned();
        }
    }

    /// Events that this process appended since its last completion, also if one failed since.
    #[must_use]
    pub fn pending_events(&self) -> u64 {
        self.job.inner.events() + self.job.sealed().map(Earlier::events).sum::<u64>()
    }

    /// Bytes of the journal that holds them.
    #[must_use]
    pub fn pending_bytes(&self) -> u64 {
        self.job.inner.bytes() + self.job.sealed().map(|part| part.bytes.len() as u64).sum::<u64>()
    }

    /// The state of this machine for the subtree.
    #[must_use]
    pub fn state(&self) -> &StateDir {
        &self.state
    }

    #[inline]
    fn now(&mut self) -> Timestamp {
        if self.time_for == 0 {
            self.time = crate::now_coarse();
            self.time_for = EVENTS_PER_TIME;
            if self.offered.is_some() && self.fs.has_merge_request(self.root()) {
                // After a failure the events stay for the next completion, which returns the error.
                let _ = self.answer_merge_request();
            }
            if self.syncer.is_some() {
                self.sync_if_due();
            } else if self.job.is_by_reference() {
                self.write_in_background();
            }
        }
        self.time_for -= 1;
        self.time
    }

    /// Creates a file, directory, symbolic link or device in a directory of the subtree.
    ///
    /// # Errors
    /// `EINVAL`, `ENAMETOOLONG`; `EDQUOT` when the numbers are used up and the policy says that
    /// they are a hard limit; with `check: client` also `EEXIST`, `ENOTDIR`, `EACCES`.
    #[inline]
    pub fn create(&mut self, parent: Ino, name: &[u8], new: &NewFile<'_>) -> Result<Ino> {
        let time = self.now();
        let inode = inode_of(new, time, self.job.policy.stripe);
        if self.job.policy.check != Check::Client && !self.inherits {
            match self.job.inner.create(&self.cred, parent, name, &inode) {
                Ok(ino) => return Ok(ino),
                Err(errno) => return self.create_slowly(parent, name, &inode, errno),
            }
        }
        self.create_checked(parent, name, &inode)
    }

    /// Creates like [`Subtree::create`] with all checks of POSIX under any policy, for callers that
    /// count on `EEXIST`.
    ///
    /// # Errors
    /// Those of `open` with `O_CREAT` and `O_EXCL`; `EDQUOT`.
    pub fn make(&mut self, parent: Ino, name: &[u8], new: &NewFile<'_>) -> Result<Ino> {
        let time = self.now_exactly();
        self.create_checked(parent, name, &inode_of(new, time, self.job.policy.stripe))
    }

    #[cold]
    fn create_slowly(
        &mut self,
        parent: Ino,
        name: &[u8],
        new: &PlannedInode<'_>,
        errno: Errno,
    ) -> Result<Ino> {
        let about = |errno| Error::of(errno, String::from_utf8_lossy(name));
        if errno != Errno::NoSpace {
            return Err(about(errno));
        }
        self.extend()?;
        self.job.inner.create(&self.cred, parent, name, new).map_err(about)
    }

    fn create_checked(&mut self, parent: Ino, name: &[u8], new: &PlannedInode<'_>) -> Result<Ino> {
        let cred = self.cred.clone();
        if self.job.inner.inodes_left() == 0 {
            self.extend()?;
        }
        let entry = EntryName::new(parent, name);
        self.on_view(name, |inner| inner.create_checked(&cred, entry, new))
    }

    /// The contract is used up: a larger one is made, unless it is a hard limit.
    fn extend(&mut self) -> Result<()> {
        let about = |error: Error| error.about(self.path.to_string());
        let op = Op::Job(JobOp::Extend {
            subtree: self.root(),
            count: self.job.extension().map_err(about)?,
        });
        let answer = self.fs.call(op).map_err(about)?;
        let Answer::Range(range) = answer else { return Err(unexpected(&answer)) };
        self.job.take_range(range);
        if self.job.policy.contains(Mechanism::LocalPersist) {
            self.remember()?;
        }
        Ok(())
    }

    /// Creates a file with content: small content goes inline, large content to the object store.
    ///
    /// # Errors
    /// As [`Subtree::create`], and `EIO` or `ENOSPC` from the source or the store.
    pub fn create_file(
        &mut self,
        parent: Ino,
        name: &[u8],
        new: &NewFile<'_>,
        source: &mut dyn Read,
    ) -> Result<(Ino, u64)> {
        match Fs::classify(source, self.job.policy.inline_bytes)? {
            ContentStart::Inline(data) => {
                let size = data.len() as u64;
                Ok((self.create(parent, name, &NewFile { size, data: &data, ..*new })?, size))
            }
            ContentStart::Large(head) => {
                // The number is known only afterwards, so the size follows in a second event.
                let ino = self.create(parent, name, new)?;
                self.note_content()?;
                self.fs.want_sums(ino, self.job.policy.checksums == policy::Checksums::On);
                let size = self.fs.write_large(
                    StripedFile::new(ino, self.job.policy.stripe),
                    &head,
                    source,
                )?;
                self.set_size(parent, ino, size, new.mtime)?;
                Ok((ino, size))
            }
        }
    }

    fn set_size(&mut self, home: Ino, ino: Ino, size: u64, mtime: Option<Timestamp>) -> Result<()> {
        let time = self.now();
        let change = AttrChange { size: Some(size), mtime, ..AttrChange::default() };
        self.job.inner.set_attr_blindly(ino, home, &change, time);
        Ok(())
    }

    /// Gives the subtree up without a merge: pending events are lost.
    ///
    /// # Errors
    /// `EIO`.
    pub fn discard(mut self) -> Result<()> {
        // A merge in progress ends first: otherwise the merged part would not be known.
        self.drain_sync()?;
        self.give_up_unused()?;
        let released = self.fs.release_with(self.root(), &self.unused());
        match released {
            Err(error) if error.errno != Errno::Stale => return Err(error),
            Ok(()) => {
                for (ino, stripe, size) in self.job.unmerged_content()? {
                    self.fs.delete_data(StripedFile::new(ino, stripe), size)?;
                }
            }
            // Another client took the subtree over, with its content.
            Err(_) => {}
        }
        for object in self.job.note.objects.iter().chain(&self.job.note.adopted) {
            self.fs.store().delete(object)?;
        }
        self.state.remove()
    }

    /// Ends the work after a merge. Under Local Persist the journal stays on this disk: the merge
    /// is in the server's memory only, and if the server loses it before its next checkpoint, the
    /// next process of this user that mounts the cluster merges again (`Cluster::mount`).
    ///
    /// # Errors
    /// `EIO`.
    pub fn forget(mut self) -> Result<()> {
        if !self.job.note.adopted.is_empty() {
            // Until the metadata store has the events, recovery may need the journals.
            self.fs.checkpoint()?;
            for object in std::mem::take(&mut self.job.note.adopted) {
                self.fs.store().delete(&object)?;
            }
        }
        if !self.job.policy.contains(Mechanism::LocalPersist) {
            return self.state.remove();
        }
        self.job.note.merged_in = self.job.merged_in;
        self.remember()
    }

    /// The journals as they would be merged: those of earlier processes, then this one's.
    pub fn journals(&mut self) -> Vec<Vec<u8>> {
        self.job.journals()
    }
}

#[inline]
fn inode_of<'a>(new: &NewFile<'a>, time: Timestamp, stripe: Stripe) -> PlannedInode<'a> {
    PlannedInode {
        mode: new.mode(),
        umask: new.umask,
        owner: new.owner,
        rdev: new.rdev,
        stripe,
        size: new.size,
        time,
        mtime: new.mtime,
        atime: new.atime,
        data: new.data,
    }
}

/// The state of an earlier decoupling of a directory on this machine. A merge that may have to be
/// repeated is made durable first: after the next decoupling no client could repeat it. The state
/// of a decoupling that ended on another machine, perhaps by a merge whose answer was lost, is
/// removed: a merge with the next numbers would be rejected for its journals.
fn owned_before(fs: &Arc<Fs>, path: &Path) -> Result<Option<(StateDir, SubtreeOwner)>> {
    let root = match fs.stat_owned(path) {
        Ok(root) => root,
        // The monitor names the owner.
        Err(error) if error.errno == Errno::Busy => return Ok(None),
        Err(error) => return Err(error),
    };
    let state = StateDir::of(fs.cluster_id(), root.ino)?;
    let owner = state.owner()?;
    if owner.as_ref().is_some_and(|owner| owner.merged_in.is_some()) {
        fs.checkpoint()?;
    } else if state.path().is_dir() && fs.policy_at(root.ino)?.1.owner == ClientId(0) {
        // Includes a journal whose process ended before it had noted the owner.
        state.remove()?;
        return Ok(None);
    }
    Ok(owner.map(|owner| (state, owner)))
}
