//! A private server: it works for one job, on the snapshot of a branch (E-01).
//!
//! It is the ordinary server, on a store that shows the snapshot. The differences: all changes are
//! journalled, independent of policies, because the journal becomes a layer of the branch; the
//! server writes no checkpoint when it stops; and it changes nothing outside of the branch.
//!
//! Content is the reason for the rest. Clients write it to the common store, so a file that the job
//! has not made is not opened for writing: `EROFS` makes a client copy the file in its place first.

use types::{Errno, FileType, Ino, InoRange};
use wire::{Failure, Op};

use crate::Mds;
use crate::op::{Refused, touched};

/// See the module documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Private {
    /// The numbers of the inodes that the job makes.
    pub numbers: InoRange,
    /// The directories above the branch's: they are shown, and not changed.
    pub above: Vec<Ino>,
}

impl Mds {
    pub(crate) fn is_private(&self) -> bool {
        self.settings.private.is_some()
    }

    /// Refuses operations that a private server cannot do.
    pub(crate) fn check_private(&self, op: &Op<'_>) -> Result<(), Refused> {
        let Some(private) = &self.settings.private else { return Ok(()) };
        let whole = matches!(
            op,
            Op::SetPolicy { .. }
                | Op::Decouple { .. }
                | Op::TakeOver { .. }
                | Op::Merge { .. }
                | Op::Adopt { .. }
                | Op::Export { .. }
                | Op::Gather { .. }
                | Op::Snapshot { .. }
                | Op::WriteDown { .. }
        );
        if whole {
            let text = "not in a branch, which is apart from everybody already: do it in the \
                        namespace, when the branch is merged";
            return refuse(Errno::NotSupported, text);
        }
        let [one, other] = touched(op).0;
        let is_mount_stub = |ino: Option<Ino>| ino.is_some_and(|ino| private.above.contains(&ino));
        if op.is_mutation() && (is_mount_stub(one) || is_mount_stub(other)) {
            return refuse(Errno::NotPermitted, "it is outside of the branch's directory");
        }
        let written = if let Op::Open { ino, write: true }
        | Op::Grow { ino, .. }
        | Op::Append { ino, .. }
        | Op::SetData { ino, data: b"", size: 1.. } = *op
        {
            ino
        } else if let Op::SetAttr { ino, ref change } = *op
            && change.size.is_some()
        {
            ino
        } else {
            return Ok(());
        };
        if private.numbers.contains(written) {
            return Ok(());
        }
        if self.namespace.getattr(written)?.file_type() != FileType::Regular {
            return Ok(());
        }
        refuse(Errno::ReadOnly, "what a branch has committed, or its snapshot, is not written over")
    }
}

fn refuse(errno: Errno, text: &str) -> Result<(), Refused> {
    Err(Refused::Failure(Failure { errno, text: text.into() }))
}
