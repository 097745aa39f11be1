//! Whether a name may move to another rank, and which parts of its inode move with it.

use journal::JournalBuffer;
use namespace::Refusal;
use types::{Cred, EntryName, Errno, Ino, Origin, Seq, Timestamp};
use wire::Failure;

use super::super::place::{InodeAuthority, busy};
use super::NamesCx;
use crate::authority::Places;
use crate::contexts::lend;
use crate::op::Refused;
use crate::op::is_in_change;

impl NamesCx<'_> {
    /// The inode of a name, and its encoded form for the move, if it may move now.
    pub(super) fn plan_offer(
        &self,
        cred: &Cred,
        from: EntryName<'_>,
        time: Timestamp,
    ) -> Result<(Ino, Vec<u8>), Refused> {
        let (ino, planned) = self.namespace.plan().departure(cred, from, time)?;
        let mut buffer = JournalBuffer::new(Seq(1), true);
        buffer.append(Origin::default(), &planned.event());
        buffer.close_block();
        if self.namespace.is_dir(ino) {
            if !self.settings.pass_directories {
                return Err(cross("the two directories are served by different metadata servers"));
            }
            self.places().may_go(ino, self.under_way)?;
        } else if self.opens.files().any(|open| open == ino) {
            return Err(cross(
                "clients have the file open, and the two directories are served by different metadata servers",
            ));
        }
        Ok((ino, buffer.take_blocks().concat()))
    }

    /// Whether a new cross-rank rename may begin. A split or join of a directory waits for those
    /// under way.
    pub(super) fn may_begin(&self) -> Result<(), Refused> {
        if self.authority.reshape.is_some() { Err(Errno::Again.into()) } else { Ok(()) }
    }

    pub(super) fn places(&self) -> Places<'_> {
        lend!(self => Places {
            mut:;
            ref: authority, namespace;
            copy: tables, opens, locks;
            map: self.line.map,
        })
    }

    /// Whether names may leave or enter a directory now.
    pub(super) fn may_pass(&mut self, dir: Ino) -> Result<(), Refused> {
        if !self.is_active {
            return Err(Errno::Again.into());
        }
        if !self.namespace.knows(dir) {
            return Err(Errno::Stale.into());
        }
        let policy = self.namespace.effective_policy(dir).1;
        if policy.policy.logs_requests() {
            return Err(cross(
                "its policy keeps logs with clients, which one metadata server replays",
            ));
        }
        let mut decoupled = self.tables.decoupled.iter();
        if decoupled.any(|(root, known)| !known.released && self.namespace.is_within(dir, *root)) {
            return Err(cross("a client has decoupled a directory above it"));
        }
        if is_in_change(self.changes, self.namespace, dir) {
            return Err(busy("a policy is being changed"));
        }
        match self.places().place(dir) {
            InodeAuthority::Here => Ok(()),
            InodeAuthority::Moving(_) | InodeAuthority::Other(_) | InodeAuthority::Unknown => {
                Err(Errno::Again.into())
            }
        }
    }
}

/// The failure that the client receives.
pub(super) fn failure_of(refused: Refused) -> Failure {
    match refused {
        Refused::Refusal(Refusal::Errno(errno)) => errno.into(),
        Refused::Refusal(Refusal::Cold(_)) => Errno::Again.into(),
        Refused::Failure(failure) => failure,
    }
}

/// Why a name does not move to another rank: `EXDEV`, on which programs copy instead.
pub(super) fn cross(text: &str) -> Refused {
    Refused::Failure(Failure { errno: Errno::CrossDevice, text: text.into() })
}
