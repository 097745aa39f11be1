//! Inode numbers are no rights: a process that speaks for one user reaches an inode only through
//! directories that this user may search, as a path would, or as a file that it has open.
//!
//! Limit: the directories are looked at as they are now, and only as far as this rank has them. An
//! inode with several names has no one place: the client must have walked to it.

use types::Ino;

use super::{Incoming, Verdict};
use crate::op::{Refused, touched};
use crate::{Mds, MdsEffects};

/// The permission to search a directory.
const SEARCH: u32 = 1;

#[inline]
pub(super) fn check(mds: &mut Mds, from: Incoming<'_>, _: &mut MdsEffects) -> Verdict {
    if mds.identities.are_trusted() { Verdict::Pass } else { verdict(mds, from) }
}

// Apart, so that the check is inlined where every peer is trusted.
#[inline(never)]
fn verdict(mds: &Mds, from: Incoming<'_>) -> Verdict {
    if !mds.identities.is_user(from.conn) {
        return Verdict::Pass;
    }
    let mut inodes = touched(from.op()).inodes();
    let refused = inodes.find_map(|ino| reach(mds, from, ino).err());
    refused.map_or(Verdict::Pass, Verdict::Refuse)
}

/// `EACCES` if no path leads this user to the inode.
fn reach(mds: &Mds, from: Incoming<'_>, ino: Ino) -> Result<(), Refused> {
    let session = mds.sessions.get(from.client);
    if mds.opens.has(from.client, ino) {
        return Ok(());
    }
    if mds.namespace.home_of(ino) == Some(Ino::LINKS) {
        let is_shown = session.is_some_and(|session| session.shown.has(ino));
        return if is_shown { Ok(()) } else { Err(types::Errno::Access.into()) };
    }
    for dir in mds.namespace.ancestors(ino).skip(1) {
        mds.namespace.access(&from.request.cred, dir, SEARCH)?;
    }
    Ok(())
}
