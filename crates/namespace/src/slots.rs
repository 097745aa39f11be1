//! The table of a page: slots in the order of hashes, to be searched like a hash table and walked
//! like a sorted list.
//!
//! Slots form lines of eight, the size of a cache line. The leading bits of a hash name its home
//! line, and a slot that does not fit into it moves to the next lines, so that slots stay sorted
//! throughout (linear probing kept in order). Looking a hash up mostly touches one cache line, for
//! any size of the table. Within a line all eight slots are compared at once: the end of a search
//! is random, and a loop that stopped there would cost a mispredicted branch per name, which is
//! more than the seven remaining comparisons.
//!
//! Invariants: nothing is empty between a slot and the start of its home line, and the very last
//! slot is empty.

/// A slot: the hash of a name in the upper half, the start of its record in the lower. Slots
/// compare like hashes, and an empty one compares above all.
pub(crate) type Slot = u64;

/// No name.
const EMPTY: Slot = u64::MAX;

/// A slot for a name of this hash.
#[inline]
pub(crate) fn slot(hash: u32, record: usize) -> Slot {
    u64::from(hash) << 32 | u64::from(record as u32)
}

/// The hash in a slot.
#[inline]
pub(crate) fn hash_of(slot: Slot) -> u32 {
    (slot >> 32) as u32
}

/// Where the record of a slot starts.
#[inline]
pub(crate) fn record_of(slot: Slot) -> usize {
    slot as u32 as usize
}

const LINE: usize = 8;

#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Line([Slot; LINE]);

impl Line {
    const EMPTY: Self = Self([EMPTY; LINE]);

    /// How many slots are below a value: they come first, because a line is sorted.
    #[inline]
    fn below(&self, value: Slot) -> usize {
        // A binary search, spelled out so that it becomes four comparisons and no branch.
        let mut at = 4 * usize::from(self.0[3] < value);
        at += 2 * usize::from(self.0[at + 1] < value);
        at += usize::from(self.0[at] < value);
        at + usize::from(self.0[at] < value)
    }

    /// Puts a slot at a position. Returns the slot that is pushed out at the end.
    #[inline]
    fn insert(&mut self, at: usize, slot: Slot) -> Slot {
        let old = self.0;
        for to in 1..LINE {
            // All ones or all zeros: an `if` would become a branch.
            let moves = u64::from(to > at).wrapping_neg();
            self.0[to] = (old[to - 1] & moves) | (old[to] & !moves);
        }
        // The first one apart: were it read only when something moves, that would be a branch.
        self.0[0] = if at == 0 { slot } else { old[0] };
        self.0[at] = slot;
        old[LINE - 1]
    }
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Slots {
    lines: Vec<Line>,
    /// How many bits of a hash, behind `depth`, name its home line.
    bits: u8,
    /// How many leading bits all hashes share.
    depth: u8,
}

impl Slots {
    /// An empty table in which so many slots can be taken before it should grow.
    pub(crate) fn with_room(depth: u8, count: usize) -> Self {
        Self::with_bits(depth, Self::bits_for(count))
    }

    fn bits_for(count: usize) -> u8 {
        let lines = count.saturating_mul(4).div_ceil(3).div_ceil(LINE).next_power_of_two();
        lines.trailing_zeros() as u8
    }

    fn with_bits(depth: u8, bits: u8) -> Self {
        // One line behind the last home line takes the overflow.
        Self { lines: vec![Line::EMPTY; (1 << bits) + 1], bits, depth }
    }

    /// How many leading bits all hashes share.
    #[inline]
    pub(crate) fn depth(&self) -> u8 {
        self.depth
    }

    /// Whether more than three quarters would be taken. Fuller lines overflow too often.
    #[inline]
    pub(crate) fn is_crowded(&self, count: u32) -> bool {
        u64::from(count) * 4 > (LINE as u64 * 3) << self.bits
    }

    #[inline]
    fn home(&self, hash: u32) -> usize {
        (u64::from(hash << self.depth) >> (32 - u32::from(self.bits))) as usize
    }

    /// Reads the first slot of a hash's home line.
    #[inline]
    pub(crate) fn touch(&self, hash: u32) -> Slot {
        self.lines[self.home(hash)].0[0]
    }

    /// Position of the first slot from a hash's home line on that is empty or not below it.
    #[inline]
    pub(crate) fn lower_bound(&self, hash: u32) -> usize {
        let mut line = self.home(hash);
        loop {
            let below = self.lines[line].below(slot(hash, 0));
            if below < LINE {
                return line * LINE + below;
            }
            line += 1;
        }
    }

    /// The slot at a position, unless it is empty.
    #[inline]
    fn get(&self, at: usize) -> Option<Slot> {
        let slot = self.lines[at / LINE].0[at % LINE];
        (slot != EMPTY).then_some(slot)
    }

    /// The slot at a position, if its name has this hash.
    #[inline]
    pub(crate) fn get_if(&self, at: usize, hash: u32) -> Option<Slot> {
        let found = self.lines[at / LINE].0[at % LINE];
        // Both questions at once: an empty slot is random, and so is a branch on it; a slot of this
        // hash is not.
        ((found ^ slot(hash, 0)) < u64::from(u32::MAX)).then_some(found)
    }

    /// Puts a slot at a position, moving those behind it up to the next empty one.
    #[inline]
    pub(crate) fn insert(&mut self, at: usize, slot: Slot) {
        let mut carried = self.lines[at / LINE].insert(at % LINE, slot);
        if carried == EMPTY && at / LINE + 1 < self.lines.len() {
            return;
        }
        for line in &mut self.lines[at / LINE + 1..] {
            carried = line.insert(0, carried);
            if carried == EMPTY {
                break;
            }
        }
        self.end_with_empty();
    }

    /// Takes the slot at a position away, and moves those behind it that are not at home.
    pub(crate) fn remove(&mut self, at: usize) {
        let mut hole = at;
        while let Some(next) = self.get(hole + 1)
            && self.home(hash_of(next)) * LINE <= hole
        {
            self.set(hole, next);
            hole += 1;
        }
        self.set(hole, EMPTY);
    }

    #[inline]
    fn set(&mut self, at: usize, slot: Slot) {
        self.lines[at / LINE].0[at % LINE] = slot;
    }

    /// The slots from a position on, without empty ones.
    pub(crate) fn iter_from(&self, at: usize) -> impl Iterator<Item = Slot> {
        let slots = self.lines[at / LINE..].iter().flat_map(|line| line.0);
        slots.skip(at % LINE).filter(|slot| *slot != EMPTY)
    }

    /// All slots, without empty ones. They are at the end of each line.
    pub(crate) fn to_vec(&self, count: u32) -> Vec<Slot> {
        let mut all = Vec::with_capacity(count as usize);
        for line in &self.lines {
            all.extend_from_slice(&line.0[..line.below(EMPTY)]);
        }
        all
    }

    /// Replaces every slot that is taken.
    pub(crate) fn update(&mut self, mut change: impl FnMut(Slot) -> Slot) {
        for slot in self.lines.iter_mut().flat_map(|line| &mut line.0) {
            if *slot != EMPTY {
                *slot = change(*slot);
            }
        }
    }

    /// Makes the table twice as large, or large enough for so many slots if that is more.
    #[cold]
    pub(crate) fn grow(&mut self, expected: usize) {
        let wanted = Self::bits_for(expected);
        let mut larger = Self::with_bits(self.depth, wanted.max(self.bits + 1));
        assert!(larger.bits > self.bits, "the table grows");
        larger.fill(self.iter_from(0));
        *self = larger;
    }

    /// Fills an empty table with slots that are in order: one pass, nothing is searched.
    pub(crate) fn fill(&mut self, sorted: impl Iterator<Item = Slot>) {
        let mut next = 0;
        for slot in sorted {
            debug_assert!(slot != EMPTY, "an empty slot is of no name");
            let at = next.max(self.home(hash_of(slot)) * LINE);
            self.set(at, slot);
            self.end_with_empty();
            next = at + 1;
        }
    }

    /// Names with equal hashes go to the same line in a table of any size: the overflow behind the
    /// last line has to grow with them.
    #[inline]
    fn end_with_empty(&mut self) {
        if self.lines.last().is_none_or(|line| line.0[LINE - 1] != EMPTY) {
            self.lines.push(Line::EMPTY);
        }
    }

    /// Memory in bytes, without the structure itself.
    pub(crate) fn memory(&self) -> usize {
        self.lines.capacity() * size_of::<Line>()
    }
}

mod validate;

#[cfg(test)]
mod tests;
