//! Read-only servers: their store forgets all writes when the process ends, so they reject changes.

use types::Errno;
use wire::{Failure, Op};

use super::Refused;
use crate::Mds;

/// Whether a request makes no lasting change.
fn is_reading(op: &Op<'_>) -> bool {
    match op {
        Op::Open { write, .. } => !write,
        Op::Lookup { .. }
        | Op::Walk { .. }
        | Op::GetAttr { .. }
        | Op::GetXattr { .. }
        | Op::ListXattr { .. }
        | Op::GetData { .. }
        | Op::List { .. }
        | Op::Sync
        | Op::GetPolicy { .. }
        | Op::Close { .. }
        | Op::Reopen { .. }
        | Op::Yield { .. }
        | Op::Lock { .. }
        | Op::CancelLock { .. }
        | Op::GetLock { .. }
        | Op::Return { .. }
        | Op::Settle
        // The new access time goes with the process; the read must not fail.
        | Op::Accessed { .. }
        | Op::Held { .. } => true,
        Op::Create { .. }
        | Op::Link { .. }
        | Op::Unlink { .. }
        | Op::Rmdir { .. }
        | Op::Rename { .. }
        | Op::SetAttr { .. }
        | Op::SetXattr { .. }
        | Op::SetData { .. }
        | Op::SetPolicy { .. }
        | Op::Decouple { .. }
        | Op::Extend { .. }
        | Op::Merge { .. }
        | Op::Release { .. }
        | Op::TakeOver { .. }
        | Op::Checkpoint
        | Op::Grow { .. }
        | Op::Append { .. }
        | Op::Export { .. }
        | Op::Gather { .. }
        | Op::Snapshot { .. }
        | Op::Adopt { .. }
        | Op::WriteDown { .. }
        | Op::Split { .. }
        | Op::Join { .. }
        | Op::Depart { .. }
        | Op::Arrive { .. }
        | Op::Passed { .. } => false,
    }
}

impl Mds {
    pub(super) fn check_read_only(&self, op: &Op<'_>) -> Result<(), Refused> {
        if !self.settings.read_only || is_reading(op) {
            return Ok(());
        }
        let text =
            "the cluster was started with --read-only; `cudele down` and `cudele up` allow changes";
        Err(Refused::Failure(Failure { errno: Errno::ReadOnly, text: text.into() }))
    }
}
