//! The kind of an operation: whether it changes anything, and its word in statistics.

use super::Op;

impl Op<'_> {
    /// Whether carrying it out changes the namespace.
    #[must_use]
    pub fn is_mutation(&self) -> bool {
        match self {
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
            | Op::SetPolicy { .. } => true,
            Op::Lookup { .. }
            | Op::Walk { .. }
            | Op::GetAttr { .. }
            | Op::GetXattr { .. }
            | Op::ListXattr { .. }
            | Op::GetData { .. }
            | Op::List { .. }
            | Op::Sync
            | Op::GetPolicy { .. }
            | Op::Decouple { .. }
            | Op::Extend { .. }
            | Op::Merge { .. }
            | Op::Release { .. }
            | Op::TakeOver { .. }
            | Op::Open { .. }
            | Op::Close { .. }
            | Op::Reopen { .. }
            | Op::Yield { .. }
            | Op::Lock { .. }
            | Op::CancelLock { .. }
            | Op::GetLock { .. }
            | Op::Return { .. }
            | Op::AwaitAsync
            | Op::Export { .. }
            | Op::Colocate { .. }
            | Op::WriteDown { .. }
            | Op::Held { .. }
            | Op::Split { .. }
            | Op::Join { .. }
            | Op::Arrive { .. }
            | Op::Snapshot { .. }
            | Op::Adopt { .. }
            | Op::Checkpoint => false,
        }
    }

    /// Whether the operation changes names or inodes of this server: a change, or half of one
    /// between two servers.
    #[must_use]
    pub fn is_change(&self) -> bool {
        self.is_mutation() || matches!(self, Op::Arrive { .. })
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
