//! Requests: from a message to a reply.

mod adopt;
mod async_ops;
mod change;
mod policy;
mod question;
mod store_first;
mod subtree;
mod subtree_route;
mod touched;

pub(crate) use adopt::Adopting;
use namespace::Refusal;
pub(crate) use policy::next_policy_stores;
pub(crate) use store_first::{Change, drop_change, is_in_change};
pub(crate) use subtree::{Release, SubtreeCx, is_about_all};
pub(crate) use touched::{place_of, touched, way};
use types::{ConnId, Errno, Ino, Seq, Timestamp};
use wire::{
    AdminOp, Answer, Batch, ChangeOp, Failure, Grants, JobOp, Op, RankOp, Request, SessionOp,
};

use crate::admission::{Admitted, Entry, Incoming};
use crate::authority::Placed;
use crate::log::HeldReply;
use crate::session::Remembered;
use crate::tables::Held;
use crate::{Mds, MdsEffects};
use change::Again;
pub(crate) use change::ChangeCx;
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
    /// Executes the operations that a client has answered itself.
    pub(crate) fn batch(&mut self, conn: ConnId, batch: Batch<'_>, effects: &mut MdsEffects) {
        let mut requests = batch.requests();
        loop {
            match requests.read() {
                Ok(Some(request)) => self.request(conn, request, effects),
                Ok(None) => return,
                Err(_) => return effects.close.push(conn),
            }
        }
    }

    pub(crate) fn request(
        &mut self,
        conn: ConnId,
        request: &Request<'_>,
        effects: &mut MdsEffects,
    ) {
        self.counters.requests += 1;
        if let Some(from) = self.identify(conn, request, effects) {
            self.execute_from::<{ Entry::ARRIVED }>(from, effects);
        }
    }

    /// Executes a request that is known not to be a duplicate, if it is admitted.
    pub(crate) fn execute(
        &mut self,
        conn: ConnId,
        request: &Request<'_>,
        effects: &mut MdsEffects,
    ) {
        let Some(client) = self.sessions.client(conn) else { return };
        self.execute_from::<{ Entry::NEW }>(Incoming { conn, client, request }, effects);
    }

    /// Executes a request and answers it, unless a step of admission takes it.
    pub(crate) fn execute_from<const ENTRY: usize>(
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
        self.capabilities().grants(from.client, from.request, answer)
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
                    self.placing().of_directory(from, dir, effects)
                };
                if !self.answer_placed(from, dir, placed, effects) {
                    self.fetching().park(from, dir, effects);
                }
            }
            Refused::Refusal(Refusal::Errno(Errno::Stale))
                if self.placing().may_be_coming(from, effects) => {}
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

    /// Notes a change for directories that are split, or should be.
    #[inline]
    fn note_change(&mut self, op: &ChangeOp<'_>) {
        if let ChangeOp::Create { parent, .. } = *op {
            self.note_size(parent);
        } else if let ChangeOp::SetAttr { ino, .. } = *op
            && self.authority.is_fragmented(ino)
        {
            self.reshaping().spread_access(ino);
        }
    }

    /// A request that was executed before and arrives again gets the same answer.
    pub(crate) fn answer_again(
        &mut self,
        from: Incoming<'_>,
        known: Option<Remembered>,
        effects: &mut MdsEffects,
    ) {
        let is_active = self.is_active();
        match self.changing().answer_again(from, known, is_active, effects) {
            Again::Answered => {}
            Again::Park(dir) => self.fetching().park(from, dir, effects),
            Again::Execute => self.execute(from.conn, from.request, effects),
        }
    }

    pub(crate) fn refuse(
        &mut self,
        from: Incoming<'_>,
        failure: Failure,
        effects: &mut MdsEffects,
    ) {
        if self.resending().comes_late(from.client, from.request) {
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
            Op::Read(ref op) => {
                self.asking().question(client, &request.cred, op).map(Performed::Answer)
            }
            Op::Change(ChangeOp::Link { .. } | ChangeOp::Rename { .. })
                if !self.authority.is_plain()
                    && let Some(second) = self.places().second_rank(request) =>
            {
                self.between_ranks(from, second, effects)
            }
            Op::Change(ChangeOp::SetPolicy { client: owner, .. }) => {
                // Every connection except the monitor's acts for its own client only.
                let client = if conn == ConnId::MONITOR { owner } else { client };
                self.change_subtree(from, client, effects)
            }
            Op::Change(ref op) => {
                let performed = self.changing().change(admitted, op)?;
                self.note_change(op);
                Ok(performed)
            }
            Op::Session(op) => self.perform_session(from, op, effects),
            Op::Job(op) => self.perform_job(from, op, effects),
            Op::Rank(op) => self.perform_rank(from, op, effects),
            Op::Admin(op) => self.perform_admin(from, op, effects),
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
            SessionOp::Open { ino, write } => self.files().open(from, ino, write, effects),
            SessionOp::Close { ino, write } => self.files().close_file(client, ino, write, effects),
            SessionOp::Reopen { ino, access } => {
                let performed = self.files().reopen(client, ino, access, effects);
                let is_closed = !access.read && !access.write;
                self.importing().note_reclaimed(client, ino, is_closed, effects);
                performed
            }
            SessionOp::Yield { ino } if self.tables.is_root_of(client, ino) => {
                self.merge_requests().end(ino);
                Ok(Performed::Answer(Answer::Done))
            }
            SessionOp::Yield { ino } => self.files().yield_file(at, client, ino, effects),
            SessionOp::Lock { ino, .. }
            | SessionOp::GetLock { ino, .. }
            | SessionOp::CancelLock { ino, .. }
                if self.places().is_locked_elsewhere(ino, from.request) =>
            {
                Err(Errno::Stale.into())
            }
            SessionOp::Lock { ino, lock, wait } => {
                self.files().lock(from, ino, lock, wait, effects)
            }
            SessionOp::CancelLock { ino, ref lock } => {
                self.files().cancel_lock(ino, client, lock, effects)
            }
            SessionOp::GetLock { ino, ref lock } => {
                Ok(Performed::Answer(Answer::Locked(self.locks.test(ino, client, lock))))
            }
            SessionOp::Return { dir } => {
                self.capabilities().returned(client, dir);
                Ok(Performed::Answer(Answer::Done))
            }
            SessionOp::AwaitAsync => {
                self.acknowledge_async(at, client, effects);
                Ok(Performed::Later)
            }
            SessionOp::Sync => {
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
            JobOp::Extend { subtree: Ino(0), count } => self.subtrees().grant_numbers(from, count),
            JobOp::Extend { subtree, count } => self.subtrees().extend(from, subtree, count),
            JobOp::Release { subtree, unused } => self.subtrees().release(from, subtree, unused),
            JobOp::TakeOver { subtree } => {
                if let Some(before) = self.subtrees().take_over(from, subtree)? {
                    self.fence(before, effects);
                }
                Ok(Performed::Later)
            }
            JobOp::Merge { .. } => self.merging().begin(from, effects),
            JobOp::Adopt { subtree, .. } => {
                self.places().check_all_here(subtree)?;
                self.subtrees().adopt(from, effects)
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
            RankOp::Export { dir, rank } => self.exporting().ask(at, cred, dir, rank),
            RankOp::Split { dir } => self.reshaping().split(at, cred, dir),
            RankOp::Join { dir } => self.reshaping().join(at, cred, dir, effects),
            RankOp::Colocate { .. } | RankOp::Arrive { .. } if from.conn != ConnId::PEER => {
                Err(Errno::NotSupported.into())
            }
            RankOp::Colocate { ino, rank } => self.exporting().colocate(at, cred, ino, rank),
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
                self.places().check_all_here(dir)?;
                self.snapshotting().begin(at, &from.request.cred, dir, id)
            }
            AdminOp::WriteDown { .. } => {
                let attr = self.subtrees().directory_to_write(from)?;
                self.checkpointing().flush_directory(at, attr.ino, Answer::Attr(attr), effects);
                Ok(Performed::Later)
            }
            AdminOp::Checkpoint => {
                self.checkpointing().answer_when_written(at);
                Ok(Performed::Later)
            }
        }
    }
}
