//! Changes of policy while work is under way: first the preparing steps, then the new policy is set
//! (`policy::Transition`; the client's half is `client::ChangeStep`).

use client::ChangeStep;
use policy::{Cell, Composition, Mechanism, Policy, Transition};
use types::{ClientId, Errno};
use wire::{Answer, MergeFlags};

use crate::call::CallKind;

use super::{Cells, Done, Stop};

impl Cells {
    /// Changes the policy of the current job's subtree. After any fault the subtree is under the
    /// old policy or under the new one.
    pub(super) fn change(&mut self, to: Cell) -> Done<()> {
        let from = self.job().cell;
        self.struck = false;
        self.note("is changed", to);
        let changed = self.change_to(from, to);
        let struck = self.struck;
        for (what, is) in [("change", true), ("completed", changed.is_ok()), ("struck", struck)] {
            self.requests.world.tally.count(&format!("{what}: {from} {to}"), u64::from(is));
        }
        changed
    }

    fn change_to(&mut self, from: Cell, to: Cell) -> Done<()> {
        let client = self.client()?;
        if self.holding().is_err() {
            return self.change_free(client, (from, to));
        }
        let holding = self.holding()?;
        let before = holding.policy.clone();
        let transition = Transition::between(&before, &Policy::of_cell(to), true);
        let policy = if transition.merge { Policy::of_cell(to) } else { self.policy_of(to) };
        let id = self.requests.world.clients[client].id;
        for step in ChangeStep::all(&before, &policy) {
            match step {
                ChangeStep::Drain => {}
                ChangeStep::StoreEarlier => self.store_earlier()?,
                ChangeStep::Persist(persist) => {
                    if self.holding()?.is_pending() {
                        self.execute(&persist, false)?;
                    }
                }
                ChangeStep::MergeLost(store) => self.merge_lost(client, store)?,
                ChangeStep::Remember(always) => {
                    if always || self.job().machine.owner.is_some() {
                        self.remember()?;
                    }
                }
                ChangeStep::Set if transition.merge => {
                    // The server switches at the moment at which the subtree is shared again.
                    self.job().next.push(Some(to));
                    let answer = self.set(client, (&policy, id))?;
                    self.pending(&answer, id, to)?;
                }
                ChangeStep::Set => {
                    self.job().doubt.push(to);
                    self.job().next.push(None);
                    let answer = self.set(client, (&policy, id))?;
                    if !matches!(answer, Answer::Done | Answer::Attr(_)) {
                        let text = format!("a change of policy was answered {answer:?}");
                        self.requests.world.check(Err(text));
                    }
                    self.changed(to, transition.store);
                }
                ChangeStep::Adopt => {
                    self.holding()?.policy = policy.clone();
                }
                ChangeStep::Merge => {
                    self.merge()?;
                    if transition.store {
                        self.job().ledger.stored();
                    }
                }
            }
        }
        Ok(())
    }

    /// Merges events again that a server has lost.
    fn merge_lost(&mut self, client: usize, store: bool) -> Done<()> {
        if !self.holding()?.may_have_lost() {
            return Ok(());
        }
        self.request(client, CallKind::Sync)?;
        let (term, journals) = (self.epoch(client), self.local_journals()?);
        for journal in self.holding()?.lost(term, journals) {
            self.merge_one(&journal, MergeFlags { store, ..MergeFlags::default() }, None)?;
        }
        self.holding()?.merged_in = Some(self.epoch(client));
        Ok(())
    }

    /// While no client has the subtree.
    fn change_free(&mut self, client: usize, (from, to): (Cell, Cell)) -> Done<()> {
        let transition = Transition::between(&Policy::of_cell(from), &Policy::of_cell(to), false);
        self.job().doubt.push(to);
        self.job().next.push(Some(to));
        let answer = self.set(client, (&Policy::of_cell(to), ClientId(0)))?;
        if let Answer::Pending(owner) = answer {
            // A process had it that is dead.
            self.job().next = vec![Some(to)];
            self.requests.world.note(format_args!("$ it waits for {owner}"));
            return Err(Stop::Failed(Errno::Busy));
        }
        self.changed(to, transition.store);
        Ok(())
    }

    /// Another client changes the policy: while a client has the subtree, the change waits for it.
    pub(super) fn change_by_another(&mut self, to: Cell) -> Done<()> {
        let client = self.client()?;
        self.note("is changed by another", to);
        let owner = self.requests.world.clients[client].id;
        self.holding()?;
        self.job().next.push(Some(to));
        let answer = self.set(client, (&Policy::of_cell(to), ClientId(0)));
        self.pending(&answer?, owner, to)
    }

    /// The change waits for the owner, unless an earlier attempt to merge gave the subtree back.
    fn pending(&mut self, answer: &Answer, owner: ClientId, to: Cell) -> Done<()> {
        let releasing = self.job().releasing;
        if *answer == Answer::Done && releasing {
            self.job().is_under(to);
            return Ok(());
        }
        self.job().next = vec![Some(to)];
        if *answer != Answer::Pending(owner) {
            let text = format!("a change that waits for {owner} was answered {answer:?}");
            self.requests.world.check(Err(text));
        }
        Ok(())
    }

    /// A policy of a cell: sometimes another one than usual.
    pub(super) fn policy_of(&mut self, cell: Cell) -> Policy {
        let mut policy = Policy::of_cell(cell);
        let stable =
            policy.contains(Mechanism::GlobalPersist) && policy.contains(Mechanism::VolatileApply);
        if stable && self.rng.percent(50) {
            let durability = Composition::Nothing;
            policy = Policy { consistency: super::job::nonvolatile(), durability, ..policy };
        }
        policy
    }

    fn set(&mut self, client: usize, (to, id): (&Policy, ClientId)) -> Done<Answer> {
        self.replay_logs(client)?;
        let (path, policy) = (self.job().path.clone(), to.to_yaml());
        self.ask_monitor(client, &CallKind::SetPolicy { path, policy, client: id })
    }

    /// A client that changes the policy replays its own logs first, and those of dead processes on
    /// its machine: afterwards no process may need them.
    pub(super) fn replay_logs(&mut self, client: usize) -> Done<()> {
        let crashes = self.requests.world.crashes;
        self.ready(client)?;
        if self.job().machine.logs.iter().any(|log| log.process == client) {
            // A request, as the library makes one: a client that has not noticed the end of its
            // server believes that it is connected.
            self.request(client, CallKind::Sync)?;
        }
        self.replay_dead()?;
        // The store may prevent the server from replaying a log: then the client gets an error and
        // keeps the log.
        if crashes == self.requests.world.crashes
            && !self.requests.oracle.store_fails
            && let Some(update) = self.job().ledger.not_replayed()
        {
            let text = format!("logged, and not replayed before a change of policy: {update:?}");
            self.requests.world.check(Err(text));
        }
        self.is_alive(client)
    }

    /// The new policy is in force, also for earlier updates.
    pub(super) fn changed(&mut self, to: Cell, stored: bool) {
        let job = self.job();
        job.is_under(to);
        if stored {
            job.ledger.stored();
        }
        let logs = super::job::logs(to);
        for update in &mut job.ledger.updates {
            // A log of requests is no longer needed.
            update.kept.log &= logs;
        }
    }
}
