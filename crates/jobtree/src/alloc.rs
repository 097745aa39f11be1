//! Memory of the region: records in sizes of powers of two, from 64 bytes.
//!
//! Every slot has an arena for small records and lists of free ones, so that threads do not meet.

use std::sync::atomic::Ordering;

use crate::region::{HEAD_BUMP, HEAD_INO_END, HEAD_INO_NEXT, Host};
use crate::slots::{ARENA_END, ARENA_NEXT, FREE, INO_END, INO_NEXT, STAMP, Visit};

/// Bytes that a slot takes at once.
const ARENA_BYTES: u64 = 256 << 10;
/// The largest record that is taken from an arena.
const SMALL_BYTES: u64 = 32 << 10;
const PAGE: u64 = 4096;
/// Classes of records: the last one has 64 << 24 bytes, 1 GiB.
pub(crate) const CLASSES: u32 = 25;
/// Inode numbers that a slot takes at once.
const NUMBERS: u64 = 256;

/// Bytes of a record of a class.
pub(crate) const fn class_bytes(class: u32) -> u64 {
    64 << class
}

/// The smallest class with so many bytes.
pub(crate) const fn class_of(bytes: u64) -> u32 {
    if bytes <= 64 { 0 } else { (bytes - 1).ilog2() - 5 }
}

impl<H: Host> Visit<'_, H> {
    /// Takes a record. Its content is arbitrary.
    #[inline]
    pub(crate) fn take(&self, class: u32) -> Option<u64> {
        if class >= CLASSES {
            return None;
        }
        let free = self.own(FREE + u64::from(class) * 8);
        let first = free.load(Ordering::Relaxed);
        if first != 0 {
            free.store(self.region.word(first).load(Ordering::Relaxed), Ordering::Relaxed);
            return Some(first);
        }
        let bytes = class_bytes(class);
        if bytes > SMALL_BYTES {
            return self.bump(bytes);
        }
        let next = self.own(ARENA_NEXT).load(Ordering::Relaxed);
        if next != 0 && next + bytes <= self.own(ARENA_END).load(Ordering::Relaxed) {
            self.own(ARENA_NEXT).store(next + bytes, Ordering::Relaxed);
            return Some(next);
        }
        let start = self.bump(ARENA_BYTES)?;
        if let Some(memory) = self.region.pointer(start, ARENA_BYTES) {
            self.host.prepare(memory, ARENA_BYTES);
        }
        self.own(ARENA_END).store(start + ARENA_BYTES, Ordering::Relaxed);
        self.own(ARENA_NEXT).store(start + bytes, Ordering::Relaxed);
        Some(start)
    }

    fn bump(&self, bytes: u64) -> Option<u64> {
        let word = self.region.word(HEAD_BUMP);
        let bytes = bytes.next_multiple_of(PAGE);
        let mut start = word.load(Ordering::Relaxed);
        loop {
            let end = start.checked_add(bytes).filter(|end| *end <= self.region.len())?;
            match word.compare_exchange(start, end, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(start),
                Err(now) => start = now,
            }
        }
    }

    /// A record that no other thread knows is free.
    pub(crate) fn give(&self, offset: u64, class: u32) {
        if class >= CLASSES {
            return;
        }
        let free = self.own(FREE + u64::from(class) * 8);
        self.region.word(offset).store(free.load(Ordering::Relaxed), Ordering::Relaxed);
        free.store(offset, Ordering::Relaxed);
    }

    /// An inode number that no other inode has.
    pub(crate) fn number(&self) -> Option<u64> {
        let next = self.own(INO_NEXT).load(Ordering::Relaxed);
        if next != 0 && next < self.own(INO_END).load(Ordering::Relaxed) {
            self.own(INO_NEXT).store(next + 1, Ordering::Relaxed);
            return Some(next);
        }
        let word = self.region.word(HEAD_INO_NEXT);
        let mut start = word.load(Ordering::SeqCst);
        loop {
            let end = self.region.word(HEAD_INO_END).load(Ordering::SeqCst);
            if start >= end {
                return None;
            }
            let block = (start + NUMBERS).min(end);
            match word.compare_exchange(start, block, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => {
                    self.own(INO_END).store(block, Ordering::Relaxed);
                    self.own(INO_NEXT).store(start + 1, Ordering::Relaxed);
                    return Some(start);
                }
                Err(now) => start = now,
            }
        }
    }

    /// A number that tells this entry from every other one at the same offset.
    pub(crate) fn stamp(&self) -> u64 {
        let next = self.own(STAMP).load(Ordering::Relaxed) + 1;
        self.own(STAMP).store(next, Ordering::Relaxed);
        u64::from(self.slot() + 1) << 48 | next
    }
}
