//! Pieces of runs that were read, as long as there is room.
//!
//! Runs never change, so a piece is right as long as it is here. A piece without use since the last
//! round of the clock is evicted first.
//!
//! Invariant: pieces take at most as many bytes as the cache may, or there is one.

use std::collections::VecDeque;
use std::sync::Arc;

use metastore::{RunId, RunIndex};
use types::{Ino, Map};

/// A piece: of which directory, of which run, from where.
pub(super) type Key = (Ino, RunId, u64);

/// What was read.
#[derive(Clone, Debug)]
pub(super) enum Piece {
    Index(Arc<RunIndex>),
    Bytes(Arc<Vec<u8>>),
}

/// The index among the pieces of a run: no block begins at this offset.
pub(super) const INDEX: u64 = u64::MAX;

#[derive(Debug)]
struct Slot {
    piece: Piece,
    bytes: usize,
    used: bool,
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Cache {
    slots: Map<Key, Slot>,
    clock: VecDeque<Key>,
    bytes: usize,
    bytes_max: usize,
}

impl Cache {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { slots: Map::default(), clock: VecDeque::new(), bytes: 0, bytes_max }
    }

    pub(super) fn get(&mut self, key: Key) -> Option<Piece> {
        let slot = self.slots.get_mut(&key)?;
        slot.used = true;
        Some(slot.piece.clone())
    }

    pub(super) fn put(&mut self, key: Key, piece: Piece) {
        let bytes = size_of::<Slot>()
            + size_of::<Key>() * 2
            + match &piece {
                Piece::Index(index) => index.memory(),
                Piece::Bytes(bytes) => bytes.capacity(),
            };
        if let Some(before) = self.slots.insert(key, Slot { piece, bytes, used: false }) {
            // Two readers wanted it at the same time.
            self.bytes -= before.bytes;
        } else {
            self.clock.push_back(key);
        }
        self.bytes += bytes;
        while self.bytes > self.bytes_max && self.clock.len() > 1 {
            self.pass();
        }
    }

    /// Forgets the piece that the clock stands on, or gives it another round.
    fn pass(&mut self) {
        let Some(key) = self.clock.pop_front() else { return };
        match self.slots.get_mut(&key) {
            Some(slot) if slot.used => {
                slot.used = false;
                self.clock.push_back(key);
            }
            Some(_) | None => {
                let slot = self.slots.remove(&key);
                self.bytes -= slot.map_or(0, |slot| slot.bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> Key {
        (Ino(1), RunId(1), number)
    }

    fn piece(bytes: usize) -> Piece {
        Piece::Bytes(Arc::new(vec![0; bytes]))
    }

    #[test]
    fn the_cache_keeps_used_pieces_and_its_bound() {
        let mut cache = Cache::new(10_000);
        for number in 0..1000 {
            cache.put(key(number), piece(900));
            assert!(cache.get(key(0)).is_some(), "used all the time, at {number}");
            assert!(cache.bytes <= 10_000, "{}", cache.bytes);
            assert_eq!(cache.slots.len(), cache.clock.len());
        }
        assert!(cache.get(key(500)).is_none());
        assert!(cache.get(key(999)).is_some());
    }

    #[test]
    fn a_piece_that_is_put_again_counts_once() {
        let mut cache = Cache::new(10_000);
        for _ in 0..100 {
            cache.put(key(7), piece(5000));
        }
        assert_eq!((cache.slots.len(), cache.clock.len()), (1, 1));
        assert!(cache.bytes < 10_000);
    }

    #[test]
    fn a_piece_larger_than_the_cache_stays_until_the_next_put() {
        let mut cache = Cache::new(100);
        cache.put(key(1), piece(5000));
        assert!(cache.get(key(1)).is_some());
        cache.put(key(2), piece(5000));
        assert_eq!(cache.slots.len(), 1);
    }
}
