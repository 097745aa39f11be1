//! Content of what is given up: it is in the object store under the numbers of inodes that nobody
//! will ever see.
//!
//! Invariant: only content of inodes that a journal itself makes is removed, and only if that
//! journal was never merged.

use journal::{Event, SegmentReader};
use types::{Ino, Map, Result, Stripe};

use super::Subtree;

/// Inodes that journals make: how they are striped, and the greatest length of content that is not
/// inline.
type Made = Map<Ino, (Stripe, u64)>;

impl Subtree {
    /// Files that were made and not merged, and have content in the object store.
    ///
    /// # Errors
    /// `EIO` if a journal is damaged.
    pub(super) fn unmerged_content(&mut self) -> Result<Vec<(Ino, Stripe, u64)>> {
        if self.merged_in.is_some() {
            // They may have been merged: what they made is everybody's.
            self.earlier.clear();
        }
        // The same for what the server was asked to merge.
        self.earlier.retain(|part| part.sealed.is_none_or(|sealed| !sealed.asked));
        let mut made = Made::default();
        for bytes in self.journals() {
            collect(&bytes, &mut made).map_err(|error| error.in_journal("journal"))?;
        }
        let striped = made.into_iter().filter(|(_, (_, size))| *size > 0);
        let mut striped: Vec<_> =
            striped.map(|(ino, (stripe, size))| (ino, stripe, size)).collect();
        striped.sort_unstable();
        Ok(striped)
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
        if let Some((_, known)) = made.get_mut(&ino) {
            *known = size.max(*known);
        }
    };
    match *event {
        Event::Create(ref new) => {
            let size = if new.data.is_empty() { new.size } else { 0 };
            made.insert(new.ino, (new.stripe, size));
        }
        Event::SetData { ino, data: [], size, .. } => grown(ino, size),
        Event::SetAttr { ino, change, .. } => grown(ino, change.size.unwrap_or(0)),
        Event::SetData { .. }
        | Event::Link { .. }
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
