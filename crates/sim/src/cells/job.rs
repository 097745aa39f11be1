//! Work on a subtree under the policy in force: by a journal of the client's own, or by requests.
//!
//! The steps are those of the library (`cudele::Subtree`), on a disk that can lose unsynced data
//! and with a process that can be struck between any two of them.

use std::collections::BTreeSet;

use client::{ClientSubtree, Grant};
use metastore::request::client_journal_name;
use namespace::PlannedInode;
use objstore::ObjectStore;
use policy::{Cell, Composition, Mechanism, Policy, Transition};
use types::{Attr, Cred, Epoch, Errno, Ino, Seq, Tid};
use wire::{Answer, Op};

use super::ledger::{Kept, Ledger, Shown, Update};
use super::machine::{Machine, Owner};
use super::{Cells, Done, Stop};

/// A journal of an earlier process, or a part of this one's whose merge failed.
#[derive(Clone, Debug)]
pub(super) struct Earlier {
    pub(super) left: client::IntactJournal,
    pub(super) object: Option<String>,
    /// If it is of this process: whether it is on its disk.
    pub(super) sealed: Option<bool>,
}

/// A subtree that a process has decoupled.
#[derive(Debug)]
pub(super) struct Holding {
    pub(super) inner: ClientSubtree,
    pub(super) policy: Cell,
    /// The policy gives the cell's promise by Nonvolatile Apply.
    pub(super) nonvolatile: bool,
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
    /// A policy that may be in force instead: the reply to a change was lost.
    pub(super) doubt: Vec<Cell>,
    /// The last request to the monitor, if its reply was lost.
    pub(super) question: Option<Tid>,
    /// The policies of which one may be in force when the subtree is shared again; None means no
    /// change. More than one if the reply to a change was lost.
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
        let mut inner = ClientSubtree::new(grant, next_seq);
        owner.ranges.iter().skip(1).for_each(|range| inner.extend(*range));
        let (earlier, merged_in, nonvolatile) = (Vec::new(), None, false);
        Self { inner, policy, nonvolatile, on_disk: 0, in_store: 0, earlier, owner, merged_in }
    }

    /// The mechanisms that complete the policy.
    pub(super) fn composition(&self) -> Composition {
        if self.nonvolatile { nonvolatile() } else { self.policy.composition() }
    }

    /// Whether the policy has a mechanism.
    pub(super) fn holds(&self, mechanism: Mechanism) -> bool {
        self.composition().contains(mechanism)
    }

    pub(super) fn object_from(&self, first: Seq) -> String {
        let grant = self.owner.ranges.first().copied().unwrap_or_default();
        client_journal_name(self.inner.root(), self.owner.client, grant, first.0)
    }

    pub(super) fn journal(&mut self) -> Vec<u8> {
        let mut bytes = self.inner.header().encode().to_vec();
        bytes.extend(self.inner.blocks().concat());
        bytes
    }

    /// Whether anything waits for the mechanisms of the policy.
    pub(super) fn is_pending(&self) -> bool {
        self.inner.events() > 0 || self.earlier.iter().any(|part| part.sealed.is_some())
    }

    /// The client sent a merge request for its journal: later events go to another part, with
    /// another name. The completed persists record all storage of the sealed part.
    pub(super) fn seal(&mut self, (on_disk, in_store): (bool, bool)) {
        if self.inner.events() == 0 {
            return;
        }
        let (bytes, all) = (self.journal(), self.inner.blocks().len());
        let (on_disk, in_store) =
            (on_disk || self.on_disk == all, in_store || self.in_store == all);
        let first = self.inner.header().first_seq;
        self.inner.clear();
        (self.on_disk, self.in_store) = (0, 0);
        let object = in_store.then(|| self.object_from(first));
        if let Some(object) = &object {
            self.note_object(object);
        }
        let left = client::IntactJournal { bytes, first, next: self.inner.next_seq(), torn: false };
        self.earlier.push(Earlier { left, object, sealed: Some(on_disk) });
    }

    pub(super) fn note_object(&mut self, object: &str) {
        if !self.owner.objects.iter().any(|known| known == object) {
            self.owner.objects.push(object.to_owned());
        }
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

    /// The subtree state in the process of the current job.
    pub(super) fn holding(&mut self) -> Done<&mut Holding> {
        let process = self.jobs[self.current].process.as_mut().ok_or(Stop::Killed)?;
        process.holds.as_deref_mut().ok_or(Stop::Failed(Errno::Stale))
    }

    /// Takes the subtree for the process, under the policy in force or another one.
    pub(super) fn decouple(&mut self, cell: Cell) -> Done<()> {
        let client = self.client()?;
        self.note("is decoupled", cell);
        if self.job().machine.owner.as_ref().is_some_and(|owner| owner.merged_in.is_some()) {
            // Once the subtree is given away, no client could repeat the merge.
            self.checkpoint(client)?;
        } else if self.job().machine.has_files() && self.is_nobodys() {
            // The decoupling ended by a merge whose answer never came, or another client gave it
            // up. Under new numbers, old notes and journals would only be in the way.
            self.local_step(client)?;
            self.job().forget_files();
        }
        self.replay_logs(client)?;
        let id = self.world.clients[client].id();
        let mut policy = self.policy_of(cell);
        let nonvolatile = policy.contains(Mechanism::NonvolatileApply);
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
        // If the client had it already, another change may wait for it still.
        let waiting = self.job().next.clone();
        self.changed(cell, store);
        let job = self.job();
        job.next.extend(waiting);
        job.releasing = false;
        job.granted = Some(answer.range);
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
            reached: Seq(1),
            last_ino: Ino(0),
            merged_in: None,
            empty,
            objects: Vec::new(),
            adopted: Vec::new(),
        };
        let holding = Holding { nonvolatile, ..Holding::new(owner, root) };
        let process = job.process.as_mut().ok_or(Stop::Killed)?;
        process.holds = Some(Box::new(holding));
        if policy.persists() { self.remember() } else { Ok(()) }
    }

    /// Notes on the machine that it owns the subtree: atomically, and durable.
    pub(super) fn remember(&mut self) -> Done<()> {
        let client = self.client()?;
        self.local_step(client)?;
        let holding = self.holding()?;
        holding.owner.last_ino = holding.inner.last_taken();
        holding.owner.reached = holding.inner.next_seq();
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

    /// Appends to the journal. The only request is for more numbers.
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
            let new = PlannedInode { mode, time, ..PlannedInode::default() };
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
                undone: false,
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
        let local = holding.holds(Mechanism::LocalPersist);
        if local { self.remember() } else { Ok(()) }
    }

    /// Completes the policy: the cell's promise holds for the appended updates.
    pub(super) fn complete(&mut self) -> Done<()> {
        let cell = self.holding()?.policy;
        self.note("completes", cell);
        let holding = self.holding()?;
        let (updates, composition) = (holding.inner.events(), holding.composition());
        self.execute(&composition, false)?;
        self.tally.updates(cell, usize::try_from(updates).unwrap_or(0));
        if composition.contains(Mechanism::NonvolatileApply) {
            self.tally.nonvolatile += updates;
        }
        Ok(())
    }

    /// Merges, under any consistency, and gives the subtree back.
    pub(super) fn merge(&mut self) -> Done<()> {
        let cell = self.holding()?.policy;
        self.note("merges", cell);
        let composition = self.holding()?.composition();
        let applies = composition.mechanisms().any(Mechanism::applies);
        let apply = Composition::One(Mechanism::VolatileApply);
        let visible = if applies { composition } else { Composition::serial([composition, apply]) };
        match self.execute(&visible, true) {
            // An earlier attempt gave it back, and its merged updates are in the metadata store.
            Err(Stop::Failed(Errno::Stale)) => {
                let held = self.held_updates()?;
                // If the policy says so, the client merges again the updates that a crash of the
                // server undid. Under another policy, journals that no process needs any more may
                // be here.
                let repeats = self.holding()?.holds(Mechanism::LocalPersist);
                let updates = &self.job().ledger.updates;
                let unmerged = |at: &usize| updates[*at].shown == Shown::No;
                let (unmerged, merged): (Vec<_>, Vec<_>) = held.into_iter().partition(unmerged);
                if unmerged.iter().any(|at| repeats || !updates[*at].undone) {
                    let text = "the subtree is everybody's, but was never merged".to_owned();
                    self.world.check(Err(text));
                }
                self.job().ledger.merged(&merged, true);
            }
            other => other?,
        }
        self.job().given_back();
        self.forget()
    }

    /// The updates in the journals that the process holds.
    pub(super) fn held_updates(&mut self) -> Done<Vec<usize>> {
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
        if holding.holds(Mechanism::LocalPersist) {
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
}

impl Job {
    /// A journal is kept by a mechanism.
    pub(super) fn keep(&mut self, journal: &[u8], mechanism: Mechanism) {
        for at in self.ledger.places(&Cells::inos(journal)) {
            let kept = &mut self.ledger.updates[at].kept;
            kept.disk |= mechanism == Mechanism::LocalPersist;
            kept.store |= mechanism == Mechanism::GlobalPersist;
        }
    }

    /// Removes the machine's notes about the subtree.
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

    /// The subtree is shared again.
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

/// Weak consistency and global durability in one mechanism.
pub(super) fn nonvolatile() -> Composition {
    let mechanisms = [Mechanism::AppendClientJournal, Mechanism::NonvolatileApply];
    Composition::serial(mechanisms.map(Composition::One))
}

/// Whether the policy of a cell has clients keep a log of their requests.
pub(super) fn logs(cell: Cell) -> bool {
    holds(cell, Mechanism::Rpcs) && holds(cell, Mechanism::LocalPersist)
}

/// Whether the composition of a cell has a mechanism.
pub(super) fn holds(cell: Cell, mechanism: Mechanism) -> bool {
    cell.composition().contains(mechanism)
}
