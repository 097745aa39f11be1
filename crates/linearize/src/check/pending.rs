//! The part of a history that is not in the order yet: a list from which the search takes entries
//! and to which it returns them in the opposite order.

use super::TimedOperation;

/// See the module documentation. Entries are numbered as they came; the list is sorted by start.
pub(super) struct Pending {
    /// Neighbours in the list, by place; the last place is that of the list's two ends.
    before: Vec<usize>,
    after: Vec<usize>,
    /// Which entry is at a place, and the other way round.
    entry: Vec<usize>,
    place: Vec<usize>,
    /// By place.
    times: Vec<(u64, Option<u64>)>,
    required: usize,
    /// Places that were taken, and the largest of them each time.
    taken: Vec<usize>,
}

impl Pending {
    pub(super) fn new<O>(entries: &[TimedOperation<O>]) -> Self {
        let count = entries.len();
        let mut entry: Vec<usize> = (0..count).collect();
        entry.sort_by_key(|at| (entries[*at].start, *at));
        let mut place = vec![0; count];
        for (at, number) in entry.iter().enumerate() {
            place[*number] = at;
        }
        Self {
            before: (0..=count).map(|at| if at == 0 { count } else { at - 1 }).collect(),
            after: (0..=count).map(|at| if at == count { 0 } else { at + 1 }).collect(),
            times: entry.iter().map(|at| (entries[*at].start, entries[*at].end)).collect(),
            required: entries.iter().filter(|entry| entry.end.is_some()).count(),
            entry,
            place,
            taken: Vec::new(),
        }
    }

    /// How many are left that must have taken effect.
    pub(super) fn required(&self) -> usize {
        self.required
    }

    /// The entries that could be next: no remaining entry ended before they began.
    pub(super) fn candidates(&self) -> Vec<usize> {
        let last = self.entry.len();
        let mut found = Vec::new();
        let mut first_end = u64::MAX;
        let mut at = self.after[last];
        while at != last && self.times[at].0 <= first_end {
            first_end = first_end.min(self.times[at].1.unwrap_or(u64::MAX));
            found.push(at);
            at = self.after[at];
        }
        found.retain(|at| self.times[*at].0 <= first_end);
        found.into_iter().map(|at| self.entry[at]).collect()
    }

    pub(super) fn take(&mut self, entry: usize) {
        let at = self.place[entry];
        let (before, after) = (self.before[at], self.after[at]);
        (self.after[before], self.before[after]) = (after, before);
        self.required -= usize::from(self.times[at].1.is_some());
        let largest = self.taken.last().copied().unwrap_or(0);
        self.taken.push(largest.max(at + 1));
    }

    /// Undoes the last [`Pending::take`], which was of this entry.
    pub(super) fn put_back(&mut self, entry: usize) {
        let at = self.place[entry];
        let (before, after) = (self.before[at], self.after[at]);
        (self.after[before], self.before[after]) = (at, at);
        self.required += usize::from(self.times[at].1.is_some());
        self.taken.pop();
    }

    /// A short name for the set of remaining entries: the entries that were passed over, and the
    /// start of the rest.
    pub(super) fn rest(&self) -> Vec<usize> {
        let largest = self.taken.last().copied().unwrap_or(0);
        let last = self.entry.len();
        let mut rest = vec![largest];
        let mut at = self.after[last];
        while at < largest && at != last {
            rest.push(at);
            at = self.after[at];
        }
        rest
    }
}
