//! A page of dentries: a hash table whose slots are in hash order ([`Slots`]).
//!
//! So the page can be looked up like a hash table and *walked like a sorted list*: `readdir` needs
//! no index of its own and its cursors are stable, growing is one linear pass without re-hashing,
//! and a page splits into two by cutting it in the middle.
//!
//! Behind the table stand the dentries, one *record* after the other in the order in which they
//! came: a new name touches one place of the table, wherever its hash says, and the end of the
//! records, which is likely to be in a cache. Record: inode number, 8 bytes; flags, 1; length of
//! the name, 1; the name.
//!
//! Pages hold at most 12,288 dentries, so that no single operation on one takes longer than a
//! few hundred microseconds; a directory is as many pages as it needs.

use types::{FileType, Ino};

use crate::slots::{Slot, Slots, hash_of, record_of, slot};

/// A page splits when it would hold more dentries than this.
pub(crate) const PAGE_DENTRIES_MAX: usize = 12_288;

const TYPE_MASK: u8 = 0x0f;
const REMOTE: u8 = 0x10;
const DIRTY: u8 = 0x20;
const TOMBSTONE: u8 = 0x40;

/// Where in a record the flags, the length of the name and the name are.
const FLAGS_AT: usize = 8;
const LENGTH_AT: usize = 9;
const NAME_AT: usize = 10;

/// One name of a directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dentry {
    /// What it names; 0 in a tombstone.
    pub(crate) ino: Ino,
    name_start: u32,
    name_len: u8,
    flags: u8,
}

impl Dentry {
    /// Type of the inode.
    pub(crate) fn file_type(self) -> FileType {
        FileType::from_mode(u32::from(self.flags & TYPE_MASK) << 12).unwrap_or_default()
    }

    /// Whether the inode is stored apart from this dentry, under [`Ino::LINKS`].
    pub(crate) fn is_remote(self) -> bool {
        self.flags & REMOTE != 0
    }

    /// Whether the metadata store does not know this state yet.
    pub(crate) fn is_dirty(self) -> bool {
        self.flags & DIRTY != 0
    }

    /// Whether this is a tombstone: the metadata store has the name, and it was removed.
    pub(crate) fn is_tombstone(self) -> bool {
        self.flags & TOMBSTONE != 0
    }

    /// Whether this is a tombstone because the metadata store does not have the name.
    pub(crate) fn is_absent(self) -> bool {
        self.flags & (TOMBSTONE | DIRTY) == TOMBSTONE
    }
}

/// The new target of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) ino: Ino,
    pub(crate) file_type: FileType,
    pub(crate) remote: bool,
}

impl Target {
    fn flags(self) -> u8 {
        (self.file_type as u8) | if self.remote { REMOTE } else { 0 }
    }
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Page {
    /// The leading bits of the hash that all names here share, left-aligned.
    pub(crate) prefix: u32,
    slots: Slots,
    records: Vec<u8>,
    occupied: u32,
    /// Bytes of `records` that no slot refers to.
    dead: usize,
    /// Dentries that are not in the metadata store yet, tombstones included.
    pub(crate) dirty: u32,
    tombstones: u32,
    /// The announced number of names, and bytes of records: a smaller page grows to this.
    expected: (u32, u32),
}

impl Page {
    /// A page with room for so many dentries.
    pub(crate) fn new(depth: u8, prefix: u32, expected: usize) -> Self {
        Self {
            prefix,
            slots: Slots::with_room(depth, expected),
            records: Vec::new(),
            occupied: 0,
            dead: 0,
            dirty: 0,
            tombstones: 0,
            expected: (0, 0),
        }
    }

    /// A page that takes no memory yet, but grows at once to hold so many names of so many bytes.
    pub(crate) fn awaiting(depth: u8, prefix: u32, names: usize, bytes: usize) -> Self {
        let names = names.min(PAGE_DENTRIES_MAX);
        let expected = (names as u32, (names * NAME_AT + bytes) as u32);
        Self { expected, ..Self::new(depth, prefix, 2) }
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.occupied as usize >= PAGE_DENTRIES_MAX
    }

    /// Dentries that are not dirty.
    pub(crate) fn clean_count(&self) -> u32 {
        self.occupied - self.dirty
    }

    /// How many leading bits of the hash all names here share.
    #[inline]
    pub(crate) fn depth(&self) -> u8 {
        self.slots.depth()
    }

    #[inline]
    pub(crate) fn name_of(&self, dentry: Dentry) -> &[u8] {
        let start = dentry.name_start as usize;
        &self.records[start..start + usize::from(dentry.name_len)]
    }

    /// The dentry that a slot refers to.
    #[inline]
    fn dentry(&self, slot: Slot) -> Dentry {
        let start = record_of(slot);
        let record = &self.records[start..start + NAME_AT];
        let ino = record.first_chunk().map_or(0, |ino| u64::from_le_bytes(*ino));
        Dentry {
            ino: Ino(ino),
            name_start: (start + NAME_AT) as u32,
            name_len: record[LENGTH_AT],
            flags: record[FLAGS_AT],
        }
    }

    /// The bytes of the record that a slot refers to.
    #[inline]
    fn record(&self, slot: Slot) -> &[u8] {
        let start = record_of(slot);
        &self.records[start..start + NAME_AT + usize::from(self.records[start + LENGTH_AT])]
    }

    /// Position of the first slot that is empty or not below `(hash, name)`, and the slot if it is
    /// of exactly that name.
    #[inline]
    fn seek(&self, hash: u32, name: &[u8]) -> (usize, Option<Slot>) {
        let mut at = self.slots.lower_bound(hash);
        while let Some(slot) = self.slots.get_if(at, hash) {
            match self.record(slot)[NAME_AT..].cmp(name) {
                std::cmp::Ordering::Less => at += 1,
                std::cmp::Ordering::Equal => return (at, Some(slot)),
                std::cmp::Ordering::Greater => break,
            }
        }
        (at, None)
    }

    /// Reads the slot where a name would be and the place where its record would go, so that the
    /// cache lines are on their way before they are needed: a batch of these overlaps their
    /// misses. The value means nothing.
    #[inline]
    pub(crate) fn touch(&self, hash: u32) -> u64 {
        self.slots.touch(hash) ^ u64::from(self.records.last().copied().unwrap_or(0))
    }

    #[inline]
    pub(crate) fn find(&self, hash: u32, name: &[u8]) -> Option<Dentry> {
        self.seek(hash, name).1.map(|slot| self.dentry(slot))
    }

    /// Points a name to a target, or makes it a tombstone with `None`. Returns the earlier target.
    /// The page must not be full.
    #[inline]
    pub(crate) fn set(
        &mut self,
        hash: u32,
        name: &[u8],
        target: Option<Target>,
        dirty: bool,
    ) -> Option<Dentry> {
        debug_assert!(!name.is_empty() && name.len() < 256, "a name has 1 to 255 bytes");
        let (at, found) = self.seek(hash, name);
        let state = target.map_or(TOMBSTONE, Target::flags) | if dirty { DIRTY } else { 0 };
        let ino = target.map_or(Ino(0), |target| target.ino);
        self.dirty += u32::from(dirty);
        self.tombstones += u32::from(target.is_none());
        if let Some(slot) = found {
            let before = self.dentry(slot);
            let start = record_of(slot);
            self.records[start..start + FLAGS_AT].copy_from_slice(&ino.0.to_le_bytes());
            self.records[start + FLAGS_AT] = state;
            self.dirty -= u32::from(before.is_dirty());
            self.tombstones -= u32::from(before.is_tombstone());
            return Some(before);
        }
        let start = self.records.len();
        let mut head = [state; NAME_AT];
        head[..FLAGS_AT].copy_from_slice(&ino.0.to_le_bytes());
        head[LENGTH_AT] = name.len() as u8;
        self.records.reserve(NAME_AT + name.len());
        self.records.extend_from_slice(&head);
        self.records.extend_from_slice(name);
        self.occupied += 1;
        self.slots.insert(at, slot(hash, start));
        if self.slots.is_crowded(self.occupied) {
            self.grow();
        }
        None
    }

    #[cold]
    fn grow(&mut self) {
        let (names, bytes) = std::mem::take(&mut self.expected);
        self.slots.grow(names as usize);
        self.records.reserve_exact((bytes as usize).saturating_sub(self.records.len()));
    }

    /// Forgets a name altogether.
    pub(crate) fn remove(&mut self, hash: u32, name: &[u8]) -> Option<Dentry> {
        let (at, found) = self.seek(hash, name);
        let slot = found?;
        let dentry = self.dentry(slot);
        self.dead += self.record(slot).len();
        self.slots.remove(at);
        self.occupied -= 1;
        self.dirty -= u32::from(dentry.is_dirty());
        self.tombstones -= u32::from(dentry.is_tombstone());
        if self.dead > 1024 && self.dead * 2 > self.records.len() {
            self.compact();
        }
        Some(dentry)
    }

    /// Drops the records that no slot refers to.
    fn compact(&mut self) {
        let mut records = Vec::with_capacity(self.records.len() - self.dead);
        let old = &self.records;
        self.slots.update(|dentry| {
            let start = records.len();
            let end = record_of(dentry) + NAME_AT + usize::from(old[record_of(dentry) + LENGTH_AT]);
            records.extend_from_slice(&old[record_of(dentry)..end]);
            slot(hash_of(dentry), start)
        });
        assert!(records.len() + self.dead == self.records.len(), "dead bytes are counted");
        self.records = records;
        self.dead = 0;
    }

    /// Marks the dentry of this name that points to `ino` as not yet stored. Returns whether it
    /// was clean.
    pub(crate) fn mark_dirty(&mut self, hash: u32, ino: Ino) -> bool {
        let mut at = self.slots.lower_bound(hash);
        while let Some(slot) = self.slots.get_if(at, hash) {
            let dentry = self.dentry(slot);
            if dentry.ino == ino && !dentry.is_remote() {
                let clean = !dentry.is_dirty();
                self.records[record_of(slot) + FLAGS_AT] |= DIRTY;
                self.dirty += u32::from(clean);
                return clean;
            }
            at += 1;
        }
        false
    }

    /// The dentries whose names have exactly this hash.
    pub(crate) fn same_hash(&self, hash: u32) -> impl Iterator<Item = (&[u8], Dentry)> {
        let slots = self.slots.iter_from(self.slots.lower_bound(hash));
        slots.take_while(move |slot| hash_of(*slot) == hash).map(|slot| {
            let dentry = self.dentry(slot);
            (self.name_of(dentry), dentry)
        })
    }

    /// The dentries after a position in hash order; `None` starts at the beginning.
    pub(crate) fn after<'a>(
        &'a self,
        cursor: Option<(u32, &'a [u8])>,
    ) -> impl Iterator<Item = (u32, &'a [u8], Dentry)> {
        let start = cursor.map_or(0, |(hash, name)| {
            let (at, found) = self.seek(hash, name);
            at + usize::from(found.is_some())
        });
        self.slots.iter_from(start).map(|slot| {
            let dentry = self.dentry(slot);
            (hash_of(slot), self.name_of(dentry), dentry)
        })
    }

    /// Visits every dirty dentry, marks it clean, and drops tombstones.
    pub(crate) fn clean(&mut self, mut visit: impl FnMut(&[u8], Dentry)) {
        let mut gone = Vec::new();
        for slot in self.slots.iter_from(0) {
            let dentry = self.dentry(slot);
            if !dentry.is_dirty() {
                continue;
            }
            visit(self.name_of(dentry), dentry);
            self.records[record_of(slot) + FLAGS_AT] &= !DIRTY;
            if dentry.is_tombstone() {
                gone.push((hash_of(slot), self.name_of(dentry).to_vec()));
            }
        }
        self.dirty = 0;
        for (hash, name) in gone {
            self.remove(hash, &name);
        }
    }

    /// Marks every dentry as not yet stored.
    pub(crate) fn mark_all_dirty(&mut self) {
        for slot in self.slots.iter_from(0) {
            self.records[record_of(slot) + FLAGS_AT] |= DIRTY;
        }
        self.dirty = self.occupied;
    }

    /// Drops the clean dentries that `keeps` rejects; `forget` is called for each.
    pub(crate) fn thin(
        &mut self,
        keeps: impl Fn(&Dentry) -> bool,
        mut forget: impl FnMut(&Dentry),
    ) {
        if self.dirty == self.occupied {
            return;
        }
        let all = self.slots.to_vec(self.occupied);
        let mut kept = Vec::new();
        for slot in &all {
            let dentry = self.dentry(*slot);
            if dentry.is_dirty() || (!dentry.is_tombstone() && keeps(&dentry)) {
                kept.push(*slot);
            } else {
                forget(&dentry);
            }
        }
        if kept.len() < all.len() {
            *self = self.extract(self.depth(), self.prefix, &kept, kept.len());
        }
    }

    /// Cuts the page into two by the next bit of the hash. `self` keeps the lower half.
    pub(crate) fn split(&mut self) -> Page {
        assert!(self.depth() < 32, "a page of one hash does not split");
        let depth = self.depth() + 1;
        let bit = 1 << (32 - u32::from(depth));
        let sorted = self.slots.to_vec(self.occupied);
        let (low, high) = sorted.split_at(sorted.partition_point(|slot| hash_of(*slot) & bit == 0));
        let room = |half: &[Slot]| half.len().max(PAGE_DENTRIES_MAX);
        let high = self.extract(depth, self.prefix | bit, high, room(high));
        *self = self.extract(depth, self.prefix, low, room(low));
        high
    }

    /// A new page with some of the dentries, given in hash order: they are appended, not searched
    /// for, and end up in memory in the order in which `readdir` visits them.
    fn extract(&self, depth: u8, prefix: u32, sorted: &[Slot], room: usize) -> Page {
        // Room until the next split, so that no slot has to move before it; none where few are
        // left.
        let mut page = Page::new(depth, prefix, room.max(2));
        if room >= PAGE_DENTRIES_MAX {
            page.records.reserve_exact(self.records.len() - self.dead);
        }
        let records = &mut page.records;
        page.slots.fill(sorted.iter().map(|old| {
            let start = records.len();
            records.extend_from_slice(self.record(*old));
            let flags = records[start + FLAGS_AT];
            page.dirty += u32::from(flags & DIRTY != 0);
            page.tombstones += u32::from(flags & TOMBSTONE != 0);
            slot(hash_of(*old), start)
        }));
        page.occupied = sorted.len() as u32;
        page
    }

    /// Memory in bytes.
    pub(crate) fn memory(&self) -> usize {
        size_of::<Self>() + self.slots.memory() + self.records.capacity()
    }
}

mod validate;
