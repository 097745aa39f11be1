//! A page of dentries: a hash table whose slots are in hash order.
//!
//! The home slot of a name is given by the leading bits of its hash, and a collision shifts its
//! successors to the right (linear probing kept sorted, "Robin Hood"). So the table can be looked
//! up like a hash table and *walked like a sorted list*: `readdir` needs no index of its own and
//! its cursors are stable, growing is one linear pass without re-hashing, and a page splits into
//! two by cutting it in the middle.
//!
//! Pages hold at most 12,288 dentries, so that no single operation on one takes longer than a
//! few hundred microseconds; a directory is as many pages as it needs.

use types::{FileType, Ino};

/// A page splits when it would hold more dentries than this.
pub(crate) const PAGE_DENTRIES_MAX: usize = 12_288;
const CAPACITY_MIN: usize = 4;
const VACANT: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Slot {
    hash: u32,
    entry: u32,
}

const EMPTY: Slot = Slot { hash: 0, entry: VACANT };

const TYPE_MASK: u8 = 0x0f;
const REMOTE: u8 = 0x10;
const DIRTY: u8 = 0x20;
const TOMBSTONE: u8 = 0x40;

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
    slots: Box<[Slot]>,
    capacity_bits: u8,
    dentries: Vec<Dentry>,
    names: Vec<u8>,
    /// Slots of `dentries` that may be reused.
    free: Vec<u32>,
    /// Bytes of `names` that no dentry refers to.
    names_dead: usize,
    /// Dentries that are not in the metadata store yet, tombstones included.
    pub(crate) dirty: u32,
    tombstones: u32,
}

impl Page {
    pub(crate) fn new(depth: u8, prefix: u32, expected: usize) -> Self {
        let capacity = (expected * 4 / 3 + 1).next_power_of_two().max(CAPACITY_MIN);
        let capacity_bits = capacity.trailing_zeros() as u8;
        Self {
            depth,
            prefix,
            slots: vec![EMPTY; slots_for(capacity_bits)].into_boxed_slice(),
            capacity_bits,
            dentries: Vec::with_capacity(expected),
            names: Vec::new(),
            free: Vec::new(),
            names_dead: 0,
            dirty: 0,
            tombstones: 0,
        }
    }

    fn occupied(&self) -> usize {
        self.dentries.len() - self.free.len()
    }

    /// Names that exist.
    pub(crate) fn live(&self) -> usize {
        self.occupied() - self.tombstones as usize
    }

    pub(crate) fn is_full(&self) -> bool {
        self.occupied() >= PAGE_DENTRIES_MAX
    }

    #[inline]
    fn home(&self, hash: u32) -> usize {
        let below = u64::from(hash << self.depth);
        (below >> (32 - u32::from(self.capacity_bits))) as usize
    }

    pub(crate) fn name_of(&self, dentry: Dentry) -> &[u8] {
        let start = dentry.name_start as usize;
        &self.names[start..start + usize::from(dentry.name_len)]
    }

    /// Position of the first slot that is empty or not below `(hash, name)`, and whether it holds
    /// exactly that name.
    #[inline]
    fn seek(&self, hash: u32, name: &[u8]) -> (usize, bool) {
        let mut at = self.home(hash);
        loop {
            let slot = self.slots[at];
            if slot.entry == VACANT || slot.hash > hash {
                return (at, false);
            }
            if slot.hash == hash {
                match self.name_of(self.dentries[slot.entry as usize]).cmp(name) {
                    std::cmp::Ordering::Less => {}
                    std::cmp::Ordering::Equal => return (at, true),
                    std::cmp::Ordering::Greater => return (at, false),
                }
            }
            at += 1;
        }
    }

    /// Reads the slot where a name would be, so that the cache line is on its way before it is
    /// needed: a batch of these overlaps their misses. The value means nothing.
    #[inline]
    pub(crate) fn touch(&self, hash: u32) -> u32 {
        self.slots[self.home(hash)].entry
    }

    #[inline]
    pub(crate) fn find(&self, hash: u32, name: &[u8]) -> Option<Dentry> {
        let (at, found) = self.seek(hash, name);
        found.then(|| self.dentries[self.slots[at].entry as usize])
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
            let dentry = &mut self.dentries[self.slots[at].entry as usize];
            let before = *dentry;
            (dentry.ino, dentry.flags) = (ino, state);
            self.dirty -= u32::from(before.is_dirty());
            self.tombstones -= u32::from(before.is_tombstone());
            return Some(before);
        }
        let dentry = Dentry {
            ino,
            name_start: self.names.len() as u32,
            name_len: name.len() as u8,
            flags: state,
        };
        self.names.extend_from_slice(name);
        let entry = if let Some(entry) = self.free.pop() {
            self.dentries[entry as usize] = dentry;
            entry
        } else {
            self.dentries.push(dentry);
            (self.dentries.len() - 1) as u32
        };
        self.place(at, Slot { hash, entry });
        if self.occupied() * 4 > (1 << self.capacity_bits) * 3 {
            self.grow();
        }
        None
    }

    /// Puts a slot at a position, moving those behind it.
    fn place(&mut self, at: usize, slot: Slot) {
        let length = self.slots[at..].iter().position(|slot| slot.entry == VACANT);
        let length = length.filter(|length| at + length + 1 < self.slots.len());
        let Some(length) = length else {
            // The spill area behind the table is used up by one long cluster.
            self.grow();
            let (at, _) = self.seek_slot(slot);
            self.place(at, slot);
            return;
        };
        self.slots.copy_within(at..at + length, at + 1);
        self.slots[at] = slot;
    }

    fn seek_slot(&self, slot: Slot) -> (usize, bool) {
        let dentry = self.dentries[slot.entry as usize];
        self.seek(slot.hash, self.name_of(dentry))
    }

    fn grow(&mut self) {
        self.rebuild(self.capacity_bits + 1);
    }

    /// Lays the slots out anew, in the same order.
    fn rebuild(&mut self, capacity_bits: u8) {
        self.capacity_bits = capacity_bits;
        let new = vec![EMPTY; slots_for(capacity_bits)].into_boxed_slice();
        let old = std::mem::replace(&mut self.slots, new);
        let mut next = 0;
        for slot in old.iter().filter(|slot| slot.entry != VACANT) {
            let at = self.home(slot.hash).max(next);
            if at >= self.slots.len() {
                self.slots = old;
                return self.rebuild(capacity_bits + 1);
            }
            self.slots[at] = *slot;
            next = at + 1;
        }
        // `seek` relies on an empty slot at the end.
        if self.slots[self.slots.len() - 1].entry != VACANT {
            self.rebuild(capacity_bits + 1);
        }
    }

    /// Forgets a name altogether.
    pub(crate) fn remove(&mut self, hash: u32, name: &[u8]) -> Option<Dentry> {
        let (at, found) = self.seek(hash, name);
        if !found {
            return None;
        }
        let entry = self.slots[at].entry;
        let dentry = self.dentries[entry as usize];
        let mut end = at + 1;
        while self.slots[end].entry != VACANT && self.home(self.slots[end].hash) < end {
            end += 1;
        }
        self.slots.copy_within(at + 1..end, at);
        self.slots[end - 1] = EMPTY;
        self.free.push(entry);
        self.dirty -= u32::from(dentry.is_dirty());
        self.tombstones -= u32::from(dentry.is_tombstone());
        self.names_dead += usize::from(dentry.name_len);
        if self.names_dead > 1024 && self.names_dead * 2 > self.names.len() {
            self.compact_names();
        }
        Some(dentry)
    }

    fn compact_names(&mut self) {
        let mut names = Vec::with_capacity(self.names.len() - self.names_dead);
        for slot in self.slots.iter().filter(|slot| slot.entry != VACANT) {
            let dentry = &mut self.dentries[slot.entry as usize];
            let start = dentry.name_start as usize;
            dentry.name_start = names.len() as u32;
            names.extend_from_slice(&self.names[start..start + usize::from(dentry.name_len)]);
        }
        self.names = names;
        self.names_dead = 0;
    }

    /// Marks the dentry of this name that points to `ino` as not yet stored. Returns whether it
    /// was clean.
    pub(crate) fn mark_dirty(&mut self, hash: u32, ino: Ino) -> bool {
        let mut at = self.home(hash);
        loop {
            let slot = self.slots[at];
            if slot.entry == VACANT || slot.hash > hash {
                return false;
            }
            let dentry = &mut self.dentries[slot.entry as usize];
            if slot.hash == hash && dentry.ino == ino && !dentry.is_remote() {
                let clean = dentry.flags & DIRTY == 0;
                dentry.flags |= DIRTY;
                self.dirty += u32::from(clean);
                return clean;
            }
            at += 1;
        }
    }

    /// The dentries whose names have exactly this hash.
    pub(crate) fn same_hash(&self, hash: u32) -> impl Iterator<Item = (&[u8], Dentry)> {
        let (at, _) = self.seek(hash, b"");
        self.slots[at..].iter().take_while(move |slot| slot.entry != VACANT && slot.hash == hash).map(
            |slot| {
                let dentry = self.dentries[slot.entry as usize];
                (self.name_of(dentry), dentry)
            },
        )
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
        self.slots[start..].iter().filter(|slot| slot.entry != VACANT).map(|slot| {
            let dentry = self.dentries[slot.entry as usize];
            (slot.hash, self.name_of(dentry), dentry)
        })
    }

    /// Visits every dirty dentry, marks it clean, and drops tombstones.
    pub(crate) fn clean(&mut self, mut visit: impl FnMut(&[u8], Dentry)) {
        let mut gone = Vec::new();
        for slot in self.slots.iter().filter(|slot| slot.entry != VACANT) {
            let dentry = self.dentries[slot.entry as usize];
            if !dentry.is_dirty() {
                continue;
            }
            let start = dentry.name_start as usize;
            visit(&self.names[start..start + usize::from(dentry.name_len)], dentry);
            self.dentries[slot.entry as usize].flags &= !DIRTY;
            if dentry.is_tombstone() {
                gone.push((slot.hash, self.name_of(dentry).to_vec()));
            }
        }
        self.dirty = 0;
        for (hash, name) in gone {
            self.remove(hash, &name);
        }
    }

    /// Marks every dentry as not yet stored.
    pub(crate) fn mark_all_dirty(&mut self) {
        for slot in self.slots.iter().filter(|slot| slot.entry != VACANT) {
            self.dentries[slot.entry as usize].flags |= DIRTY;
        }
        self.dirty = self.occupied() as u32;
    }

    /// Cuts the page into two by the next bit of the hash. `self` keeps the lower half.
    pub(crate) fn split(&mut self) -> Page {
        let depth = self.depth + 1;
        let bit = 1 << (32 - u32::from(depth));
        let half = self.occupied() / 2;
        let mut low = Page::new(depth, self.prefix, half);
        let mut high = Page::new(depth, self.prefix | bit, half);
        for (hash, name, dentry) in self.after(None) {
            let page = if hash & bit == 0 { &mut low } else { &mut high };
            page.adopt(hash, name, dentry);
        }
        *self = low;
        high
    }

    fn adopt(&mut self, hash: u32, name: &[u8], dentry: Dentry) {
        let target = Target {
            ino: dentry.ino,
            file_type: dentry.file_type(),
            remote: dentry.is_remote(),
        };
        let target = (!dentry.is_tombstone()).then_some(target);
        self.set(hash, name, target, dentry.is_dirty());
    }

    /// Memory in bytes.
    pub(crate) fn memory(&self) -> usize {
        size_of::<Self>()
            + self.slots.len() * size_of::<Slot>()
            + self.dentries.capacity() * size_of::<Dentry>()
            + self.names.capacity()
            + self.free.capacity() * 4
    }
}

/// Slots of a table of 2^`bits` home slots: a spill area behind the last home slot takes the end
/// of its cluster, and the very last slot always stays empty.
fn slots_for(bits: u8) -> usize {
    let capacity = 1 << bits;
    capacity + (capacity / 8).clamp(4, 64)
}
