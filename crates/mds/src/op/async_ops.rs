//! Asynchronous operations: changes that a client has answered itself, in directories that it has
//! alone. They come with the inode numbers and times that the client has assigned, and are executed
//! in the order of their arrival. The server reports only a failure: then the client's view is
//! wrong, and it returns its directories.

use types::{ClientId, Errno, FileType, Ino, Seq, Tid};
use wire::{Answer, ChangeOp, Failure, Message, Op, Request};

use super::{Changed, Performed, Refused, place_of, touched};
use crate::admission::{Entry, Incoming};
use crate::caps::CapsCx;
use crate::fetch::FetchCx;
use crate::session::{Fate, Remembered};
use crate::{Mds, MdsEffects, ReplyTo};
use namespace::Refusal;

impl Mds {
    /// Whether a part of a journal must wait because an asynchronous operation of its client waits
    /// for a directory.
    pub(crate) fn chunk_waits_for_async(
        &mut self,
        client: ClientId,
        tid: Tid,
        bytes: &[u8],
    ) -> bool {
        let waiting = &mut self.sessions.get_mut(client).async_ops.waiting;
        if waiting.is_empty() {
            return false;
        }
        waiting.push_back(Message::Chunk { tid, bytes }.to_frame());
        true
    }

    /// Executes asynchronous operations.
    pub(crate) fn execute_async(
        &mut self,
        from @ Incoming { client, request, .. }: Incoming<'_>,
        effects: &mut MdsEffects,
    ) {
        if request.op.is_mutation() {
            let session = self.sessions.get_mut(client);
            if let Fate::Done(known) = session.fate(request.tid) {
                let seq = known.map_or(Seq(0), |known| known.seq);
                session.async_ops.seq = session.async_ops.seq.max(seq);
                return;
            }
        }
        let removed = if let Op::Change(ChangeOp::Rmdir { parent, name }) = request.op {
            self.namespace.peek(parent, name).ok().flatten()
        } else {
            None
        };
        let may = if !request.op.may_be_async() {
            Err(Errno::Stale)
        } else if self.resend.is_busy() {
            Ok(())
        } else {
            self.check_exclusive(client, request)
        };
        let performed = may.map_err(Refused::from);
        let performed =
            performed.and_then(|()| match self.admit::<{ Entry::EXECUTED }>(from, effects) {
                None => Ok(Performed::Later),
                Some(admitted) => admitted.and_then(|admitted| self.perform(admitted, effects)),
            });
        match performed {
            Ok(Performed::Changed(Changed { seq, ino, time, .. })) => {
                self.counters.async_ops += 1;
                let remembered =
                    Remembered { tid: request.tid, seq: seq.unwrap_or_default(), ino, time };
                let session = self.sessions.get_mut(client);
                session.finish(remembered);
                if let Some(seq) = seq {
                    session.known_since(seq);
                    session.async_ops.seq = session.async_ops.seq.max(seq);
                }
                if self.settings.observe {
                    effects.observe(client, remembered);
                }
                self.follow_exclusive(client, request, removed);
            }
            Ok(Performed::Answer(_) | Performed::Later) => {}
            // No client has a split directory alone, and fetching it would bring no name.
            Err(Refused::Refusal(Refusal::Cold(dir))) if self.namespace.is_split(dir) => {
                self.refuse_async(from, Errno::Stale.into(), effects);
            }
            Err(Refused::Refusal(Refusal::Cold(dir))) => {
                let frame = Message::Request(request.clone()).to_frame();
                self.sessions.get_mut(client).async_ops.waiting.push_front(frame);
                FetchCx::of(self).park_async(client, dir, effects);
            }
            Err(Refused::Refusal(Refusal::Errno(errno))) => {
                self.refuse_async(from, errno.into(), effects);
            }
            Err(Refused::Failure(failure)) => {
                self.refuse_async(from, failure, effects);
            }
        }
    }

    fn refuse_async(
        &mut self,
        from @ Incoming { client, .. }: Incoming<'_>,
        failure: Failure,
        effects: &mut MdsEffects,
    ) {
        self.counters.async_refused += 1;
        self.refuse(from, failure, effects);
        // The client's view is wrong: no later operation that depends on it is executed.
        let exclusive = self.caps.exclusive().filter(|(_, owner)| *owner == client);
        let exclusive: Vec<Ino> = exclusive.map(|(dir, _)| dir).collect();
        for dir in exclusive {
            CapsCx::of(self).returned(client, dir);
        }
    }

    /// `ESTALE` unless the client has everything alone that a request is about, and was given the
    /// number that it uses.
    fn check_exclusive(&self, client: ClientId, request: &Request<'_>) -> Result<(), Errno> {
        for ino in touched(&request.op).inodes() {
            let place = place_of(&self.namespace, ino).ok_or(Errno::Stale)?;
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
    fn follow_exclusive(&mut self, client: ClientId, request: &Request<'_>, removed: Option<Ino>) {
        let Some(replay) = request.replay else { return };
        if let Op::Change(ChangeOp::Create { parent, ref new, .. }) = request.op
            && FileType::from_mode(new.mode) == Some(FileType::Directory)
            && self.caps.owner(parent) == Some(client)
            && self.caps.grant(client, replay.ino, self.clock.now)
        {
            self.caps.grant_exclusive(client, replay.ino);
        } else if let Some(removed) = removed {
            CapsCx::of(self).returned(client, removed);
        }
    }

    /// How many of a client's asynchronous operations the server has executed.
    pub(crate) fn acknowledge_async(
        &mut self,
        at: ReplyTo,
        client: ClientId,
        effects: &mut MdsEffects,
    ) {
        let seq = self.sessions.get_mut(client).async_ops.seq;
        effects.reply_with(at, seq, Answer::Done);
    }
}
