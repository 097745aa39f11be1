//! Policies: stored in the inode of a directory, in force for everything below that has none of its
//! own, and changed while people work (P-16).
//!
//! A new policy is in force when its request is answered, also for existing content: directories
//! that only the memory of this server holds are written to the metadata store first, if the new
//! policy promises more than memory. While a client has the subtree, the policy under which it was
//! decoupled stays in force; another one waits in the tables until the subtree is released.

use namespace::{Mode, Namespace, Refusal};
use policy::{Policy, Transition};
use types::{ClientId, Cred, Errno, Ino, Origin, Pool, Seq};
use wire::{Answer, ChangeKind, ChangeOp, Failure, Op};

use super::change::resolve_dir;
use super::subtree::{Begun, SubtreeCx};
use super::{Changed, Performed, Refused};
use crate::ReplyTo;
use crate::admission::{Incoming, is_blocked};
use crate::tables::{Held, Tables};

impl SubtreeCx<'_> {
    /// The directory whose policy a client sets.
    pub(crate) fn root_of_policy(
        &self,
        from: Incoming<'_>,
        client: ClientId,
    ) -> Result<Ino, Refused> {
        let Op::Change(ChangeOp::SetPolicy { path, .. }) = *from.op() else {
            return Err(Errno::Invalid.into());
        };
        let ino = resolve_dir(self.namespace, &from.request.cred, path)?;
        if is_blocked(self.tables, self.namespace, client, ino) {
            return Err(Errno::Busy.into());
        }
        Ok(ino)
    }

    /// Sets or, with empty text, removes the policy of a directory on behalf of a client.
    pub(crate) fn set_policy(
        &mut self,
        from: Incoming<'_>,
        client: ClientId,
        ino: Ino,
        is_stored: bool,
    ) -> Result<Begun, Refused> {
        let Op::Change(ChangeOp::SetPolicy { policy: text, .. }) = *from.op() else {
            return Err(Errno::Invalid.into());
        };
        let (at, cred) = (from.at(), &from.request.cred);
        let time = self.clock.time;
        self.namespace.plan().setpolicy(cred, ino, text, time)?;
        let before = in_force(self.namespace, ino);
        let to = if text.is_empty() { inherited(self.namespace, ino) } else { parse(text)? };
        let held = self.tables.owner(ino).map(|known| known.client);
        if let Some(owner) = held
            && (owner != client || !to.is_decoupled())
        {
            self.postpone_policy(at, ino, text)?;
            return Ok(Begun::Performed(Performed::Later));
        }
        if Transition::between(&before, &to, held.is_some()).store && !is_stored {
            return Ok(Begun::NeedsStore);
        }
        // A policy is an agreement between people; it is durable independent of its own promise.
        let planned = self.namespace.plan().setpolicy(cred, ino, text, time)?;
        let event = planned.event();
        let seq = self.log.append(self.clock.now, Origin::default(), &event);
        self.note_policy(ino);
        self.namespace.apply(seq, Mode::Live, &event);
        let answer = Answer::Attr(self.namespace.getattr(ino)?);
        let Some(known) = self.tables.decoupled.get_mut(&ino).filter(|_| held.is_some()) else {
            if self.tables.is_unsure(ino) {
                // Until the store notes the release of the subtree, a crash would restore the
                // policy under which it was a client's.
                self.tables.store_after(seq);
                self.tables.hold(Held { at, answer: Ok(answer), seq, begins: None });
                return Ok(Begun::Performed(Performed::Later));
            }
            return Ok(Begun::Performed(Performed::Changed(Changed {
                answer,
                seq: Some(seq),
                ino,
                time,
                ack_safe: true,
            })));
        };
        known.block = to.interfere == policy::InterferePolicy::Block;
        known.on_demand = to.merge == policy::MergeTrigger::OnDemand;
        (known.policy, known.next) = (to.to_yaml(), None);
        self.tables.store_after(seq);
        self.tables.hold(Held { at, answer: Ok(answer), seq, begins: None });
        Ok(Begun::Performed(Performed::Later))
    }

    /// Reports a new policy to watchers.
    pub(super) fn note_policy(&mut self, ino: Ino) {
        self.watches.note_tree(self.namespace, ChangeKind::Policy, ino, 0);
    }

    /// A policy waits until its subtree is released.
    fn postpone_policy(&mut self, at: ReplyTo, ino: Ino, text: &[u8]) -> Result<(), Refused> {
        let Some(known) = self.tables.decoupled.get_mut(&ino) else {
            return Err(Errno::Stale.into());
        };
        known.next = Some(String::from_utf8_lossy(text).into_owned());
        let answer = Answer::Pending(known.client);
        self.tables.hold(Held { at, answer: Ok(answer), seq: Seq(0), begins: None });
        Ok(())
    }

    /// Puts the policy that waits for a subtree in force. Returns the position of its event, or 0;
    /// or else the directory that must be in memory first.
    pub(crate) fn switch_policy(&mut self, subtree: Ino) -> Result<Seq, Ino> {
        let known = self.tables.decoupled.get_mut(&subtree);
        let Some(text) = known.and_then(|known| known.next.clone()) else {
            // Only the table says which policy was in force, and is about to forget it.
            return self.restore_before_release(subtree).map(|()| Seq(0));
        };
        let (root, time) = (Cred::root(), self.clock.time);
        let planned = self.namespace.plan().setpolicy(&root, subtree, text.as_bytes(), time);
        if let Err(Refusal::Cold(dir)) = planned {
            return Err(dir);
        }
        if let Some(known) = self.tables.decoupled.get_mut(&subtree) {
            known.next = None;
        }
        // Refused only if there is nothing to remove, or the directory is gone.
        let Ok(planned) = planned else { return Ok(Seq(0)) };
        let event = planned.event();
        let seq = self.log.append(self.clock.now, Origin::default(), &event);
        self.note_policy(subtree);
        self.namespace.apply(seq, Mode::Live, &event);
        // The tables forget that it waited.
        self.tables.store_after(seq);
        Ok(seq)
    }

    /// After a crash: a subtree that is still a client's is under the policy under which that
    /// client has it, although the journal may have the next one already.
    pub(crate) fn restore_policies(&mut self) {
        let held = self.tables.decoupled.iter().filter(|(_, known)| !known.released);
        *self.unrestored = held.map(|(ino, _)| *ino).collect();
        self.restore_known_policies();
    }

    /// The same for subtrees that came into memory only now; no client has seen them yet.
    pub(crate) fn restore_known_policies(&mut self) {
        if self.unrestored.is_empty() {
            return;
        }
        for subtree in std::mem::take(self.unrestored) {
            let Some(text) = self.policy_of_owner(subtree) else { continue };
            let restored = self.restore_policy(subtree, &text);
            if !self.namespace.knows(subtree) || matches!(restored, Err(Refusal::Cold(_))) {
                self.unrestored.push(subtree);
            }
        }
    }

    /// The same for a subtree that is about to be released; or else the directory that must be in
    /// memory first.
    fn restore_before_release(&mut self, subtree: Ino) -> Result<(), Ino> {
        if !self.unrestored.contains(&subtree) {
            return Ok(());
        }
        if let Some(text) = self.policy_of_owner(subtree)
            && let Err(Refusal::Cold(dir)) = self.restore_policy(subtree, &text)
        {
            return Err(dir);
        }
        self.unrestored.retain(|known| *known != subtree);
        Ok(())
    }

    /// The policy under which a client has a subtree.
    fn policy_of_owner(&self, subtree: Ino) -> Option<String> {
        let owner = self.tables.owner(subtree)?;
        // A subtree without a policy was taken as it was.
        (!owner.policy.is_empty()).then(|| owner.policy.clone())
    }

    fn restore_policy(&mut self, subtree: Ino, text: &str) -> Result<(), Refusal> {
        let own = self.namespace.own_policy(subtree)?;
        let parsed = own.and_then(|own| Policy::parse_bytes(own).ok());
        if parsed.is_some_and(|parsed| parsed.policy.to_yaml() == text) {
            return Ok(());
        }
        let (root, time) = (Cred::root(), self.clock.time);
        let planned = self.namespace.plan().setpolicy(&root, subtree, text.as_bytes(), time)?;
        let event = planned.event();
        let seq = self.log.append(self.clock.now, Origin::default(), &event);
        self.note_policy(subtree);
        self.namespace.apply(seq, Mode::Live, &event);
        // A table without the subtree must not be stored before this event is durable: after
        // another crash, nothing would restore the policy.
        self.tables.follow(seq);
        Ok(())
    }
}

/// Whether the policy that waits for a subtree promises more than the memory of this server.
pub(crate) fn next_policy_stores(namespace: &mut Namespace, tables: &Tables, subtree: Ino) -> bool {
    let Some(known) = tables.decoupled.get(&subtree) else { return false };
    let Some(text) = &known.next else { return false };
    let from = match known.policy.as_str() {
        "" => in_force(namespace, subtree),
        text => parse(text.as_bytes()).ok().unwrap_or_default(),
    };
    let to =
        if text.is_empty() { Ok(inherited(namespace, subtree)) } else { parse(text.as_bytes()) };
    to.is_ok_and(|to| Transition::between(&from, &to, true).store)
}

pub(super) fn in_force(namespace: &mut Namespace, dir: Ino) -> Policy {
    namespace.effective_policy(dir).1.policy.clone()
}

/// The policy that a directory would be under without one of its own.
fn inherited(namespace: &mut Namespace, dir: Ino) -> Policy {
    match namespace.home_of(dir) {
        Some(parent) if dir != Ino::ROOT => in_force(namespace, parent),
        Some(_) | None => Policy::default(),
    }
}

/// Reads a policy. A pool must come with its number: names of objects have that.
pub(super) fn parse(text: &[u8]) -> Result<Policy, Refused> {
    let invalid = |text| Refused::Failure(Failure { errno: Errno::Invalid, text });
    let policy = Policy::parse_bytes(text).map_err(|error| invalid(error.to_string()))?.policy;
    match &policy.data_pool {
        Some(pool) if policy.stripe.pool() == Pool::USUAL => Err(invalid(format!(
            "data_pool: the request says no number of pool {pool}; set the policy with `cudele`"
        ))),
        Some(_) | None => Ok(policy),
    }
}
