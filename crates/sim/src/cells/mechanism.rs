//! The mechanisms that complete a policy, on the client's side (`cudele::Subtree::complete` and
//! `cudele::mechanism`): each reads the journal that is held, and may be struck at any step.

use client::Left;
use objstore::{Expect, ObjectStore, SyncScope};
use policy::{Composition, Mechanism};
use types::Errno;
use wire::{MergeFlags, Op, Unused};

use super::job::{Earlier, holds};
use super::machine::File;
use super::{Cells, Done, Stop};

impl Cells {
    pub(super) fn carry_out(&mut self, composition: &Composition, release: bool) -> Done<()> {
        let client = self.client()?;
        if composition.contains(Mechanism::GlobalPersist) {
            self.store_earlier()?;
        }
        let merges = composition.mechanisms().any(Mechanism::applies);
        let holding = self.holding()?;
        let unnoted = holding.inner.last_taken() > holding.owner.last_ino;
        let notes = merges && unnoted && !composition.contains(Mechanism::LocalPersist);
        if notes && self.job().machine.owner.is_some() {
            self.remember()?;
        }
        let tenure = self.epoch(client);
        let done = self.run(composition, release);
        if done.is_err()
            && let Ok(holding) = self.holding()
        {
            // It may be merged, and then the server deletes the object in its own time.
            holding.in_store = 0;
        }
        done?;
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
            return self.merged(client, composition.contains(Mechanism::GlobalPersist));
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

    fn merged(&mut self, client: usize, stored: bool) -> Done<()> {
        let holding = self.holding()?;
        let own = holding.object_from(holding.inner.header().first_seq);
        if !stored && holding.owner.objects.contains(&own) {
            // It was persisted for a policy that did not come into force.
            self.local_step(client)?;
            let _ = self.world.disk.memory.delete(&own);
        }
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
            let left = left.clone();
            let (name, bytes) = (holding.object_from(left.first), left.bytes);
            self.local_step(client)?;
            let next = left.next;
            let there = self.world.disk.memory.get(&name).ok();
            let there = there.and_then(|(bytes, _)| client::Left::read(bytes).ok());
            if there.is_none_or(|there| there.next < next) {
                let _ = self.world.disk.memory.put(&name, &bytes, Expect::Any);
            }
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
        let op = Op::Merge {
            subtree,
            bytes: length,
            object: object.as_bytes(),
            unused: Unused::default(),
            flags,
        };
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
            match Left::read(file.written) {
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
