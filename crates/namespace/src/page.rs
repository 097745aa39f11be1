//! A page of dentries: a hash table whose slots are in hash order.
//!
//! The home slot of a name is given by the leading bits of its hash, and a collision shifts its
//! successors to the right (linear probing kept sorted, "Robin Hood"). So the table can be looked
//! up like a hash table and *walked like a sorted list*: `readdir` needs no index of its own and
//! its cursors are stable, growing is one linear pass without re-hashing, and a page splits into
//! two by cutting it in the middle.
//!
//! Behind the table stand the dentries, one *record* after the other in the order in which they
//! came: a new name touches one place of the table, wherever its hash says, and the end of the
//! records, which is likely to be in a cache. Record: inode number, 8 bytes; flags, 1; length of
//! the name, 1; the name.
//!
//! Pages hold at most 12,288 dentries, so that no single operation on one takes longer than a
//! few hundred microseconds; a directory is as many pages as it needs.

use types::{FileType, Ino};

/// A page splits when it would hold more dentries than this.
pub(crate) const PAGE_DENTRIES_MAX: usize = 12_288;
const CAPACITY_MIN: usize = 4;

/// A slot: the hash of a name in the upper half, where its record starts in the lower. Slots
/// compare like hashes, and an empty one compares above all others, so that one comparison of
/// integers tells a search whether to go on.
type Slot = u64;

const EMPTY: Slot = u64::MAX;

#[inline]
fn slot(hash: u32, record: usize) -> Slot {
    u64::from(hash) << 32 | u64::from(record as u32)
}

#[inline]
fn hash_of(slot: Slot) -> u32 {
    (slot >> 32) as u32
}

#[inline]
fn record_of(slot: Slot) -> usize {
    slot as u32 as usize
}

/// Whether a slot is taken, by a name of this hash.
#[inline]
fn holds(slot: Slot, hash: u32) -> bool {
    hash_of(slot) == hash && slot != EMPTY
}

/// How many slots [`lower_bound`] looks at before it has to branch.
const WINDOW: usize = 8;

/// Position of the first slot from `home` on that is empty or not below a hash.
///
/// Slots below the hash are a run that starts at `home` (an empty slot is not below anything), so
/// counting them finds its end. Where a run ends is random, and a loop that stops there costs a
/// mispredicted branch; counting over a fixed window, nearly always long enough, costs none.
#[inline]
fn lower_bound(slots: &[Slot], home: usize, hash: u32) -> usize {
    let floor = slot(hash, 0);
    let mut at = home;
    while let Some(window) = slots[at..].first_chunk::<WINDOW>() {
        let below = window.iter().map(|slot| usize::from(*slot < floor)).sum::<usize>();
        at += below;
        if below < WINDOW {
            return at;
        }
    }
    at + slots[at..].iter().take_while(|slot| **slot < floor).count()
}

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

    /// Whether the inode is stored elsewhere, under [`Ino::LINKS`].
    pub(crate) fn is_remote(self) -> bool {
        self.flags & REMOTE != 0
    }

    /// Whether the metadata store does not know this state yet.
    pub(crate) fn is_dirty(self) -> bool {
        self.flags & DIRTY != 0
    }

    /// Whether this stands for a name that the metadata store has and that was removed.
    pub(crate) fn is_tombstone(self) -> bool {
        self.flags & TOMBSTONE != 0
    }
}

/// What a name is to point to.
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
    /// How many leading bits of the hash all names here share.
    pub(crate) depth: u8,
    /// Those bits, left-aligned.
    pub(crate) prefix: u32,
    slots: Vec<Slot>,
    capacity_bits: u8,
    records: Vec<u8>,
    occupied: u32,
    /// Bytes of `records` that no slot refers to.
    dead: usize,
    /// Dentries that are not in the metadata store yet, tombstones included.
    pub(crate) dirty: u32,
    tombstones: u32,
}

impl Page {
    /// A page with room for so many dentries.
    pub(crate) fn new(depth: u8, prefix: u32, expected: usize) -> Self {
        let capacity_bits = bits_for(expected);
        Self {
            depth,
            prefix,
            slots: vec![EMPTY; slots_for(capacity_bits)],
            capacity_bits,
            records: Vec::new(),
            occupied: 0,
            dead: 0,
            dirty: 0,
            tombstones: 0,
        }
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.occupied as usize >= PAGE_DENTRIES_MAX
    }

    #[inline]
    fn home(&self, hash: u32) -> usize {
        home(hash, self.depth, self.capacity_bits)
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

    /// Position of the first slot that is empty or not below `(hash, name)`, and whether it holds
    /// exactly that name.
    #[inline]
    fn seek(&self, hash: u32, name: &[u8]) -> (usize, bool) {
        let mut at = lower_bound(&self.slots, self.home(hash), hash);
        while holds(self.slots[at], hash) {
            match self.record(self.slots[at])[NAME_AT..].cmp(name) {
                std::cmp::Ordering::Less => at += 1,
                std::cmp::Ordering::Equal => return (at, true),
                std::cmp::Ordering::Greater => break,
            }
        }
        (at, false)
    }

    /// Reads the slot where a name would be and the place where its record would go, so that the
    /// cache lines are on their way before they are needed: a batch of these overlaps their
    /// misses. The value means nothing.
    #[inline]
    pub(crate) fn touch(&self, hash: u32) -> u64 {
        self.slots[self.home(hash)] ^ u64::from(self.records.last().copied().unwrap_or(0))
    }

    #[inline]
    pub(crate) fn find(&self, hash: u32, name: &[u8]) -> Option<Dentry> {
        let (at, found) = self.seek(hash, name);
        found.then(|| self.dentry(self.slots[at]))
    }

    /// Points a name to a target, or makes it a tombstone with `None`. Returns what was there.
    /// The page must not be full.
    #[inline]
    pub(crate) fn set(
        &mut self,
        hash: u32,
        name: &[u8],
        target: Option<Target>,
        dirty: bool,
    ) -> Option<Dentry> {
        let (at, found) = self.seek(hash, name);
        let state = target.map_or(TOMBSTONE, Target::flags) | if dirty { DIRTY } else { 0 };
        let ino = target.map_or(Ino(0), |target| target.ino);
        self.dirty += u32::from(dirty);
        self.tombstones += u32::from(target.is_none());
        if found {
            let slot = self.slots[at];
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
        self.place(at, slot(hash, start));
        if self.occupied * 4 > (1 << self.capacity_bits) * 3 {
            self.grow();
        }
        None
    }

    /// Puts a slot at a position, moving those behind it up to the next empty one. They are few,
    /// so that carrying them along one by one is cheaper than looking for the empty slot first
    /// and calling `memmove`.
    #[inline]
    fn place(&mut self, at: usize, slot: Slot) {
        let mut carried = slot;
        for slot in &mut self.slots[at..] {
            std::mem::swap(slot, &mut carried);
            if carried == EMPTY {
                break;
            }
        }
        end_with_empty(&mut self.slots);
    }

    /// Lays the slots out in a table of twice the size, in the same order.
    #[cold]
    fn grow(&mut self) {
        let sorted = self.slots.iter().copied().filter(|slot| *slot != EMPTY);
        let slots = lay_out(self.depth, self.capacity_bits + 1, sorted);
        self.slots = slots;
        self.capacity_bits += 1;
    }

    /// Forgets a name altogether.
    pub(crate) fn remove(&mut self, hash: u32, name: &[u8]) -> Option<Dentry> {
        let (at, found) = self.seek(hash, name);
        if !found {
            return None;
        }
        let dentry = self.dentry(self.slots[at]);
        self.dead += self.record(self.slots[at]).len();
        let mut end = at + 1;
        while self.slots[end] != EMPTY && self.home(hash_of(self.slots[end])) < end {
            end += 1;
        }
        self.slots.copy_within(at + 1..end, at);
        self.slots[end - 1] = EMPTY;
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
        for at in 0..self.slots.len() {
            let old = self.slots[at];
            if old != EMPTY {
                self.slots[at] = slot(hash_of(old), records.len());
                records.extend_from_slice(self.record(old));
            }
        }
        self.records = records;
        self.dead = 0;
    }

    /// Marks the dentry of this name that points to `ino` as not yet stored. Returns whether it
    /// was clean.
    pub(crate) fn mark_dirty(&mut self, hash: u32, ino: Ino) -> bool {
        let at = lower_bound(&self.slots, self.home(hash), hash);
        for slot in self.slots[at..].iter().take_while(|slot| holds(**slot, hash)) {
            let dentry = self.dentry(*slot);
            if dentry.ino == ino && !dentry.is_remote() {
                let clean = !dentry.is_dirty();
                self.records[record_of(*slot) + FLAGS_AT] |= DIRTY;
                self.dirty += u32::from(clean);
                return clean;
            }
        }
        false
    }

    /// The dentries whose names have exactly this hash.
    pub(crate) fn same_hash(&self, hash: u32) -> impl Iterator<Item = (&[u8], Dentry)> {
        let at = lower_bound(&self.slots, self.home(hash), hash);
        self.slots[at..].iter().take_while(move |slot| holds(**slot, hash)).map(|slot| {
            let dentry = self.dentry(*slot);
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
            at + usize::from(found)
        });
        self.slots[start..].iter().filter(|slot| **slot != EMPTY).map(|slot| {
            let dentry = self.dentry(*slot);
            (hash_of(*slot), self.name_of(dentry), dentry)
        })
    }

    /// Visits every dirty dentry, marks it clean, and drops tombstones.
    pub(crate) fn clean(&mut self, mut visit: impl FnMut(&[u8], Dentry)) {
        let mut gone = Vec::new();
        for slot in self.slots.iter().filter(|slot| **slot != EMPTY) {
            let dentry = self.dentry(*slot);
            if !dentry.is_dirty() {
                continue;
            }
            visit(self.name_of(dentry), dentry);
            self.records[record_of(*slot) + FLAGS_AT] &= !DIRTY;
            if dentry.is_tombstone() {
                gone.push((hash_of(*slot), self.name_of(dentry).to_vec()));
            }
        }
        self.dirty = 0;
        for (hash, name) in gone {
            self.remove(hash, &name);
        }
    }

    /// Marks every dentry as not yet stored.
    pub(crate) fn mark_all_dirty(&mut self) {
        for slot in self.slots.iter().filter(|slot| **slot != EMPTY) {
            self.records[record_of(*slot) + FLAGS_AT] |= DIRTY;
        }
        self.dirty = self.occupied;
    }

    /// Cuts the page into two by the next bit of the hash. `self` keeps the lower half.
    pub(crate) fn split(&mut self) -> Page {
        let depth = self.depth + 1;
        let bit = 1 << (32 - u32::from(depth));
        let sorted: Vec<Slot> = self.slots.iter().copied().filter(|slot| *slot != EMPTY).collect();
        let (low, high) = sorted.split_at(sorted.partition_point(|slot| hash_of(*slot) & bit == 0));
        let high = self.extract(depth, self.prefix | bit, high);
        *self = self.extract(depth, self.prefix, low);
        high
    }

    /// A new page with some of the dentries, given in hash order: they are appended, not searched
    /// for, and end up in memory in the order in which `readdir` visits them.
    fn extract(&self, depth: u8, prefix: u32, sorted: &[Slot]) -> Page {
        let capacity_bits = bits_for(PAGE_DENTRIES_MAX.max(sorted.len()));
        let mut page = Page { capacity_bits, ..Page::new(depth, prefix, 0) };
        // Room until the next split, so that nothing has to move meanwhile.
        page.records = Vec::with_capacity(self.records.len() - self.dead);
        let mut slots = Vec::with_capacity(sorted.len());
        for old in sorted {
            slots.push(slot(hash_of(*old), page.records.len()));
            page.records.extend_from_slice(self.record(*old));
            let flags = self.records[record_of(*old) + FLAGS_AT];
            page.dirty += u32::from(flags & DIRTY != 0);
            page.tombstones += u32::from(flags & TOMBSTONE != 0);
        }
        page.occupied = sorted.len() as u32;
        page.slots = lay_out(depth, capacity_bits, slots.into_iter());
        page
    }

    /// Memory in bytes.
    pub(crate) fn memory(&self) -> usize {
        size_of::<Self>() + self.slots.capacity() * size_of::<Slot>() + self.records.capacity()
    }
}

/// The home slot of a hash: its leading bits behind those that the whole page shares.
#[inline]
fn home(hash: u32, depth: u8, capacity_bits: u8) -> usize {
    let below = u64::from(hash << depth);
    (below >> (32 - u32::from(capacity_bits))) as usize
}

/// Home slots, as a power of two, so that so many dentries fill three quarters at most.
fn bits_for(dentries: usize) -> u8 {
    dentries.saturating_mul(4).div_ceil(3).max(CAPACITY_MIN).next_power_of_two().trailing_zeros()
        as u8
}

/// Slots of a table of 2^`bits` home slots: a spill area behind the last home slot takes the end
/// of its cluster, and the very last slot always stays empty. It is as long as a window at least.
fn slots_for(bits: u8) -> usize {
    let capacity = 1 << bits;
    capacity + (capacity / 8).clamp(WINDOW, 64)
}

/// Makes the spill area longer if it is used up: searches rely on an empty slot at the end.
#[inline]
fn end_with_empty(slots: &mut Vec<Slot>) {
    if slots.last() != Some(&EMPTY) {
        slots.resize(slots.len() + slots.len() / 8 + 4, EMPTY);
    }
}

/// A table of 2^`capacity_bits` home slots that holds the given ones, which are in order.
fn lay_out(depth: u8, capacity_bits: u8, sorted: impl Iterator<Item = Slot>) -> Vec<Slot> {
    let mut slots = vec![EMPTY; slots_for(capacity_bits)];
    let mut next = 0;
    for slot in sorted {
        let at = home(hash_of(slot), depth, capacity_bits).max(next);
        slots[at] = slot;
        end_with_empty(&mut slots);
        next = at + 1;
    }
    slots
}
