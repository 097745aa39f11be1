//! Asynchronous operations: their client has executed and answered them already, in a directory
//! that it has alone. They have a course of their own, and only a failure is reported.

use super::{Incoming, Verdict};
use crate::{Mds, MdsEffects};

#[inline]
pub(super) fn check(mds: &mut Mds, from: Incoming<'_>, effects: &mut MdsEffects) -> Verdict {
    if !from.request.is_async {
        return Verdict::Pass;
    }
    mds.execute_async(from, effects);
    Verdict::Taken
}
