//! Requests that change the namespace: plan, journal, apply.

use namespace::{Planned, PlannedInode};
use types::{Attr, AttrChange, ClientId, Cred, Errno, Ino, Origin, Path, Stripe, Timestamp};
use wire::{Answer, Op, Replay, Request};

use super::{Changed, Performed, Performing, Refused};
use crate::admission::{Admitted, Incoming};
use crate::session::{Remembered, Session};
use crate::{Mds, MdsEffects, ReplyTo, fetch};
use namespace::Refusal;

impl Mds {
    #[allow(clippy::too_many_lines, reason = "an arm for each operation")]
    pub(crate) fn change(&mut self, admitted: Admitted<'_>) -> Performing {
        let Incoming { client, request, .. } = admitted.incoming();
        let Request { tid, ref cred, replay, ref op, .. } = *request;
        let time = replay.map_or(self.clock.time, |replay| replay.time);
        let origin = Origin { client, tid };
        match *op {
            Op::Create { parent, name, ref new } => {
                self.counters.creates += 1;
                let again = replay.filter(|replay| replay.ino.0 != 0);
                self.create(cred, (parent, name), (new, time, again), origin)
            }
            Op::Link { ino, parent, name } => {
                let planned = self.namespace.plan_link(cred, ino, (parent, name), time)?;
                Ok(self.execute_change(origin, parent, &planned, time))
            }
            Op::Unlink { parent, name } => {
                let planned = self.namespace.plan_unlink(cred, parent, name, time)?;
                Ok(self.execute_change(origin, parent, &planned, time))
            }
            Op::Rmdir { parent, name } => {
                let planned = self.namespace.plan_rmdir(cred, parent, name, time)?;
                self.check_mounts(op)?;
                Ok(self.execute_change(origin, parent, &planned, time))
            }
            Op::Rename { parent, name, new_parent, new_name, flags } => {
                let (from, to) = ((parent, name), (new_parent, new_name));
                // A rename that was executed before a crash was right then.
                if replay.is_none() {
                    self.check_rename(from, to, flags.exchange)?;
                }
                let planned = self.namespace.plan_rename(cred, from, to, flags, time)?;
                let Some(planned) = planned else { return Ok(Performed::Answer(Answer::Done)) };
                self.check_mounts(op)?;
                Ok(self.execute_in_both(origin, (parent, new_parent), &planned, time))
            }
            Op::SetAttr { ino, ref change } => {
                let planned = self.namespace.plan_setattr(cred, ino, change, time)?;
                let performed = self.execute_change(origin, ino, &planned, time);
                if self.authority.is_fragmented(ino) {
                    self.spread_access(ino);
                }
                Ok(performed)
            }
            Op::Accessed { ino, at } => {
                let Attr { atime, ctime, .. } = self.namespace.getattr(ino)?;
                if at <= atime {
                    return Ok(Performed::Answer(Answer::Done));
                }
                // Reading changes no content: the time of the last change stays.
                let change = AttrChange { atime: Some(at), ..AttrChange::default() };
                let planned = self.namespace.plan_setattr(cred, ino, &change, ctime)?;
                Ok(self.execute_change(origin, ino, &planned, time))
            }
            Op::SetXattr { ino, name, value, flags } => {
                let planned =
                    self.namespace.plan_setxattr(cred, ino, (name, value), flags, time)?;
                Ok(self.execute_change(origin, ino, &planned, time))
            }
            Op::SetData { ino, data, size } => {
                let planned = self.namespace.plan_setdata(cred, ino, data, size, time)?;
                Ok(self.execute_change(origin, ino, &planned, time))
            }
            Op::Grow { ino, size } => {
                self.lengthen((client, cred), ino, |old| Some(old.max(size)), (origin, time))
            }
            Op::Append { ino, length } => {
                let longer = |old: u64| old.checked_add(length);
                self.lengthen((client, cred), ino, longer, (origin, time))
            }
            // Not changes.
            Op::Open { .. }
            | Op::Close { .. }
            | Op::Reopen { .. }
            | Op::Yield { .. }
            | Op::Lock { .. }
            | Op::CancelLock { .. }
            | Op::GetLock { .. }
            | Op::Return { .. }
            | Op::Lookup { .. }
            | Op::Walk { .. }
            | Op::GetAttr { .. }
            | Op::GetXattr { .. }
            | Op::ListXattr { .. }
            | Op::GetData { .. }
            | Op::List { .. }
            | Op::GetPolicy { .. }
            | Op::SetPolicy { .. }
            | Op::Sync
            | Op::AwaitAsync
            | Op::Export { .. }
            | Op::Colocate { .. }
            | Op::Snapshot { .. }
            | Op::Adopt { .. }
            | Op::WriteDown { .. }
            | Op::Held { .. }
            | Op::Split { .. }
            | Op::Join { .. }
            | Op::Arrive { .. }
            | Op::Decouple { .. }
            | Op::Extend { .. }
            | Op::Merge { .. }
            | Op::Release { .. }
            | Op::TakeOver { .. }
            | Op::Checkpoint => Err(Errno::NotSupported.into()),
        }
    }

    fn create(
        &mut self,
        cred: &Cred,
        at: (Ino, &[u8]),
        (new, time, again): (&wire::NewInode<'_>, Timestamp, Option<Replay>),
        origin: Origin,
    ) -> Performing {
        let wire::NewInode { mode, owner, rdev, size, mtime, atime, data, open } = *new;
        // A recreated file may have content by now, in objects of its former stripe.
        let stripe = match again {
            Some(Replay { stripe, .. }) => stripe,
            None => self.stripe_in(at.0),
        };
        let new = PlannedInode { mode, owner, rdev, stripe, size, time, mtime, atime, data };
        // Planned with a number that is taken only if the plan succeeds.
        let planned = self.namespace.plan_create(cred, at, &new, Ino(u64::MAX))?;
        let ino = match again {
            Some(Replay { ino, .. }) => {
                // A client must not get a number that is, or may become, another client's.
                let client = origin.client;
                let given = |session: &Session| session.async_ops.has(ino);
                // The cheap check first: asynchronous operations pass it.
                let may_have = self.sessions.get(client).is_some_and(given)
                    || self.tables.may_be_of(client, ino);
                if !may_have || self.namespace.knows(ino) {
                    return Err(Errno::Stale.into());
                }
                ino
            }
            None => self.tables.take_ino().ok_or(Refusal::Cold(fetch::NUMBERS))?,
        };
        let mut event = planned.event();
        if let journal::Event::Create(create) = &mut event {
            create.ino = ino;
        }
        let (seq, ack_safe) = self.applying().journal_and_apply(origin, at.0, at.0, &event);
        let attr = self.namespace.getattr(ino)?;
        self.note_size(at.0);
        if open {
            self.opens.enter(origin.client, ino, true);
        }
        Ok(Performed::Changed(Changed { answer: Answer::Attr(attr), seq, ino, time, ack_safe }))
    }

    /// How files that are created in a directory are striped.
    fn stripe_in(&mut self, dir: Ino) -> Stripe {
        self.namespace.effective_policy(dir).1.policy.stripe
    }

    /// Sets the length of a file that a client writes. A client that has it open for writing may do
    /// so, independent of its present mode.
    fn lengthen(
        &mut self,
        (client, cred): (ClientId, &Cred),
        ino: Ino,
        length: impl FnOnce(u64) -> Option<u64>,
        (origin, time): (Origin, Timestamp),
    ) -> Performing {
        let size = length(self.namespace.getattr(ino)?.size).ok_or(types::Errno::TooBig)?;
        let root = Cred::root();
        let cred = if self.opens.writes(client, ino) { &root } else { cred };
        let change = AttrChange { size: Some(size), mtime: Some(time), ..AttrChange::default() };
        let planned = self.namespace.plan_setattr(cred, ino, &change, time)?;
        let (seq, ack_safe) = self.applying().journal_and_apply(origin, ino, ino, &planned.event());
        let answer = Answer::Attr(self.namespace.getattr(ino)?);
        Ok(Performed::Changed(Changed { answer, seq, ino: Ino(size), time, ack_safe }))
    }

    /// Repeats the answer to a request that made a file longer.
    fn lengthened_again(
        &mut self,
        at: ReplyTo,
        ino: Ino,
        known: Option<Remembered>,
        effects: &mut MdsEffects,
    ) {
        let attr = self.namespace.getattr(ino).ok();
        match (known, attr) {
            (Some(Remembered { seq, ino: size, time, .. }), Some(attr)) => {
                let answer = Answer::Attr(Attr { size: size.0, ..attr });
                self.log.answer_when_safe((seq, time), at, answer, effects);
            }
            (Some(_), None) => effects.reply_error(at, types::Errno::Stale.into()),
            (None, _) => {
                let text = "it was carried out, but how is not known any more".into();
                let failure = wire::Failure { errno: types::Errno::Io, text };
                effects.reply_error(at, failure);
            }
        }
    }

    fn execute_change(
        &mut self,
        origin: Origin,
        place: Ino,
        planned: &Planned<'_>,
        time: Timestamp,
    ) -> Performed {
        self.execute_in_both(origin, (place, place), planned, time)
    }

    fn execute_in_both(
        &mut self,
        origin: Origin,
        (place, other): (Ino, Ino),
        planned: &Planned<'_>,
        time: Timestamp,
    ) -> Performed {
        let (seq, ack_safe) =
            self.applying().journal_and_apply(origin, place, other, &planned.event());
        Performed::Changed(Changed { answer: Answer::Done, seq, ino: Ino(0), time, ack_safe })
    }

    /// The directory at a path.
    pub(crate) fn resolve_dir(&self, cred: &Cred, path: &[u8]) -> Result<Ino, Refused> {
        let path = Path::parse(path)?;
        let walked = self.namespace.walk(cred, Ino::ROOT, &path)?;
        let attr = walked.attr.ok_or(types::Errno::NotFound)?;
        if !attr.is_dir() {
            return Err(types::Errno::NotDirectory.into());
        }
        Ok(attr.ino)
    }

    /// A request that was executed before and arrives again: the same answer.
    pub(crate) fn answer_again(
        &mut self,
        from @ Incoming { conn, client, request }: Incoming<'_>,
        known: Option<Remembered>,
        effects: &mut MdsEffects,
    ) {
        if let Op::Grow { ino, .. } | Op::Append { ino, .. } = request.op {
            return self.lengthened_again(ReplyTo { conn, tid: request.tid }, ino, known, effects);
        }
        // Its position in the journal is forgotten: not behind the newest event. A client that
        // resends it knows the first answer, and its time.
        let replay = request.replay;
        let (seq, time) = known.map_or_else(
            || (self.log.last(), replay.map_or(Timestamp(0), |replay| replay.time)),
            |known| (known.seq, known.time),
        );
        let Op::Create { parent, name, ref new } = request.op else {
            let at = ReplyTo { conn, tid: request.tid };
            return self.log.answer_when_safe((seq, time), at, Answer::Done, effects);
        };
        let ino = known
            .map(|known| known.ino)
            .or(replay.map(|replay| replay.ino))
            .filter(|ino| ino.0 != 0);
        let here = ino.map(|ino| self.namespace.getattr(ino)).and_then(Result::ok);
        // It may have been split since; a fragment that is not here is not waited for.
        let leaf = self.leaf_of(parent, name);
        let named = || self.namespace.lookup(&Cred::root(), leaf, name);
        let attr = here.map_or_else(named, Ok);
        let other = |attr: &Attr| ino.is_some_and(|ino| attr.ino != ino);
        let attr = attr.and_then(|attr| match other(&attr) {
            true => Err(types::Errno::NotFound.into()),
            false => Ok(attr),
        });
        match (attr, ino) {
            (Ok(attr), _) => {
                if new.open {
                    self.opens.enter(client, attr.ino, true);
                }
                let at = ReplyTo { conn, tid: request.tid };
                self.log.answer_when_safe((seq, time), at, Answer::Attr(attr), effects);
            }
            (Err(Refusal::Cold(dir)), _) => self.fetching().park(from, dir, effects),
            (Err(Refusal::Errno(_)), Some(ino)) => {
                // A later request removed the file, or moved it to a directory outside of memory:
                // these are its first attributes.
                let wire::NewInode { mode, size, rdev, .. } = *new;
                let is_dir = types::FileType::from_mode(mode) == Some(types::FileType::Directory);
                let nlink = if is_dir { 2 } else { 1 };
                let (uid, gid) = new.owner.unwrap_or((request.cred.uid, request.cred.gid));
                let mtime = new.mtime.unwrap_or(time);
                let atime = new.atime.unwrap_or(mtime);
                let stripe = match replay {
                    Some(replay) => replay.stripe,
                    None => self.stripe_in(parent),
                };
                let attr = Attr { ino, mode, uid, gid, nlink, rdev, size, ..Attr::default() };
                let attr = Attr { stripe, atime, mtime, ctime: time, btime: time, ..attr };
                let at = ReplyTo { conn, tid: request.tid };
                self.log.answer_when_safe((seq, time), at, Answer::Attr(attr), effects);
            }
            (Err(Refusal::Errno(types::Errno::NotFound)), None) if self.is_active() => {
                // An executed create leaves its number to the next server, unless no journal has
                // it: then a crash undid it, and its client got no answer.
                self.execute(conn, request, effects);
            }
            (Err(Refusal::Errno(errno)), None) => {
                effects.reply_error(ReplyTo { conn, tid: request.tid }, errno.into());
            }
        }
    }
}
