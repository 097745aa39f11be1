//! A new process takes over the work of earlier ones: on its machine's disk, in the object store,
//! or from a disk that is gone.

use std::collections::BTreeSet;

use client::{Earlier, LeftJournals, LogNeed, LogState, LogStep, OwnerNote, SubtreeJob};
use objstore::{ObjectStore, SyncScope};
use policy::Policy;
use types::{ClientId, Errno};
use wire::{Answer, MergeFlags};

use super::job::{Job, Process};
use super::ledger::{Mark, marks};
use super::machine::{File, Log, Owner};
use super::{Cells, Done, Stop};
use crate::call::CallKind;

impl Cells {
    /// Starts a process on the current job's machine, unless one lives. It repeats merges and
    /// replays logs that a crash of the server undid, and takes up the work of an earlier process.
    pub(super) fn boot(&mut self) -> Done<()> {
        if self.job().process.is_some() {
            return Ok(());
        }
        let client = self.add_process(None);
        self.job().process = Some(Process { client, holds: None });
        self.ready(client)?;
        if self.job().machine.is_merged() {
            self.merge_again(client)?;
        }
        self.replay_dead()?;
        match self.job().machine.owner.clone() {
            Some(owner) if owner.note.merged_in.is_none() => self.attach(owner),
            Some(_) | None => self.take_over(client),
        }
    }

    /// Another process that acts as the owner of the subtree, in the place of the one that looks.
    fn act_as(&mut self, owner: ClientId) -> Done<usize> {
        let client = self.client()?;
        self.requests.end_process(client);
        let client = self.add_process(Some(owner));
        self.job().process = Some(Process { client, holds: None });
        self.ready(client)?;
        Ok(client)
    }

    /// Repeats merges that a crash of the server undid (weak consistency, local durability).
    fn merge_again(&mut self, client: usize) -> Done<()> {
        let Some(owner) = self.job().machine.owner.clone() else { return Ok(()) };
        if owner.note.merged_in == Some(self.epoch(client)) {
            return Ok(());
        }
        let client = self.act_as(owner.note.client)?;
        let journals = self.local_journals()?;
        for (at, journal) in journals.iter().enumerate() {
            // With the last one the server knows that it has them all.
            let flags = MergeFlags { release: at + 1 == journals.len(), ..MergeFlags::default() };
            match self.merge_one(journal, flags, None) {
                Err(Stop::Failed(Errno::Stale | Errno::Busy | Errno::NotPermitted)) => {
                    // A checkpoint has it, or another client has the subtree by now; or this client
                    // has it again, with other numbers.
                    self.local_step(client)?;
                    self.job().forget_files();
                    return Ok(());
                }
                merged => merged?,
            }
        }
        let merged_in = Some(self.epoch(client));
        self.local_step(client)?;
        let note = OwnerNote { merged_in, ..owner.note };
        self.job().machine.owner = Some(Owner { note, ..owner });
        self.persisted(client)
    }

    /// Replays the logs of dead processes, until one server has lived through all of it.
    pub(super) fn replay_dead(&mut self) -> Done<()> {
        while !self.replay_to_one_server()? {}
        Ok(())
    }

    fn replay_to_one_server(&mut self) -> Done<bool> {
        let client = self.client()?;
        if !self.job().machine.logs.iter().any(|log| log.process != client) {
            return Ok(true);
        }
        self.ready(client)?;
        let (id, at) = (self.requests.world.clients[client].id, self.current);
        let session = self.requests.world.session(client);
        let (epoch, crashed) = (session.epoch(), session.crashed());
        let step = |log: &Log| {
            let need = LogNeed::of(log.since, epoch, crashed);
            let dead = log.process != client;
            dead.then(|| LogState::step_of_dead(need, log.updates.len() as u64))
        };
        let steps: Vec<_> = self.job().machine.logs.iter().map(step).collect();
        for (log, _) in steps.iter().enumerate().filter(|(_, it)| **it == Some(LogStep::Replay)) {
            self.replay_log(client, (at, log), id)?;
        }
        let kept = steps.iter().filter(|step| **step == Some(LogStep::Keep)).count();
        let stored = LogState::is_store_due(kept, steps.contains(&Some(LogStep::Replay)));
        if stored {
            self.checkpoint(client)?;
            if self.epoch(client) != epoch {
                return Ok(false);
            }
        }
        self.local_step(client)?;
        let gone =
            |step: &Option<LogStep>| step.is_some_and(|step| stored || step == LogStep::Remove);
        let Job { machine, ledger, .. } = self.job();
        let mut all = steps.iter();
        machine.logs.retain(|log| {
            let gone = all.next().is_some_and(gone);
            for at in log.updates.iter().filter(|_| gone) {
                ledger.updates[*at].kept.log = false;
            }
            !gone
        });
        Ok(true)
    }

    /// Takes up the work of an earlier process of this machine.
    fn attach(&mut self, owner: Owner) -> Done<()> {
        let client = self.act_as(owner.note.client)?;
        let (ino, at) = (self.job().root, self.current);
        // A change of policy may have ended with its process before it was noted here.
        let in_force = self.in_force(at).map(|(policy, _)| policy).filter(Policy::is_decoupled);
        let paths = vec![(self.job().path.clone(), ino)];
        let root = self.request_at(client, CallKind::GetAttr { ino }, paths)?;
        let Answer::Attr(root) = root else { return Err(Stop::Failed(Errno::Io)) };
        let policy = in_force.unwrap_or(owner.policy);
        let holding = SubtreeJob::new(owner.note, root, policy);
        if let Some(process) = &mut self.job().process {
            process.holds = Some(Box::new(holding));
        }
        let (stored, local) = (self.stored_journals()?, self.local_journals()?);
        let found = stored.iter().chain(&local).flat_map(|earlier| marks(&earlier.bytes));
        let found: BTreeSet<Mark> = found.collect();
        let holding = self.holding()?;
        holding.inner.skip_used(holding.note.used);
        if holding.load(stored, local).is_err() {
            return Err(Stop::Failed(Errno::BadMessage));
        }
        self.note_objects();
        let taken_up = self.job().ledger.taken_up(&found);
        self.requests.world.check(taken_up);
        self.requests.world.violation.is_none().then_some(()).ok_or(Stop::Broken)
    }

    /// The journals that Global Persist left in the object store.
    fn stored_journals(&mut self) -> Done<Vec<Earlier>> {
        let prefix = self.holding()?.object_prefix();
        let listed = self.requests.world.memory.list(&prefix).unwrap_or_default();
        let mut journals = Vec::new();
        for (name, unnoted) in self.holding()?.left_objects(&listed) {
            let bytes = self.requests.world.memory.get(&name).ok().map(|(bytes, _)| bytes);
            // Its writer may have ended before the end of it was durable.
            let _ = self.requests.world.memory.sync(SyncScope::Object(&name));
            match self.holding()?.take_object(name.clone(), unnoted, bytes) {
                Ok(journal) => journals.extend(journal),
                Err(error) => {
                    self.requests.world.check(Err(format!("{name} is damaged: {error:?}")));
                    return Err(Stop::Broken);
                }
            }
        }
        Ok(journals)
    }

    /// This machine has no note of the subtree's owner. If the owner is a dead client, this process
    /// takes over the journals of that client in the store, or gives its work up. A process that
    /// died while it did the same may be the owner: its copies of the journals are on the disk.
    fn take_over(&mut self, _: usize) -> Done<()> {
        let client = self.client()?;
        let at = self.current;
        let from = self.owner_in_force(at);
        if from == ClientId(0) || self.requests.world.violation.is_some() {
            return self.is_alive(client);
        }
        if self.left_behind()?.is_empty() {
            return self.give_up();
        }
        let subtree = self.job().root;
        let answer = self.request(client, CallKind::TakeOver { subtree })?;
        let Answer::Decoupled(granted) = answer else { return Err(Stop::Failed(Errno::Io)) };
        // The server may have gone on with a merge of the former client, and be done with it.
        let found = self.left_behind()?;
        self.note_objects();
        let id = self.requests.world.clients[client].id;
        for left in &found {
            let mut file = File::default();
            file.written = left.of_client(id, subtree, granted.epoch);
            file.sync();
            self.local_step(client)?;
            let marks = marks(&file.written);
            self.job().machine.journals.insert(left.first, file);
            for at in self.job().ledger.places(&marks) {
                self.job().ledger.updates[at].kept.disk = true;
            }
            self.persisted(client)?;
        }
        let cell = self.job().cell;
        let in_force = self.in_force(at).map(|(policy, _)| policy);
        let policy = in_force.unwrap_or_else(|| Policy::of_cell(cell));
        let note = OwnerNote::taken_over(id, granted.range, granted.epoch, &found);
        let owner = Owner { note, policy };
        self.local_step(client)?;
        self.job().machine.owner = Some(owner.clone());
        self.attach(owner)
    }

    /// The intact journals that clients left on the disk and in the store.
    fn left_behind(&mut self) -> Done<Vec<Earlier>> {
        let Some(range) = self.job().granted else { return Ok(Vec::new()) };
        let mut left = LeftJournals::new(self.job().root, range);
        let damaged = |_| Stop::Failed(Errno::BadMessage);
        for earlier in self.local_journals()? {
            left.add_file(earlier.name, earlier.bytes).map_err(damaged)?;
        }
        for name in self.requests.world.memory.list(&left.prefix()).unwrap_or_default() {
            if left.is_one(&name)
                && let Ok((bytes, _)) = self.requests.world.memory.get(&name)
            {
                left.add_object(name, bytes).map_err(damaged)?;
            }
        }
        Ok(left.in_order())
    }

    /// The server deletes merged and stored journals, by any writer, even if the reply was lost.
    fn note_objects(&mut self) {
        let store = &self.requests.world.memory;
        let job = &mut self.jobs[self.current];
        let names = store.list(&format!("journal/client/{:016x}.", job.root.0));
        let bytes = names.iter().flatten().filter_map(|name| store.get(name).ok());
        let left = bytes.flat_map(|(bytes, _)| marks(&bytes)).collect();
        job.ledger.objects_gone(&left);
    }

    /// Root gives up the unmerged work of a dead client.
    fn give_up(&mut self) -> Done<()> {
        let (subtree, at) = (self.job().root, self.current);
        let client = self.client()?;
        self.job().ledger.objects_gone(&BTreeSet::new());
        let taken_up = self.job().ledger.taken_up(&BTreeSet::new());
        self.requests.world.check(taken_up);
        let path = self.job().path.clone();
        let released = self.requests.ask_at(&path, &CallKind::Release { subtree });
        self.notice_crashes();
        if released.is_err() && self.owner_in_force(at) != ClientId(0) {
            return Err(Stop::Failed(Errno::Io));
        }
        self.job().given_back();
        self.is_alive(client)
    }
}
