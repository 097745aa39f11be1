//! Orphans: after a recovery some inodes have no known place in the namespace. Requests about them
//! fail until the place is found.

use types::Errno;

use super::{Incoming, Verdict};
use crate::{Mds, MdsEffects};

#[inline]
pub(super) fn check(mds: &mut Mds, from: Incoming<'_>, _: &mut MdsEffects) -> Verdict {
    if mds.is_astray(from.op()) { Verdict::Refuse(Errno::Stale.into()) } else { Verdict::Pass }
}
