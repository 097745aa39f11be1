//! The list of the names of a directory.
//!
//! A name keeps its position, so a reader that remembers a position continues there after
//! any changes. The list is in pieces, each twice as long as the one before.

use std::sync::atomic::Ordering;

use crate::alloc::{class_bytes, class_of};
use crate::inode::{CONTENT, Inode, POSITIONS};
use crate::names::{ENTRY_STAMP, LIVE, NAME_BYTES_MAX, NameEntry, POSITION, STATE};
use crate::region::{Host, JobRegion};
use crate::slots::Visit;

/// Positions in the first piece.
const FIRST: u64 = 16;
const PIECES: u64 = 22;
/// The table of pieces: a word for each.
const TABLE_CLASS: u32 = class_of(PIECES * 8);

/// The piece of a position, its start and its length.
fn piece_of(position: u64) -> (u64, u64, u64) {
    let piece = u64::from((position / FIRST + 1).ilog2());
    let start = FIRST * ((1 << piece) - 1);
    (piece, start, FIRST << piece)
}

/// A name of a directory.
#[derive(Clone, Copy, Debug)]
pub struct ListedName {
    /// The position behind it.
    pub next: u64,
    /// The inode.
    pub inode: Inode,
    /// The entry.
    pub entry: NameEntry,
    len: usize,
    name: [u8; NAME_BYTES_MAX],
}

impl ListedName {
    /// The name.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        &self.name[..self.len]
    }
}

impl JobRegion {
    fn place(&self, dir: Inode, position: u64) -> Option<u64> {
        let (piece, start, _) = piece_of(position);
        let table = self.field(dir, CONTENT);
        if table == 0 || piece >= PIECES {
            return None;
        }
        let at = self.word(table + piece * 8).load(Ordering::Acquire);
        (at != 0).then(|| at + (position - start) * 8)
    }

    /// The first name at or behind a position, for a thread that is inside.
    #[must_use]
    pub fn list(&self, dir: Inode, from: u64) -> Option<ListedName> {
        let end = self.field(dir, POSITIONS);
        let mut position = from;
        while position < end {
            let Some(place) = self.place(dir, position) else {
                let (_, start, len) = piece_of(position);
                position = start + len;
                continue;
            };
            let found = self.listed(place, position);
            if found.is_some() {
                return found;
            }
            position += 1;
        }
        None
    }

    fn listed(&self, place: u64, position: u64) -> Option<ListedName> {
        let at = self.word(place).load(Ordering::Acquire);
        if at == 0 {
            return None;
        }
        let entry = NameEntry(at);
        if self.of_entry(entry, STATE) != LIVE || self.of_entry(entry, POSITION) != position {
            return None;
        }
        let stamp = self.of_entry(entry, ENTRY_STAMP);
        let mut name = [0; NAME_BYTES_MAX];
        let len = self.name_of(entry, &mut name).len();
        let inode = self.inode_of(entry);
        debug_assert_eq!(stamp, self.of_entry(entry, ENTRY_STAMP), "an epoch keeps the entry");
        Some(ListedName { next: position + 1, inode, entry, len, name })
    }

    /// Whether a directory has no names.
    #[must_use]
    pub fn is_empty_dir(&self, dir: Inode) -> bool {
        self.list(dir, 0).is_none()
    }
}

impl<H: Host> Visit<'_, H> {
    /// Gives an entry a position in the list of its directory. False without room.
    pub(crate) fn list_entry(&self, dir: Inode, entry: NameEntry) -> bool {
        let region = self.region;
        let Some(table) = self.table(dir) else { return false };
        let position = region.word(dir.0 + POSITIONS).fetch_add(1, Ordering::AcqRel);
        let (piece, start, len) = piece_of(position);
        if piece >= PIECES {
            return false;
        }
        let word = region.word(table + piece * 8);
        let mut at = word.load(Ordering::Acquire);
        if at == 0 {
            let class = class_of(len * 8);
            let Some(new) = self.take(class) else { return false };
            region.zero(new, class_bytes(class));
            at = match word.compare_exchange(0, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => new,
                Err(other) => {
                    self.give(new, class);
                    other
                }
            };
        }
        region.set_entry(entry, POSITION, position);
        region.word(at + (position - start) * 8).store(entry.0, Ordering::Release);
        true
    }

    fn table(&self, dir: Inode) -> Option<u64> {
        let region = self.region;
        let word = region.word(dir.0 + CONTENT);
        let table = word.load(Ordering::Acquire);
        if table != 0 {
            return Some(table);
        }
        let new = self.take(TABLE_CLASS)?;
        region.zero(new, class_bytes(TABLE_CLASS));
        match word.compare_exchange(0, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Some(new),
            Err(other) => {
                self.give(new, TABLE_CLASS);
                Some(other)
            }
        }
    }

    pub(crate) fn unlist_entry(&self, dir: Inode, entry: NameEntry) {
        if let Some(place) = self.region.place(dir, self.region.of_entry(entry, POSITION)) {
            let word = self.region.word(place);
            let _ = word.compare_exchange(entry.0, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}
