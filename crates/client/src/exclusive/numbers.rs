//! The inode numbers that the server granted for new inodes.

use std::collections::VecDeque;

use types::{Ino, InoRange, Tid};
use wire::{Answer, Failure};

/// So many are asked for first, and at most.
const COUNT_MIN: u64 = 4_096;
const COUNT_MAX: u64 = 1 << 20;

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    ranges: VecDeque<InoRange>,
    /// The requests for more, and how many the last one asked for.
    asking: Vec<Tid>,
    asked_for: u64,
}

impl Numbers {
    #[inline]
    pub(super) fn take(&mut self) -> Option<Ino> {
        loop {
            if let Some(ino) = self.ranges.front_mut()?.take() {
                return Some(ino);
            }
            self.ranges.pop_front();
        }
    }

    /// How many are to be asked for, if it is time to do so.
    #[inline]
    pub(super) fn wanted(&self) -> Option<u64> {
        let left: u64 = self.ranges.iter().map(|range| range.len()).sum();
        let enough = left > self.asked_for / 2 || !self.asking.is_empty();
        (!enough).then(|| self.next_count())
    }

    /// How many are asked for next.
    pub(crate) fn next_count(&self) -> u64 {
        (self.asked_for * 2).clamp(COUNT_MIN, COUNT_MAX)
    }

    /// So many are being asked for.
    pub(crate) fn asks(&mut self, tid: Tid, count: u64) {
        self.asking.push(tid);
        self.asked_for = count;
    }

    /// The answer to such a request.
    pub(crate) fn answered(&mut self, tid: Tid, result: &Result<Answer, Failure>) {
        let Some(at) = self.asking.iter().position(|asking| *asking == tid) else { return };
        self.asking.swap_remove(at);
        if let Ok(Answer::Range(range)) = result {
            self.ranges.push_back(*range);
        }
    }

    /// The server restarted: it does not know the ranges that it granted before.
    pub(crate) fn restarted(&mut self) {
        *self = Self::default();
    }
}
