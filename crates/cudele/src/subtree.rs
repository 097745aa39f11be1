//! A decoupled subtree: this client's own until it is merged or discarded.

use std::io::Read;
use std::sync::Arc;

use client::{Decoupled, Grant};
use metastore::request::client_journal_name;
use namespace::{NewInode, Refusal};
use policy::{Check, Composition, Mechanism, MergeTrigger};
use types::{
    Attr, AttrChange, Errno, Error, FileType, Ino, Path, RenameFlags, Result, Seq, Timestamp,
};
use wire::{Answer, MergeFlags, MergeReport, Op};

use crate::data::Content;
use crate::fs::unexpected;
use crate::mechanism::{Material, carry_out};
use crate::{Completion, Fs, NewFile, Owner, Policy, StateDir};

/// Numbers asked for when a range is used up, at least.
const EXTEND_MIN: u64 = 1_000;

/// See the module documentation.
///
/// Creating files appends to a journal in memory: no request, no check for existence (M-03).
/// [`Subtree::complete`] carries out the mechanisms of the policy. Dropping it without that loses
/// what was not completed, as the policy says.
#[derive(Debug)]
pub struct Subtree {
    fs: Arc<Fs>,
    path: Path,
    policy: Policy,
    inner: Decoupled,
    state: StateDir,
    /// Blocks of the current journal that were persisted.
    persisted_locally: usize,
    persisted_globally: usize,
    /// Numbers granted so far, to grow in proportion.
    granted: u64,
    /// Journals of earlier processes that a merge must include.
    earlier: Vec<Vec<u8>>,
    owner: Owner,
    time: Timestamp,
    /// Events left until the time is read again.
    time_for: u32,
    merged_at: std::time::Instant,
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
        let text = policy.to_yaml();
        let answer = fs
            .cluster()
            .decouple(&path.to_bytes(), fs.client(), &text)
            .map_err(|error| error.about(path.to_string()))?;
        let owner = Owner {
            cluster: fs.cluster_id().to_owned(),
            path: path.to_string(),
            ino: answer.root.ino.0,
            client: fs.client().0,
            ranges: vec![(answer.range.start, answer.range.end)],
            epoch: answer.epoch.0,
            policy: text,
            next_seq: 1,
            empty: answer.empty,
            objects: Vec::new(),
        };
        let subtree = Self::new(fs, path, policy.clone(), owner, answer.root)?;
        if policy.contains(Mechanism::LocalPersist) || policy.contains(Mechanism::GlobalPersist) {
            subtree.remember()?;
        }
        Ok(subtree)
    }

    /// Takes up what an earlier process of this machine left: the ownership, and the journals of
    /// Local Persist.
    pub(crate) fn attach(fs: Arc<Fs>, path: Path) -> Result<Self> {
        let root = fs.stat_owned(&path)?;
        let state = StateDir::of(fs.cluster_id(), root.ino)?;
        let Some(owner) = state.owner()? else {
            return Err(Error::new(
                Errno::NotFound,
                path.to_string(),
                "this machine does not own a decoupled subtree here",
            )
            .remedy("decouple it first, or attach on the machine that did"));
        };
        let policy = Policy::parse(&owner.policy)?.policy;
        let mut subtree = Self::new(fs, path, policy, owner, root)?;
        subtree.load_journals()?;
        Ok(subtree)
    }

    fn new(fs: Arc<Fs>, path: Path, policy: Policy, owner: Owner, root: Attr) -> Result<Self> {
        let range = owner.ranges().next().unwrap_or_default();
        let grant = Grant {
            client: owner.client(),
            root,
            range,
            epoch: owner.epoch(),
            empty: owner.empty,
            check: policy.check == Check::Client,
        };
        let mut inner = Decoupled::new(grant, Seq(owner.next_seq));
        for range in owner.ranges().skip(1) {
            inner.extend(range);
        }
        Ok(Self {
            state: StateDir::of(fs.cluster_id(), root.ino)?,
            granted: owner.ranges().map(|range| range.len()).sum(),
            fs,
            path,
            policy,
            inner,
            persisted_locally: 0,
            persisted_globally: 0,
            earlier: Vec::new(),
            owner,
            time: crate::now_coarse(),
            time_for: 0,
            merged_at: std::time::Instant::now(),
        })
    }

    /// Reads the journals of earlier processes: they are merged with this one's, and their inode
    /// numbers are used.
    fn load_journals(&mut self) -> Result<()> {
        let mut next = Seq(self.owner.next_seq);
        for path in self.state.journals()? {
            let bytes =
                std::fs::read(&path).map_err(|error| crate::state::io_error(&path, &error))?;
            let name = path.display().to_string();
            let scan = journal::segment::scan(&bytes).map_err(|error| error.in_journal(&name))?;
            if let Some(damage) = scan.damage.filter(|damage| damage.resumes.is_some()) {
                return Err(damage.error.in_journal(&name));
            }
            let intact = bytes[..scan.intact].to_vec();
            let replayed = self.inner.replay(&intact).map_err(|error| error.in_journal(&name))?;
            self.inner.skip_used(replayed);
            next = next.max(scan.next_seq);
            self.earlier.push(intact);
        }
        self.inner.start_at(next);
        Ok(())
    }

    /// Records on this machine that it owns the subtree, so that a later process can go on.
    ///
    /// # Errors
    /// `EIO`, `ENOSPC`.
    pub fn remember(&self) -> Result<()> {
        self.state.set_owner(&self.owner)
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its policy.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The file system client behind it.
    #[must_use]
    pub fn fs(&self) -> &Arc<Fs> {
        &self.fs
    }

    /// Its root directory.
    #[must_use]
    pub fn root(&self) -> Ino {
        self.inner.root()
    }

    /// Events that no mechanism has dealt with yet.
    #[must_use]
    pub fn pending_events(&self) -> u64 {
        self.inner.events()
    }

    /// Bytes of the journal that holds them.
    #[must_use]
    pub fn pending_bytes(&self) -> u64 {
        self.inner.bytes()
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
        let inode = NewInode {
            mode: new.mode(),
            owner: new.owner,
            rdev: new.rdev,
            size: new.size,
            time,
            mtime: new.mtime,
            atime: new.atime,
            data: new.data,
        };
        if self.policy.check != Check::Client {
            match self.inner.create(self.fs.cred(), parent, name, &inode) {
                Ok(ino) => return Ok(ino),
                Err(errno) => return self.create_slowly(parent, name, &inode, errno),
            }
        }
        self.create_checked(parent, name, &inode)
    }

    #[cold]
    fn create_slowly(
        &mut self,
        parent: Ino,
        name: &[u8],
        new: &NewInode<'_>,
        errno: Errno,
    ) -> Result<Ino> {
        let about = |errno| Error::of(errno, String::from_utf8_lossy(name));
        if errno != Errno::NoSpace {
            return Err(about(errno));
        }
        self.extend()?;
        self.inner.create(self.fs.cred(), parent, name, new).map_err(about)
    }

    fn create_checked(&mut self, parent: Ino, name: &[u8], new: &NewInode<'_>) -> Result<Ino> {
        let cred = self.fs.cred().clone();
        if self.inner.inodes_left() == 0 {
            self.extend()?;
        }
        self.on_view(name, |inner| inner.create_checked(&cred, parent, name, new))
    }

    /// The contract is used up: a larger one is made, unless it is a hard limit.
    fn extend(&mut self) -> Result<()> {
        if self.policy.hard_limit {
            let cause = format!("the policy allows {} inodes", self.policy.allocated_inodes);
            return Err(Error::new(Errno::Quota, self.path.to_string(), cause)
                .remedy("raise allocated_inodes, or set `limit: soft`"));
        }
        let op = Op::Extend { subtree: self.root(), count: self.granted.max(EXTEND_MIN) };
        let answer = self.fs.call(op).map_err(|error| error.about(self.path.to_string()))?;
        let Answer::Range(range) = answer else { return Err(unexpected(&answer)) };
        self.granted += range.len();
        self.inner.extend(range);
        self.owner.ranges.push((range.start, range.end));
        if self.policy.contains(Mechanism::LocalPersist) {
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
        match Fs::classify(source)? {
            Content::Inline(data) => {
                let size = data.len() as u64;
                Ok((self.create(parent, name, &NewFile { size, data: &data, ..*new })?, size))
            }
            Content::Large(head) => {
                // The number is known only afterwards, so the size follows in a second event.
                let ino = self.create(parent, name, new)?;
                let size = self.fs.write_large(ino, head, source)?;
                self.set_size(parent, ino, size, new.mtime)?;
                Ok((ino, size))
            }
        }
    }

    fn set_size(&mut self, home: Ino, ino: Ino, size: u64, mtime: Option<Timestamp>) -> Result<()> {
        let time = self.now();
        let change = AttrChange { size: Some(size), mtime, ..AttrChange::default() };
        self.inner.set_attr_blindly(ino, home, &change, time);
        Ok(())
    }

    /// Runs an operation on the client's view, fetching directories that it lacks.
    fn on_view<T>(
        &mut self,
        name: &[u8],
        mut operation: impl FnMut(&mut Decoupled) -> std::result::Result<T, Refusal>,
    ) -> Result<T> {
        loop {
            match operation(&mut self.inner) {
                Ok(value) => return Ok(value),
                Err(Refusal::Errno(errno)) => {
                    return Err(Error::of(errno, String::from_utf8_lossy(name)));
                }
                Err(Refusal::Cold(dir)) => self.fetch(dir)?,
            }
        }
    }

    /// Brings a directory of the base into the view.
    fn fetch(&mut self, dir: Ino) -> Result<()> {
        let mut after: Option<Vec<u8>> = None;
        loop {
            let op = Op::List { dir, after: after.as_deref(), limit: 4096, attrs: true };
            let (entries, more) = match self.fs.call(op) {
                Ok(Answer::Entries { entries, more }) => (entries, more),
                Ok(other) => return Err(unexpected(&other)),
                // A directory of this journal that the server has not heard of.
                Err(error) if error.errno == Errno::Stale => (Vec::new(), false),
                Err(error) => return Err(error),
            };
            for (name, attr) in &entries {
                let data = if attr.file_type() == FileType::Symlink {
                    self.fs.read_link(attr.ino)?
                } else {
                    Vec::new()
                };
                self.inner.view().namespace_mut().load_entry(dir, name, attr, &data);
            }
            if !more || entries.is_empty() {
                self.inner.view().namespace_mut().finish_load(dir);
                return Ok(());
            }
            after = entries.last().map(|(name, _)| name.clone());
        }
    }

    /// Attributes of a name, in this client's view.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EACCES`.
    pub fn lookup(&mut self, parent: Ino, name: &[u8]) -> Result<Attr> {
        let cred = self.fs.cred().clone();
        self.on_view(name, |inner| inner.view().namespace().lookup(&cred, parent, name))
    }

    /// The entries of a directory, in this client's view.
    ///
    /// # Errors
    /// `ENOTDIR`, `EACCES`.
    pub fn list(&mut self, dir: Ino) -> Result<Vec<crate::DirEntry>> {
        let cred = self.fs.cred().clone();
        let entries = self.on_view(b"", |inner| {
            inner.view().namespace().list(&cred, dir, None, usize::MAX, true)
        })?;
        let entries = entries.into_iter();
        Ok(entries.map(|entry| crate::DirEntry { name: entry.name, attr: entry.attr }).collect())
    }

    /// Removes a name of anything but a directory.
    ///
    /// # Errors
    /// `ENOENT`, `EISDIR`, `EACCES`, `EPERM`.
    pub fn unlink(&mut self, parent: Ino, name: &[u8]) -> Result<()> {
        let (cred, time) = (self.fs.cred().clone(), self.now());
        self.on_view(name, |inner| inner.unlink(&cred, parent, name, time))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ENOTEMPTY`, `EACCES`, `EPERM`.
    pub fn rmdir(&mut self, parent: Ino, name: &[u8]) -> Result<()> {
        let (cred, time) = (self.fs.cred().clone(), self.now());
        self.on_view(name, |inner| inner.rmdir(&cred, parent, name, time))
    }

    /// Moves or swaps names.
    ///
    /// # Errors
    /// Those of rename(2).
    pub fn rename(
        &mut self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        flags: RenameFlags,
    ) -> Result<()> {
        let (cred, time) = (self.fs.cred().clone(), self.now());
        self.on_view(from.1, |inner| inner.rename(&cred, from, to, flags, time))
    }

    /// Gives an inode one more name.
    ///
    /// # Errors
    /// `EEXIST`, `EPERM` for a directory, `EMLINK`.
    pub fn link(&mut self, ino: Ino, parent: Ino, name: &[u8]) -> Result<()> {
        let (cred, time) = (self.fs.cred().clone(), self.now());
        self.on_view(name, |inner| inner.link(&cred, ino, (parent, name), time))
    }

    /// Changes attributes of an inode that stands in a directory.
    ///
    /// # Errors
    /// `EPERM`, `EACCES`, `EINVAL`, `EISDIR`.
    pub fn set_attr(&mut self, ino: Ino, change: &AttrChange) -> Result<()> {
        let (cred, time) = (self.fs.cred().clone(), self.now());
        self.on_view(b"", |inner| inner.setattr(&cred, ino, change, time))
    }

    /// Sets attributes without looking: for an inode that this client just created in `home`.
    pub fn set_attr_blindly(&mut self, home: Ino, ino: Ino, change: &AttrChange) {
        let time = self.now();
        self.inner.set_attr_blindly(ino, home, change, time);
    }

    /// Carries out the policy's mechanisms on what was appended since the last time. When this
    /// returns, the promise of the policy holds for all of it.
    ///
    /// # Errors
    /// Which mechanism failed and why; the updates are still held, and completing again is
    /// harmless.
    pub fn complete(&mut self) -> Result<Completion> {
        let composition = self.policy.effective();
        self.carry_out(&composition, MergeFlags::default())
    }

    /// Completes the policy's durability and merges the subtree into the global namespace, whatever
    /// its consistency, then gives it up: it is everybody's again.
    ///
    /// # Errors
    /// As [`Subtree::complete`].
    pub fn merge(&mut self) -> Result<Completion> {
        let mut composition = self.policy.effective();
        if !composition.contains(Mechanism::VolatileApply) {
            composition =
                Composition::serial([composition, Composition::One(Mechanism::VolatileApply)]);
        }
        let flags = MergeFlags { release: true, ..MergeFlags::default() };
        self.carry_out(&composition, flags)
    }

    /// What a merge would do, without doing it.
    ///
    /// # Errors
    /// As the merge itself.
    pub fn dry_run(&mut self) -> Result<MergeReport> {
        let flags = MergeFlags { dry_run: true, ..MergeFlags::default() };
        let only = Composition::One(Mechanism::VolatileApply);
        let report = self.run(&only, flags)?.merge;
        Ok(report.unwrap_or_default())
    }

    fn carry_out(&mut self, composition: &Composition, flags: MergeFlags) -> Result<Completion> {
        // File data first: metadata never names data that is less durable than itself.
        if composition.contains(Mechanism::LocalPersist)
            || composition.contains(Mechanism::GlobalPersist)
        {
            self.fs.sync_data()?;
        }
        let completion = self.run(composition, flags)?;
        if composition.contains(Mechanism::LocalPersist) {
            self.persisted_locally = self.inner.blocks().len();
        }
        if composition.contains(Mechanism::GlobalPersist) {
            self.persisted_globally = self.inner.blocks().len();
            self.owner.objects = vec![self.object_name()];
        }
        if completion.merge.is_some() {
            self.merged()?;
        } else if composition.contains(Mechanism::LocalPersist)
            || composition.contains(Mechanism::GlobalPersist)
        {
            self.remember()?;
        }
        Ok(completion)
    }

    fn merged(&mut self) -> Result<()> {
        self.earlier.clear();
        self.inner.clear();
        (self.persisted_locally, self.persisted_globally) = (0, 0);
        self.owner.next_seq = self.inner.next_seq().0;
        self.merged_at = std::time::Instant::now();
        if self.policy.contains(Mechanism::LocalPersist)
            || self.policy.contains(Mechanism::GlobalPersist)
        {
            self.remember()?;
        }
        Ok(())
    }

    fn object_name(&self) -> String {
        let first = self.inner.header().first_seq;
        client_journal_name(self.root(), self.owner.client(), first.0)
    }

    fn run(&mut self, composition: &Composition, mut flags: MergeFlags) -> Result<Completion> {
        flags.check = self.policy.check == Check::Merge;
        let merges = composition.contains(Mechanism::VolatileApply);
        if merges {
            self.merge_earlier(flags)?;
        }
        let events = self.inner.events();
        let object = composition.contains(Mechanism::GlobalPersist).then(|| self.object_name());
        let header = self.inner.header();
        let subtree = self.root();
        let material = Material {
            fs: &self.fs,
            state: &self.state,
            subtree,
            header,
            persisted_locally: self.persisted_locally,
            persisted_globally: self.persisted_globally,
            merge: flags,
            object,
            blocks: self.inner.blocks(),
        };
        let completion = carry_out(composition, &material);
        let mut completion = completion.map_err(|error| error.about(self.path.to_string()))?;
        completion.events = events;
        Ok(completion)
    }

    /// Merges the journals of earlier processes of this client, oldest first.
    fn merge_earlier(&mut self, flags: MergeFlags) -> Result<()> {
        for bytes in &self.earlier {
            let (subtree, length) = (self.inner.root(), bytes.len() as u64);
            let flags = MergeFlags { release: false, ..flags };
            let op = Op::Merge { subtree, bytes: length, object: b"", flags };
            self.fs.call_with_chunks(op, &[bytes])?;
        }
        Ok(())
    }

    /// Merges if the policy's trigger says that it is time (P-03). Call it between operations.
    ///
    /// # Errors
    /// As [`Subtree::complete`].
    pub fn merge_if_due(&mut self) -> Result<Option<Completion>> {
        let due = match self.policy.merge {
            MergeTrigger::AtEnd => false,
            MergeTrigger::Every { seconds } => {
                self.inner.events() > 0 && self.merged_at.elapsed().as_secs() >= seconds
            }
            MergeTrigger::AtUpdates { count } => self.inner.events() >= count,
        };
        if due { self.complete().map(Some) } else { Ok(None) }
    }

    /// Gives the subtree up without a merge: what was not merged is gone.
    ///
    /// # Errors
    /// `EIO`.
    pub fn discard(self) -> Result<()> {
        let released = self.fs.release(self.root());
        match released {
            Err(error) if error.errno != Errno::Stale => return Err(error),
            Ok(()) | Err(_) => {}
        }
        for object in &self.owner.objects {
            self.fs.store().delete(object)?;
        }
        self.state.remove()
    }

    /// Forgets what this machine keeps of the subtree, after a merge that made it unnecessary.
    ///
    /// # Errors
    /// `EIO`.
    pub fn forget(self) -> Result<()> {
        self.state.remove()
    }

    /// The journals as they would be merged: those of earlier processes, then this one's.
    pub fn journals(&mut self) -> Vec<Vec<u8>> {
        let mut all = self.earlier.clone();
        if self.inner.events() > 0 {
            let mut bytes = self.inner.header().encode().to_vec();
            for block in self.inner.blocks() {
                bytes.extend_from_slice(block);
            }
            all.push(bytes);
        }
        all
    }
}
