//! The mechanisms that complete a policy, on the client's side (`cudele::Subtree::complete` and
//! `cudele::mechanism`): each reads the journal that is held, and may be struck at any step.

use client::{ByReference, IntactJournal, RunThreshold, may_go_by_value};
use metastore::request::rest_name;
use objstore::{Expect, ObjectStore, SyncScope};
use policy::{Composition, Mechanism};
use types::Errno;
use wire::{Answer, MergeFlags, Op, UnusedNumbers};

use super::job::Earlier;
use super::machine::File;
use super::{Cells, Done, Stop};

impl Cells {
    pub(super) fn execute(&mut self, composition: &Composition, release: bool) -> Done<()> {
        let client = self.client()?;
        self.persist_sealed(composition)?;
        let merges = composition.mechanisms().any(Mechanism::applies);
        let holding = self.holding()?;
        let unnoted = holding.inner.last_taken() > holding.owner.last_ino
            || holding.inner.next_seq() > holding.owner.reached;
        let notes = merges && unnoted && !composition.contains(Mechanism::LocalPersist);
        if notes && self.job().machine.owner.is_some() {
            self.remember()?;
        }
        let term = self.epoch(client);
        self.run(composition, release)?;
        if merges && term != self.epoch(client) {
            // To a server that has nothing of earlier merges: only now is that known.
            let again = self.run(composition, release);
            if again.is_err()
                && let Ok(holding) = self.holding()
            {
                holding.seal((composition.contains(Mechanism::LocalPersist), stores(composition)));
            }
            again?;
        }
        let holding = self.holding()?;
        let (blocks, events) = (holding.inner.blocks().len(), holding.inner.events());
        if composition.contains(Mechanism::LocalPersist) {
            holding.on_disk = blocks;
        }
        if composition.contains(Mechanism::GlobalPersist) && events > 0 {
            holding.in_store = blocks;
            let object = holding.object_from(holding.inner.header().first_seq);
            holding.note_object(&object);
        }
        if merges {
            return self.merged(client, stores(composition));
        }
        if composition.mechanisms().any(Mechanism::persists) {
            self.remember()?;
            let holding = self.holding()?;
            let parts = holding.earlier.iter().filter(|part| part.sealed.is_some());
            let mut journals: Vec<_> = parts.map(|part| part.left.bytes.clone()).collect();
            journals.push(holding.journal());
            for (bytes, mechanism) in journals
                .iter()
                .flat_map(|bytes| composition.mechanisms().map(move |mechanism| (bytes, mechanism)))
            {
                self.job().keep(bytes, mechanism);
            }
        }
        Ok(())
    }

    fn merged(&mut self, client: usize, stored: bool) -> Done<()> {
        let holding = self.holding()?;
        let own = (!stored).then(|| holding.object_from(holding.inner.header().first_seq));
        let parts = holding.earlier.iter().filter(|part| part.object.is_none());
        let sent = parts.map(|part| holding.object_from(part.left.first)).chain(own);
        let sent: Vec<_> = sent.filter(|own| holding.owner.objects.contains(own)).collect();
        for own in sent {
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
        let persists = holding.composition().mechanisms().any(Mechanism::persists);
        let notes = persists || self.job().machine.owner.is_some();
        if notes { self.remember() } else { Ok(()) }
    }

    /// Sealed parts come before the open journal, wherever a composition persists.
    fn persist_sealed(&mut self, composition: &Composition) -> Done<()> {
        let client = self.client()?;
        if composition.contains(Mechanism::GlobalPersist) {
            self.store_earlier()?;
        }
        if !composition.contains(Mechanism::LocalPersist) {
            return Ok(());
        }
        for at in 0..self.holding()?.earlier.len() {
            let Earlier { left, sealed, .. } = self.holding()?.earlier[at].clone();
            if sealed == Some(false) {
                self.local_step(client)?;
                let mut file = File::default();
                file.written.clone_from(&left.bytes);
                file.sync();
                self.job().machine.journals.insert(left.first, file);
                self.holding()?.earlier[at].sealed = Some(true);
                self.kept(&left.bytes, Mechanism::LocalPersist)?;
            }
        }
        Ok(())
    }

    /// Puts journals of earlier processes, which are on this disk only, into the store.
    pub(super) fn store_earlier(&mut self) -> Done<()> {
        let client = self.client()?;
        for at in 0..self.holding()?.earlier.len() {
            let holding = self.holding()?;
            let Earlier { left, object, .. } = &holding.earlier[at];
            if object.is_some() {
                continue;
            }
            let left = left.clone();
            let (name, bytes) = (holding.object_from(left.first), left.bytes);
            self.local_step(client)?;
            let next = left.next;
            let there = self.world.disk.memory.get(&name).ok();
            let there = there.and_then(|(bytes, _)| client::IntactJournal::read(bytes).ok());
            if there.is_none_or(|there| there.next < next) {
                let _ = self.world.disk.memory.put(&name, &bytes, Expect::Any);
            }
            let holding = self.holding()?;
            holding.earlier[at].object = Some(name.clone());
            holding.note_object(&name);
            self.kept(&bytes, Mechanism::GlobalPersist)?;
        }
        Ok(())
    }

    /// A mechanism completed for a journal. Where the policy does not ask for it (yet), that counts
    /// only when it is noted.
    fn kept(&mut self, journal: &[u8], mechanism: Mechanism) -> Done<()> {
        if self.holding()?.holds(mechanism) {
            self.job().keep(journal, mechanism);
        }
        Ok(())
    }

    fn run(&mut self, composition: &Composition, release: bool) -> Done<()> {
        let merges = composition.mechanisms().any(Mechanism::applies);
        if merges {
            let store = composition.contains(Mechanism::NonvolatileApply);
            self.merge_earlier(MergeFlags { store, ..MergeFlags::default() })?;
        }
        for mechanism in composition.mechanisms() {
            match mechanism {
                Mechanism::LocalPersist => self.local_persist()?,
                Mechanism::GlobalPersist => self.global_persist()?,
                Mechanism::VolatileApply | Mechanism::NonvolatileApply => {
                    let store = mechanism == Mechanism::NonvolatileApply;
                    if store {
                        self.global_persist()?;
                    }
                    let stored = store || composition.contains(Mechanism::GlobalPersist);
                    let done =
                        self.apply(stored, MergeFlags { release, store, ..MergeFlags::default() });
                    if done.is_err()
                        && let Ok(holding) = self.holding()
                    {
                        // It may be merged.
                        holding.seal((composition.contains(Mechanism::LocalPersist), stored));
                    }
                    done?;
                }
                Mechanism::AppendClientJournal | Mechanism::Rpcs | Mechanism::Stream => {}
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
        // The server may die now, and with it the unsynced writes of the store.
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

    fn apply(&mut self, stored: bool, flags: MergeFlags) -> Done<()> {
        let client = self.client()?;
        let holding = self.holding()?;
        let events = holding.inner.events();
        let object = holding.object_from(holding.inner.header().first_seq);
        let object = if stored && events > 0 { object } else { String::new() };
        let bytes = holding.journal();
        self.job().releasing |= flags.release;
        if self.rng.percent(50) && self.apply_by_reference((&bytes, &object), flags)? {
            return Ok(());
        }
        let send = !flags.store || object.is_empty();
        self.send_journal(client, (&bytes, &object, send), flags)
    }

    /// Merges by reference (`cudele::mechanism::by_reference`). Returns whether that was possible.
    fn apply_by_reference(
        &mut self,
        (bytes, object): (&[u8], &str),
        flags: MergeFlags,
    ) -> Done<bool> {
        let (client, subtree) = (self.client()?, self.job().root);
        let Answer::Attr(root) = self.request(client, Op::GetAttr { ino: subtree })? else {
            return Err(Stop::Failed(Errno::Io));
        };
        let holding = self.holding()?;
        let (header, blocks) = (holding.inner.header(), holding.inner.blocks());
        let worth = RunThreshold { names_min: 1, names_per_directory_min: 0 };
        let reference = ByReference::of((&header, blocks), (&root, root.size == 0), worth);
        let Ok(reference) = reference else { return Ok(false) };
        let mut rest = String::new();
        let mut objects = reference.objects.clone();
        if !object.is_empty() {
            rest = rest_name(object);
            objects.push((rest.clone(), reference.rest()));
        }
        for (name, bytes) in objects {
            self.local_step(client)?;
            let put = self.world.disk.memory.put(&name, &bytes, Expect::Any);
            let _ = put.map_err(|error| Stop::Failed(error.errno))?;
        }
        self.local_step(client)?;
        let ledger = &mut self.job().ledger;
        let places = ledger.places(&Self::inos(bytes));
        let stable = !object.is_empty();
        let group = if stable { ledger.group() } else { 0 };
        ledger.sent(&places, group);
        let message = reference.message().concat();
        let op = Op::Merge {
            subtree,
            bytes: message.len() as u64,
            object: rest.as_bytes(),
            unused: UnusedNumbers::default(),
            flags: MergeFlags { by_reference: true, ..flags },
        };
        match self.transfer(client, op, Some(&message)) {
            Err(Stop::Failed(errno)) if may_go_by_value(errno) => {
                self.tally.refused_runs += 1;
                return Ok(false);
            }
            answered => drop(answered?),
        }
        self.tally.merged_runs += reference.list.dirs.len() as u64;
        self.job().ledger.merged(&places, stable || flags.store);
        if stable {
            self.local_step(client)?;
            let _ = self.world.disk.memory.delete(object);
        }
        Ok(true)
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
            unused: UnusedNumbers::default(),
            flags,
        };
        // The process may be struck, and the merge go on.
        match self.transfer(client, op, send.then_some(bytes)) {
            // The server deletes an object when its events are merged and stored.
            Err(Stop::Failed(Errno::NotFound))
                if stable && self.world.disk.memory.get(object).is_err() => {}
            answered => drop(answered?),
        }
        self.job().ledger.merged(&places, stable || flags.store);
        Ok(())
    }

    /// Merges the journals of earlier processes; and if the server restarted since the last merge,
    /// the local copy of that merge's journal.
    fn merge_earlier(&mut self, flags: MergeFlags) -> Done<()> {
        let client = self.client()?;
        let epoch = self.epoch(client);
        let holding = self.holding()?;
        let first = holding.inner.header().first_seq;
        let lost = holding.merged_in.is_some_and(|term| term != epoch);
        if lost && holding.holds(Mechanism::LocalPersist) {
            let journals = self.local_journals()?;
            let lost = journals.into_iter().filter(|earlier| earlier.left.next <= first);
            let known = std::mem::take(&mut self.holding()?.earlier).into_iter();
            self.holding()?.earlier = client::in_order(known.chain(lost).collect(), |earlier| {
                (earlier.left.first, earlier.left.next)
            });
        }
        let mut at = 0;
        while let Some(Earlier { left, object, .. }) = self.holding()?.earlier.get(at).cloned() {
            let Some(object) = object else {
                self.send_journal(client, (&left.bytes, "", true), flags)?;
                at += 1;
                continue;
            };
            self.local_step(client)?;
            if left.next == left.first {
                let _ = self.world.disk.memory.delete(&object);
            } else {
                if left.torn {
                    let _ = self.world.disk.memory.put(&object, &left.bytes, Expect::Any);
                }
                self.send_journal(client, (&left.bytes, &object, false), flags)?;
            }
            let places = self.job().ledger.places(&Self::inos(&left.bytes));
            for at in places {
                let kept = &mut self.job().ledger.updates[at].kept;
                (kept.memory, kept.store) = (false, false);
            }
            let holding = self.holding()?;
            holding.earlier.remove(at);
            holding.owner.objects.retain(|known| *known != object);
        }
        Ok(())
    }

    /// The journals on the machine's disk, as far as they are intact.
    pub(super) fn local_journals(&mut self) -> Done<Vec<Earlier>> {
        let files: Vec<_> = self.job().machine.journals.values().cloned().collect();
        let mut journals = Vec::new();
        for file in files {
            match IntactJournal::read(file.written) {
                Ok(left) => journals.push(Earlier { left, object: None, sealed: None }),
                Err(error) => {
                    self.world.check(Err(format!("a journal on the disk has a gap: {error:?}")));
                    return Err(Stop::Broken);
                }
            }
        }
        Ok(journals)
    }
}

/// Whether a composition puts the journal into an object.
fn stores(composition: &Composition) -> bool {
    composition.contains(Mechanism::GlobalPersist)
        || composition.contains(Mechanism::NonvolatileApply)
}
