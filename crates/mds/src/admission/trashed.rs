//! Removed trees: nothing in the trash can be reached, neither by a path nor by a number. Only open
//! files stay open, as after the removal of their last name.

use namespace::Namespace;
use types::{Errno, Ino};
use wire::{ChangeOp, Op};

use super::{Incoming, Verdict};
use crate::op::touched;
use crate::{Mds, MdsEffects};

#[inline]
pub(super) fn check(mds: &mut Mds, from: Incoming<'_>, _: &mut MdsEffects) -> Verdict {
    if mds.trash.is_empty() { Verdict::Pass } else { verdict(&mds.namespace, from.op()) }
}

// Apart, so that the check is inlined where the trash is empty.
#[inline(never)]
fn verdict(namespace: &Namespace, op: &Op<'_>) -> Verdict {
    // It is about the root of a removed tree.
    let is_of_trash = matches!(op, Op::Change(ChangeOp::EmptyTrash { .. }));
    let is_gone = |ino| namespace.is_within(ino, Ino::TRASH);
    if !is_of_trash && touched(op).inodes().any(is_gone) {
        return Verdict::Refuse(Errno::NotFound.into());
    }
    Verdict::Pass
}
