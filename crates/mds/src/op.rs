//! Requests: from a message to a reply.

mod admin;
mod adopt;
mod async_ops;
mod caps;
mod change;
mod leases;
mod lock;
mod merge_request;
mod open;
mod policy;
mod question;
mod read_only;
mod store_first;
mod touched;

pub(crate) use admin::Release;
pub(crate) use adopt::Adopting;
pub(crate) use merge_request::MergeRequests;
use namespace::Refusal;
pub(crate) use store_first::Change;
pub(crate) use touched::touched;
use types::{ClientId, ConnId, Errno, Ino, Seq, Timestamp};
use wire::{Answer, Batch, Failure, Message, Op, Request};

use crate::session::{Fate, Remembered};
use crate::tables::Held;
use crate::{Mds, MdsEffects, Observed, Phase, ReplyTo, snapshot};

/// The result of an executed request.
pub(crate) enum Performed {
    /// The answer is known.
    Answer(Answer),
    /// A change is applied; it has this position in the journal, or none. `ino` is what
    /// [`Remembered::ino`] will be.
    Changed { answer: Answer, seq: Option<Seq>, ino: Ino, time: Timestamp, ack_safe: bool },
    /// The answer will be sent later.
    Later,
}

pub(crate) type Performing = Result<Performed, Refused>;

/// Why a request was not executed.
pub(crate) enum Refused {
    Refusal(Refusal),
    Failure(Failure),
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
        match self.phase {
            Phase::Active if self.is_resending(conn, request) => {
                let frame = Message::Request(request.clone()).to_frame();
                return self.keep_early(conn, frame, effects);
            }
            Phase::Active => {}
            Phase::Recovering | Phase::Reconnecting { .. } => {
                return self.request_early(conn, request, effects);
            }
            Phase::Stopping | Phase::Stopped => return self.request_late(conn, request, effects),
        }
        let Some(client) = self.sessions.client(conn) else {
            if conn != ConnId::NOBODY {
                effects.close.push(conn);
            }
            return;
        };
        if client.0 != 0 {
            let now = self.clock.now;
            self.sessions.get_mut(client).note_acknowledged(request.heard, now);
        }
        if self.waits_for_async(conn, client, request) {
            return;
        }
        if request.ahead {
            return self.execute_async(conn, client, request, effects);
        }
        // A sync is about the changes before it, those that wait among them.
        if (request.op.is_mutation() || request.op == Op::Sync) && client.0 != 0 {
            let session = self.sessions.get_mut(client);
            if !session.blocked.is_empty() {
                session.blocked.push_back(Message::Request(request.clone()).to_frame());
                return;
            }
        }
        self.execute_once(conn, client, request, effects);
    }

    /// A request that came while the server is stopping: only executed ones are answered.
    fn request_late(&mut self, conn: ConnId, request: &Request<'_>, effects: &mut MdsEffects) {
        if request.op.is_mutation()
            && let Some(client) = self.sessions.client(conn)
            && let Fate::Done(known) = self.sessions.get_mut(client).fate(request.tid)
        {
            return self.answer_again((conn, client), request, known, effects);
        }
        if request.replay.is_some() {
            // Its client knows that it is applied, and resends it to the next server.
            return;
        }
        let text = "the metadata server is stopping".into();
        effects
            .reply_error(ReplyTo { conn, tid: request.tid }, Failure { errno: Errno::Again, text });
    }

    /// Carries a request out unless that was done before: then it is answered as it was.
    pub(crate) fn execute_once(
        &mut self,
        conn: ConnId,
        client: ClientId,
        request: &Request<'_>,
        effects: &mut MdsEffects,
    ) {
        if request.op.is_mutation()
            && client.0 != 0
            && let Fate::Done(known) = self.sessions.get_mut(client).fate(request.tid)
        {
            return self.answer_again((conn, client), request, known, effects);
        }
        self.execute(conn, request, effects);
    }

    /// Carries a request out, or lets it wait for a directory.
    pub(crate) fn execute(
        &mut self,
        conn: ConnId,
        request: &Request<'_>,
        effects: &mut MdsEffects,
    ) {
        let Some(client) = self.sessions.client(conn) else { return };
        if !self.authority.is_plain() && self.is_misplaced((conn, client), request, effects) {
            return;
        }
        if self.snapshots.is_frozen() && snapshot::must_wait(&request.op) {
            return self.park_until_returned(conn, client, request, snapshot::FROZEN);
        }
        let revoked = self.must_revoke(client, &request.op, effects);
        if let Some(dir) = revoked.or_else(|| self.must_merge(client, &request.op, effects)) {
            return self.park_until_returned(conn, client, request, dir);
        }
        if let Some(subtree) = self.must_store(&request.op) {
            self.park_until_returned(conn, client, request, subtree);
            return self.store_merged(subtree, effects);
        }
        let at = ReplyTo { conn, tid: request.tid };
        match self.perform(conn, client, request, effects) {
            Ok(Performed::Answer(answer)) => {
                let told = self.tell(client, request, Ok(&answer));
                effects.reply_with_grants(at, (Seq(0), Timestamp(0)), told, Ok(answer));
            }
            Ok(Performed::Later) => {}
            Ok(Performed::Changed { answer, seq, ino, time, ack_safe }) => {
                let mut until = if ack_safe { seq } else { None };
                if client.0 != 0 {
                    let session = self.sessions.get_mut(client);
                    let remembered =
                        Remembered { tid: request.tid, seq: seq.unwrap_or_default(), ino, time };
                    session.finish(remembered);
                    // Once the client is known all of these are answered, in the order in which
                    // they were executed: a request that is resent after a crash depends only on
                    // answered ones.
                    let known = seq.map(|seq| session.known_since(seq));
                    until = until.max(known.filter(|known| *known > self.log.safe()));
                    if self.settings.observe {
                        let Remembered { tid, seq, ino, time } = remembered;
                        let messages = effects.outbox.sends.len();
                        effects.observed.push(Observed { client, tid, seq, ino, time, messages });
                    }
                }
                match (seq, until) {
                    (Some(seq), Some(until)) => {
                        self.answer_once_safe(until, (seq, time), at, answer, effects);
                    }
                    (seq, _) => {
                        let told = self.tell(client, request, Ok(&answer));
                        let when = (seq.unwrap_or_default(), time);
                        effects.reply_with_grants(at, when, told, Ok(answer));
                    }
                }
            }
            Err(Refused::Refusal(Refusal::Cold(dir))) => {
                let plain = self.authority.is_plain();
                if plain || !self.leads_elsewhere((conn, client), request, dir, effects) {
                    self.park(conn, client, request, dir, effects);
                }
            }
            Err(Refused::Refusal(Refusal::Errno(Errno::Stale)))
                if self.may_be_coming((conn, client), request, effects) => {}
            Err(Refused::Refusal(Refusal::Errno(errno))) => {
                let [about, _] = touched(&request.op).0;
                let nameless = about.is_some_and(|ino| self.opens.is_nameless(ino));
                // Unlinked but still open: return ENOENT, so the holder keeps using its handle.
                let errno = if errno == Errno::Stale && nameless { Errno::NotFound } else { errno };
                self.refuse(conn, client, request, errno.into(), effects);
            }
            Err(Refused::Failure(failure)) if self.is_said_too_early(&request.op, &failure) => {
                // As a promise that the subtree was given back, for good.
                self.tables.hold(Held { at, answer: Err(failure), seq: Seq(0), begins: None });
            }
            Err(Refused::Failure(failure)) => {
                self.refuse(conn, client, request, failure, effects);
            }
        }
    }

    pub(crate) fn refuse(
        &mut self,
        conn: ConnId,
        client: ClientId,
        request: &Request<'_>,
        failure: Failure,
        effects: &mut MdsEffects,
    ) {
        if self.comes_late(client, request) {
            return;
        }
        if request.op.is_mutation() && client.0 != 0 {
            self.sessions.get_mut(client).refuse(request.tid);
        }
        let told = self.tell(client, request, Err(&failure));
        let at = ReplyTo { conn, tid: request.tid };
        effects.reply_with_grants(at, (Seq(0), Timestamp(0)), told, Err(failure));
    }

    #[allow(clippy::too_many_lines, reason = "an arm for each operation")]
    fn perform(
        &mut self,
        conn: ConnId,
        client: ClientId,
        request: &Request<'_>,
        effects: &mut MdsEffects,
    ) -> Performing {
        if self.is_astray(&request.op) {
            return Err(Errno::Stale.into());
        }
        self.check_private(&request.op)?;
        self.check_read_only(&request.op)?;
        // Requests about a whole subtree check for themselves, to return an error that explains.
        let whole = admin::is_about_all(&request.op);
        if !self.tables.decoupled.is_empty() && !whole {
            self.check_blocked(client, &request.op)?;
        }
        self.check_store(&request.op)?;
        self.counters.mutations += u64::from(request.op.is_change());
        match request.op {
            Op::Open { ino, write } => self.open(conn, client, request, (ino, write), effects),
            Op::Close { ino, write } => self.close_file(client, (ino, write), effects),
            Op::Reopen { ino, access } => self.reopen(client, (ino, access), effects),
            Op::Yield { ino } if self.is_root_of(client, ino) => {
                self.end_merge_request(ino, effects);
                Ok(Performed::Answer(Answer::Done))
            }
            Op::Yield { ino } => {
                self.yield_file(ReplyTo { conn, tid: request.tid }, client, ino, effects)
            }
            Op::Lock { ino, .. } | Op::GetLock { ino, .. } | Op::CancelLock { ino, .. }
                if self.is_locked_elsewhere(ino, request) =>
            {
                Err(Errno::Stale.into())
            }
            Op::Lock { ino, lock, wait } => {
                self.lock(ReplyTo { conn, tid: request.tid }, (ino, client), (lock, wait), effects)
            }
            Op::CancelLock { ino, ref lock } => self.cancel_lock((ino, client), lock, effects),
            Op::GetLock { ino, ref lock } => {
                Ok(Performed::Answer(Answer::Locked(self.locks.test(ino, client, lock))))
            }
            Op::Return { dir } => {
                self.returned(client, dir, effects);
                Ok(Performed::Answer(Answer::Done))
            }
            Op::Settle => {
                self.acknowledge_async(ReplyTo { conn, tid: request.tid }, client, effects);
                Ok(Performed::Later)
            }
            Op::Sync => {
                let seq = self.log.last();
                let at = ReplyTo { conn, tid: request.tid };
                self.answer_when_safe((seq, Timestamp(0)), at, Answer::Safe(seq), effects);
                Ok(Performed::Later)
            }
            Op::Decouple { path, client, policy } => self.decouple(
                ReplyTo { conn, tid: request.tid },
                &request.cred,
                (path, policy),
                client,
                effects,
            ),
            Op::Extend { subtree: Ino(0), count } => {
                self.grant_numbers(ReplyTo { conn, tid: request.tid }, client, count)
            }
            Op::Extend { subtree, count } => {
                self.extend(ReplyTo { conn, tid: request.tid }, client, subtree, count)
            }
            Op::Release { subtree, unused } => {
                let at = ReplyTo { conn, tid: request.tid };
                self.release(at, client, &request.cred, (subtree, unused))
            }
            Op::TakeOver { subtree } => self.take_over_subtree(
                ReplyTo { conn, tid: request.tid },
                client,
                &request.cred,
                subtree,
                effects,
            ),
            Op::Merge { .. } => {
                let by = (client, &request.cred);
                self.begin_merge(ReplyTo { conn, tid: request.tid }, by, &request.op, effects)
            }
            Op::Export { dir, rank } => {
                self.export(ReplyTo { conn, tid: request.tid }, &request.cred, (dir, rank))
            }
            Op::Gather { ino, rank } => {
                self.colocate(ReplyTo { conn, tid: request.tid }, &request.cred, (ino, rank))
            }
            Op::Split { dir } => self.split(ReplyTo { conn, tid: request.tid }, &request.cred, dir),
            Op::Join { dir } => {
                self.join(ReplyTo { conn, tid: request.tid }, &request.cred, dir, effects)
            }
            Op::Depart { .. } => self.depart(ReplyTo { conn, tid: request.tid }, request, effects),
            Op::Arrive { dir, from, cross_rename } => {
                self.arrive(ReplyTo { conn, tid: request.tid }, dir, (from, cross_rename), effects)
            }
            Op::Passed { cross_rename, .. } => {
                self.passed(ReplyTo { conn, tid: request.tid }, cross_rename, effects)
            }
            Op::Snapshot { dir, id } => {
                self.snapshot(ReplyTo { conn, tid: request.tid }, &request.cred, (dir, id))
            }
            Op::Adopt { .. } => {
                let by = (client, &request.cred);
                self.adopt(ReplyTo { conn, tid: request.tid }, by, &request.op, effects)
            }
            Op::WriteDown { parent, name } => {
                let at = ReplyTo { conn, tid: request.tid };
                self.write_down(at, (client, &request.cred), (parent, name), effects)
            }
            Op::Held { ino } => {
                let client = self.tables.holder_of(ino).unwrap_or_default();
                Ok(Performed::Answer(Answer::Data(client.0.to_le_bytes().to_vec())))
            }
            Op::Checkpoint => {
                self.checkpoint_for(ReplyTo { conn, tid: request.tid });
                Ok(Performed::Later)
            }
            Op::Lookup { .. }
            | Op::Walk { .. }
            | Op::GetAttr { .. }
            | Op::GetXattr { .. }
            | Op::ListXattr { .. }
            | Op::GetData { .. }
            | Op::List { .. }
            | Op::GetPolicy { .. } => self.question(client, request).map(Performed::Answer),
            Op::Create { .. }
            | Op::Link { .. }
            | Op::Unlink { .. }
            | Op::Rmdir { .. }
            | Op::Rename { .. }
            | Op::SetAttr { .. }
            | Op::Accessed { .. }
            | Op::SetXattr { .. }
            | Op::SetData { .. }
            | Op::Grow { .. }
            | Op::Append { .. } => self.change(client, request),
            Op::SetPolicy { path, policy, client: owner } => {
                // Every connection except the monitor's acts for its own client only.
                let client = if conn == ConnId::MONITOR { owner } else { client };
                self.set_policy(
                    ReplyTo { conn, tid: request.tid },
                    &request.cred,
                    (path, policy),
                    client,
                    effects,
                )
            }
        }
    }

    /// `EBUSY` for anything that touches a subtree that belongs to another client and blocks
    /// at any depth, by path or by inode.
    fn check_blocked(&mut self, client: ClientId, op: &Op<'_>) -> Result<(), Refused> {
        let (inos, names) = touched(op);
        let mut blocked = inos.into_iter().flatten().any(|ino| self.is_blocked(client, ino));
        for (parent, name) in names.into_iter().flatten() {
            // The name may be that of the subtree's root, seen from outside. A name that is not
            // in memory is no such root: the roots of decoupled subtrees are.
            if let Ok(Some(ino)) = self.namespace.peek(parent, name) {
                blocked = blocked || self.is_blocked(client, ino);
            }
        }
        if !blocked {
            return Ok(());
        }
        self.counters.busy += 1;
        Err(Errno::Busy.into())
    }

    pub(crate) fn is_blocked(&self, client: ClientId, ino: Ino) -> bool {
        self.namespace.ancestors(ino).any(|ancestor| {
            let owner = self.tables.decoupled.get(&ancestor);
            owner.is_some_and(|owner| owner.block && !owner.released && owner.client != client)
        })
    }
}
