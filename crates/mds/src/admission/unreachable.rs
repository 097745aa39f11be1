//! Inode numbers are no rights: a process that speaks for one user reaches an inode only through
//! directories that this user may search, as a path would, or as an open file. The user must have
//! the permission to open each file that the process locks, or declares to be open.
//!
//! Limit: the directories are looked at as they are now, and only as far as this rank has them. An
//! inode with several names has no one place: the client must have walked to it. A file that a
//! restarted server does not have in memory is not open any more.

use types::{Errno, Ino};
use wire::{Access, Op, SessionOp};

use super::{Incoming, Verdict};
use crate::op::{Refused, touched};
use crate::{Mds, MdsEffects};

/// The permissions to read, to write, and to search a directory.
const READ: u32 = 4;
const WRITE: u32 = 2;
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
    reach_all(mds, from).map_or_else(Verdict::Refuse, |()| Verdict::Pass)
}

/// `EACCES` if no path leads this user to an inode of the request, or if the user may not open it.
fn reach_all(mds: &Mds, from: Incoming<'_>) -> Result<(), Refused> {
    match *from.op() {
        Op::Session(SessionOp::Open { ino, write }) => {
            open(mds, from, ino, Access { read: !write, write, shared: false })
        }
        Op::Session(SessionOp::Reopen { ino, access }) if access.read || access.write => {
            open(mds, from, ino, access)
        }
        Op::Session(SessionOp::Lock { ino, .. } | SessionOp::GetLock { ino, .. })
            if !mds.opens.has(from.client, ino) =>
        {
            open(mds, from, ino, Access { read: true, ..Access::default() })
        }
        ref op @ (Op::Read(_)
        | Op::Change(_)
        | Op::Session(_)
        | Op::Job(_)
        | Op::Rank(_)
        | Op::Admin(_)) => touched(op).inodes().try_for_each(|ino| reach(mds, from, ino)),
    }
}

/// A path leads the user to the file, and the user may open it. The process of a mount may read a
/// program that may only be executed; a user needs the permission to read.
fn open(mds: &Mds, from: Incoming<'_>, ino: Ino, access: Access) -> Result<(), Refused> {
    let cred = &from.request.cred;
    let known = mds.namespace.permissions_of(ino).ok_or(Errno::Stale)?;
    reach(mds, from, ino)?;
    if known.uid == cred.uid {
        return Ok(());
    }
    for (wanted, permission) in [(access.read, READ), (access.write, WRITE)] {
        if wanted {
            mds.namespace.access(cred, ino, permission)?;
        }
    }
    Ok(())
}

/// `EACCES` if no path leads this user to the inode.
fn reach(mds: &Mds, from: Incoming<'_>, ino: Ino) -> Result<(), Refused> {
    if mds.opens.has(from.client, ino) {
        return Ok(());
    }
    if mds.namespace.home_of(ino) == Some(Ino::LINKS) {
        let session = mds.sessions.get(from.client);
        let is_shown = session.is_some_and(|session| session.shown.has(ino));
        return if is_shown { Ok(()) } else { Err(Errno::Access.into()) };
    }
    for dir in mds.namespace.ancestors(ino).skip(1) {
        if mds.namespace.permissions_of(dir).is_none() {
            // Another rank serves it, and this one has a subtree below.
            break;
        }
        mds.namespace.access(&from.request.cred, dir, SEARCH)?;
    }
    Ok(())
}
