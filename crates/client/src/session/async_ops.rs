//! A session's use of directories with an exclusive capability: see `exclusive`.

use types::{Cred, Ino, Moment, Seq, Tid, Timestamp};
use wire::{Answer, ChangeOp, Failure, JobOp, Op, ReadOp, Reply, SessionOp, WantsExclusive};

use super::{Session, SessionEffects};
use crate::exclusive::{ExclusiveDirs, Here, Next, Not};

/// The local knowledge about a request.
#[derive(Debug)]
pub enum LocalAnswer {
    /// The answer, from the cache.
    Remembered(Result<Answer, Failure>),
    /// The answer, from a directory that this client has alone. Nothing is changed.
    Local(Result<Answer, Failure>),
    /// The answer to a change in such a directory. The server receives it as the request of this
    /// number, with [`Session::send_async`], or before any other request.
    Async(Tid, Result<Answer, Failure>),
    /// Nothing: ask.
    Nothing,
    /// A local answer is possible soon: send a request (`AwaitAsync`), and ask again after its
    /// reply.
    Soon,
    /// A local answer needs inode numbers: request this many (`Extend` of subtree 0), and ask
    /// again.
    WantsNumbers(u64),
}

impl Session {
    /// From now on takes exclusive capabilities of directories, and answers changes in them. The
    /// caller must [remember](Session::remember), and soon sends the collected changes.
    pub fn take_exclusive(&mut self, wants: WantsExclusive) {
        if wants != WantsExclusive::Never {
            self.exclusive.get_or_insert_with(|| Box::new(ExclusiveDirs::new(wants)));
        }
    }

    /// The answer to a request, if it is known without asking. It may be used for [`crate::VALID`]
    /// after the newest request that was answered. `now` is the time of a change.
    pub fn known(
        &mut self,
        cred: &Cred,
        op: &Op<'_>,
        now: Timestamp,
        effects: &mut SessionEffects,
    ) -> LocalAnswer {
        if !self.connected {
            return LocalAnswer::Nothing;
        }
        let Some(exclusive) = self.exclusive.as_mut().filter(|exclusive| exclusive.is_any()) else {
            return self.remembered(cred, op);
        };
        if exclusive.is_loading() && op.is_mutation() {
            // It may be in a directory that is being read: the server would take that back for it.
            return LocalAnswer::Soon;
        }
        match exclusive.perform(cred, op, now) {
            Err(Not::Refused(errno)) => LocalAnswer::Local(Err(errno.into())),
            Err(Not::Numbered) => LocalAnswer::WantsNumbers(exclusive.numbers.next_count()),
            Err(Not::Known) => self.remembered(cred, op),
            Ok(Here::Said(answer)) => LocalAnswer::Local(Ok(answer)),
            Ok(Here::Done(answer, replay)) => {
                let tid = Tid(self.next_tid);
                self.next_tid += 1;
                if let Op::Change(ChangeOp::Create { ref new, .. }) = *op
                    && new.open
                {
                    self.held.created(replay.ino, tid);
                } else if let Op::Session(SessionOp::Open { ino, write }) = *op {
                    self.held.opened(ino, write, tid);
                    self.held.granted(ino, false);
                }
                let acked = self.acked(tid);
                debug_assert!(acked < tid, "the reply to {tid} has not arrived");
                let Some(exclusive) = &mut self.exclusive else { return LocalAnswer::Nothing };
                exclusive.tell(tid, acked, cred, replay, op);
                if let Some(count) = exclusive.wants_numbers() {
                    self.call(
                        &Cred::root(),
                        Op::Job(JobOp::Extend { subtree: Ino(0), count }),
                        effects,
                    );
                } else if exclusive.is_full() {
                    self.return_all(effects);
                }
                LocalAnswer::Async(tid, Ok(answer))
            }
        }
    }

    fn remembered(&self, cred: &Cred, op: &Op<'_>) -> LocalAnswer {
        let Some(cache) = &self.cache else { return LocalAnswer::Nothing };
        let answer = if let Op::Read(ReadOp::Walk { base, path }) = *op {
            let exclusive = self.exclusive.as_ref();
            let look = |dir, name: &[u8]| match exclusive.filter(|exclusive| exclusive.has(dir)) {
                Some(exclusive) => exclusive.look(cred, dir, name),
                None => cache.look(cred, dir, name),
            };
            let attr = |ino| exclusive.and_then(|it| it.attr(ino)).or_else(|| cache.attr(ino));
            crate::cache::walk(base, path, look, attr)
        } else {
            cache.answer(cred, op).or_else(|| self.leads_to_exclusive(cred, op))
        };
        answer.map_or(LocalAnswer::Nothing, LocalAnswer::Remembered)
    }

    /// The attributes of a directory with an exclusive capability, by its name in a cached
    /// directory: programs ask for them with every path.
    fn leads_to_exclusive(&self, cred: &Cred, op: &Op<'_>) -> Option<Result<Answer, Failure>> {
        let Op::Read(ReadOp::Lookup { parent, name }) = *op else { return None };
        let exclusive = self.exclusive.as_ref()?;
        let named = self.cache.as_ref()?.look(cred, parent, name)?.ok()?;
        exclusive.attr(named?).map(|attr| Ok(Answer::Attr(attr)))
    }

    /// Whether [`Session::leased`] could know anything.
    #[must_use]
    pub fn is_anything_leased(&self) -> bool {
        self.connected && !self.leases.is_empty()
    }

    /// The answer to a question from valid leases, by the clock of [`Session::at`], and with
    /// `fresh`, which means that [`Session::known`] could be asked, from all caches.
    #[allow(clippy::wildcard_enum_match_arm, reason = "nothing else is remembered")]
    #[must_use]
    pub fn leased(
        &self,
        cred: &Cred,
        op: &Op<'_>,
        now: Moment,
        fresh: bool,
    ) -> Option<Result<Answer, Failure>> {
        if !self.is_anything_leased() {
            return None;
        }
        let exclusive = self.exclusive.as_ref().filter(|_| fresh);
        let cache = self.cache.as_ref().filter(|_| fresh);
        let look = |dir, name: &[u8]| match exclusive.filter(|exclusive| exclusive.has(dir)) {
            Some(exclusive) => exclusive.look(cred, dir, name),
            None => {
                let leased = self.leases.look(now, cred, dir, name);
                leased.or_else(|| cache?.look(cred, dir, name))
            }
        };
        let attr = |ino| {
            let leased = || self.leases.attr(now, ino).or_else(|| cache?.attr(ino));
            exclusive.and_then(|exclusive| exclusive.attr(ino)).or_else(leased)
        };
        match *op {
            Op::Read(ReadOp::Lookup { parent, name }) => match look(parent, name)? {
                Ok(Some(ino)) => attr(ino).map(|attr| Ok(Answer::Attr(attr))),
                Ok(None) => Some(Err(types::Errno::NotFound.into())),
                Err(errno) => Some(Err(errno.into())),
            },
            Op::Read(ReadOp::GetAttr { ino }) => attr(ino).map(|attr| Ok(Answer::Attr(attr))),
            Op::Read(ReadOp::Walk { base, path }) => crate::cache::walk(base, path, look, attr),
            _ => None,
        }
    }

    /// Sends the changes that were answered locally since the last call. A later
    /// [`SessionEffects::async_acknowledged`] means that the server has processed them.
    pub fn send_async(&mut self, effects: &mut SessionEffects) {
        if !self.connected {
            return;
        }
        let group =
            self.exclusive.as_mut().and_then(|exclusive| exclusive.take_group(&mut effects.frames));
        let Some(group) = group else { return };
        let barrier = self.call_at_once(&Cred::root(), Op::Session(SessionOp::AwaitAsync), effects);
        if let Some(exclusive) = &mut self.exclusive {
            exclusive.groups.sent(barrier, group);
        }
    }

    /// Bytes that [`Session::send_async`] would send.
    #[must_use]
    pub fn async_bytes(&self) -> usize {
        self.exclusive.as_ref().map_or(0, |exclusive| exclusive.groups.bytes())
    }

    /// Whether the server may not have everything that was answered here.
    #[must_use]
    pub fn is_async(&self) -> bool {
        self.exclusive.as_ref().is_some_and(|exclusive| exclusive.groups.is_any_unacknowledged())
    }

    /// Directories that this client has alone.
    #[must_use]
    pub fn exclusive_count(&self) -> usize {
        self.exclusive.as_ref().map_or(0, |exclusive| exclusive.count())
    }

    /// The inodes in a directory that this client has alone, and whether they are directories.
    #[must_use]
    pub fn exclusive_entries(&self, dir: Ino) -> Option<Vec<(Ino, bool)>> {
        self.exclusive.as_ref().filter(|_| self.connected)?.entries(dir)
    }

    /// Queues a message behind the collected changes, if there are any. Returns whether it was
    /// queued.
    pub(super) fn queue_after_async(&mut self, op: Op<'_>) -> bool {
        let tid = Tid(self.next_tid);
        let acked = self.acked(tid);
        let Some(exclusive) =
            self.exclusive.as_mut().filter(|exclusive| self.connected && exclusive.is_any())
        else {
            return false;
        };
        self.next_tid += 1;
        exclusive.groups.add(tid, acked, &Cred::root(), wire::Replay::default(), &op);
        true
    }

    /// Whether a request asks for its directory.
    #[allow(clippy::wildcard_enum_match_arm, reason = "others are not about a directory to have")]
    pub(super) fn wants_exclusive(&self, op: &Op<'_>) -> WantsExclusive {
        let Some(exclusive) = &self.exclusive else { return WantsExclusive::Never };
        match *op {
            Op::Change(
                ChangeOp::Create { parent, .. }
                | ChangeOp::Unlink { parent, .. }
                | ChangeOp::Rmdir { parent, .. }
                | ChangeOp::Rename { new_parent: parent, .. },
            ) if exclusive.wants_dir(parent) => exclusive.wants,
            _ => WantsExclusive::Never,
        }
    }

    /// Processes the part of a reply about directories that this client has exclusively, or gets
    /// now. The general cache must not keep it.
    pub(super) fn reply_about_exclusive(
        &mut self,
        reply: &mut Reply,
        effects: &mut SessionEffects,
    ) {
        let Some(exclusive) = &mut self.exclusive else { return };
        let Reply { tid, seq, safe, ref result, .. } = *reply;
        if exclusive.groups.acknowledge(tid, result.is_ok(), seq, safe) {
            effects.async_acknowledged = true;
            self.heard = self.heard.max(self.async_sent.take());
        }
        exclusive.numbers.answered(tid, result);
        let whole = reply.grants.is_some_and(|grants| grants.inode);
        let next = exclusive.listed(tid, result, whole).unwrap_or(Next::Nothing);
        self.go_on_with(next, effects);
        let (Some(exclusive), Some(cache)) = (&mut self.exclusive, &mut self.cache) else { return };
        let Some(grants) = reply.grants.filter(|grants| !cache.is_returning(grants.dir.ino)) else {
            return;
        };
        let created = match &reply.result {
            Ok(Answer::Attr(attr)) if !cache.is_returning(attr.ino) => Some(*attr),
            Ok(_) | Err(_) => None,
        };
        let next = exclusive.given(&grants, created.as_ref());
        let inside = created.filter(|attr| exclusive.has(attr.ino));
        if exclusive.has(grants.dir.ino) {
            cache.forget(grants.dir.ino);
            reply.grants = None;
        }
        if let Some(attr) = inside {
            cache.forget(attr.ino);
            reply.grants = reply.grants.map(|grants| wire::Grants { inode: false, ..grants });
        }
        self.go_on_with(next, effects);
    }

    fn go_on_with(&mut self, next: Next, effects: &mut SessionEffects) {
        match next {
            Next::Nothing => {}
            Next::List(dir, after) => {
                let op = Next::page(dir, after.as_deref());
                let tid = self.call(&Cred::root(), op, effects);
                if let Some(exclusive) = &mut self.exclusive {
                    exclusive.lists(tid, dir);
                }
            }
            Next::Return(dir) => {
                self.cache.iter_mut().for_each(|cache| cache.forget(dir));
                self.give_back(dir, false, effects);
            }
        }
    }

    /// A reply to an asynchronous request: the server has not made the change that was answered
    /// locally.
    pub(super) fn reply_to_async(
        &mut self,
        tid: Tid,
        result: Result<Answer, Failure>,
        effects: &mut SessionEffects,
    ) {
        let Some(exclusive) =
            self.exclusive.as_mut().filter(|exclusive| exclusive.groups.contains(tid))
        else {
            return;
        };
        if let Err(failure) = result {
            let ino = exclusive.groups.refused(tid);
            self.lost.add(ino, failure);
            self.return_all(effects);
        }
    }

    /// Empties the caches and returns the capabilities: no other client must wait for a client that
    /// leaves. A client without a connection cannot report this; changes then wait until its cached
    /// entries have expired. Returns whether the server is to be told of any: before the connection
    /// ends, a request must be answered behind them.
    pub fn leave(&mut self, effects: &mut SessionEffects) -> bool {
        if !self.connected {
            return false;
        }
        let before = effects.frames.len();
        self.end_lending(effects);
        self.return_all(effects);
        let held = self.cache.as_mut().map(crate::cache::Cache::give_back);
        for dir in held.into_iter().flatten() {
            self.call(&Cred::root(), Op::Session(SessionOp::Return { dir }), effects);
        }
        effects.frames.len() > before
    }

    /// Gives all directories back.
    fn return_all(&mut self, effects: &mut SessionEffects) {
        let Some(exclusive) = &mut self.exclusive else { return };
        for dir in exclusive.forget_all() {
            self.cache.iter_mut().for_each(|cache| cache.forget(dir));
            self.give_back(dir, false, effects);
        }
    }

    /// The connection is gone: nothing is this client's alone as far as it knows.
    pub(super) fn lose_exclusive(&mut self) {
        if let Some(exclusive) = &mut self.exclusive {
            self.had_exclusive.append(&mut exclusive.forget_all());
        }
    }

    /// Sends again the changes that the server may not have, or may have lost. Returns whether
    /// there were any.
    pub(super) fn send_async_again(
        &mut self,
        restarted: bool,
        recovered: Option<(Seq, Tid)>,
        effects: &mut SessionEffects,
    ) -> bool {
        let Some(exclusive) = &mut self.exclusive else { return false };
        if restarted {
            exclusive.numbers.restarted();
        }
        exclusive.groups.again(restarted, recovered, &mut effects.frames)
    }

    /// The repetition is complete: asks for the server's position, and returns the client's
    /// capabilities.
    pub(super) fn end_of_async(
        &mut self,
        has_async: bool,
        restarted: bool,
        effects: &mut SessionEffects,
    ) {
        if has_async {
            let barrier =
                self.call_at_once(&Cred::root(), Op::Session(SessionOp::AwaitAsync), effects);
            if let Some(exclusive) = &mut self.exclusive {
                exclusive.groups.sent_again(barrier);
            }
        }
        let had = std::mem::take(&mut self.had_exclusive);
        if restarted {
            return;
        }
        for dir in had {
            self.call_at_once(&Cred::root(), Op::Session(SessionOp::Return { dir }), effects);
        }
    }
}
