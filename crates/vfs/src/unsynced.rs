//! The objects of a file that may differ from their durable content.
//!
//! Kept by object and not by length: the cost of a sync depends on the written objects, not on the
//! length of the file. All objects of a newly opened file count as unsynced: an earlier writer may
//! have closed it without a sync, here or on another machine, and a sync covers the file with all
//! its writers.

use std::collections::BTreeSet;
use std::ops::Range;

use cudele::{Fs, Ino, Result, Stripe, StripedFile};

/// A change of more objects is not remembered one by one.
const OBJECTS_MAX: u64 = 1024;

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Unsynced {
    /// The objects that were changed here, unless all may have been.
    numbers: BTreeSet<u64>,
    /// Any may differ.
    all: bool,
    /// Something was changed here, up to this end; the file may be shorter by now.
    changed_to: u64,
}

impl Unsynced {
    /// A file that other clients may have written.
    pub(crate) fn unknown() -> Self {
        Self { all: true, ..Self::default() }
    }

    /// A range was written, zeroed or removed here.
    pub(crate) fn note(&mut self, stripe: Stripe, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        self.changed_to = self.changed_to.max(range.end);
        let (first, last) = (range.start / stripe.bytes(), (range.end - 1) / stripe.bytes());
        if last - first >= OBJECTS_MAX {
            self.all = true;
        }
        if self.all {
            self.numbers.clear();
        } else {
            self.numbers.extend(first..=last);
        }
    }

    /// Whether something was changed here since the last sync.
    pub(crate) fn is_changed(&self) -> bool {
        self.changed_to > 0
    }

    /// Whether anything may differ.
    pub(crate) fn is_any(&self) -> bool {
        self.all || self.is_changed()
    }

    /// Makes it durable.
    pub(crate) fn sync(&mut self, fs: &Fs, ino: Ino, stripe: Stripe, size: u64) -> Result<()> {
        let place = StripedFile::new(ino, stripe);
        if self.all {
            fs.sync_file(place, size.max(self.changed_to))?;
        } else {
            let numbers: Vec<u64> = self.numbers.iter().copied().collect();
            fs.sync_stripes(place, &numbers)?;
        }
        *self = Self::default();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
