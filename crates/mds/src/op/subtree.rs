//! Decoupling: giving a subtree and a range of inode numbers to one client, and taking them back.

use namespace::{Mode, Namespace, Refusal};
use policy::Transition;
use types::{Attr, ClientId, Clock, Errno, Ino, Origin, Seq};
use wire::{AdminOp, Answer, ChangeKind, Decoupled, Failure, JobOp, Op, RankOp, UnusedNumbers};

use super::change::resolve_dir;
use super::policy::in_force;
use super::{Performed, Performing, Refused};
use crate::admission::{Incoming, is_blocked};
use crate::authority::Authority;
use crate::log::Log;
use crate::merge::Merges;
use crate::quotas::{check_numbers, reserve};
use crate::session::Sessions;
use crate::store::StoreOps;
use crate::tables::{GivenBack, Held, ReleasedBy, Tables};
use crate::watch::Watches;
use crate::{Counters, ReplyTo};

/// Most inode numbers a client gets at once.
const EXTEND_MAX: u64 = 1 << 32;

/// A subtree whose merge is done, and that is given back.
#[derive(Debug)]
pub(crate) struct Release {
    pub(crate) subtree: Ino,
    pub(crate) client: ClientId,
    pub(crate) unused: Vec<GivenBack>,
    pub(crate) at: ReplyTo,
    pub(crate) answer: Answer,
    /// The metadata store has the merged events.
    pub(crate) is_stored: bool,
}

/// Decoupled subtrees and policies, with all that changing them may touch.
pub(crate) struct SubtreeCx<'a> {
    pub(crate) namespace: &'a mut Namespace,
    pub(crate) log: &'a mut Log,
    pub(crate) tables: &'a mut Tables,
    pub(crate) merges: &'a mut Merges,
    pub(crate) watches: &'a mut Watches,
    pub(crate) sessions: &'a mut Sessions,
    pub(crate) store: &'a mut StoreOps,
    pub(crate) counters: &'a mut Counters,
    /// Subtrees whose policies a crash may have replaced too early.
    pub(crate) unrestored: &'a mut Vec<Ino>,
    pub(crate) authority: &'a Authority,
    pub(crate) clock: Clock,
    /// The reason for rejecting all changes, if there is one.
    pub(crate) refusing: Option<Errno>,
}

/// The outcome of a request that changes what holds in a subtree.
pub(crate) enum Begun {
    Performed(Performed),
    /// The metadata store must have the subtree first: then the request comes again.
    NeedsStore,
}

impl SubtreeCx<'_> {
    /// The directory that a client may list in the metadata store once the server has written it.
    pub(crate) fn directory_to_write(&mut self, from: Incoming<'_>) -> Result<Attr, Refused> {
        let Op::Admin(AdminOp::WriteDown { parent, name }) = *from.op() else {
            return Err(Errno::Invalid.into());
        };
        let attr = self.namespace.directory_to_read(&from.request.cred, parent, name)?;
        if is_blocked(self.tables, self.namespace, from.client, attr.ino) {
            self.counters.busy += 1;
            return Err(Errno::Busy.into());
        }
        let here = self.authority.is_served_here(self.namespace, attr.ino)
            && !self.namespace.is_split(attr.ino);
        if !self.authority.is_plain() && !here {
            let text = "other metadata servers have this directory: list it there".into();
            let errno = Errno::NotSupported;
            return Err(Refused::Failure(Failure { errno, text }));
        }
        Ok(attr)
    }

    /// The directory that a client wants to decouple.
    pub(crate) fn root_to_decouple(&self, from: Incoming<'_>) -> Result<Ino, Refused> {
        let Op::Job(JobOp::Decouple { path, client, policy }) = *from.op() else {
            return Err(Errno::Invalid.into());
        };
        if let Some(errno) = self.refusing {
            return Err(errno.into());
        }
        // The monitor asks for others; a client gets a subtree only for itself.
        if from.client != ClientId(0) && from.client != client {
            return Err(Errno::NotPermitted.into());
        }
        super::policy::parse(policy)?;
        let ino = resolve_dir(self.namespace, &from.request.cred, path)?;
        self.namespace.access(&from.request.cred, ino, 2)?;
        self.check_free(ino, client)?;
        Ok(ino)
    }

    /// Gives a subtree to a client: stores the policy in the directory, grants a range,
    /// and, if the policy decouples, locks the subtree. Answered when all of it is durable.
    pub(crate) fn decouple(
        &mut self,
        from: Incoming<'_>,
        ino: Ino,
        is_stored: bool,
    ) -> Result<Begun, Refused> {
        let Op::Job(JobOp::Decouple { client, policy: text, .. }) = *from.op() else {
            return Err(Errno::Invalid.into());
        };
        let (at, cred) = (from.at(), &from.request.cred);
        let policy = super::policy::parse(text)?;
        let root = self.namespace.getattr(ino)?;
        let empty = root.size == 0;
        let held = self.tables.owner(ino).map(|known| (known.epoch, known.policy.clone()));
        let (text, time) = (policy.to_yaml(), self.clock.time);
        self.namespace.plan().setpolicy(cred, ino, text.as_bytes(), time)?;
        let stores =
            Transition::between(&in_force(self.namespace, ino), &policy, held.is_some()).store;
        if stores && !is_stored {
            // The present content must be kept as the new policy promises.
            return Ok(Begun::NeedsStore);
        }
        let decouples = held.is_none() && policy.is_decoupled();
        if decouples {
            check_numbers(self.namespace, ino, policy.allocated_inodes)?;
        }
        let range = self.tables.grant(policy.allocated_inodes)?;
        let mut seq = self.log.last();
        if held.as_ref().is_none_or(|(_, before)| *before != text) {
            let planned = self.namespace.plan().setpolicy(cred, ino, text.as_bytes(), time)?;
            let event = planned.event();
            seq = self.log.append(self.clock.now, Origin::default(), &event);
            self.note_policy(ino);
            self.namespace.apply(seq, Mode::Live, &event);
            self.tables.store_after(seq);
        }
        let epoch = held.as_ref().map_or(self.tables.epoch(), |(epoch, _)| *epoch);
        let begins = decouples.then_some(ino);
        if let Some(known) = self.tables.decoupled.get_mut(&ino).filter(|_| held.is_some()) {
            // The same client asks again: its first answer was lost, or it begins a new journal.
            // New numbers tell the new journal from the one before, and come first: a client that
            // takes the subtree over finds its journals by them.
            known.ranges.insert(0, range);
            known.block = policy.interfere == policy::InterferePolicy::Block;
            known.on_demand = policy.merge == policy::MergeTrigger::OnDemand;
            known.policy = text;
        } else if begins.is_some() {
            let decoupling = Tables::decoupling(client, &policy, range, epoch, cred);
            self.tables.decoupled.insert(ino, decoupling);
            self.watches.note_tree(self.namespace, ChangeKind::Decouple, ino, 0);
            self.merges.forget(ino);
        }
        reserve(self.namespace, self.tables);
        let answer = Answer::Decoupled(Decoupled { root, range, epoch, empty });
        self.tables.hold(Held { at, answer: Ok(answer), seq, begins });
        Ok(Begun::Performed(Performed::Later))
    }

    /// `EBUSY` if another client has this subtree, one above or one below.
    pub(super) fn check_free(&self, ino: Ino, client: ClientId) -> Result<(), Refused> {
        for (root, owner) in &self.tables.decoupled {
            if owner.released {
                continue;
            }
            let same = *root == ino && owner.client == client;
            let overlap =
                self.namespace.is_within(ino, *root) || self.namespace.is_within(*root, ino);
            if overlap && !same {
                let path = self.namespace.path_of(*root).map(|path| path.to_string());
                let text = format!(
                    "{} is decoupled by {}; merge or discard it first",
                    path.unwrap_or_else(|| root.to_string()),
                    owner.client
                );
                return Err(Refused::Failure(Failure { errno: Errno::Busy, text }));
            }
        }
        Ok(())
    }

    /// More numbers for a client whose range is used up.
    pub(crate) fn extend(&mut self, from: Incoming<'_>, subtree: Ino, count: u64) -> Performing {
        self.tables.owned(subtree, from.client)?;
        let count = count.clamp(1, EXTEND_MAX);
        check_numbers(self.namespace, subtree, count)?;
        let range = self.tables.grant(count)?;
        if let Some(known) = self.tables.decoupled.get_mut(&subtree) {
            known.ranges.push(range);
        }
        reserve(self.namespace, self.tables);
        self.tables.hold(Held {
            at: from.at(),
            answer: Ok(Answer::Range(range)),
            seq: Seq(0),
            begins: None,
        });
        Ok(Performed::Later)
    }

    /// Numbers for inodes that a client creates in directories that it has alone.
    pub(crate) fn grant_numbers(&mut self, from: Incoming<'_>, count: u64) -> Performing {
        let range = self.tables.grant(count.clamp(1, EXTEND_MAX))?;
        let session = self.sessions.get_mut(from.client);
        session.async_ops.may_use(range);
        self.tables.give(session.holder, range);
        let (answer, seq) = (Answer::Range(range), Seq(0));
        self.tables.hold(Held { at: from.at(), answer: Ok(answer), seq, begins: None });
        Ok(Performed::Later)
    }

    /// Ends a decoupling without a merge: by its owner, or by root if the owner is gone for good.
    pub(crate) fn release(
        &mut self,
        from: Incoming<'_>,
        subtree: Ino,
        unused: UnusedNumbers<'_>,
    ) -> Performing {
        let client = from.client;
        if !from.request.cred.is_root() || self.tables.owner(subtree).is_none() {
            self.tables.owned(subtree, client)?;
        }
        let seq = self.switch_policy(subtree).map_err(Refusal::Cold)?;
        let unused = self.tables.unused(subtree, client, unused.ranges());
        self.take_back(subtree, &unused);
        self.tables.remove(subtree);
        self.watches.note_tree(self.namespace, ChangeKind::Release, subtree, 0);
        self.merges.forget(subtree);
        let answer = Ok(Answer::Done);
        self.tables.hold(Held { at: from.at(), answer, seq, begins: None });
        Ok(Performed::Later)
    }

    /// Makes a subtree another client's, because its client is gone: for root and for the owner of
    /// the directory. Returns the former client: its later requests are rejected, whether it is
    /// gone or not.
    pub(crate) fn take_over(
        &mut self,
        from: Incoming<'_>,
        subtree: Ino,
    ) -> Result<Option<ClientId>, Refused> {
        let (client, cred) = (from.client, &from.request.cred);
        if client.0 == 0 {
            return Err(Errno::Invalid.into());
        }
        let root = self.namespace.getattr(subtree)?;
        if !cred.is_root() && root.uid != cred.uid {
            let text = "only root and the owner of the directory take a subtree over".into();
            return Err(Refused::Failure(Failure { errno: Errno::NotPermitted, text }));
        }
        let epoch = self.tables.epoch();
        let Some(known) = self.tables.decoupled.get_mut(&subtree).filter(|known| !known.released)
        else {
            let text = "the subtree is not decoupled (any more)".into();
            return Err(Refused::Failure(Failure { errno: Errno::Stale, text }));
        };
        let before = std::mem::replace(&mut known.client, client);
        (known.epoch, known.cred) = (epoch, cred.clone());
        known.taken_over |= before != client;
        let range = known.ranges.first().copied().unwrap_or_default();
        let answer = Answer::Decoupled(Decoupled { root, range, epoch, empty: false });
        let held = Held { at: from.at(), answer: Ok(answer), seq: Seq(0), begins: None };
        self.tables.hold(held);
        Ok((before != client).then_some(before))
    }

    /// Releases a subtree whose merge is done, with the numbers that its client has not used, and
    /// answers when that is durable. If another client took it over during the merge, it stays that
    /// client's. Returns the release with the directory that must be in memory first.
    pub(crate) fn release_merged(&mut self, release: Release) -> Option<(Ino, Release)> {
        let Release { subtree, client, .. } = release;
        let mut seq = Seq(0);
        let owner = self.tables.decoupled.get(&subtree).map(|known| known.client);
        if owner == Some(client) {
            seq = match self.switch_policy(subtree) {
                Ok(seq) => seq,
                Err(cold) => return Some((cold, release)),
            };
            self.take_back(subtree, &release.unused);
            let by = ReleasedBy::at(client, release.at);
            self.tables.release(subtree, by, release.is_stored);
            self.watches.note_tree(self.namespace, ChangeKind::Release, subtree, 0);
        }
        let Release { at, answer, .. } = release;
        self.tables.hold(Held { at, answer: Ok(answer), seq, begins: None });
        None
    }

    /// Takes numbers back, unless another queued journal of the subtree was, or may be, verified
    /// against them.
    fn take_back(&mut self, subtree: Ino, unused: &[GivenBack]) {
        if !self.merges.is_about(subtree) {
            self.tables.give_back(subtree, unused);
        }
    }
}

impl Tables {
    /// Whether the answer would deny a client a subtree that a crash could still give back to it.
    pub(crate) fn is_said_too_early(&self, op: &Op<'_>, failure: &Failure) -> bool {
        let Op::Job(
            JobOp::Extend { subtree, .. }
            | JobOp::Release { subtree, .. }
            | JobOp::TakeOver { subtree }
            | JobOp::Merge { subtree, .. },
        ) = *op
        else {
            return false;
        };
        failure.errno == Errno::Stale && self.is_unsure(subtree)
    }

    fn owned(&self, subtree: Ino, client: ClientId) -> Result<(), Refused> {
        match self.owner(subtree) {
            Some(known) if known.client == client => Ok(()),
            Some(known) => {
                let text = format!("the subtree is decoupled by {}", known.client);
                Err(Refused::Failure(Failure { errno: Errno::Busy, text }))
            }
            None => {
                let text = "the subtree is not decoupled (any more)".into();
                Err(Refused::Failure(Failure { errno: Errno::Stale, text }))
            }
        }
    }

    /// Whether a client may merge into a subtree: its owner, or its last owner as long as that
    /// one's merge could still be lost.
    pub(crate) fn check_merge(&self, subtree: Ino, client: ClientId) -> Result<(), Refused> {
        match self.decoupled.get(&subtree) {
            Some(known) if known.client == client => Ok(()),
            Some(_) | None => self.owned(subtree, client),
        }
    }
}

/// Whether a request is about a subtree or a directory as a whole.
pub(crate) fn is_about_all(op: &Op<'_>) -> bool {
    matches!(
        op,
        Op::Rank(
            RankOp::Export { .. }
                | RankOp::Colocate { .. }
                | RankOp::Split { .. }
                | RankOp::Join { .. }
        ) | Op::Admin(AdminOp::Snapshot { .. })
    )
}
