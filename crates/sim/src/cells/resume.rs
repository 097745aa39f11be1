//! A new process takes over the work of earlier ones: on its machine's disk, in the object store,
//! or from a disk that is gone.

use std::collections::BTreeSet;

use client::{Earlier, LeftJournals, LogNeed, OwnerNote};
use objstore::{ObjectStore, SyncScope};
use policy::{Mechanism, Policy};
use types::{ClientId, Errno, Ino};
use wire::{Answer, JobOp, MergeFlags, Op, ReadOp};

use super::job::{Holding, Process};
use super::machine::{File, Owner};
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
        Ok(())
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
        let (epoch, crashed) = (self.epoch(client), self.requests.workers[client].crashed);
        let mut replayed = false;
        for log in 0..self.job().machine.logs.len() {
            let known = &self.job().machine.logs[log];
            let dead = known.process != client;
            if dead && LogNeed::of(known.since, epoch, crashed) == LogNeed::Replay {
                self.replay_log(client, (at, log), id)?;
                replayed = true;
            }
        }
        if replayed {
            self.checkpoint(client)?;
            if self.epoch(client) != epoch {
                return Ok(false);
            }
        }
        self.local_step(client)?;
        let stored = |log: &super::machine::Log| {
            let stored = replayed || LogNeed::of(log.since, epoch, crashed) == LogNeed::Stored;
            log.process != client && stored
        };
        let job = self.job();
        for log in job.machine.logs.iter().filter(|log| stored(log)) {
            for at in &log.updates {
                job.ledger.updates[*at].kept.log = false;
            }
        }
        job.machine.logs.retain(|log| !stored(log));
        Ok(true)
    }

    /// Takes up the work of an earlier process of this machine.
    fn attach(&mut self, owner: Owner) -> Done<()> {
        let client = self.act_as(owner.note.client)?;
        let (ino, at) = (self.job().root, self.current);
        // A change of policy may have ended with its process before it was noted here.
        let in_force = self.in_force(at).filter(Policy::is_decoupled);
        let nonvolatile =
            in_force.as_ref().is_some_and(|policy| policy.contains(Mechanism::NonvolatileApply));
        let policy = in_force.and_then(|policy| policy.cell()).unwrap_or(owner.policy);
        let owner = Owner { policy, ..owner };
        let path = self.job().path.clone();
        let root = match self.request(client, Op::Read(ReadOp::GetAttr { ino })) {
            Err(Stop::Failed(Errno::Stale)) => {
                let walk = Op::Read(ReadOp::Walk { base: Ino::ROOT, path: path.as_bytes() });
                self.request(client, walk)?;
                self.request(client, Op::Read(ReadOp::GetAttr { ino }))?
            }
            answer => answer?,
        };
        let Answer::Attr(root) = root else { return Err(Stop::Failed(Errno::Io)) };
        let holding = Holding::new(owner, root, nonvolatile);
        if let Some(process) = &mut self.job().process {
            process.holds = Some(Box::new(holding));
        }
        let (stored, local) = (self.stored_journals()?, self.local_journals()?);
        let found = stored.iter().chain(&local).flat_map(|earlier| Self::inos(&earlier.bytes));
        let found: BTreeSet<Ino> = found.collect();
        let holding = self.holding()?;
        holding.job.inner.skip_used(holding.job.note.used);
        if holding.job.load(stored, local).is_err() {
            return Err(Stop::Failed(Errno::BadMessage));
        }
        // The server deletes merged and stored journals, even if the reply was lost.
        let left = self.inos_in_store();
        self.job().ledger.objects_gone(&left);
        let taken_up = self.job().take_up(&found);
        self.requests.world.check(taken_up);
        self.requests.world.violation.is_none().then_some(()).ok_or(Stop::Broken)
    }

    /// The journals that Global Persist left in the object store.
    fn stored_journals(&mut self) -> Done<Vec<Earlier>> {
        let prefix = self.holding()?.job.object_prefix();
        let listed = self.requests.world.memory.list(&prefix).unwrap_or_default();
        let mut journals = Vec::new();
        for (name, unnoted) in self.holding()?.job.left_objects(&listed) {
            let bytes = self.requests.world.memory.get(&name).ok().map(|(bytes, _)| bytes);
            // Its writer may have ended before the end of it was durable.
            let _ = self.requests.world.memory.sync(SyncScope::Object(&name));
            match self.holding()?.job.take_object(name.clone(), unnoted, bytes) {
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
        let answer = self.request(client, Op::Job(JobOp::TakeOver { subtree }))?;
        let Answer::Decoupled(granted) = answer else { return Err(Stop::Failed(Errno::Io)) };
        // The server may have gone on with a merge of the former client, and be done with it.
        let found = self.left_behind()?;
        let left = self.inos_in_store();
        self.job().ledger.objects_gone(&left);
        let id = self.requests.world.clients[client].id;
        for left in &found {
            let mut file = File::default();
            file.written = left.of_client(id, subtree, granted.epoch);
            file.sync();
            self.local_step(client)?;
            let inos = Self::inos(&file.written);
            self.job().machine.journals.insert(left.first, file);
            for at in self.job().ledger.places(&inos) {
                self.job().ledger.updates[at].kept.disk = true;
            }
        }
        let policy = self.policy_in_force(at).unwrap_or(self.job().cell);
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

    /// The inodes of all journals of the subtree in the store, by any writer.
    fn inos_in_store(&mut self) -> BTreeSet<Ino> {
        let store = &self.requests.world.memory;
        let prefix = format!("journal/client/{:016x}.", self.jobs[self.current].root.0);
        let names = store.list(&prefix).unwrap_or_default();
        let bytes = names.iter().filter_map(|name| store.get(name).ok());
        bytes.flat_map(|(bytes, _)| Self::inos(&bytes)).collect()
    }

    /// Root gives up the unmerged work of a dead client.
    fn give_up(&mut self) -> Done<()> {
        let (subtree, at) = (self.job().root, self.current);
        let client = self.client()?;
        self.job().ledger.objects_gone(&BTreeSet::new());
        let taken_up = self.job().take_up(&BTreeSet::new());
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
