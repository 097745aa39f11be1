//! `merge: on_demand`: the first request of another client in a decoupled subtree waits until the
//! owner has merged.

use super::{Incoming, Verdict};
use crate::merge_request::MergeRequestCx;
use crate::{Mds, MdsEffects};

#[inline]
pub(super) fn check(mds: &mut Mds, from: Incoming<'_>, effects: &mut MdsEffects) -> Verdict {
    if mds.tables.decoupled.is_empty() {
        return Verdict::Pass;
    }
    MergeRequestCx::of(mds)
        .must_merge(from.client, from.op(), effects)
        .map_or(Verdict::Pass, Verdict::Wait)
}
