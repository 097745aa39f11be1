//! Content of what is given up: it is in the object store under the numbers of inodes that nobody
//! will ever see.
//!
//! Invariant: only content of inodes that a journal itself makes is removed, and only if that
//! journal was never merged.

use journal::{Event, SegmentReader};
use types::{Ino, Map, Result};

use super::Subtree;

/// Inodes that journals make, with the greatest length they say.
type Made = Map<Ino, u64>;

impl Subtree {
    /// Files that were made and not merged, and have content in the object store.
    ///
    /// # Errors
    /// `EIO` if a journal is damaged.
    pub(super) fn unmerged_content(&mut self) -> Result<Vec<(Ino, u64)>> {
        if self.merged_in.is_some() {
            // They may have been merged: what they made is everybody's.
            self.earlier.clear();
        }
        let mut made = Made::default();
        for bytes in self.journals() {
            collect(&bytes, &mut made).map_err(|error| error.in_journal("journal"))?;
        }
        let mut large: Vec<_> =
            made.into_iter().filter(|(_, size)| *size > crate::INLINE_BYTES_MAX as u64).collect();
        large.sort_unstable();
        Ok(large)
    }
}

fn collect(bytes: &[u8], made: &mut Made) -> std::result::Result<(), journal::JournalError> {
    let mut reader = SegmentReader::open(bytes)?;
    while let Some(block) = reader.next_block()? {
        let mut events = block.events();
        while let Some(record) = events.next_event()? {
            learn(&record.event, made);
        }
    }
    Ok(())
}

fn learn(event: &Event<'_>, made: &mut Made) {
    let mut grown = |ino: Ino, size: u64| {
        if let Some(known) = made.get_mut(&ino) {
            *known = size.max(*known);
        }
    };
    match *event {
        Event::Create(ref new) => {
            made.insert(new.ino, new.size);
        }
        Event::SetData { ino, size, .. } => grown(ino, size),
        Event::SetAttr { ino, change, .. } => grown(ino, change.size.unwrap_or(0)),
        Event::Link { .. }
        | Event::Unlink { .. }
        | Event::Rmdir { .. }
        | Event::Rename { .. }
        | Event::SetXattr { .. }
        | Event::SetPolicy { .. }
        | Event::Session { .. }
        | Event::Merged { .. }
        | Event::Stored { .. } => {}
    }
}
