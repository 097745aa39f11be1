//! Parts of a file that a program wrote and the object store does not have.
//!
//! The next call of any program returns the error of a failed write-back, and a kernel may turn the
//! error into a short write. So the error stays: every flush and sync of the file fails until a
//! program writes the lost part again, cuts it off or zeroes it, or until no program has the file
//! open.
//!
//! Invariant: [`Lost::check`] succeeds only if no byte of an answered write is missing.

use cudele::{Error, Result};

/// The list replaces more separate parts than this by one part that spans them.
const RANGES_MAX: usize = 64;

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Lost {
    /// Start and end of each part, sorted, none empty, none touching another.
    ranges: Vec<(u64, u64)>,
    error: Option<Error>,
}

impl Lost {
    /// A write to this range failed.
    pub(crate) fn add(&mut self, (mut start, mut end): (u64, u64), error: &Error) {
        if start >= end {
            return;
        }
        self.error.get_or_insert_with(|| error.clone());
        self.ranges.retain(|range| {
            let apart = range.1 < start || end < range.0;
            if !apart {
                (start, end) = (start.min(range.0), end.max(range.1));
            }
            apart
        });
        let at = self.ranges.partition_point(|range| range.0 < start);
        self.ranges.insert(at, (start, end));
        if let ([first, .., last], true) = (&self.ranges[..], self.ranges.len() > RANGES_MAX) {
            self.ranges = vec![(first.0, last.1)];
        }
    }

    /// A program wrote or zeroed this range, or cut it off.
    pub(crate) fn replace(&mut self, (start, end): (u64, u64)) {
        if self.ranges.is_empty() || start >= end {
            return;
        }
        let around =
            |range: &(u64, u64)| [(range.0, range.1.min(start)), (range.0.max(end), range.1)];
        self.ranges =
            self.ranges.iter().flat_map(around).filter(|range| range.0 < range.1).collect();
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
