//! Requests as values that own their bytes, so that they can be remembered, repeated on the model
//! and printed.

use types::{AttrChange, ClientId, Cred, FileType, Ino, Lock, Rank, RenameFlags, XattrFlags};
use wire::{
    AdminOp, ChangeOp, JobOp, MergeFlags, NewInode, Op, RankOp, ReadOp, SessionOp, UnusedNumbers,
};

/// The request of a client. See [`wire::Op`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the variants and fields are those of `wire::Op`")]
pub enum CallKind {
    Lookup { parent: Ino, name: String },
    Walk { base: Ino, path: String },
    GetAttr { ino: Ino },
    Create { parent: Ino, name: String, mode: u32, size: u64, data: Vec<u8> },
    Link { ino: Ino, parent: Ino, name: String },
    Unlink { parent: Ino, name: String },
    Rmdir { parent: Ino, name: String },
    Discard { parent: Ino, name: String },
    Restore { ino: Ino, parent: Ino, name: String },
    EmptyTrash { ino: Ino },
    Rename { from: (Ino, String), to: (Ino, String), flags: RenameFlags },
    SetAttr { ino: Ino, change: AttrChange },
    GetXattr { ino: Ino, name: String },
    ListXattr { ino: Ino },
    SetXattr { ino: Ino, name: String, value: Option<Vec<u8>>, flags: XattrFlags },
    GetData { ino: Ino },
    SetData { ino: Ino, data: Vec<u8>, size: u64 },
    List { dir: Ino, after: Option<String>, limit: u32, attrs: bool },
    Sync,
    GetPolicy { dir: Ino },
    Extend { subtree: Ino, count: u64 },
    Merge { subtree: Ino, bytes: u64, object: String, flags: MergeFlags, unused: Vec<u8> },
    Release { subtree: Ino },
    Checkpoint,
    Snapshot { dir: Ino, id: u64 },
    SetPolicy { path: String, policy: String, client: ClientId },
    TakeOver { subtree: Ino },
    Decouple { path: String, client: ClientId, policy: String },
    Export { dir: Ino, rank: Rank },
    Split { dir: Ino },
    Join { dir: Ino },
    Lock { ino: Ino, lock: Lock, wait: bool },
    GetLock { ino: Ino, lock: Lock },
    Open { ino: Ino, write: bool },
    Yield { ino: Ino },
}

/// A request and the identity for which it is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// On whose behalf.
    pub cred: Cred,
    /// What to do.
    pub what: CallKind,
}

impl Call {
    /// A request by the superuser.
    #[must_use]
    pub fn root(what: CallKind) -> Self {
        Self { cred: Cred::root(), what }
    }
}

impl CallKind {
    /// A new file or directory without content.
    #[must_use]
    pub fn create(parent: Ino, name: &str, kind: FileType, permissions: u32) -> Self {
        let (name, mode) = (name.to_owned(), kind.mode_bits() | permissions);
        CallKind::Create { parent, name, mode, size: 0, data: Vec::new() }
    }

    /// The first entries of a directory, with their attributes.
    #[must_use]
    pub fn list(dir: Ino) -> Self {
        CallKind::List { dir, after: None, limit: 4096, attrs: true }
    }

    /// Whether it makes a directory.
    #[must_use]
    pub fn makes_directory(&self) -> bool {
        let directory = FileType::Directory.mode_bits();
        matches!(self, CallKind::Create { mode, .. } if mode & types::MODE_TYPE == directory)
    }

    /// As the protocol says it.
    #[must_use]
    pub fn op(&self) -> Op<'_> {
        match self {
            CallKind::Lookup { parent, name } => {
                Op::Read(ReadOp::Lookup { parent: *parent, name: name.as_bytes() })
            }
            CallKind::Walk { base, path } => {
                Op::Read(ReadOp::Walk { base: *base, path: path.as_bytes() })
            }
            CallKind::GetAttr { ino } => Op::Read(ReadOp::GetAttr { ino: *ino }),
            CallKind::Create { parent, name, mode, size, data } => Op::Change(ChangeOp::Create {
                parent: *parent,
                name: name.as_bytes(),
                new: NewInode { mode: *mode, size: *size, data, ..NewInode::default() },
            }),
            CallKind::Link { ino, parent, name } => {
                Op::Change(ChangeOp::Link { ino: *ino, parent: *parent, name: name.as_bytes() })
            }
            CallKind::Unlink { parent, name } => {
                Op::Change(ChangeOp::Unlink { parent: *parent, name: name.as_bytes() })
            }
            CallKind::Rmdir { parent, name } => {
                Op::Change(ChangeOp::Rmdir { parent: *parent, name: name.as_bytes() })
            }
            CallKind::Discard { parent, name } => {
                Op::Change(ChangeOp::Discard { parent: *parent, name: name.as_bytes() })
            }
            CallKind::Restore { ino, parent, name } => {
                let (ino, parent, name) = (*ino, *parent, name.as_bytes());
                Op::Change(ChangeOp::Restore { ino, parent, name })
            }
            CallKind::EmptyTrash { ino } => Op::Change(ChangeOp::EmptyTrash { ino: *ino }),
            CallKind::Rename { from, to, flags } => Op::Change(ChangeOp::Rename {
                parent: from.0,
                name: from.1.as_bytes(),
                new_parent: to.0,
                new_name: to.1.as_bytes(),
                flags: *flags,
            }),
            CallKind::SetAttr { ino, change } => {
                Op::Change(ChangeOp::SetAttr { ino: *ino, change: *change })
            }
            CallKind::GetXattr { ino, name } => {
                Op::Read(ReadOp::GetXattr { ino: *ino, name: name.as_bytes() })
            }
            CallKind::ListXattr { ino } => Op::Read(ReadOp::ListXattr { ino: *ino }),
            CallKind::SetXattr { ino, name, value, flags } => {
                let (name, value) = (name.as_bytes(), value.as_deref());
                Op::Change(ChangeOp::SetXattr { ino: *ino, name, value, flags: *flags })
            }
            CallKind::GetData { ino } => Op::Read(ReadOp::GetData { ino: *ino }),
            CallKind::SetData { ino, data, size } => {
                Op::Change(ChangeOp::SetData { ino: *ino, data, size: *size })
            }
            CallKind::List { dir, after, limit, attrs } => Op::Read(ReadOp::List {
                dir: *dir,
                after: after.as_ref().map(String::as_bytes),
                limit: *limit,
                attrs: *attrs,
            }),
            _ => self.admin_op(),
        }
    }

    /// The same for a request about sessions, subtrees and ranks.
    fn admin_op(&self) -> Op<'_> {
        match self {
            CallKind::GetPolicy { dir } => Op::Read(ReadOp::GetPolicy { dir: *dir }),
            CallKind::Extend { subtree, count } => {
                Op::Job(JobOp::Extend { subtree: *subtree, count: *count })
            }
            CallKind::Merge { subtree, bytes, object, flags, unused } => {
                let (object, unused) = (object.as_bytes(), UnusedNumbers::new(unused));
                Op::Job(JobOp::Merge {
                    subtree: *subtree,
                    bytes: *bytes,
                    object,
                    flags: *flags,
                    unused,
                })
            }
            CallKind::Release { subtree } => {
                Op::Job(JobOp::Release { subtree: *subtree, unused: UnusedNumbers::default() })
            }
            CallKind::Checkpoint => Op::Admin(AdminOp::Checkpoint),
            CallKind::Snapshot { dir, id } => Op::Admin(AdminOp::Snapshot { dir: *dir, id: *id }),
            CallKind::SetPolicy { path, policy, client } => {
                let (path, policy) = (path.as_bytes(), policy.as_bytes());
                Op::Change(ChangeOp::SetPolicy { path, policy, client: *client })
            }
            CallKind::TakeOver { subtree } => Op::Job(JobOp::TakeOver { subtree: *subtree }),
            CallKind::Decouple { path, client, policy } => {
                let (path, policy) = (path.as_bytes(), policy.as_bytes());
                Op::Job(JobOp::Decouple { path, client: *client, policy })
            }
            CallKind::Export { dir, rank } => Op::Rank(RankOp::Export { dir: *dir, rank: *rank }),
            CallKind::Split { dir } => Op::Rank(RankOp::Split { dir: *dir }),
            CallKind::Join { dir } => Op::Rank(RankOp::Join { dir: *dir }),
            CallKind::Lock { ino, lock, wait } => {
                Op::Session(SessionOp::Lock { ino: *ino, lock: *lock, wait: *wait })
            }
            CallKind::Open { ino, write } => {
                Op::Session(SessionOp::Open { ino: *ino, write: *write })
            }
            CallKind::Yield { ino } => Op::Session(SessionOp::Yield { ino: *ino }),
            CallKind::GetLock { ino, lock } => {
                Op::Session(SessionOp::GetLock { ino: *ino, lock: *lock })
            }
            _ => Op::Session(SessionOp::Sync),
        }
    }

    /// Whether it changes the namespace.
    #[must_use]
    pub fn is_change(&self) -> bool {
        self.op().is_mutation()
    }

    /// The inodes it is about, and the names.
    #[must_use]
    pub fn touched(&self) -> (Vec<Ino>, Vec<(Ino, &str)>) {
        match self {
            CallKind::Lookup { parent, name }
            | CallKind::Create { parent, name, .. }
            | CallKind::Unlink { parent, name }
            | CallKind::Rmdir { parent, name }
            | CallKind::Discard { parent, name }
            | CallKind::Restore { parent, name, .. } => (vec![*parent], vec![(*parent, name)]),
            CallKind::Link { ino, parent, name } => (vec![*parent, *ino], vec![(*parent, name)]),
            CallKind::Rename { from, to, .. } => {
                (vec![from.0, to.0], vec![(from.0, &from.1), (to.0, &to.1)])
            }
            CallKind::Walk { base, .. } => (vec![*base], Vec::new()),
            CallKind::GetAttr { ino }
            | CallKind::SetAttr { ino, .. }
            | CallKind::GetXattr { ino, .. }
            | CallKind::ListXattr { ino }
            | CallKind::SetXattr { ino, .. }
            | CallKind::GetData { ino }
            | CallKind::SetData { ino, .. }
            | CallKind::GetPolicy { dir: ino }
            | CallKind::Export { dir: ino, .. }
            | CallKind::Split { dir: ino }
            | CallKind::Join { dir: ino }
            | CallKind::List { dir: ino, .. } => (vec![*ino], Vec::new()),
            _ => (Vec::new(), Vec::new()),
        }
    }
}
