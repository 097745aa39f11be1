//! Work on a subtree under the policy in force: by a journal of the client's own, or by requests.
//!
//! The steps are those of the library (`cudele::Subtree`), on a disk that can lose unsynced data
//! and with a process that can be struck between any two of them.

use std::collections::BTreeSet;

use client::{OwnerNote, SubtreeJob};
use namespace::PlannedInode;
use objstore::ObjectStore;
use policy::{Cell, Composition, Mechanism, Policy, Transition};
use types::{ClientId, Cred, Errno, Ino, InoRange, Tid};
use wire::Answer;

use super::ledger::{Kept, Ledger, Mark, Shown, Update, marks};
use super::machine::{Machine, Owner};
use super::{Cells, Done, Stop};
use crate::call::CallKind;

/// A process that lives.
#[derive(Debug)]
pub(super) struct Process {
    /// Its place among the clients.
    pub(super) client: usize,
    pub(super) holds: Option<Box<SubtreeJob>>,
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

impl Cells {
    pub(super) fn client(&self) -> Done<usize> {
        let process = self.jobs[self.current].process.as_ref();
        process.map(|process| process.client).ok_or(Stop::Killed)
    }

    pub(super) fn job(&mut self) -> &mut Job {
        &mut self.jobs[self.current]
    }

    /// The subtree state in the process of the current job.
    pub(super) fn holding(&mut self) -> Done<&mut SubtreeJob> {
        let process = self.jobs[self.current].process.as_mut().ok_or(Stop::Killed)?;
        process.holds.as_deref_mut().ok_or(Stop::Failed(Errno::Stale))
    }

    /// Takes the subtree for the process, under the policy in force or another one.
    pub(super) fn decouple(&mut self, cell: Cell) -> Done<()> {
        let client = self.client()?;
        self.note("is decoupled", cell);
        if self.job().machine.is_merged() {
            // Once the subtree is given away, no client could repeat the merge.
            self.checkpoint(client)?;
        } else if self.job().machine.has_files() && self.owner_in_force(self.current) == ClientId(0)
        {
            // The decoupling ended by a merge whose answer never came, or another client gave it
            // up. Under new numbers, old notes and journals would only be in the way.
            self.local_step(client)?;
            self.job().forget_files();
        }
        self.replay_logs(client)?;
        let id = self.requests.world.clients[client].id;
        let mut policy = self.policy_of(cell);
        let before = Policy::of_cell(self.job().cell);
        let store = Transition::between(&before, &policy, false).store;
        policy.allocated_inodes = 6;
        let (path, text) = (self.job().path.clone(), policy.to_yaml());
        self.job().doubt.push(cell);
        self.job().granted = None;
        let what = CallKind::Decouple { path, client: id, policy: text };
        let Answer::Decoupled(answer) = self.ask_monitor(client, &what)? else {
            return Err(Stop::Failed(Errno::Io));
        };
        let granted = self.requests.oracle.granted(id, answer.range);
        self.requests.world.check(granted);
        // If the client had it already, another change may wait for it still.
        let waiting = self.job().next.clone();
        self.changed(cell, store);
        let job = self.job();
        job.next.extend(waiting);
        job.releasing = false;
        job.granted = Some(answer.range);
        let over = |it: &Owner| it.note.client != id || it.note.merged_in.is_some();
        if job.machine.owner.as_ref().is_some_and(over) {
            job.forget_files();
        }
        let note = OwnerNote::granted(id, &answer);
        let holding = SubtreeJob::new(note, answer.root, policy.clone());
        let process = job.process.as_mut().ok_or(Stop::Killed)?;
        process.holds = Some(Box::new(holding));
        if policy.persists() { self.remember() } else { Ok(()) }
    }

    /// Notes on the machine that it owns the subtree: atomically, and durable.
    pub(super) fn remember(&mut self) -> Done<()> {
        let client = self.client()?;
        self.local_step(client)?;
        let holding = self.holding()?;
        let owner = Owner { note: holding.present_note(), policy: holding.policy.clone() };
        self.job().machine.owner = Some(owner);
        self.persisted(client)?;
        self.local_step(client)
    }

    /// Everything that the server has is written to the metadata store.
    pub(super) fn checkpoint(&mut self, client: usize) -> Done<()> {
        self.request(client, CallKind::Checkpoint)?;
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
            let time = self.requests.world.clock().time;
            let name = format!("u{}", ledger.updates.len());
            let new = PlannedInode { mode, time, ..PlannedInode::default() };
            let created = holding.inner.create(&Cred::root(), parent, name.as_bytes(), &new);
            let Ok(ino) = created else { continue };
            self.requests.world.note(format_args!("$ appends {name} ({ino}) in {parent}"));
            let kept = Kept { memory: true, ..Kept::default() };
            ledger.add(Update { ino, kept, ..Update::new(parent, &name, dir) });
        }
        self.local_step(client)
    }

    pub(super) fn extend(&mut self, client: usize) -> Done<()> {
        let subtree = self.job().root;
        let count = self.rng.between(1, 20);
        let answer = self.request(client, CallKind::Extend { subtree, count })?;
        let Answer::Range(range) = answer else { return Err(Stop::Failed(Errno::Io)) };
        self.granted(client, range)?;
        let local = self.holding()?.policy.contains(Mechanism::LocalPersist);
        if local { self.remember() } else { Ok(()) }
    }

    /// The server has granted more inode numbers.
    pub(super) fn granted(&mut self, client: usize, range: InoRange) -> Done<()> {
        let granted = self.requests.oracle.granted(self.requests.world.clients[client].id, range);
        self.requests.world.check(granted);
        let holding = self.holding()?;
        holding.take_range(range);
        Ok(())
    }

    /// Some jobs merge parts while they work, if the policy merges.
    pub(super) fn sync_sometimes(&mut self, count: u64) -> Done<()> {
        let merges = self.holding()?.policy.effective().mechanisms().any(Mechanism::applies);
        if merges && self.rng.percent(40) {
            for _ in 0..self.rng.between(1, 3) {
                self.sync_part()?;
                self.append(count)?;
            }
        }
        Ok(())
    }

    /// Completes the policy: the cell's promise holds for the appended updates.
    pub(super) fn complete(&mut self) -> Done<()> {
        let cell = cell_of(&self.holding()?.policy);
        self.note("completes", cell);
        let holding = self.holding()?;
        let (updates, composition) = (holding.inner.events(), holding.policy.effective());
        self.execute(&composition, false)?;
        self.completed(updates)
    }

    /// The mechanisms of the policy completed for so many updates.
    pub(super) fn completed(&mut self, updates: u64) -> Done<()> {
        let policy = &self.holding()?.policy;
        let (cell, nonvolatile) = (cell_of(policy), policy.contains(Mechanism::NonvolatileApply));
        let tally = &mut self.requests.world.tally;
        tally.count(&format!("updates: {cell}"), updates);
        if nonvolatile {
            tally.count("updates by nonvolatile apply", updates);
        }
        Ok(())
    }

    /// Merges, under any consistency, and gives the subtree back.
    pub(super) fn merge(&mut self) -> Done<()> {
        let cell = cell_of(&self.holding()?.policy);
        self.note("merges", cell);
        let visible = self.holding()?.visible();
        match self.execute(&visible, true) {
            // An earlier attempt gave it back, and its merged updates are in the metadata store.
            Err(Stop::Failed(Errno::Stale)) => {
                let held = self.held_updates()?;
                // If the policy says so, the client merges again the updates that a crash of the
                // server undid. Under another policy, journals that no process needs any more may
                // be here.
                let repeats = self.holding()?.policy.contains(Mechanism::LocalPersist);
                let updates = &self.job().ledger.updates;
                let unmerged = |at: &usize| updates[*at].shown == Shown::No;
                let (unmerged, merged): (Vec<_>, Vec<_>) = held.into_iter().partition(unmerged);
                if unmerged.iter().any(|at| repeats || !updates[*at].undone) {
                    let text = "the subtree is everybody's, but was never merged".to_owned();
                    self.requests.world.check(Err(text));
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
        let held: BTreeSet<Mark> =
            holding.journals().iter().flat_map(|bytes| marks(bytes)).collect();
        Ok(self.job().ledger.places(&held))
    }

    /// Ends the work after a merge.
    fn forget(&mut self) -> Done<()> {
        let client = self.client()?;
        let adopted = std::mem::take(&mut self.holding()?.note.adopted);
        if !adopted.is_empty() {
            self.checkpoint(client)?;
            for object in adopted {
                self.local_step(client)?;
                let _ = self.requests.world.memory.delete(&object);
                self.persisted(client)?;
            }
        }
        let holding = self.holding()?;
        if holding.policy.contains(Mechanism::LocalPersist) {
            holding.note.merged_in = holding.merged_in;
            self.remember()?;
        } else {
            self.local_step(client)?;
            self.job().forget_files();
            self.persisted(client)?;
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
        for at in self.ledger.places(&marks(journal)) {
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

    /// The path of a directory of the subtree.
    pub(super) fn path_of(&self, dir: Ino) -> Option<String> {
        if dir == self.root {
            return Some(self.path.clone());
        }
        // The number may have been another one's, of which nothing is left.
        let mut updates = self.ledger.updates.iter().filter(|update| !update.dead);
        let update = updates.find(|update| update.ino == dir)?;
        Some(format!("{}/{}", self.path_of(update.parent)?, update.name))
    }
}

/// The cell of a policy of this simulation.
pub(super) fn cell_of(policy: &Policy) -> Cell {
    policy.cell().expect("each policy is one of a cell")
}

/// The journal that grows.
pub(super) fn journal_of(job: &mut SubtreeJob) -> Vec<u8> {
    let mut bytes = job.inner.header().encode().to_vec();
    bytes.extend(job.inner.blocks().concat());
    bytes
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
