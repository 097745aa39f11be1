//! Directories that one client has alone, and its asynchronous operations in them.

use types::{ClientId, Errno, FileType, Ino};
use wire::{ChangeOp, Op, Request};

use super::CapsCx;
use crate::MdsEffects;
use crate::op::{place_of, touched};

impl CapsCx<'_> {
    /// `ESTALE` unless the client has everything alone that a request is about, and was given the
    /// number that it uses.
    pub(crate) fn check_exclusive(
        &self,
        client: ClientId,
        request: &Request<'_>,
    ) -> Result<(), Errno> {
        for ino in touched(&request.op).inodes() {
            let place = place_of(self.namespace, ino).ok_or(Errno::Stale)?;
            if self.caps.owner(place) != Some(client) {
                return Err(Errno::Stale);
            }
        }
        if let (Op::Change(ChangeOp::Create { .. }), Some(replay)) = (&request.op, request.replay) {
            let session = self.sessions.get(client);
            if !session.is_some_and(|session| session.async_ops.has(replay.ino)) {
                return Err(Errno::Stale);
            }
        }
        Ok(())
    }

    /// A directory that was made in one that its client has alone is the client's alone, too; a
    /// removed one is no client's.
    pub(crate) fn follow_exclusive(
        &mut self,
        client: ClientId,
        request: &Request<'_>,
        removed: Option<Ino>,
        effects: &mut MdsEffects,
    ) {
        let Some(replay) = request.replay else { return };
        if let Op::Change(ChangeOp::Create { parent, ref new, .. }) = request.op
            && FileType::from_mode(new.mode) == Some(FileType::Directory)
            && self.caps.owner(parent) == Some(client)
            && self.caps.grant(client, replay.ino, self.now)
        {
            self.caps.grant_exclusive(client, replay.ino);
            if self.caps.ending_since.is_some() {
                self.revoke(ClientId(0), replay.ino, effects);
            }
        } else if let Some(removed) = removed {
            self.returned(client, removed);
        }
    }

    /// No directory is a client's alone any more.
    pub(crate) fn all_returned(&mut self, client: ClientId) {
        let exclusive = self.caps.exclusive().filter(|(_, owner)| *owner == client);
        let exclusive: Vec<Ino> = exclusive.map(|(dir, _)| dir).collect();
        for dir in exclusive {
            self.returned(client, dir);
        }
    }
}
