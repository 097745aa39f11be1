//! Which objects of a file may differ from what is durable.
//!
//! Kept by object and not by length: a file may be as long as it likes, syncing it costs what was
//! written. Of a file that was opened nothing is known: whoever had it open before may have closed it
//! without a sync, here or elsewhere, and a sync is about the file and not about who wrote it.

use std::collections::BTreeSet;

use cudele::{Fs, Ino, Result, Stripe};

/// A change of more objects is not remembered one by one.
const OBJECTS_MAX: u64 = 1024;

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Unsynced {
    /// Those that were changed here, unless all may have been.
    numbers: BTreeSet<u64>,
    /// Any may differ.
    all: bool,
    /// Something was changed here, up to this end; the file may be shorter by now.
    changed_to: u64,
}

impl Unsynced {
    /// Of a file that others may have written.
    pub(crate) fn unknown() -> Self {
        Self { all: true, ..Self::default() }
    }

    /// A range was written, zeroed or removed here.
    pub(crate) fn note(&mut self, stripe: Stripe, (offset, end): (u64, u64)) {
        if offset >= end {
            return;
        }
        self.changed_to = self.changed_to.max(end);
        let (first, last) = (offset / stripe.bytes(), (end - 1) / stripe.bytes());
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
    pub(crate) fn sync(&mut self, fs: &Fs, place: (Ino, Stripe), size: u64) -> Result<()> {
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
