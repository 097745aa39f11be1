//! Merges that only memory has: the store must have them before a request in their directories is
//! journalled.

use super::{Incoming, Verdict};
use crate::checkpoint::CheckpointCx;
use crate::{Mds, MdsEffects};

#[inline]
pub(super) fn check(mds: &mut Mds, from: Incoming<'_>, effects: &mut MdsEffects) -> Verdict {
    if !mds.checkpoint.is_any_volatile() {
        return Verdict::Pass;
    }
    stored(mds, from, effects)
}

#[cold]
fn stored(mds: &mut Mds, from: Incoming<'_>, effects: &mut MdsEffects) -> Verdict {
    let Some(subtree) = CheckpointCx::of(mds).must_store(from.op()) else { return Verdict::Pass };
    mds.fetches.park_until_returned(&mut mds.sessions, from, subtree);
    CheckpointCx::of(mds).store_merged(subtree, effects);
    Verdict::Taken
}
