//! Parts of a file that a program wrote and the object store does not have.
//!
//! The next call of any program returns the error of a failed write-back, and a kernel may turn the
//! error into a short write. So the error stays: every flush and sync of the file fails until a
//! program writes the lost part again, cuts it off or zeroes it, or until no program has the file
//! open.
//!
//! Invariant: [`Lost::check`] succeeds only if no byte of an answered write is missing.

use std::ops::Range;

use cudele::{Error, Result};

/// The list replaces more separate parts than this by one part that spans them.
const RANGES_MAX: usize = 64;

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Lost {
    /// The parts, sorted, none empty, none touching another.
    ranges: Vec<Range<u64>>,
    error: Option<Error>,
}

impl Lost {
    /// A write to this range failed.
    pub(crate) fn add(&mut self, lost: Range<u64>, error: &Error) {
        if lost.is_empty() {
            return;
        }
        let Range { mut start, mut end } = lost;
        self.error.get_or_insert_with(|| error.clone());
        self.ranges.retain(|range| {
            let apart = range.end < start || end < range.start;
            if !apart {
                (start, end) = (start.min(range.start), end.max(range.end));
            }
            apart
        });
        let at = self.ranges.partition_point(|range| range.start < start);
        self.ranges.insert(at, start..end);
        if let ([first, .., last], true) = (&self.ranges[..], self.ranges.len() > RANGES_MAX) {
            let spanning = first.start..last.end;
            self.ranges.clear();
            self.ranges.push(spanning);
        }
    }

    /// A program wrote or zeroed this range, or cut it off.
    pub(crate) fn replace(&mut self, replaced: Range<u64>) {
        if self.ranges.is_empty() || replaced.is_empty() {
            return;
        }
        let around = |range: &Range<u64>| {
            [range.start..range.end.min(replaced.start), range.start.max(replaced.end)..range.end]
        };
        self.ranges =
            self.ranges.iter().flat_map(around).filter(|range| !range.is_empty()).collect();
        if self.ranges.is_empty() {
            self.error = None;
        }
    }

    /// Whether every write is in the object store or in a buffer.
    ///
    /// # Errors
    /// That of the first write that failed.
    pub(crate) fn check(&self) -> Result<()> {
        self.error.clone().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests;
