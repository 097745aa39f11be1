//! Orphans: after a recovery some inodes have no known place in the namespace. Requests about them
//! fail until the place is found.

use types::Errno;

use super::{Incoming, Verdict};
use crate::{Mds, MdsEffects};

#[inline]
pub(super) fn check(mds: &mut Mds, from: Incoming<'_>, _: &mut MdsEffects) -> Verdict {
    let is_astray = mds.resend.is_astray(&mds.namespace, from.op());
    if is_astray { Verdict::Refuse(Errno::Stale.into()) } else { Verdict::Pass }
}
