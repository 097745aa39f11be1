//! Capabilities: what other clients cache is revoked before it changes.

use super::{Incoming, Verdict};
use crate::{Mds, MdsEffects};

#[inline]
pub(super) fn check(mds: &mut Mds, from: Incoming<'_>, effects: &mut MdsEffects) -> Verdict {
    if mds.caps.is_empty() && mds.leases.is_empty() {
        return Verdict::Pass;
    }
    mds.capabilities()
        .must_revoke(from.client, from.op(), effects)
        .map_or(Verdict::Pass, Verdict::Wait)
}
