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
        _ => false,
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
