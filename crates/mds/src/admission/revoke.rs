//! Capabilities: what other clients cache is revoked before it changes.

use super::{Incoming, Verdict};
use crate::caps::CapsCx;
use crate::{Mds, MdsEffects};

#[inline]
pub(super) fn check(mds: &mut Mds, from: Incoming<'_>, effects: &mut MdsEffects) -> Verdict {
    if mds.caps.is_empty() && mds.leases.is_empty() {
        return Verdict::Pass;
    }
    revoked(mds, from, effects)
}

// Apart, so that the check is inlined where no client caches anything.
#[inline(never)]
fn revoked(mds: &mut Mds, from: Incoming<'_>, effects: &mut MdsEffects) -> Verdict {
    CapsCx::of(mds)
        .must_revoke(from.client, from.op(), effects)
        .map_or(Verdict::Pass, Verdict::Wait)
}
