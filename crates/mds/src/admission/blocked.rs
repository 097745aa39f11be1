//! Blocked subtrees: `EBUSY` for anything that touches a subtree that belongs to another client and
//! blocks, at any depth, by path or by inode.

use namespace::Namespace;
use types::{ClientId, Errno, Ino};
use wire::Op;

use super::{Incoming, Verdict};
use crate::op::{is_about_all, touched};
use crate::tables::Tables;
use crate::{Mds, MdsEffects};

#[inline]
pub(super) fn check(mds: &mut Mds, from: Incoming<'_>, _: &mut MdsEffects) -> Verdict {
    // Requests about a whole subtree check for themselves, to return an error that explains.
    if mds.tables.decoupled.is_empty() || is_about_all(from.op()) {
        return Verdict::Pass;
    }
    if !touches_blocked(&mds.tables, &mds.namespace, from.client, from.op()) {
        return Verdict::Pass;
    }
    mds.counters.busy += 1;
    Verdict::Refuse(Errno::Busy.into())
}

fn touches_blocked(tables: &Tables, namespace: &Namespace, client: ClientId, op: &Op<'_>) -> bool {
    let about = touched(op);
    // The name may be that of the subtree's root, seen from outside. A name that is not in memory
    // is no such root: the roots of decoupled subtrees are.
    let named = about.names().filter_map(|at| namespace.peek(at.dir, at.name).ok()?);
    about.inodes().chain(named).any(|ino| is_blocked(tables, namespace, client, ino))
}

/// Whether an inode is in a subtree that blocks this client.
pub(crate) fn is_blocked(
    tables: &Tables,
    namespace: &Namespace,
    client: ClientId,
    ino: Ino,
) -> bool {
    namespace.ancestors(ino).any(|ancestor| {
        let owner = tables.decoupled.get(&ancestor);
        owner.is_some_and(|owner| owner.block && !owner.released && owner.client != client)
    })
}
