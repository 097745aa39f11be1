//! Requests: from a message to a reply.

mod adopt;
mod change;
mod policy;
mod question;
mod store_first;
mod subtree;
mod touched;

pub(crate) use adopt::Adopting;
use namespace::Refusal;
pub(crate) use policy::next_policy_stores;
use store_first::take_stored;
pub(crate) use store_first::{Change, change_stored, drop_change, is_in_change};
use subtree::Begun;
pub(crate) use subtree::{Release, SubtreeCx, is_about_all};
pub(crate) use touched::{place_of, touched, way};
use types::quota;
use types::{ClientId, ConnId, EntryName, Errno, Ino, Seq, Timestamp};
use wire::{
    AdminOp, Answer, ChangeOp, Failure, Grants, JobOp, Op, RankOp, ReadOp, Request, SessionOp,
};

use crate::admission::{Admitted, Incoming};
use crate::authority::{ExportCx, PlaceCx, Placed, Places, ReshapeCx};
use crate::caps::CapsCx;
use crate::checkpoint::CheckpointCx;
use crate::fetch::FetchCx;
use crate::files::{FilesCx, LapseCx};
use crate::log::HeldReply;
use crate::merge::MergeCx;
use crate::merge_request::MergeRequestCx;
use crate::resend::ResendCx;
use crate::session::Remembered;
use crate::snapshot::SnapshotCx;
use crate::tables::Held;
use crate::trash::TrashCx;
use crate::watch::WatchCx;
use crate::{Mds, MdsEffects, MdsNotice};
pub(crate) use change::{Again, ChangeCx};
pub(crate) use question::AskCx;

/// The result of an executed request.
pub(crate) enum Performed {
    /// The answer is known.
    Answer(Answer),
    /// A change is applied.
    Changed(Changed),
    /// The answer will be sent later.
    Later,
}

/// A change that is applied.
pub(crate) struct Changed {
    pub(crate) answer: Answer,
    /// Its position in the journal, if it is journalled.
    pub(crate) seq: Option<Seq>,
    /// The later [`Remembered::ino`].
    pub(crate) ino: Ino,
    pub(crate) time: Timestamp,
    /// It is answered only when it is durable.
    pub(crate) ack_safe: bool,
}

pub(crate) type Performing = Result<Performed, Refused>;

/// Why a request was not executed.
pub(crate) enum Refused {
    Refusal(Refusal),
    Failure(Failure),
}

impl Refused {
    /// The error, unless the request waits for a directory.
    pub(crate) fn errno(&self) -> Option<Errno> {
        match self {
            Self::Refusal(Refusal::Errno(errno)) => Some(*errno),
            Self::Refusal(Refusal::Cold(_)) => None,
            Self::Failure(failure) => Some(failure.errno),
        }
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Self::Refusal(refusal)
    }
}

impl From<Errno> for Refused {
    fn from(errno: Errno) -> Self {
        Self::Failure(errno.into())
    }
}

impl Mds {
    /// Executes a request and answers it, unless a step of admission takes it.
    pub(crate) fn execute<const ENTRY: usize>(
        &mut self,
        from: Incoming<'_>,
        effects: &mut MdsEffects,
    ) {
        let performed = match self.admit::<ENTRY>(from, effects) {
            None => return,
            Some(Ok(admitted)) => self.perform(admitted, effects),
            Some(Err(refused)) => Err(refused),
        };
        match performed {
            Ok(Performed::Answer(answer)) => {
                let grants = self.grants(from, Ok(&answer));
                effects.reply_with_grants(from.at(), Seq(0), Timestamp(0), grants, Ok(answer));
            }
            Ok(Performed::Later) => {}
            Ok(Performed::Changed(changed)) => self.conclude(from, changed, effects),
            Err(refused) => self.conclude_refused(from, refused, effects),
        }
    }

    /// The part of an immediate answer that the client may cache.
    #[inline]
    fn grants(&mut self, from: Incoming<'_>, answer: Result<&Answer, &Failure>) -> Option<Grants> {
        // The context is made only for requests that may be granted something.
        if !from.request.remembers || from.client.0 == 0 {
            return None;
        }
        CapsCx::of(self).grants(from.client, from.request, answer)
    }

    /// Notes a change as done, and answers it as soon as its client may hear of it.
    fn conclude(&mut self, from: Incoming<'_>, changed: Changed, effects: &mut MdsEffects) {
        let Changed { answer, seq, ino, time, ack_safe } = changed;
        let mut until = if ack_safe { seq } else { None };
        if from.client.0 != 0 {
            let remembered =
                Remembered { tid: from.tid(), seq: seq.unwrap_or_default(), ino, time };
            let session = self.sessions.get_mut(from.client);
            session.finish(remembered);
            // Once the client is known all of these are answered, in the order in which they were
            // executed: a request that is resent after a crash depends only on answered ones.
            let known = seq.map(|seq| session.known_since(seq));
            until = until.max(known.filter(|known| *known > self.log.safe()));
            if self.settings.observe {
                effects.observe(from.client, remembered);
            }
        }
        match (seq, until) {
            (Some(seq), Some(until)) => {
                let reply = HeldReply { until, seq, time, at: from.at(), answer };
                self.log.answer_once_safe(reply, effects);
            }
            (seq, _) => {
                let grants = self.grants(from, Ok(&answer));
                let seq = seq.unwrap_or_default();
                effects.reply_with_grants(from.at(), seq, time, grants, Ok(answer));
            }
        }
    }

    /// Lets a request wait for the directory that it lacks, or refuses it.
    fn conclude_refused(&mut self, from: Incoming<'_>, refused: Refused, effects: &mut MdsEffects) {
        match refused {
            Refused::Refusal(Refusal::Cold(dir)) => {
                let plain = self.authority.is_plain();
                let placed = if plain {
                    Placed::Here
                } else {
                    PlaceCx::of(self).of_directory(from, dir, effects)
                };
                let failure = match placed {
                    Placed::Here => return FetchCx::of(self).park(from, dir, effects),
                    Placed::Taken => return,
                    Placed::Away { rank, failure }
                        if self.brings_home(from, (dir, rank), &failure, effects) =>
                    {
                        return;
                    }
                    Placed::Refused(failure) | Placed::Away { failure, .. } => failure,
                };
                self.refuse(from, failure, effects);
            }
            Refused::Refusal(Refusal::Errno(Errno::Stale))
                if PlaceCx::of(self).may_be_coming(from, effects) => {}
            Refused::Refusal(Refusal::Errno(errno)) => {
                let about = touched(from.op()).inode;
                let nameless = about.is_some_and(|ino| self.opens.is_nameless(ino));
                // Unlinked but still open: return ENOENT, so the holder keeps using its handle.
                let errno = if errno == Errno::Stale && nameless { Errno::NotFound } else { errno };
                self.refuse(from, errno.into(), effects);
            }
            Refused::Failure(failure) if self.tables.is_said_too_early(from.op(), &failure) => {
                // As a promise that the subtree was given back, for good.
                let (at, answer) = (from.at(), Err(failure));
                self.tables.hold(Held { at, answer, seq: Seq(0), begins: None });
            }
            Refused::Failure(failure) => self.refuse(from, failure, effects),
        }
    }

    pub(crate) fn refuse(
        &mut self,
        from: Incoming<'_>,
        failure: Failure,
        effects: &mut MdsEffects,
    ) {
        if ResendCx::of(self).comes_late(from.client, from.request, failure.errno) {
            return;
        }
        if from.op().is_mutation() && from.client.0 != 0 {
            self.sessions.get_mut(from.client).refuse(from.tid());
        }
        let grants = self.grants(from, Err(&failure));
        effects.reply_with_grants(from.at(), Seq(0), Timestamp(0), grants, Err(failure));
    }

    pub(crate) fn perform(
        &mut self,
        admitted: Admitted<'_>,
        effects: &mut MdsEffects,
    ) -> Performing {
        let from @ Incoming { conn, client, request } = admitted.incoming();
        self.counters.mutations += u64::from(request.op.is_change());
        match request.op {
            Op::Read(ReadOp::Watch { path, after, wait }) => {
                WatchCx::of(self).answer(from, path, after, wait)
            }
            Op::Read(ref op) => {
                AskCx::of(self).question(client, &request.cred, op).map(Performed::Answer)
            }
            Op::Change(ChangeOp::Link { .. } | ChangeOp::Rename { .. })
                if !self.authority.is_plain()
                    && let Some(second) = Places::of(self).second_rank(request) =>
            {
                self.between_ranks(from, second, effects)
            }
            Op::Change(ChangeOp::SetPolicy { client: owner, .. }) => {
                // Every connection except the monitor's acts for its own client only.
                let client = if conn == ConnId::MONITOR { owner } else { client };
                self.change_subtree(from, client, effects)
            }
            Op::Change(ChangeOp::Discard { parent, name }) => {
                self.discard(admitted, EntryName::new(parent, name), effects)
            }
            Op::Change(ChangeOp::Restore { ino, parent, name }) => {
                TrashCx::of(self).restore(admitted, ino, EntryName::new(parent, name))
            }
            Op::Change(ChangeOp::EmptyTrash { ino }) => TrashCx::of(self).empty(admitted, ino),
            Op::Change(ChangeOp::SetXattr { ino, name: quota::LIMITS, .. }) => {
                self.set_limits(admitted, ino, effects)
            }
            Op::Change(ref op) => {
                let performed = ChangeCx::of(self).change(admitted, op)?;
                // Directories that are split, or should be, follow.
                if let ChangeOp::Create { parent, .. } = *op {
                    self.note_size(parent);
                } else if let ChangeOp::SetAttr { ino, .. } = *op
                    && self.authority.is_fragmented(ino)
                {
                    ReshapeCx::of(self).spread_access(ino);
                }
                Ok(performed)
            }
            Op::Session(op) => self.perform_session(from, op, effects),
            Op::Job(op) => self.perform_job(from, op, effects),
            Op::Rank(op) => self.perform_rank(from, op, effects),
            Op::Admin(op) => self.perform_admin(from, op, effects),
        }
    }

    /// Decouples a subtree or sets its policy on behalf of a client: once no other client caches
    /// anything of it, and, if the policy in force from then on says so, once it is stored.
    fn change_subtree(
        &mut self,
        from: Incoming<'_>,
        client: ClientId,
        effects: &mut MdsEffects,
    ) -> Performing {
        let decouples = matches!(from.op(), Op::Job(JobOp::Decouple { .. }));
        let root = if decouples {
            SubtreeCx::of(self).root_to_decouple(from)?
        } else {
            SubtreeCx::of(self).root_of_policy(from, client)?
        };
        Places::of(self).check_all_here(root)?;
        let at = from.at();
        let again = || Request::new(at.tid, at.tid, from.request.cred.clone(), *from.op());
        // Other clients would keep answering from their caches of the subtree.
        let keeper = if decouples { client } else { ClientId(0) };
        if let Some(dir) = CapsCx::of(self).revoke_below(keeper, root, effects) {
            let from = Incoming { conn: at.conn, client, request: &again() };
            self.fetches.park_until_returned(&mut self.sessions, from, dir);
            return Ok(Performed::Later);
        }
        let is_stored = take_stored(&mut self.changes, at);
        let begun = if decouples {
            SubtreeCx::of(self).decouple(from, root, is_stored)?
        } else {
            SubtreeCx::of(self).set_policy(from, client, root, is_stored)?
        };
        match begun {
            Begun::Performed(performed) => Ok(performed),
            Begun::NeedsStore => {
                CheckpointCx::of(self).store_first(root, again(), at, effects);
                Ok(Performed::Later)
            }
        }
    }

    fn perform_session(
        &mut self,
        from: Incoming<'_>,
        op: SessionOp,
        effects: &mut MdsEffects,
    ) -> Performing {
        let (at, client) = (from.at(), from.client);
        match op {
            SessionOp::Open { ino, write } => FilesCx::of(self).open(from, ino, write, effects),
            SessionOp::Close { ino, write } => {
                FilesCx::of(self).close_file(client, ino, write, effects)
            }
            SessionOp::Reopen { ino, access } => {
                let performed = FilesCx::of(self).reopen(client, ino, access, effects);
                self.authority.note_reported(client, ino);
                performed
            }
            SessionOp::Yield { ino } if self.tables.is_root_of(client, ino) => {
                MergeRequestCx::of(self).end(ino);
                Ok(Performed::Answer(Answer::Done))
            }
            SessionOp::Yield { ino }
                if !self.opens.has(client, ino)
                    && Places::of(self).is_held_elsewhere(ino, from.request) =>
            {
                Err(Errno::Stale.into())
            }
            SessionOp::Yield { ino } => FilesCx::of(self).yield_file(at, client, ino, effects),
            SessionOp::Lock { ino, .. }
            | SessionOp::GetLock { ino, .. }
            | SessionOp::CancelLock { ino, .. }
                if Places::of(self).is_held_elsewhere(ino, from.request) =>
            {
                Err(Errno::Stale.into())
            }
            SessionOp::Lock { ino, lock, wait } => {
                let performed = FilesCx::of(self).lock(from, ino, lock, wait, effects);
                if performed.is_err() && from.request.replay.is_some() {
                    self.sessions.get_mut(client).reject_report();
                }
                performed
            }
            SessionOp::CancelLock { ino, ref lock } => {
                FilesCx::of(self).cancel_lock(ino, client, lock, effects)
            }
            SessionOp::GetLock { ino, ref lock } => {
                Ok(Performed::Answer(Answer::Locked(self.locks.test(ino, client, lock))))
            }
            SessionOp::Return { dir } => {
                CapsCx::of(self).returned(client, dir);
                Ok(Performed::Answer(Answer::Done))
            }
            SessionOp::AwaitAsync => {
                let seq = self.sessions.get_mut(client).async_ops.seq;
                effects.reply_with(at, seq, Answer::Done);
                Ok(Performed::Later)
            }
            SessionOp::Sync => {
                if from.request.replay.is_some() {
                    LapseCx::of(self).has_reported(client, effects);
                }
                let seq = self.log.last();
                self.log.answer_when_safe(seq, Timestamp(0), at, Answer::Safe(seq), effects);
                Ok(Performed::Later)
            }
            SessionOp::Held { ino } => {
                let client = self.tables.holder_of(ino).unwrap_or_default();
                Ok(Performed::Answer(Answer::Data(client.0.to_le_bytes().to_vec())))
            }
        }
    }

    fn perform_job(
        &mut self,
        from: Incoming<'_>,
        op: JobOp<'_>,
        effects: &mut MdsEffects,
    ) -> Performing {
        match op {
            JobOp::Decouple { client: owner, .. } => self.change_subtree(from, owner, effects),
            JobOp::Extend { subtree: Ino(0), count } => {
                SubtreeCx::of(self).grant_numbers(from, count)
            }
            JobOp::Extend { subtree, count } => SubtreeCx::of(self).extend(from, subtree, count),
            JobOp::Release { subtree, unused } => {
                SubtreeCx::of(self).release(from, subtree, unused)
            }
            JobOp::TakeOver { subtree } => {
                if let Some(before) = SubtreeCx::of(self).take_over(from, subtree)? {
                    effects.notices.push(MdsNotice::Fenced { client: before, subtree });
                    self.tables.fenced.insert(before);
                    self.close(before, effects);
                }
                Ok(Performed::Later)
            }
            JobOp::Merge { .. } => MergeCx::of(self).begin(from, effects),
            JobOp::Adopt { subtree, .. } => {
                Places::of(self).check_all_here(subtree)?;
                SubtreeCx::of(self).adopt(from, effects)
            }
        }
    }

    fn perform_rank(
        &mut self,
        from: Incoming<'_>,
        op: RankOp<'_>,
        effects: &mut MdsEffects,
    ) -> Performing {
        let (at, cred) = (from.at(), &from.request.cred);
        match op {
            RankOp::Export { dir, rank } => ExportCx::of(self).ask(at, cred, dir, rank),
            RankOp::Split { dir } => ReshapeCx::of(self).split(at, cred, dir),
            RankOp::Join { dir } => ReshapeCx::of(self).join(at, cred, dir, effects),
            RankOp::Colocate { .. } | RankOp::Arrive { .. } if from.conn != ConnId::PEER => {
                Err(Errno::NotSupported.into())
            }
            RankOp::Colocate { ino, rank } => ExportCx::of(self).colocate(at, cred, ino, rank),
            RankOp::Arrive { dir, moved } => self.arrive(at, cred, (dir, moved), effects),
        }
    }

    fn perform_admin(
        &mut self,
        from: Incoming<'_>,
        op: AdminOp<'_>,
        effects: &mut MdsEffects,
    ) -> Performing {
        let at = from.at();
        match op {
            AdminOp::Snapshot { dir, id } => {
                Places::of(self).check_all_here(dir)?;
                SnapshotCx::of(self).begin(at, &from.request.cred, dir, id)
            }
            AdminOp::WriteDown { .. } => {
                let attr = SubtreeCx::of(self).directory_to_write(from)?;
                CheckpointCx::of(self).flush_directory(at, attr.ino, Answer::Attr(attr), effects);
                Ok(Performed::Later)
            }
            AdminOp::Checkpoint => {
                CheckpointCx::of(self).answer_when_written(at);
                Ok(Performed::Later)
            }
        }
    }
}
