//! A file system client: requests to the metadata server, data to and from the object store.

use std::borrow::Cow;
use std::sync::Arc;

use objstore::Store;
use types::{
    Attr, AttrChange, ClientId, Cred, Epoch, Errno, Error, FileType, Ino, Path, Rank, RenameFlags,
    Result, Seq, XattrFlags,
};
use wire::{
    AdminOp, Answer, ChangeOp, EffectivePolicy, JobOp, NewInode, Op, PolicyEntry, ReadOp,
    SessionOp, UnusedNumbers,
};

use crate::identity::Identity;
use crate::link::Link;
use crate::observe::Observed;
use crate::ranks::Ranks;
use crate::strong_log::StrongLogs;
use crate::sums::Sums;
use crate::{Cluster, Dir, Observer, Policy, Subtree};

/// See the module documentation. Cheap to share between threads: each may have a request under way.
/// The changes of one client are carried out one after the other, so parallel work uses several.
#[derive(Debug)]
pub struct Fs {
    cluster: Arc<Cluster>,
    cluster_id: String,
    store: Arc<dyn Store>,
    identity: Identity,
    pub(crate) link: Arc<Link>,
    pub(crate) strong_logs: Arc<StrongLogs>,
    observed: Observed,
    pub(crate) ranks: Arc<Ranks>,
    pub(crate) sums: Sums,
}

impl Fs {
    pub(crate) fn open(cluster: Arc<Cluster>, client: ClientId) -> Result<Self> {
        let map = cluster.status()?;
        let store = crate::stores::open(&map.store)?;
        let observed = Observed::default();
        let identity = Identity::new(cluster.own_peer(&map)?);
        let strong_logs = Arc::new(StrongLogs::default());
        let logs = strong_logs.clone();
        let link = Arc::new(Link::new(client, Rank(0), cluster.clone(), observed.clone(), logs));
        if cluster.has_threads() {
            crate::waiting::note(&link);
        }
        let fs = Self {
            cluster,
            cluster_id: map.cluster,
            store,
            identity,
            link,
            strong_logs,
            observed,
            ranks: Arc::default(),
            sums: Sums::default(),
        };
        fs.link.be_connected()?;
        Ok(fs)
    }

    /// The cluster.
    #[must_use]
    pub fn cluster(&self) -> &Arc<Cluster> {
        &self.cluster
    }

    /// The cluster's name, under which local state is kept.
    #[must_use]
    pub fn cluster_id(&self) -> &str {
        &self.cluster_id
    }

    /// The number of this client.
    #[must_use]
    pub fn client(&self) -> ClientId {
        self.link.lock().session.client()
    }

    /// The identity of its requests.
    #[must_use]
    pub fn cred(&self) -> &Cred {
        self.identity.cred()
    }

    /// The user for whom the servers serve a request in the name of this one.
    #[inline]
    pub(crate) fn served_as<'c>(&self, cred: &'c Cred) -> Cow<'c, Cred> {
        self.identity.served_as(cred)
    }

    /// The object store, for data and journals.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Requests sent to the metadata server so far.
    #[must_use]
    pub fn requests(&self) -> u64 {
        let others = self.ranks.others();
        self.link.lock().requests + others.iter().map(|link| link.lock().requests).sum::<u64>()
    }

    /// Changes that are applied but not known to be durable.
    #[must_use]
    pub fn unsafe_requests(&self) -> usize {
        let others = self.ranks.others();
        let others: usize = others.iter().map(|link| link.lock().session.unsafe_count()).sum();
        self.link.lock().session.unsafe_count() + others
    }

    /// Reports every stage of the mechanisms that this client carries out from now on. The first
    /// observer stays.
    pub fn observe(&self, observer: Observer) {
        self.observed.by(observer);
    }

    pub(crate) fn link(&self) -> &Link {
        &self.link
    }

    /// For a thread that must not keep this alive.
    pub(crate) fn shared_link(&self) -> Arc<Link> {
        self.link.clone()
    }

    pub(crate) fn observed(&self) -> &Observed {
        &self.observed
    }

    /// The term of the metadata server that this client is connected to.
    #[must_use]
    pub fn server_epoch(&self) -> Epoch {
        self.link.lock().session.epoch()
    }

    /// That term, and the newest one that ended without a clean stop.
    pub(crate) fn terms(&self) -> (Epoch, Epoch) {
        let link = self.link.lock();
        (link.session.epoch(), link.session.crashed())
    }

    /// Makes a request and waits for the answer, over any number of reconnections. Requests of
    /// several threads are under way at the same time; one that is answered late holds up none.
    ///
    /// # Errors
    /// Those of the request; `EIO` if there is no server for half a minute, or for as long as
    /// [`Fs::set_patience`] says.
    pub fn call(&self, op: Op<'_>) -> Result<Answer> {
        self.call_as(self.cred(), op)
    }

    /// The same for another identity, which the server does not verify.
    ///
    /// # Errors
    /// As [`Fs::call`].
    pub fn call_as(&self, cred: &Cred, op: Op<'_>) -> Result<Answer> {
        self.request(cred, op)
    }

    /// Merges a whole journal as it stands, into a subtree that this client has.
    ///
    /// # Errors
    /// As [`Fs::apply_journal`].
    pub fn merge_journal(
        &self,
        subtree: Ino,
        journal: &[u8],
        flags: wire::MergeFlags,
        unused: UnusedNumbers<'_>,
    ) -> Result<wire::MergeReport> {
        let bytes = journal.len() as u64;
        let op = Op::Job(JobOp::Merge { subtree, bytes, object: b"", flags, unused });
        let answer = self.call_with_chunks(op, &[journal])?;
        let Answer::Merged(report) = answer else { return Err(unexpected(&answer)) };
        Ok(*report)
    }

    /// Applies a journal of a subtree that this client has decoupled; with `dry_run`, only reports
    /// the effect. The subtree stays decoupled.
    ///
    /// # Errors
    /// `EBADMSG` for a damaged journal, `EINVAL` for a journal of another client, `EPERM` for inode
    /// numbers that the client does not have, `ESTALE` if the subtree is not decoupled.
    pub fn apply_journal(
        &self,
        subtree: Ino,
        journal: &[u8],
        dry_run: bool,
    ) -> Result<wire::MergeReport> {
        let flags = wire::MergeFlags { dry_run, ..wire::MergeFlags::default() };
        self.merge_journal(subtree, journal, flags, UnusedNumbers::default())
    }

    /// Merges a journal that is an object in the store, into a subtree that this client has.
    ///
    /// # Errors
    /// As [`Fs::apply_journal`]; `ENOENT` if there is no such object.
    pub fn merge_object(
        &self,
        subtree: Ino,
        object: &str,
        flags: wire::MergeFlags,
        unused: UnusedNumbers<'_>,
    ) -> Result<wire::MergeReport> {
        let object = object.as_bytes();
        let answer =
            self.call(Op::Job(JobOp::Merge { subtree, bytes: 0, object, flags, unused }))?;
        let Answer::Merged(report) = answer else { return Err(unexpected(&answer)) };
        Ok(*report)
    }

    #[allow(clippy::needless_pass_by_value, reason = "an answer is used up")]
    pub(crate) fn attr_answer(answer: Answer) -> Result<Attr> {
        let Answer::Attr(attr) = answer else { return Err(unexpected(&answer)) };
        Ok(attr)
    }

    /// Follows a path: returns the directory of its last name, and the inode if the name exists.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EACCES`, `ELOOP`, `EBUSY` in another client's subtree.
    pub fn walk(&self, path: &Path) -> Result<(Ino, Option<Attr>)> {
        let bytes = path.to_bytes();
        let answer = self.call(Op::Read(ReadOp::Walk { base: Ino::ROOT, path: &bytes }));
        let answer = answer.map_err(|error| error.about(path.to_string()))?;
        let Answer::Walked { parent, attr } = answer else { return Err(unexpected(&answer)) };
        Ok((parent, attr))
    }

    /// The attributes of the inode at a path; a symbolic link itself, not its target.
    ///
    /// # Errors
    /// `ENOENT` and as [`Fs::walk`].
    pub fn stat(&self, path: impl AsRef<[u8]>) -> Result<Attr> {
        let path = parse(path)?;
        self.walk(&path)?.1.ok_or_else(|| Error::of(Errno::NotFound, path.to_string()))
    }

    /// The root of a subtree that this machine owns, or may own.
    pub(crate) fn stat_owned(&self, path: &Path) -> Result<Attr> {
        self.walk(path)?.1.ok_or_else(|| Error::of(Errno::NotFound, path.to_string()))
    }

    /// Opens a directory for work in it.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR` and as [`Fs::walk`].
    pub fn open_dir(self: &Arc<Self>, path: impl AsRef<[u8]>) -> Result<Dir> {
        let path = parse(path)?;
        let attr = self.stat(path.to_bytes())?;
        if !attr.is_dir() {
            return Err(Error::of(Errno::NotDirectory, path.to_string()));
        }
        Dir::open(self.clone(), path, attr.ino)
    }

    /// The directory of a path's last name, opened, and that name.
    ///
    /// # Errors
    /// As [`Fs::open_dir`]; `EINVAL` for the root.
    pub fn open_parent(self: &Arc<Self>, path: impl AsRef<[u8]>) -> Result<(Dir, Vec<u8>)> {
        let path = parse(path)?;
        let (parent, name) = path
            .split_last()
            .ok_or_else(|| Error::new(Errno::Invalid, "/", "the root has no name of its own"))?;
        Ok((self.open_dir(parent.to_bytes())?, name.to_vec()))
    }

    /// Makes a directory, and missing directories above it. Returns the attributes of the last one,
    /// also if it existed.
    ///
    /// # Errors
    /// `ENOTDIR` if something on the way is no directory, and as [`Fs::walk`].
    pub fn make_dir(self: &Arc<Self>, path: impl AsRef<[u8]>, mode: u32) -> Result<Attr> {
        let path = parse(path)?;
        let mut at = Path::root();
        let mut attr = self.stat("/")?;
        for name in path.components() {
            let below = at.join(name);
            let mode = FileType::Directory.mode_bits() | (mode & 0o7777);
            let new = NewInode { mode, ..NewInode::default() };
            match self.call(Op::Read(ReadOp::Lookup { parent: attr.ino, name })) {
                Ok(answer) => attr = Self::attr_answer(answer)?,
                Err(error) if error.errno == Errno::NotFound => {
                    let made =
                        self.call(Op::Change(ChangeOp::Create { parent: attr.ino, name, new }));
                    match made {
                        Ok(answer) => attr = Self::attr_answer(answer)?,
                        Err(error) if error.errno == Errno::Exists => {
                            attr = self.stat(below.to_bytes())?;
                        }
                        Err(error) => return Err(error.about(below.to_string())),
                    }
                }
                Err(error) => return Err(error.about(below.to_string())),
            }
            if !attr.is_dir() {
                return Err(Error::of(Errno::NotDirectory, below.to_string()));
            }
            at = below;
        }
        Ok(attr)
    }

    /// Moves or swaps names.
    ///
    /// # Errors
    /// Those of rename(2).
    pub fn rename(
        self: &Arc<Self>,
        from: impl AsRef<[u8]>,
        to: impl AsRef<[u8]>,
        flags: RenameFlags,
    ) -> Result<()> {
        let (from_dir, from_name) = self.open_parent(from)?;
        let (to_dir, to_name) = self.open_parent(to)?;
        from_dir.rename(&from_name, &to_dir, &to_name, flags)
    }

    /// Changes attributes of an inode.
    ///
    /// # Errors
    /// `EPERM`, `EACCES`, `EINVAL`, `EISDIR`.
    pub fn set_attr(&self, ino: Ino, change: &AttrChange) -> Result<()> {
        self.call(Op::Change(ChangeOp::SetAttr { ino, change: *change }))?;
        Ok(())
    }

    /// The value of an extended attribute.
    ///
    /// # Errors
    /// `ENODATA`.
    pub fn get_xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        bytes_answer(self.call(Op::Read(ReadOp::GetXattr { ino, name }))?)
    }

    /// Sets or, without a value, removes an extended attribute. It is in no log of
    /// `rpcs+local_persist`: [`User::set_xattr`](crate::User::set_xattr) logs it.
    ///
    /// # Errors
    /// `EPERM`, `ENODATA`, `EFBIG`, `ERANGE`.
    pub fn set_xattr(&self, ino: Ino, name: &[u8], value: Option<&[u8]>) -> Result<()> {
        self.call(Op::Change(ChangeOp::SetXattr {
            ino,
            name,
            value,
            flags: XattrFlags::default(),
        }))?;
        Ok(())
    }

    /// The names of all extended attributes, sorted.
    ///
    /// # Errors
    /// `ESTALE`.
    pub fn list_xattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        let answer = self.call(Op::Read(ReadOp::ListXattr { ino }))?;
        let Answer::Names(names) = answer else { return Err(unexpected(&answer)) };
        Ok(names)
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// `ESTALE`, `EACCES`.
    pub fn read_link(&self, ino: Ino) -> Result<Vec<u8>> {
        bytes_answer(self.call(Op::Read(ReadOp::GetData { ino }))?)
    }

    /// Waits until everything this client changed is as durable as its policies promise.
    ///
    /// # Errors
    /// `ENOSPC` or `EIO` if the journal cannot be written; the error of a change that was lost.
    pub fn sync(&self) -> Result<Seq> {
        let answer = self.call(Op::Session(SessionOp::Sync))?;
        self.check_lost()?;
        let Answer::Safe(seq) = answer else { return Err(unexpected(&answer)) };
        Ok(seq)
    }

    /// Makes sure that this client talks to the server that is active now.
    pub(crate) fn reach(&self) -> Result<()> {
        self.call(Op::Session(SessionOp::Sync)).map(drop)
    }

    /// Waits until everything is in the metadata store and the journal is trimmed.
    ///
    /// # Errors
    /// `EIO`.
    pub fn checkpoint(&self) -> Result<()> {
        self.call(Op::Admin(AdminOp::Checkpoint)).map(|_| ())
    }

    /// Every policy that was set, with the path that its directory has today. Those of directories
    /// that are gone are left out.
    ///
    /// # Errors
    /// If the monitor or the metadata server does not answer.
    pub fn policies(&self) -> Result<Vec<PolicyEntry>> {
        crate::policies::today(self, self.cluster.status()?.policies)
    }

    /// The policy in force in a directory, and where it is inherited from.
    ///
    /// # Errors
    /// As [`Fs::stat`].
    pub fn policy(&self, path: impl AsRef<[u8]>) -> Result<(Policy, EffectivePolicy)> {
        let path = parse(path)?;
        let attr = self.stat(path.to_bytes())?;
        self.policy_at(attr.ino)
    }

    /// The policy in force in a directory that is known by its number.
    ///
    /// # Errors
    /// `ESTALE`, `ENOTDIR`.
    pub fn policy_at(&self, dir: Ino) -> Result<(Policy, EffectivePolicy)> {
        let answer = self.call(Op::Read(ReadOp::GetPolicy { dir }))?;
        let Answer::Policy(effective) = answer else { return Err(unexpected(&answer)) };
        Ok((Policy::parse(&effective.policy)?.policy, effective))
    }

    /// Takes a subtree for this client alone, under a policy.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EBUSY` if another client has it, `EACCES`, `EINVAL` if the policy
    /// does not decouple.
    pub fn decouple(self: &Arc<Self>, path: impl AsRef<[u8]>, policy: &Policy) -> Result<Subtree> {
        Subtree::decouple(self.clone(), parse(path)?, policy)
    }

    /// Takes up a subtree that an earlier process on this machine decoupled, with its local
    /// journals.
    ///
    /// # Errors
    /// `ENOENT` if this machine does not own it, `EBADMSG` if a journal is damaged.
    pub fn attach(self: &Arc<Self>, path: impl AsRef<[u8]>) -> Result<Subtree> {
        Subtree::attach(self.clone(), parse(path)?)
    }

    /// Makes a decoupled subtree this client's; the client that had it is fenced.
    pub(crate) fn take_over(&self, subtree: Ino) -> Result<wire::Decoupled> {
        let answer = self.call(Op::Job(JobOp::TakeOver { subtree }))?;
        let Answer::Decoupled(decoupled) = answer else { return Err(unexpected(&answer)) };
        Ok(decoupled)
    }

    /// Ends the decoupling of a subtree without a merge.
    ///
    /// # Errors
    /// `EBUSY` if it belongs to another client and the caller is not root, `ESTALE` if it is not
    /// decoupled.
    pub fn release(&self, subtree: Ino) -> Result<()> {
        self.release_with(subtree, &[])
    }

    /// The same, and says which numbers were not used.
    pub(crate) fn release_with(&self, subtree: Ino, unused: &[u8]) -> Result<()> {
        self.call(Op::Job(JobOp::Release { subtree, unused: UnusedNumbers::new(unused) }))
            .map(|_| ())
    }
}

/// A path of the namespace. One without a leading `/` starts at the root as well.
///
/// # Errors
/// `EINVAL` for `..` or a NUL byte, `ENAMETOOLONG`.
pub fn parse(path: impl AsRef<[u8]>) -> Result<Path> {
    let bytes = path.as_ref();
    Path::parse(bytes).map_err(|errno| {
        let shown = types::quote::quoted(bytes);
        if errno == Errno::NameTooLong {
            return Error::of(errno, shown);
        }
        Error::new(errno, shown, "the path contains `..` or a NUL byte")
            .remedy("write the path from the root, without `..`")
    })
}

pub(crate) fn unexpected(answer: &Answer) -> Error {
    Error::new(Errno::Io, "metadata server", format!("unexpected answer: {answer:?}"))
}

pub(crate) fn bytes_answer(answer: Answer) -> Result<Vec<u8>> {
    let Answer::Data(data) = answer else { return Err(unexpected(&answer)) };
    Ok(data)
}
