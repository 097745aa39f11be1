//! A new process takes over the work of earlier ones: on its machine's disk, in the object store,
//! or from a disk that is gone.

use std::collections::BTreeSet;

use client::{IntactJournal, LogNeed};
use metastore::request::client_journal_prefix;
use objstore::{ObjectStore, SyncScope};
use policy::{Mechanism, Policy};
use types::{ClientId, Errno, Ino, Seq};
use wire::{Answer, MergeFlags, Op};

use super::job::{Earlier, Holding, Process};
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
        let client = self.world.add_process(None);
        self.job().process = Some(Process { client, holds: None });
        self.ready(client)?;
        if self.job().machine.owner.as_ref().is_some_and(|owner| owner.merged_in.is_some()) {
            self.merge_again(client)?;
        }
        self.replay_dead()?;
        match self.job().machine.owner.clone() {
            Some(owner) if owner.merged_in.is_none() => self.attach(owner),
            Some(_) | None => self.take_over(client),
        }
    }

    /// Another process that acts as the owner of the subtree, in the place of the one that looks.
    fn act_as(&mut self, owner: ClientId) -> Done<usize> {
        let client = self.client()?;
        self.world.end_process(client);
        let client = self.world.add_process(Some(owner));
        self.job().process = Some(Process { client, holds: None });
        self.ready(client)?;
        Ok(client)
    }

    /// Repeats merges that a crash of the server undid (weak consistency, local durability).
    fn merge_again(&mut self, client: usize) -> Done<()> {
        let Some(owner) = self.job().machine.owner.clone() else { return Ok(()) };
        if owner.merged_in == Some(self.epoch(client)) {
            return Ok(());
        }
        let client = self.act_as(owner.client)?;
        let journals = self.local_journals()?;
        for (at, journal) in journals.iter().enumerate() {
            // With the last one the server knows that it has them all.
            let flags = MergeFlags { release: at + 1 == journals.len(), ..MergeFlags::default() };
            match self.send_journal(client, (&journal.left.bytes, "", true), flags) {
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
        self.job().machine.owner = Some(Owner { merged_in, ..owner });
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
        let (id, at) = (self.world.clients[client].id(), self.current);
        let (epoch, crashed) = (self.epoch(client), self.world.clients[client].crashed);
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
        let client = self.act_as(owner.client)?;
        let (ino, at) = (self.job().root, self.current);
        // A change of policy may have ended with its process before it was noted here.
        let in_force = self.in_force(at).filter(Policy::is_decoupled);
        let nonvolatile =
            in_force.as_ref().is_some_and(|policy| policy.contains(Mechanism::NonvolatileApply));
        let policy = in_force.and_then(|policy| policy.cell()).unwrap_or(owner.policy);
        let owner = Owner { policy, ..owner };
        let path = self.job().path.clone();
        let root = match self.request(client, Op::GetAttr { ino }) {
            Err(Stop::Failed(Errno::Stale)) => {
                let walk = Op::Walk { base: Ino::ROOT, path: path.as_bytes() };
                self.request(client, walk)?;
                self.request(client, Op::GetAttr { ino })?
            }
            answer => answer?,
        };
        let Answer::Attr(root) = root else { return Err(Stop::Failed(Errno::Io)) };
        let holding = Holding { nonvolatile, ..Holding::new(owner, root) };
        if let Some(process) = &mut self.job().process {
            process.holds = Some(Box::new(holding));
        }
        let mut all = self.stored_journals()?;
        let local = self.local_journals()?.into_iter();
        all.extend(local.filter(|Earlier { left, .. }| left.next > left.first));
        let all = client::in_order(all, |Earlier { left, .. }| (left.first, left.next));
        self.load(all)
    }

    fn load(&mut self, all: Vec<Earlier>) -> Done<()> {
        let holding = self.holding()?;
        let mut next = holding.owner.next_seq;
        holding.inner.skip_used(holding.owner.last_ino);
        let mut found = BTreeSet::new();
        for earlier in all {
            let IntactJournal { bytes, first, next: end, .. } = &earlier.left;
            if end > first {
                if holding.inner.replay(bytes).is_err() {
                    return Err(Stop::Failed(Errno::BadMessage));
                }
                next = next.max(*end);
                found.extend(Self::inos(bytes));
            } else {
                next = next.max(Seq(first.0 + 1));
            }
            holding.earlier.push(earlier);
        }
        let reached = holding.owner.reached;
        holding.inner.start_at(next.max(reached));
        // The server deletes merged and stored journals, even if the reply was lost.
        let left = self.inos_in_store();
        self.job().ledger.objects_gone(&left);
        let taken_up = self.job().take_up(&found);
        self.world.check(taken_up);
        self.world.violation.is_none().then_some(()).ok_or(Stop::Broken)
    }

    /// The journals that Global Persist left in the object store.
    fn stored_journals(&mut self) -> Done<Vec<Earlier>> {
        let root = self.job().root;
        let holding = self.holding()?;
        let owner = holding.owner.clone();
        let mut objects: Vec<_> = owner.objects.iter().map(|name| (name.clone(), None)).collect();
        let grant = owner.ranges.first().copied().unwrap_or_default();
        let prefix = client_journal_prefix(root, owner.client, grant);
        for name in self.world.disk.memory.list(&prefix).unwrap_or_default() {
            let part = name.strip_prefix(&prefix).map(|part| u64::from_str_radix(part, 16));
            let Some(Ok(part)) = part else { continue };
            if part >= owner.next_seq.0 && !owner.objects.contains(&name) {
                objects.push((name, Some(Seq(part))));
            }
        }
        let mut journals = Vec::new();
        for (name, unnoted) in objects {
            let Ok((bytes, _)) = self.world.disk.memory.get(&name) else {
                // The server deletes merged and stored journals.
                self.holding()?.owner.objects.retain(|known| *known != name);
                continue;
            };
            let left = match (IntactJournal::read(bytes), unnoted) {
                (Ok(left), _) => left,
                (Err(_), Some(part)) => {
                    IntactJournal { bytes: Vec::new(), first: part, next: part, torn: true }
                }
                (Err(error), None) => {
                    self.world.check(Err(format!("{name} is damaged: {error:?}")));
                    return Err(Stop::Broken);
                }
            };
            // Its writer may have ended before the end of it was durable.
            let _ = self.world.disk.memory.sync(SyncScope::Object(&name));
            // Where nothing in it counts, it is not noted as if something did.
            if unnoted.is_some() && left.next > left.first {
                self.holding()?.owner.objects.push(name.clone());
            }
            journals.push(Earlier { left, object: Some(name), sealed: None });
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
        if from == ClientId(0) || self.world.violation.is_some() {
            return self.is_alive(client);
        }
        if self.left_behind()?.is_empty() {
            return self.give_up();
        }
        let subtree = self.job().root;
        let answer = self.request(client, Op::TakeOver { subtree })?;
        let Answer::Decoupled(granted) = answer else { return Err(Stop::Failed(Errno::Io)) };
        // The server may have gone on with a merge of the former client, and be done with it.
        let found = self.left_behind()?;
        let left = self.inos_in_store();
        self.job().ledger.objects_gone(&left);
        let id = self.world.clients[client].id();
        let mut next = Seq(1);
        let mut names = Vec::new();
        for (name, left) in found {
            let writer = journal::Writer::Client { client: id, subtree };
            let (epoch, first_seq) = (granted.epoch, left.first);
            let header = journal::SegmentHeader { writer, epoch, first_seq };
            let mut file = File::default();
            file.written = header.put_on(&left.bytes);
            file.sync();
            self.local_step(client)?;
            let inos = Self::inos(&file.written);
            self.job().machine.journals.insert(left.first, file);
            for at in self.job().ledger.places(&inos) {
                self.job().ledger.updates[at].kept.disk = true;
            }
            next = next.max(left.next);
            names.extend(name);
        }
        let policy = self.policy_in_force(at).unwrap_or(self.job().cell);
        let owner = Owner {
            client: id,
            ranges: vec![granted.range],
            epoch: granted.epoch,
            policy,
            next_seq: next,
            reached: next,
            // The dead client's merges used numbers that no journal has any more.
            last_ino: Ino(granted.range.end.saturating_sub(1)),
            merged_in: None,
            empty: false,
            objects: Vec::new(),
            adopted: names,
        };
        self.local_step(client)?;
        self.job().machine.owner = Some(owner.clone());
        self.attach(owner)
    }

    /// The journals that clients left on the disk and in the store, as far as they are intact, as
    /// `cudele::recover` finds them. Those in the store have names.
    fn left_behind(&mut self) -> Done<Vec<(Option<String>, IntactJournal)>> {
        let root = self.job().root;
        let Some(range) = self.job().granted else {
            return Ok(Vec::new());
        };
        let prefix = format!("journal/client/{:016x}.", root.0);
        let grant = format!(".{:x}.", range.start);
        let local = self.local_journals()?.into_iter().map(|earlier| (None, earlier.left));
        let mut found: Vec<_> = local.filter(|(_, left)| left.next > left.first).collect();
        for name in self.world.disk.memory.list(&prefix).unwrap_or_default() {
            if !name[prefix.len()..].contains(&grant) {
                continue;
            }
            let Ok((bytes, _)) = self.world.disk.memory.get(&name) else { continue };
            if !IntactJournal::is_begun(&bytes) {
                continue;
            }
            let left = IntactJournal::read(bytes).map_err(|_| Stop::Failed(Errno::BadMessage))?;
            if left.next > left.first {
                found.push((Some(name), left));
            }
        }
        found.sort_by_key(|(_, left)| (left.first, std::cmp::Reverse(left.next)));
        found.dedup_by_key(|(_, left)| left.first);
        Ok(found)
    }

    /// The inodes of all journals of the subtree in the store, by any writer.
    fn inos_in_store(&mut self) -> BTreeSet<Ino> {
        let store = &self.world.disk.memory;
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
        self.world.check(taken_up);
        let path = self.job().path.clone();
        let released = self.world.ask_at(&path, &CallKind::Release { subtree });
        self.notice_crashes();
        if released.is_err() && self.owner_in_force(at) != ClientId(0) {
            return Err(Stop::Failed(Errno::Io));
        }
        self.job().given_back();
        self.is_alive(client)
    }
}
