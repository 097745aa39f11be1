//! The work of a dead client that another client takes over (F-19): its journals on a disk or in
//! the store, and the note of the machine that has the subtree from then on.
//!
//! The driver fences the dead client first, so that its journals are complete when the driver reads
//! them. It then copies them to the disk of the new client, so that a crash of that machine is only
//! one more to recover from.

use std::cmp::Reverse;

use journal::{SegmentHeader, Writer};
use types::{ClientId, Epoch, Ino, InoRange, Result, Seq};

use super::{Earlier, OwnerNote};
use crate::IntactJournal;

/// The journals that a client left.
#[derive(Debug)]
pub struct LeftJournals {
    root: Ino,
    range: InoRange,
    found: Vec<Earlier>,
}

impl LeftJournals {
    /// Those of the subtree with this root, by the first range of inode numbers of its decoupling.
    #[must_use]
    pub fn new(root: Ino, range: InoRange) -> Self {
        Self { root, range, found: Vec::new() }
    }

    /// The prefix of the names of all journal objects of the subtree.
    #[must_use]
    pub fn prefix(&self) -> String {
        format!("journal/client/{:016x}.", self.root.0)
    }

    /// Whether an object below the prefix is of this decoupling. Other objects belong to earlier
    /// ones, and recovery may still need them.
    #[must_use]
    pub fn is_one(&self, object: &str) -> bool {
        let grant = format!(".{:x}.", self.range.start);
        object.strip_prefix(&self.prefix()).is_some_and(|rest| rest.contains(&grant))
    }

    /// Adds a journal on a disk.
    ///
    /// # Errors
    /// `EBADMSG` for a journal with a hole.
    pub fn add_file(&mut self, name: String, bytes: Vec<u8>) -> Result<()> {
        self.add(Earlier::read(name, bytes, None)?)
    }

    /// Adds a journal object.
    ///
    /// # Errors
    /// `EBADMSG` for a journal with a hole.
    pub fn add_object(&mut self, name: String, bytes: Vec<u8>) -> Result<()> {
        // A client may be gone in the middle of its first write.
        if !IntactJournal::is_begun(&bytes) {
            return Ok(());
        }
        self.add(Earlier::read(name.clone(), bytes, Some(name))?)
    }

    fn add(&mut self, journal: Earlier) -> Result<()> {
        let header = SegmentHeader::decode(&journal.bytes);
        let header = header.map_err(|error| error.in_journal(&journal.name))?;
        let is_own =
            matches!(header.writer, Writer::Client { subtree, .. } if subtree == self.root);
        if is_own && journal.events() > 0 {
            self.found.push(journal);
        }
        Ok(())
    }

    /// The journals, oldest first; of two that begin at the same event the longer one.
    #[must_use]
    pub fn in_order(mut self) -> Vec<Earlier> {
        self.found.sort_by_key(|journal| (journal.first, Reverse(journal.next)));
        self.found.dedup_by_key(|journal| journal.first);
        self.found
    }
}

impl Earlier {
    /// The same journal as one of another client.
    #[must_use]
    pub fn of_client(&self, client: ClientId, subtree: Ino, epoch: Epoch) -> Vec<u8> {
        let writer = Writer::Client { client, subtree };
        SegmentHeader { writer, epoch, first_seq: self.first }.put_on(&self.bytes)
    }
}

impl OwnerNote {
    /// The note of a client that takes these journals over, with the range and the term that the
    /// server granted.
    #[must_use]
    pub fn taken_over(
        client: ClientId,
        range: InoRange,
        epoch: Epoch,
        journals: &[Earlier],
    ) -> Self {
        let next = journals.iter().map(|journal| journal.next).max().unwrap_or(Seq(1));
        Self {
            client,
            ranges: vec![range],
            epoch,
            next_seq: next,
            reached: next,
            // The dead client may have used any of its numbers.
            used: Ino(range.end.saturating_sub(1)),
            adopted: journals.iter().filter_map(|journal| journal.object.clone()).collect(),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use journal::{Event, JournalBuffer};
    use types::{Origin, Timestamp};

    use super::*;

    const ROOT: Ino = Ino((1 << 40) + 1);
    const RANGE: InoRange = InoRange { start: 0x500, end: 0x600 };

    fn journal(root: Ino, first: u64, events: u64) -> Vec<u8> {
        let writer = Writer::Client { client: ClientId(3), subtree: root };
        let header = SegmentHeader { writer, epoch: Epoch(1), first_seq: Seq(first) };
        let mut buffer = JournalBuffer::new(Seq(first), false);
        for _ in 0..events {
            let (parent, name, ino, time) = (root, &b"a"[..], Ino(9), Timestamp(1));
            buffer.append(Origin::default(), &Event::Unlink { parent, name, ino, time });
        }
        buffer.close_block();
        let mut bytes = header.encode().to_vec();
        buffer.take_blocks().iter().for_each(|block| bytes.extend_from_slice(block));
        bytes
    }

    #[test]
    fn the_longer_of_two_copies_of_a_journal_counts() {
        let mut left = LeftJournals::new(ROOT, RANGE);
        left.add_file("file".into(), journal(ROOT, 1, 2)).unwrap();
        left.add_object("object".into(), journal(ROOT, 1, 3)).unwrap();
        left.add_file("later".into(), journal(ROOT, 4, 1)).unwrap();
        let names: Vec<_> = left.in_order().into_iter().map(|journal| journal.name).collect();
        assert_eq!(names, ["object", "later"]);
    }

    #[test]
    fn journals_of_other_subtrees_and_without_events_are_left_out() {
        let mut left = LeftJournals::new(ROOT, RANGE);
        left.add_file("foreign".into(), journal(Ino(ROOT.0 + 1), 1, 2)).unwrap();
        left.add_object("begun".into(), b"cud".to_vec()).unwrap();
        left.add_file("empty".into(), journal(ROOT, 1, 0)).unwrap();
        assert!(left.in_order().is_empty());
    }

    #[test]
    fn objects_of_earlier_decouplings_are_not_touched() {
        let left = LeftJournals::new(ROOT, RANGE);
        let name =
            |range: InoRange| metastore::request::client_journal_name(ROOT, ClientId(3), range, 1);
        assert!(left.is_one(&name(RANGE)));
        assert!(!left.is_one(&name(InoRange { start: 0x700, end: 0x800 })));
    }

    #[test]
    fn the_note_of_the_new_owner_reuses_no_number_and_no_position() {
        let mut left = LeftJournals::new(ROOT, RANGE);
        left.add_file("file".into(), journal(ROOT, 1, 2)).unwrap();
        left.add_object("object".into(), journal(ROOT, 3, 4)).unwrap();
        let journals = left.in_order();
        let note = OwnerNote::taken_over(ClientId(9), RANGE, Epoch(5), &journals);
        assert_eq!((note.next_seq, note.reached, note.used), (Seq(7), Seq(7), Ino(0x5ff)));
        assert_eq!(note.adopted, ["object"]);
        let copy = journals[0].of_client(ClientId(9), ROOT, Epoch(5));
        let header = SegmentHeader::decode(&copy).unwrap();
        assert_eq!(header.writer, Writer::Client { client: ClientId(9), subtree: ROOT });
        assert_eq!((header.epoch, header.first_seq), (Epoch(5), Seq(1)));
        assert_eq!(copy.len(), journals[0].bytes.len());
    }
}
