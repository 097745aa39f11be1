//! The content of discarded files: it is in the object store, under inode numbers that no name will
//! have.
//!
//! Invariant: only content of inodes that a journal itself makes is removed, and only if that
//! journal was never merged.

use journal::{Event, JournalError, SegmentReader};
use types::{Ino, Map, Result, Stripe};

use super::SubtreeJob;

/// Inodes that journals make: how they are striped, and the greatest length of content that is not
/// inline.
type Made = Map<Ino, (Stripe, u64)>;

impl SubtreeJob {
    /// Files that were made and not merged, and have content in the object store. The job is given
    /// up.
    ///
    /// # Errors
    /// `EBADMSG` if a journal is damaged.
    pub fn unmerged_content(&mut self) -> Result<Vec<(Ino, Stripe, u64)>> {
        if self.merged_in.is_some() {
            // The journals may have been merged, and their files are then in the namespace.
            self.earlier.clear();
        }
        // The same for parts that the server was asked to merge.
        self.earlier.retain(|part| part.sealed.is_none_or(|sealed| !sealed.asked));
        if !self.inner.has_content_elsewhere() {
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

fn collect(bytes: &[u8], made: &mut Made) -> std::result::Result<(), JournalError> {
    let mut reader = SegmentReader::open(bytes)?;
    while let Some(block) = reader.next_block()? {
        let mut events = block.events();
        while let Some(record) = events.next_event()? {
            if let Event::Create(new) = record.event {
                made.insert(new.ino, (new.stripe, 0));
            }
            if let Some((ino, size)) = record.event.content_elsewhere()
                && let Some((_, known)) = made.get_mut(&ino)
            {
                *known = size.max(*known);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use namespace::PlannedInode;
    use types::{AttrChange, Cred, FileType, Timestamp};

    use super::super::sync::tests::job;

    #[test]
    fn only_content_of_unmerged_files_that_the_journal_makes_is_given_up() {
        let mut job = job("weak-none", 2);
        assert!(job.unmerged_content().unwrap().is_empty(), "nothing is in the store");
        let root = job.root();
        let new = PlannedInode {
            mode: FileType::Regular.mode_bits() | 0o644,
            time: Timestamp(1),
            ..PlannedInode::default()
        };
        let ino = job.inner.create(&Cred::root(), root, b"large", &new).unwrap();
        let grown = |size| AttrChange { size: Some(size), ..AttrChange::default() };
        job.inner.set_attr_blindly(ino, root, &grown(1 << 20), Timestamp(2));
        job.inner.set_attr_blindly(types::Ino(5), root, &grown(1 << 20), Timestamp(2));
        let content = job.unmerged_content().unwrap();
        assert_eq!(content, [(ino, types::Stripe::default(), 1 << 20)]);
    }
}
