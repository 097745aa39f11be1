//! Misplaced requests: another rank serves their inodes, or will in a moment.

use super::{Incoming, Verdict};
use crate::authority::PlaceCx;
use crate::{Mds, MdsEffects};

#[inline]
pub(super) fn check(mds: &mut Mds, from: Incoming<'_>, effects: &mut MdsEffects) -> Verdict {
    let taken = !mds.authority.is_plain() && PlaceCx::of(mds).is_misplaced(from, effects);
    if taken { Verdict::Taken } else { Verdict::Pass }
}
