//! The class of an operation, said once for client and server, and its word in statistics.

use super::Op;

/// The class of an operation, which decides who executes it and what must be asked before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpClass {
    /// It reads the namespace.
    Question,
    /// It changes the namespace.
    Change,
    /// It is about what a session holds: open files, locks, capabilities, answers.
    Session,
    /// It is about a decoupled subtree or a branch as a whole.
    Job,
    /// It moves a subtree, a directory or a name to another rank.
    Rank,
    /// It has the server write something down.
    Admin,
}

impl Op<'_> {
    /// The class of the operation.
    #[must_use]
    pub fn class(&self) -> OpClass {
        match self {
            Op::Lookup { .. }
            | Op::Walk { .. }
            | Op::GetAttr { .. }
            | Op::GetXattr { .. }
            | Op::ListXattr { .. }
            | Op::GetData { .. }
            | Op::List { .. }
            | Op::GetPolicy { .. } => OpClass::Question,
            Op::Create { .. }
            | Op::Link { .. }
            | Op::Unlink { .. }
            | Op::Rmdir { .. }
            | Op::Rename { .. }
            | Op::SetAttr { .. }
            | Op::Accessed { .. }
            | Op::SetXattr { .. }
            | Op::SetData { .. }
            | Op::Grow { .. }
            | Op::Append { .. }
            | Op::SetPolicy { .. } => OpClass::Change,
            Op::Open { .. }
            | Op::Close { .. }
            | Op::Reopen { .. }
            | Op::Yield { .. }
            | Op::Lock { .. }
            | Op::CancelLock { .. }
            | Op::GetLock { .. }
            | Op::Return { .. }
            | Op::AwaitAsync
            | Op::Sync
            | Op::Held { .. } => OpClass::Session,
            Op::Decouple { .. }
            | Op::Extend { .. }
            | Op::Merge { .. }
            | Op::Release { .. }
            | Op::TakeOver { .. }
            | Op::Adopt { .. } => OpClass::Job,
            Op::Export { .. }
            | Op::Colocate { .. }
            | Op::Split { .. }
            | Op::Join { .. }
            | Op::Arrive { .. } => OpClass::Rank,
            Op::WriteDown { .. } | Op::Snapshot { .. } | Op::Checkpoint => OpClass::Admin,
        }
    }

    /// Whether carrying it out changes the namespace.
    #[inline]
    #[must_use]
    pub fn is_mutation(&self) -> bool {
        self.class() == OpClass::Change
    }

    /// Whether the operation changes names or inodes of this server: a change, or half of one
    /// between two servers.
    #[must_use]
    pub fn is_change(&self) -> bool {
        self.is_mutation() || matches!(self, Op::Arrive { .. })
    }

    /// Whether a client may execute the operation itself in a directory that it has alone, and tell
    /// the server later. A path, for example, may lead through directories of other clients.
    #[must_use]
    pub fn may_be_async(&self) -> bool {
        matches!(
            self,
            Op::Create { .. }
                | Op::Unlink { .. }
                | Op::Rmdir { .. }
                | Op::Rename { .. }
                | Op::SetAttr { .. }
                | Op::Accessed { .. }
                | Op::SetXattr { .. }
                | Op::SetData { .. }
                | Op::Open { .. }
                | Op::Close { .. }
        )
    }

    /// A word for statistics and traces.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Op::Lookup { .. } => "lookup",
            Op::Walk { .. } => "walk",
            Op::GetAttr { .. } => "getattr",
            Op::Create { .. } => "create",
            Op::Link { .. } => "link",
            Op::Unlink { .. } => "unlink",
            Op::Rmdir { .. } => "rmdir",
            Op::Rename { .. } => "rename",
            Op::SetAttr { .. } => "setattr",
            Op::Accessed { .. } => "accessed",
            Op::GetXattr { .. } => "getxattr",
            Op::ListXattr { .. } => "listxattr",
            Op::SetXattr { .. } => "setxattr",
            Op::GetData { .. } => "getdata",
            Op::SetData { .. } => "setdata",
            Op::List { .. } => "list",
            Op::Sync => "sync",
            Op::GetPolicy { .. } => "getpolicy",
            Op::SetPolicy { .. } => "setpolicy",
            Op::Decouple { .. } => "decouple",
            Op::Extend { .. } => "extend",
            Op::Merge { .. } => "merge",
            Op::Release { .. } => "release",
            Op::TakeOver { .. } => "takeover",
            Op::Checkpoint => "checkpoint",
            Op::Open { .. } => "open",
            Op::Close { .. } => "close",
            Op::Reopen { .. } => "reopen",
            Op::Yield { .. } => "yield",
            Op::Grow { .. } => "grow",
            Op::Append { .. } => "append",
            Op::Lock { .. } => "lock",
            Op::CancelLock { .. } => "cancellock",
            Op::GetLock { .. } => "getlock",
            Op::Return { .. } => "return",
            Op::AwaitAsync => "settle",
            Op::Export { .. } => "export",
            Op::Colocate { .. } => "gather",
            Op::WriteDown { .. } => "writedown",
            Op::Held { .. } => "held",
            Op::Split { .. } => "split",
            Op::Join { .. } => "join",
            Op::Arrive { .. } => "arrive",
            Op::Snapshot { .. } => "snapshot",
            Op::Adopt { .. } => "adopt",
        }
    }
}
