//! Work on a subtree under the policy in force: by a journal of the client's own, or by requests.
//!
//! The steps are those of the library (`cudele::Subtree`), on a disk that can lose what was not
//! synced and with a process that can be struck between any two of them.

use std::collections::BTreeSet;

use client::{Decoupled, Grant};
use metastore::request::client_journal_name;
use namespace::NewInode;
use objstore::{Expect, ObjectStore, SyncScope};
use policy::{Cell, Composition, Mechanism, Policy, Transition};
use types::{Attr, Cred, Epoch, Errno, Ino, Seq};
use wire::{Answer, MergeFlags, Op};

use super::ledger::{Kept, Ledger, Shown, Update};
use super::machine::{File, Machine, Owner};
use super::{Cells, Done, Stop};

/// A journal of an earlier process.
#[derive(Clone, Debug)]
pub(super) struct Earlier {
    pub(super) left: client::Left,
    pub(super) object: Option<String>,
}

/// A subtree that a process has decoupled.
#[derive(Debug)]
pub(super) struct Holding {
    pub(super) inner: Decoupled,
    pub(super) policy: Cell,
    /// Blocks of the journal that were persisted.
    pub(super) on_disk: usize,
    pub(super) in_store: usize,
    pub(super) earlier: Vec<Earlier>,
    pub(super) owner: Owner,
    pub(super) merged_in: Option<Epoch>,
}

/// A process that lives.
#[derive(Debug)]
pub(super) struct Process {
    /// Its place among the clients.
    pub(super) client: usize,
    pub(super) holds: Option<Box<Holding>>,
}

/// A subtree, and the machine that works on it.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) path: String,
    pub(super) root: Ino,
    /// The cell of the policy in force.
    pub(super) cell: Cell,
    /// One that may be in force instead: nobody heard the end of a change.
    pub(super) doubt: Vec<Cell>,
    /// What may be in force when the subtree is everybody's again: one of these; none is for no
    /// change. More than one if nobody heard the end of a change.
    pub(super) next: Vec<Option<Cell>>,
    /// A merge was begun that gives the subtree back.
    pub(super) releasing: bool,
    /// The first numbers of the decoupling, if it was answered.
    pub(super) granted: Option<types::InoRange>,
    pub(super) machine: Machine,
    pub(super) process: Option<Process>,
    pub(super) ledger: Ledger,
}

impl Holding {
    pub(super) fn new(owner: Owner, root: Attr) -> Self {
        let range = owner.ranges.first().copied().unwrap_or_default();
        let Owner { client, epoch, empty, next_seq, policy, .. } = owner;
        let grant = Grant { client, root, range, epoch, empty, check: false };
        let mut inner = Decoupled::new(grant, next_seq);
        owner.ranges.iter().skip(1).for_each(|range| inner.extend(*range));
        let (earlier, merged_in) = (Vec::new(), None);
        Self { inner, policy, on_disk: 0, in_store: 0, earlier, owner, merged_in }
    }

    fn object_from(&self, first: Seq) -> String {
        let grant = self.owner.ranges.first().copied().unwrap_or_default();
        client_journal_name(self.inner.root(), self.owner.client, grant, first.0)
    }

    fn journal(&mut self) -> Vec<u8> {
        let mut bytes = self.inner.header().encode().to_vec();
        bytes.extend(self.inner.blocks().concat());
        bytes
    }
}

impl Cells {
    pub(super) fn client(&self) -> Done<usize> {
        let process = self.jobs[self.current].process.as_ref();
        process.map(|process| process.client).ok_or(Stop::Killed)
    }

    pub(super) fn job(&mut self) -> &mut Job {
        &mut self.jobs[self.current]
    }

    /// What the process of the current job holds.
    pub(super) fn holding(&mut self) -> Done<&mut Holding> {
        let process = self.jobs[self.current].process.as_mut().ok_or(Stop::Killed)?;
        process.holds.as_deref_mut().ok_or(Stop::Failed(Errno::Stale))
    }

    /// Takes the subtree for the process, under the policy in force or another one.
    pub(super) fn decouple(&mut self, cell: Cell) -> Done<()> {
        let client = self.client()?;
        self.note("is decoupled", cell);
        if self.job().machine.owner.as_ref().is_some_and(|owner| owner.merged_in.is_some()) {
            // Once the subtree is given away, nobody could repeat the merge.
            self.checkpoint(client)?;
        }
        let id = self.world.clients[client].id();
        let mut policy = Policy::of_cell(cell);
        let before = Policy::of_cell(self.job().cell);
        let store = Transition::between(&before, &policy, false).store;
        policy.allocated_inodes = 6;
        let (path, text) = (self.job().path.clone(), policy.to_yaml());
        self.job().doubt.push(cell);
        self.job().granted = None;
        let op = Op::Decouple { path: path.as_bytes(), client: id, policy: text.as_bytes() };
        let Answer::Decoupled(answer) = self.ask_monitor(client, &op)? else {
            return Err(Stop::Failed(Errno::Io));
        };
        let granted = self.world.oracle.granted(id, answer.range);
        self.world.check(granted);
        let job = self.job();
        job.releasing = false;
        job.is_under(cell);
        job.granted = Some(answer.range);
        if store {
            job.ledger.stored();
        }
        if job.machine.owner.as_ref().is_some_and(|it| it.client != id || it.merged_in.is_some()) {
            job.forget_files();
        }
        let wire::Decoupled { root, range, epoch, empty } = answer;
        let owner = Owner {
            client: id,
            ranges: vec![range],
            epoch,
            policy: cell,
            next_seq: Seq(1),
            last_ino: Ino(0),
            merged_in: None,
            empty,
            objects: Vec::new(),
            adopted: Vec::new(),
        };
        let holding = Holding::new(owner, root);
        let process = job.process.as_mut().ok_or(Stop::Killed)?;
        process.holds = Some(Box::new(holding));
        if policy.persists() { self.remember() } else { Ok(()) }
    }

    /// Notes on the machine that it owns the subtree: atomically, and durable.
    pub(super) fn remember(&mut self) -> Done<()> {
        let client = self.client()?;
        self.local_step(client)?;
        let holding = self.holding()?;
        holding.owner.last_ino = holding.inner.last_ino();
        let owner = holding.owner.clone();
        self.job().machine.owner = Some(owner);
        self.local_step(client)
    }

    /// Everything that the server has is written to the metadata store.
    pub(super) fn checkpoint(&mut self, client: usize) -> Done<()> {
        self.request(client, Op::Checkpoint)?;
        self.jobs.iter_mut().for_each(|job| job.ledger.stored());
        Ok(())
    }

    /// Appends to the journal. Asks nobody, but for more numbers.
    pub(super) fn append(&mut self, count: u64) -> Done<()> {
        let client = self.client()?;
        for _ in 0..count {
            if self.holding()?.inner.inodes_left() == 0 {
                self.extend(client)?;
            }
            let at = self.current;
            let Job { ledger, process, root, .. } = &mut self.jobs[at];
            let holding = process.as_mut().and_then(|it| it.holds.as_deref_mut());
            let Some(holding) = holding else { return Err(Stop::Killed) };
            let usable = |update: &Update| {
                update.kept.memory || matches!(update.shown, Shown::Memory | Shown::Stable)
            };
            let (parent, dir) = {
                let dirs = ledger.dirs(*root, usable);
                (dirs[self.rng.index(dirs.len())], self.rng.percent(20))
            };
            let mode = if dir { 0o040_777 } else { 0o100_644 };
            let time = self.world.clock().time;
            let name = format!("u{}", ledger.updates.len());
            let new = NewInode { mode, time, ..NewInode::default() };
            let created = holding.inner.create(&Cred::root(), parent, name.as_bytes(), &new);
            let Ok(ino) = created else { continue };
            self.world.note(format_args!("$ appends {name} ({ino}) in {parent}"));
            let kept = Kept { memory: true, ..Kept::default() };
            let (shown, resends, whole, ordered) = (Shown::No, None, 0, 0);
            ledger.add(Update {
                parent,
                name,
                ino,
                dir,
                dead: false,
                shown,
                kept,
                resends,
                whole,
                ordered,
            });
        }
        self.local_step(client)
    }

    fn extend(&mut self, client: usize) -> Done<()> {
        let subtree = self.job().root;
        let count = self.rng.between(1, 20);
        let answer = self.request(client, Op::Extend { subtree, count })?;
        let Answer::Range(range) = answer else { return Err(Stop::Failed(Errno::Io)) };
        let granted = self.world.oracle.granted(self.world.clients[client].id(), range);
        self.world.check(granted);
        let holding = self.holding()?;
        holding.inner.extend(range);
        holding.owner.ranges.push(range);
        let local = holds(holding.policy, Mechanism::LocalPersist);
        if local { self.remember() } else { Ok(()) }
    }

    /// Completes the policy: what was appended is as the cell promises.
    pub(super) fn complete(&mut self) -> Done<()> {
        let cell = self.holding()?.policy;
        self.note("completes", cell);
        let updates = self.holding()?.inner.events();
        self.carry_out(&cell.composition(), false)?;
        self.tally.updates(cell, usize::try_from(updates).unwrap_or(0));
        Ok(())
    }

    /// Merges, whatever the consistency, and gives the subtree back.
    pub(super) fn merge(&mut self) -> Done<()> {
        let cell = self.holding()?.policy;
        self.note("merges", cell);
        let composition = cell.composition();
        let applies = composition.mechanisms().any(Mechanism::applies);
        let apply = Composition::One(Mechanism::VolatileApply);
        let visible = if applies { composition } else { Composition::serial([composition, apply]) };
        match self.carry_out(&visible, true) {
            // An earlier attempt gave it back, and what it merged is in the metadata store.
            Err(Stop::Failed(Errno::Stale)) => {
                let held = self.held_updates()?;
                let job = self.job();
                let lost = held.iter().any(|at| job.ledger.updates[*at].shown == Shown::No);
                if lost {
                    let text = "the subtree is everybody's, but was never merged".to_owned();
                    self.world.check(Err(text));
                }
                let job = self.job();
                job.ledger.merged(&held, true);
            }
            other => other?,
        }
        self.job().given_back();
        self.forget()
    }

    /// The updates in the journals that the process holds.
    fn held_updates(&mut self) -> Done<Vec<usize>> {
        let holding = self.holding()?;
        let mut inos = Self::inos(&holding.journal());
        for earlier in &holding.earlier {
            inos.extend(Self::inos(&earlier.left.bytes));
        }
        Ok(self.job().ledger.places(&inos))
    }

    /// Ends the work after a merge.
    fn forget(&mut self) -> Done<()> {
        let client = self.client()?;
        let adopted = std::mem::take(&mut self.holding()?.owner.adopted);
        if !adopted.is_empty() {
            self.checkpoint(client)?;
            for object in adopted {
                self.local_step(client)?;
                let _ = self.world.disk.memory.delete(&object);
            }
        }
        let holding = self.holding()?;
        if holds(holding.policy, Mechanism::LocalPersist) {
            holding.owner.merged_in = holding.merged_in;
            self.remember()?;
        } else {
            self.local_step(client)?;
            self.job().forget_files();
        }
        if let Some(process) = &mut self.job().process {
            process.holds = None;
        }
        Ok(())
    }

    pub(super) fn carry_out(&mut self, composition: &Composition, release: bool) -> Done<()> {
        let client = self.client()?;
        if composition.contains(Mechanism::GlobalPersist) {
            self.store_earlier()?;
        }
        let merges = composition.mechanisms().any(Mechanism::applies);
        let holding = self.holding()?;
        let unnoted = holding.inner.last_ino() > holding.owner.last_ino;
        let notes = merges && unnoted && !composition.contains(Mechanism::LocalPersist);
        if notes && self.job().machine.owner.is_some() {
            self.remember()?;
        }
        let tenure = self.epoch(client);
        self.run(composition, release)?;
        if merges && tenure != self.epoch(client) {
            // To a server that has nothing of earlier merges: only now is that known.
            self.run(composition, release)?;
        }
        let holding = self.holding()?;
        let (blocks, events) = (holding.inner.blocks().len(), holding.inner.events());
        if composition.contains(Mechanism::LocalPersist) {
            holding.on_disk = blocks;
        }
        if composition.contains(Mechanism::GlobalPersist) && events > 0 {
            holding.in_store = blocks;
            let object = holding.object_from(holding.inner.header().first_seq);
            if !holding.owner.objects.contains(&object) {
                holding.owner.objects.push(object);
            }
        }
        if merges {
            return self.merged(client);
        }
        if composition.mechanisms().any(Mechanism::persists) {
            self.remember()?;
            let bytes = self.holding()?.journal();
            for mechanism in composition.mechanisms() {
                self.job().keep(&bytes, mechanism);
            }
        }
        Ok(())
    }

    fn merged(&mut self, client: usize) -> Done<()> {
        let held = self.held_updates()?;
        for at in held {
            let kept = &mut self.job().ledger.updates[at].kept;
            (kept.memory, kept.store) = (false, false);
        }
        let epoch = self.epoch(client);
        let holding = self.holding()?;
        holding.earlier.clear();
        holding.owner.objects.clear();
        holding.inner.clear();
        (holding.on_disk, holding.in_store) = (0, 0);
        holding.owner.next_seq = holding.inner.next_seq();
        holding.merged_in = Some(epoch);
        let persists = holding.policy.composition().mechanisms().any(Mechanism::persists);
        let notes = persists || self.job().machine.owner.is_some();
        if notes { self.remember() } else { Ok(()) }
    }

    /// Puts journals of earlier processes, which are on this disk only, into the store.
    pub(super) fn store_earlier(&mut self) -> Done<()> {
        let client = self.client()?;
        for at in 0..self.holding()?.earlier.len() {
            let holding = self.holding()?;
            let Earlier { left, object } = &holding.earlier[at];
            if object.is_some() {
                continue;
            }
            let (name, bytes) = (holding.object_from(left.first), left.bytes.clone());
            self.local_step(client)?;
            let _ = self.world.disk.memory.put(&name, &bytes, Expect::Any);
            let holding = self.holding()?;
            holding.earlier[at].object = Some(name.clone());
            holding.owner.objects.push(name);
            self.kept(&bytes, Mechanism::GlobalPersist)?;
        }
        Ok(())
    }

    /// A mechanism completed for a journal. Where the policy does not ask for it (yet), that counts
    /// only when it is noted.
    fn kept(&mut self, journal: &[u8], mechanism: Mechanism) -> Done<()> {
        if holds(self.holding()?.policy, mechanism) {
            self.job().keep(journal, mechanism);
        }
        Ok(())
    }

    fn run(&mut self, composition: &Composition, release: bool) -> Done<()> {
        let merges = composition.mechanisms().any(Mechanism::applies);
        if merges {
            self.merge_earlier()?;
        }
        for mechanism in composition.mechanisms() {
            match mechanism {
                Mechanism::LocalPersist => self.local_persist()?,
                Mechanism::GlobalPersist => self.global_persist()?,
                Mechanism::VolatileApply => {
                    let stored = composition.contains(Mechanism::GlobalPersist);
                    self.volatile_apply(stored, release)?;
                }
                Mechanism::AppendClientJournal
                | Mechanism::NonvolatileApply
                | Mechanism::Rpcs
                | Mechanism::Stream => {}
            }
        }
        Ok(())
    }

    fn local_persist(&mut self) -> Done<()> {
        let client = self.client()?;
        let holding = self.holding()?;
        let (first, bytes, fresh) =
            (holding.inner.header().first_seq, holding.journal(), holding.on_disk == 0);
        self.local_step(client)?;
        let mut file = File::default();
        if !fresh {
            file = self.job().machine.journals.get(&first).cloned().unwrap_or_default();
        }
        file.written.clone_from(&bytes);
        if !fresh {
            // Written on, under its name.
            self.job().machine.journals.insert(first, file.clone());
            self.local_step(client)?;
        }
        file.sync();
        self.local_step(client)?;
        self.job().machine.journals.insert(first, file);
        self.kept(&bytes, Mechanism::LocalPersist)?;
        self.local_step(client)
    }

    fn global_persist(&mut self) -> Done<()> {
        let client = self.client()?;
        let holding = self.holding()?;
        if holding.inner.events() == 0 {
            return Ok(());
        }
        let object = holding.object_from(holding.inner.header().first_seq);
        let (header, done) = (holding.inner.header().encode().len(), holding.in_store);
        let before: usize = holding.inner.blocks()[..done].iter().map(Vec::len).sum();
        let offset = if done == 0 { 0 } else { header + before };
        let bytes = holding.journal();
        self.local_step(client)?;
        let store = &self.world.disk.memory;
        let written = store.write_range(&object, offset as u64, &bytes[offset..]);
        written.map_err(|error| Stop::Failed(error.errno))?;
        // The server may die now, and with it what the store had not synced.
        let crashes = self.world.crashes;
        self.step(client)?;
        self.local_step(client)?;
        if crashes != self.world.crashes {
            return Err(Stop::Failed(Errno::Io));
        }
        let synced = self.world.disk.memory.sync(SyncScope::Object(&object));
        synced.map_err(|error| Stop::Failed(error.errno))?;
        self.kept(&bytes, Mechanism::GlobalPersist)?;
        self.local_step(client)
    }

    fn volatile_apply(&mut self, stored: bool, release: bool) -> Done<()> {
        let client = self.client()?;
        let holding = self.holding()?;
        let events = holding.inner.events();
        let object = holding.object_from(holding.inner.header().first_seq);
        let object = if stored && events > 0 { object } else { String::new() };
        let bytes = holding.journal();
        self.job().releasing |= release;
        let flags = MergeFlags { release, ..MergeFlags::default() };
        self.send_journal(client, (&bytes, &object, true), flags)
    }

    /// Merges a journal, sent with the request or read from the store.
    pub(super) fn send_journal(
        &mut self,
        client: usize,
        (bytes, object, send): (&[u8], &str, bool),
        flags: MergeFlags,
    ) -> Done<()> {
        let subtree = self.job().root;
        let ledger = &mut self.job().ledger;
        let places = ledger.places(&Self::inos(bytes));
        let stable = !object.is_empty();
        let group = if stable { ledger.group() } else { 0 };
        ledger.sent(&places, group);
        let length = if send { bytes.len() as u64 } else { 0 };
        let op = Op::Merge { subtree, bytes: length, object: object.as_bytes(), flags };
        // The process may be struck, and the merge go on.
        self.transfer(client, op, send.then_some(bytes))?;
        self.job().ledger.merged(&places, stable);
        Ok(())
    }

    /// Merges the journals of earlier processes; and if the server started anew since the last
    /// merge, what Local Persist kept of it.
    fn merge_earlier(&mut self) -> Done<()> {
        let client = self.client()?;
        let epoch = self.epoch(client);
        let holding = self.holding()?;
        let first = holding.inner.header().first_seq;
        let lost = holding.merged_in.is_some_and(|tenure| tenure != epoch);
        if lost && holds(holding.policy, Mechanism::LocalPersist) {
            let journals = self.local_journals()?;
            self.holding()?.earlier =
                journals.into_iter().filter(|earlier| earlier.left.next <= first).collect();
        }
        for at in 0..self.holding()?.earlier.len() {
            let Earlier { left, object } = self.holding()?.earlier[at].clone();
            let flags = MergeFlags::default();
            let Some(object) = object else {
                self.send_journal(client, (&left.bytes, "", true), flags)?;
                continue;
            };
            self.local_step(client)?;
            if left.next == left.first {
                let _ = self.world.disk.memory.delete(&object);
                continue;
            }
            if left.torn {
                let _ = self.world.disk.memory.put(&object, &left.bytes, Expect::Any);
            }
            self.send_journal(client, (&left.bytes, &object, false), flags)?;
        }
        Ok(())
    }

    /// The journals on the machine's disk, as far as they are intact.
    pub(super) fn local_journals(&mut self) -> Done<Vec<Earlier>> {
        let files: Vec<_> = self.job().machine.journals.values().cloned().collect();
        let mut journals = Vec::new();
        for file in files {
            match client::Left::read(file.written) {
                Ok(left) => journals.push(Earlier { left, object: None }),
                Err(error) => {
                    self.world.check(Err(format!("a journal on the disk has a gap: {error:?}")));
                    return Err(Stop::Broken);
                }
            }
        }
        Ok(journals)
    }
}

impl Job {
    /// A journal is kept by a mechanism.
    fn keep(&mut self, journal: &[u8], mechanism: Mechanism) {
        for at in self.ledger.places(&Cells::inos(journal)) {
            let kept = &mut self.ledger.updates[at].kept;
            kept.disk |= mechanism == Mechanism::LocalPersist;
            kept.store |= mechanism == Mechanism::GlobalPersist;
        }
    }

    /// What the machine notes of the subtree is removed.
    pub(super) fn forget_files(&mut self) {
        self.machine.forget();
        self.ledger.updates.iter_mut().for_each(|update| update.kept.disk = false);
    }

    /// This policy is in force.
    pub(super) fn is_under(&mut self, cell: Cell) {
        self.cell = cell;
        self.doubt.clear();
        self.next = vec![None];
    }

    /// The subtree is everybody's again.
    pub(super) fn given_back(&mut self) {
        let next = std::mem::replace(&mut self.next, vec![None]);
        match next[..] {
            [Some(only)] => self.is_under(only),
            _ => self.doubt.extend(next.into_iter().flatten()),
        }
    }

    pub(super) fn dirs_shown(&self) -> Vec<Ino> {
        let shown = |update: &Update| matches!(update.shown, Shown::Memory | Shown::Stable);
        self.ledger.dirs(self.root, shown)
    }

    /// The updates of a set of inodes.
    pub(super) fn take_up(&mut self, found: &BTreeSet<Ino>) -> Result<(), String> {
        self.ledger.taken_up(found)
    }
}

/// Whether the composition of a cell has a mechanism.
pub(super) fn holds(cell: Cell, mechanism: Mechanism) -> bool {
    cell.composition().contains(mechanism)
}
