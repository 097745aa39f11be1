//! Gives a subtree up. The content of discarded files is in the object store under inode numbers
//! that no name will have.
//!
//! Invariant: only content of inodes that a journal itself makes is removed, and only if that
//! journal was never merged.

use journal::{Event, SegmentReader};
use types::{Errno, Ino, Map, Result, Stripe};

use super::Subtree;

/// Inodes that journals make: how they are striped, and the greatest length of content that is not
/// inline.
type Made = Map<Ino, (Stripe, u64)>;

impl Subtree {
    /// Gives the subtree up without a merge: pending events are lost.
    ///
    /// # Errors
    /// `EIO`.
    pub fn discard(mut self) -> Result<()> {
        // A merge in progress ends first: otherwise the merged part would not be known.
        self.drain_sync()?;
        self.give_up_unused()?;
        let released = self.fs.release_with(self.root(), &self.unused());
        match released {
            Err(error) if error.errno != Errno::Stale => return Err(error),
            Ok(()) => {
                for (ino, stripe, size) in self.unmerged_content()? {
                    self.fs.delete_data((ino, stripe), size)?;
                }
            }
            // Another client took the subtree over, with its content.
            Err(_) => {}
        }
        for object in self.job.note.objects.iter().chain(&self.job.note.adopted) {
            self.fs.store().delete(object)?;
        }
        self.state.remove()
    }

    /// Files that were made and not merged, and have content in the object store.
    ///
    /// # Errors
    /// `EIO` if a journal is damaged.
    fn unmerged_content(&mut self) -> Result<Vec<(Ino, Stripe, u64)>> {
        if self.job.merged_in.is_some() {
            // The journals may have been merged, and their files are then in the namespace.
            self.job.earlier.clear();
        }
        // The same for parts that the server was asked to merge.
        self.job.earlier.retain(|part| part.sealed.is_none_or(|sealed| !sealed.asked));
        if !self.job.inner.has_content_elsewhere() {
            // All journals that are left went through `inner`. To go through them costs more than
            // it took to write them.
            return Ok(Vec::new());
        }
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
    if let Event::Create(new) = event {
        made.insert(new.ino, (new.stripe, 0));
    }
    if let Some((ino, size)) = event.content_elsewhere()
        && let Some((_, known)) = made.get_mut(&ino)
    {
        *known = size.max(*known);
    }
}
