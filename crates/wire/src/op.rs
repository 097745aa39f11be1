//! The requests of a client to a metadata server, nested by kind.

mod about;
mod admin;
mod change;
mod job;
mod parts;
mod rank;
mod read;
mod right;
mod session;

use types::bytes::{Malformed, Reader};
use types::{Epoch, Timestamp};

pub use about::About;
pub use admin::AdminOp;
pub use change::ChangeOp;
pub use job::JobOp;
pub(crate) use parts::{flags, ino};
pub use rank::RankOp;
pub use read::ReadOp;
pub use session::SessionOp;

/// What to create.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewInode<'a> {
    /// File type and permissions.
    pub mode: u32,
    /// Permissions to take off the mode, unless the directory has a default access control list.
    pub umask: u32,
    /// Owner and group, if not the caller's (only root may choose).
    pub owner: Option<(u32, u32)>,
    /// Device number of a device file.
    pub rdev: u32,
    /// Length in bytes.
    pub size: u64,
    /// Its mtime, if not the time of the request.
    pub mtime: Option<Timestamp>,
    /// Its atime, if not its mtime.
    pub atime: Option<Timestamp>,
    /// Content of a small file, or target of a symbolic link.
    pub data: &'a [u8],
    /// It is a file that the client has open for writing from then on ([`SessionOp::Open`]).
    pub open: bool,
}

/// How to merge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MergeFlags {
    /// Only report the result of a merge.
    pub dry_run: bool,
    /// Release the subtree when done.
    pub release: bool,
    /// Leave out and report events that break a rule (`check: merge`, F-07). The server does so in
    /// any case if the policy demands it.
    pub check: bool,
    /// The journal is a client's log of strong operations, re-applied after the server lost them
    /// (strong consistency with local durability); no decoupled subtree is involved.
    pub strong_log: bool,
    /// Answer when the result is in the metadata store (Nonvolatile Apply, M-05).
    pub store: bool,
    /// In front of the journal is a list of runs that the client stored (merge by reference).
    pub by_reference: bool,
    /// With `release`: the term of the server, with its rank ([`Epoch::at`]), in which the earlier
    /// merges are that this one builds on. A server that was restarted since answers `ECANCELED`:
    /// it may lack these merges, and the client repeats them before it gives the subtree back. 0 if
    /// there are none.
    pub in_term: Epoch,
}

/// A request to a metadata server. The kind decides which part of a server executes the request,
/// and the questions of admission before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op<'a> {
    /// It reads the namespace.
    Read(ReadOp<'a>),
    /// It changes the namespace.
    Change(ChangeOp<'a>),
    /// It is about state of a session: open files, locks, capabilities, answers.
    Session(SessionOp),
    /// It is about a decoupled subtree or a branch as a whole.
    Job(JobOp<'a>),
    /// It moves a subtree, a directory or a name to another rank.
    Rank(RankOp<'a>),
    /// It has the server write something down.
    Admin(AdminOp<'a>),
}

/// How a client has a file open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// It keeps nothing about the file.
    pub shared: bool,
}

impl Op<'_> {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Op::Read(op) => op.encode(out),
            Op::Change(op) => op.encode(out),
            Op::Session(op) => op.encode(out),
            Op::Job(op) => op.encode(out),
            Op::Rank(op) => op.encode(out),
            Op::Admin(op) => op.encode(out),
        }
    }

    /// Whether carrying it out changes the namespace.
    #[inline]
    #[must_use]
    pub fn is_mutation(&self) -> bool {
        matches!(self, Op::Change(_))
    }

    /// Whether the operation changes names or inodes of this server: a change, or half of one
    /// between two servers.
    #[must_use]
    pub fn is_change(&self) -> bool {
        matches!(self, Op::Change(_) | Op::Rank(RankOp::Arrive { .. }))
    }

    /// Whether a client may execute the operation itself in a directory that it has alone, and tell
    /// the server later. A path, for example, may lead through directories of other clients.
    #[must_use]
    pub fn may_be_async(&self) -> bool {
        match self {
            Op::Change(op) => op.may_be_async(),
            Op::Session(op) => matches!(op, SessionOp::Open { .. } | SessionOp::Close { .. }),
            Op::Read(_) | Op::Job(_) | Op::Rank(_) | Op::Admin(_) => false,
        }
    }

    /// Whether all ranks execute it, each for itself.
    #[must_use]
    pub fn is_for_all_ranks(&self) -> bool {
        matches!(self, Op::Session(SessionOp::Sync) | Op::Admin(AdminOp::Checkpoint))
    }

    /// Whether it is about a decoupled subtree as a whole.
    #[must_use]
    pub fn is_of_subtree(&self) -> bool {
        matches!(self, Op::Job(job) if job.about().inode.is_some())
    }

    /// A word for statistics and traces.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Op::Read(op) => op.name(),
            Op::Change(op) => op.name(),
            Op::Session(op) => op.name(),
            Op::Job(op) => op.name(),
            Op::Rank(op) => op.name(),
            Op::Admin(op) => op.name(),
        }
    }
}

impl<'a> Op<'a> {
    /// The inodes and names that it is about.
    #[inline]
    #[must_use]
    pub fn about(&self) -> About<'a> {
        match self {
            Op::Read(op) => op.about(),
            Op::Change(op) => op.about(),
            Op::Session(op) => op.about(),
            Op::Job(op) => op.about(),
            Op::Rank(op) => op.about(),
            Op::Admin(op) => op.about(),
        }
    }

    pub(crate) fn decode(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let start = *reader;
        let code = reader.u8()?;
        if let Some(op) = ChangeOp::decode(code, reader)? {
            return Ok(Op::Change(op));
        }
        if let Some(op) = ReadOp::decode(code, reader)? {
            return Ok(Op::Read(op));
        }
        if let Some(op) = SessionOp::decode(code, reader)? {
            return Ok(Op::Session(op));
        }
        if let Some(op) = JobOp::decode(code, reader)? {
            return Ok(Op::Job(op));
        }
        if let Some(op) = RankOp::decode(code, reader)? {
            return Ok(Op::Rank(op));
        }
        AdminOp::decode(code, reader)?.map(Op::Admin).ok_or(start.malformed("a known operation"))
    }
}
