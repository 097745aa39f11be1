//! Requests that change the namespace: plan, journal, apply.

mod trash;

use journal::{Create, Event};
use namespace::{Namespace, Planned, PlannedInode, Refusal};
use types::acl;
use types::{
    Attr, AttrChange, ClientId, Cred, EntryName, Errno, Ino, Origin, Path, Rank, Stripe, Timestamp,
    XattrChange,
};
use wire::{Answer, ChangeOp, NewInode, Op, Replay, Request};

use super::{Changed, Performed, Performing, Refused};
use crate::admission::{Admitted, Incoming};
use crate::apply::ApplyCx;
use crate::authority::Authority;
use crate::session::{Remembered, Session, Sessions};
use crate::tables::Tables;
use crate::{Counters, MdsEffects, ReplyTo, fetch};

/// Requests that change something, with all that executing them may touch.
pub(crate) struct ChangeCx<'a> {
    pub(crate) apply: ApplyCx<'a>,
    pub(crate) tables: &'a mut Tables,
    pub(crate) counters: &'a mut Counters,
    pub(crate) sessions: &'a Sessions,
    pub(crate) authority: &'a Authority,
    pub(crate) rank: Rank,
    pub(crate) time: Timestamp,
}

/// The author of a change, and its time.
struct By<'a> {
    client: ClientId,
    cred: &'a Cred,
    origin: Origin,
    time: Timestamp,
    replay: Option<Replay>,
}

/// The next step for a request that arrived again.
pub(crate) enum Again {
    /// The reply is on its way.
    Answered,
    /// It waits for this directory.
    Park(Ino),
    /// It is executed, as if it came only now.
    Execute,
}

impl ChangeCx<'_> {
    pub(crate) fn change(&mut self, admitted: Admitted<'_>, op: &ChangeOp<'_>) -> Performing {
        let by = &self.author(admitted.incoming());
        let (cred, replay, time) = (by.cred, by.replay, by.time);
        let namespace = &mut *self.apply.namespace;
        match *op {
            ChangeOp::Create { parent, name, ref new } => {
                self.counters.creates += 1;
                self.create(by, EntryName::new(parent, name), new)
            }
            ChangeOp::Link { ino, parent, name } => {
                let planned =
                    namespace.plan().link(cred, ino, EntryName::new(parent, name), time)?;
                Ok(self.execute(by, parent, &planned))
            }
            ChangeOp::Unlink { parent, name } => {
                let planned = namespace.plan().unlink(cred, parent, name, time)?;
                Ok(self.execute(by, parent, &planned))
            }
            ChangeOp::Rmdir { parent, name } => {
                let planned = namespace.plan().rmdir(cred, parent, name, time)?;
                self.authority.check_mounts(namespace, &op.about())?;
                Ok(self.execute(by, parent, &planned))
            }
            ChangeOp::Rename { parent, name, new_parent, new_name, flags } => {
                let from = EntryName::new(parent, name);
                let to = EntryName::new(new_parent, new_name);
                // A rename that was executed before a crash was right then.
                if replay.is_none() {
                    let (rank, exchanges) = (self.rank, flags.exchange);
                    self.authority.check_rename(namespace, rank, from, to, exchanges)?;
                }
                let planned = namespace.plan().rename(cred, from, to, flags, time)?;
                let Some(planned) = planned else { return Ok(Performed::Answer(Answer::Done)) };
                self.authority.check_mounts(namespace, &op.about())?;
                Ok(self.execute_in_both(by, parent, new_parent, &planned))
            }
            ChangeOp::SetAttr { ino, ref change } => {
                let planned = namespace.plan().setattr(cred, ino, change, time)?;
                Ok(self.execute(by, ino, &planned))
            }
            ChangeOp::Accessed { ino, at } => {
                let Attr { atime, ctime, .. } = namespace.getattr(ino)?;
                if at <= atime {
                    return Ok(Performed::Answer(Answer::Done));
                }
                // Reading changes no content: the time of the last change stays.
                let change = AttrChange { atime: Some(at), ..AttrChange::default() };
                let planned = namespace.plan().setattr(cred, ino, &change, ctime)?;
                Ok(self.execute(by, ino, &planned))
            }
            ChangeOp::SetXattr { ino, name, value, flags } => {
                if acl::is_list(name) {
                    self.authority.check_whole(ino)?;
                }
                let change = XattrChange { name, value, flags };
                let planned = namespace.plan().setxattr(cred, ino, change, time)?;
                Ok(self.execute(by, ino, &planned))
            }
            ChangeOp::SetData { ino, data, size } => {
                let planned = namespace.plan().setdata(cred, ino, data, size, time)?;
                Ok(self.execute(by, ino, &planned))
            }
            ChangeOp::Grow { ino, size } => self.lengthen(by, ino, |old| Some(old.max(size))),
            ChangeOp::Append { ino, length } => {
                self.lengthen(by, ino, |old| old.checked_add(length))
            }
            // These are about whole trees; a policy also comes by a path.
            ChangeOp::SetPolicy { .. }
            | ChangeOp::Discard { .. }
            | ChangeOp::Restore { .. }
            | ChangeOp::EmptyTrash { .. } => Err(Errno::NotSupported.into()),
        }
    }

    /// The author of a request's change.
    fn author<'r>(&self, Incoming { client, request, .. }: Incoming<'r>) -> By<'r> {
        let Request { tid, ref cred, replay, .. } = *request;
        let time = replay.map_or(self.time, |replay| replay.time);
        By { client, cred, origin: Origin { client, tid }, time, replay }
    }

    fn create(&mut self, by: &By<'_>, at: EntryName<'_>, new: &NewInode<'_>) -> Performing {
        let NewInode { mode, umask, owner, rdev, size, mtime, atime, data, open } = *new;
        let time = by.time;
        let again = by.replay.filter(|replay| replay.ino.0 != 0);
        // A recreated file may have content by now, in objects of its former stripe.
        let stripe = match again {
            Some(Replay { stripe, .. }) => stripe,
            None => stripe_in(self.apply.namespace, at.dir),
        };
        let (inode, mut inherited) =
            (PlannedInode { mode, umask, owner, rdev, ..PlannedInode::default() }, Vec::new());
        let new = PlannedInode { stripe, size, time, mtime, atime, data, ..inode };
        // Planned with a number that is taken only if the plan succeeds.
        let plan = self.apply.namespace.plan();
        let planned = plan.create(by.cred, at, &new, Ino(u64::MAX), &mut inherited)?;
        let ino = match again {
            Some(Replay { ino, .. }) => {
                // A client must not get a number that is, or may become, another client's.
                let given = |session: &Session| session.async_ops.has(ino);
                // The cheap check first: asynchronous operations pass it.
                let may_have = self.sessions.get(by.client).is_some_and(given)
                    || self.tables.may_be_of(by.client, self.sessions.holder(by.client), ino);
                if !may_have || self.apply.namespace.knows(ino) {
                    return Err(Errno::Stale.into());
                }
                ino
            }
            None => {
                let ino = match self.sessions.holder(by.client) {
                    None => self.tables.take_ino(),
                    Some(holder) => self.tables.take_ino_of(holder),
                };
                ino.ok_or(Refusal::Cold(fetch::TABLE_PUT))?
            }
        };
        let event = Event::Create(Create { ino, ..planned });
        let (seq, ack_safe) = self.apply.journal_and_apply(by.origin, at.dir, at.dir, &event);
        let attr = self.apply.namespace.getattr(ino)?;
        if open {
            self.apply.opens.enter(by.client, ino, true);
            // The journal names the client until the table does.
            self.tables.expect_back(by.client);
        }
        Ok(Performed::Changed(Changed { answer: Answer::Attr(attr), seq, ino, time, ack_safe }))
    }

    /// Sets the length of a file that a client writes. A client that has it open for writing may do
    /// so, independent of its present mode.
    fn lengthen(
        &mut self,
        by: &By<'_>,
        ino: Ino,
        length: impl FnOnce(u64) -> Option<u64>,
    ) -> Performing {
        let namespace = &mut *self.apply.namespace;
        let (root, time) = (Cred::root(), by.time);
        let size = length(namespace.getattr(ino)?.size).ok_or(Errno::TooBig)?;
        let cred = if self.apply.opens.writes(by.client, ino) { &root } else { by.cred };
        let change = AttrChange { size: Some(size), mtime: Some(time), ..AttrChange::default() };
        let planned = namespace.plan().setattr(cred, ino, &change, time)?;
        let event = planned.event();
        let (seq, ack_safe) = self.apply.journal_and_apply(by.origin, ino, ino, &event);
        let answer = Answer::Attr(self.apply.namespace.getattr(ino)?);
        Ok(Performed::Changed(Changed { answer, seq, ino: Ino(size), time, ack_safe }))
    }

    fn execute(&mut self, by: &By<'_>, place: Ino, planned: &Planned<'_>) -> Performed {
        self.execute_in_both(by, place, place, planned)
    }

    fn execute_in_both(
        &mut self,
        by: &By<'_>,
        place: Ino,
        other: Ino,
        planned: &Planned<'_>,
    ) -> Performed {
        let event = planned.event();
        let (seq, ack_safe) = self.apply.journal_and_apply(by.origin, place, other, &event);
        Performed::Changed(Changed {
            answer: Answer::Done,
            seq,
            ino: Ino(0),
            time: by.time,
            ack_safe,
        })
    }

    /// Repeats the answer to a request that made a file longer.
    fn lengthened_again(
        &mut self,
        at: ReplyTo,
        ino: Ino,
        known: Option<Remembered>,
        effects: &mut MdsEffects,
    ) {
        let attr = self.apply.namespace.getattr(ino).ok();
        match (known, attr) {
            (Some(Remembered { seq, ino: size, time, .. }), Some(attr)) => {
                let answer = Answer::Attr(Attr { size: size.0, ..attr });
                self.apply.log.answer_when_safe(seq, time, at, answer, effects);
            }
            (Some(_), None) => effects.reply_error(at, Errno::Stale.into()),
            (None, _) => {
                let text = "it was carried out, but how is not known any more".into();
                let failure = wire::Failure { errno: Errno::Io, text };
                effects.reply_error(at, failure);
            }
        }
    }

    /// A request that was executed before and arrives again: the same answer.
    pub(crate) fn answer_again(
        &mut self,
        Incoming { conn, client, request }: Incoming<'_>,
        known: Option<Remembered>,
        is_active: bool,
        effects: &mut MdsEffects,
    ) -> Again {
        if let Op::Change(ChangeOp::Grow { ino, .. } | ChangeOp::Append { ino, .. }) = request.op {
            let at = ReplyTo { conn, tid: request.tid };
            self.lengthened_again(at, ino, known, effects);
            return Again::Answered;
        }
        // Its position in the journal is forgotten: not behind the newest event. A client that
        // resends it knows the first answer, and its time.
        let replay = request.replay;
        let (seq, time) = known.map_or_else(
            || (self.apply.log.last(), replay.map_or(Timestamp(0), |replay| replay.time)),
            |known| (known.seq, known.time),
        );
        let Op::Change(ChangeOp::Create { parent, name, ref new }) = request.op else {
            let at = ReplyTo { conn, tid: request.tid };
            self.apply.log.answer_when_safe(seq, time, at, Answer::Done, effects);
            return Again::Answered;
        };
        let ino = known
            .map(|known| known.ino)
            .or(replay.map(|replay| replay.ino))
            .filter(|ino| ino.0 != 0);
        let here = ino.map(|ino| self.apply.namespace.getattr(ino)).and_then(Result::ok);
        // It may have been split since; a fragment that is not here is not waited for.
        let leaf = self.authority.leaf_of(self.apply.namespace, parent, name);
        let named = || self.apply.namespace.lookup(&Cred::root(), leaf, name);
        let attr = here.map_or_else(named, Ok);
        let other = |attr: &Attr| ino.is_some_and(|ino| attr.ino != ino);
        let attr = attr.and_then(|attr| match other(&attr) {
            true => Err(Errno::NotFound.into()),
            false => Ok(attr),
        });
        match (attr, ino) {
            (Ok(attr), _) => {
                if new.open {
                    self.apply.opens.enter(client, attr.ino, true);
                }
                let at = ReplyTo { conn, tid: request.tid };
                self.apply.log.answer_when_safe(seq, time, at, Answer::Attr(attr), effects);
            }
            (Err(Refusal::Cold(dir)), _) => return Again::Park(dir),
            (Err(Refusal::Errno(_)), Some(ino)) => {
                // A later request removed the file, or moved it to a directory outside of memory:
                // these are its first attributes.
                let NewInode { mode, size, rdev, .. } = *new;
                let is_dir = types::FileType::from_mode(mode) == Some(types::FileType::Directory);
                let nlink = if is_dir { 2 } else { 1 };
                let (uid, gid) = new.owner.unwrap_or((request.cred.uid, request.cred.gid));
                let mtime = new.mtime.unwrap_or(time);
                let atime = new.atime.unwrap_or(mtime);
                let stripe = match replay {
                    Some(replay) => replay.stripe,
                    None => stripe_in(self.apply.namespace, parent),
                };
                let attr = Attr { ino, mode, uid, gid, nlink, rdev, size, ..Attr::default() };
                let attr = Attr { stripe, atime, mtime, ctime: time, btime: time, ..attr };
                let at = ReplyTo { conn, tid: request.tid };
                self.apply.log.answer_when_safe(seq, time, at, Answer::Attr(attr), effects);
            }
            (Err(Refusal::Errno(Errno::NotFound)), None) if is_active => {
                // An executed create leaves its number to the next server, unless no journal has
                // it: then a crash undid it, and its client got no answer.
                return Again::Execute;
            }
            (Err(Refusal::Errno(errno)), None) => {
                effects.reply_error(ReplyTo { conn, tid: request.tid }, errno.into());
            }
        }
        Again::Answered
    }
}

/// How files that are created in a directory are striped.
fn stripe_in(namespace: &mut Namespace, dir: Ino) -> Stripe {
    namespace.effective_policy(dir).1.policy.stripe
}

/// The directory at a path.
pub(crate) fn resolve_dir(namespace: &Namespace, cred: &Cred, path: &[u8]) -> Result<Ino, Refused> {
    let path = Path::parse(path)?;
    let walked = namespace.walk(cred, Ino::ROOT, &path)?;
    let attr = walked.attr.ok_or(Errno::NotFound)?;
    if !attr.is_dir() {
        return Err(Errno::NotDirectory.into());
    }
    Ok(attr.ino)
}
