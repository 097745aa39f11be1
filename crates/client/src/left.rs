//! Leftovers of earlier processes on a disk or in the object store: the part of a journal that
//! counts, and whether a log of requests is still needed.
//!
//! Invariant: all that a mechanism completed for counts, and nothing behind a gap does.

use journal::JournalError;
use types::{Epoch, Seq};

/// A journal as far as it is intact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntactJournal {
    /// Its header and its intact blocks.
    pub bytes: Vec<u8>,
    /// Position of the first event.
    pub first: Seq,
    /// Position behind the last one.
    pub next: Seq,
    /// Whether it ended with something that was not written completely.
    pub torn: bool,
}

impl IntactJournal {
    /// Whether a journal was begun at all: its header is written first, and a shorter file was
    /// never promised.
    #[must_use]
    pub fn is_begun(bytes: &[u8]) -> bool {
        bytes.len() >= journal::segment::HEADER_BYTES
    }

    /// Reads a journal. The torn end of an interrupted write was never promised and does not count.
    ///
    /// # Errors
    /// If the header is unusable, or an intact block follows the damage: then promised events are
    /// missing.
    pub fn read(mut bytes: Vec<u8>) -> Result<Self, JournalError> {
        let first = journal::SegmentHeader::decode(&bytes)?.first_seq;
        let scan = journal::segment::scan(&bytes)?;
        let torn = match scan.damage {
            Some(damage) if damage.resumes.is_none() => true,
            Some(damage) => return Err(damage.error),
            None => false,
        };
        assert!(scan.intact <= bytes.len(), "the intact part of a journal is a part of it");
        assert!(first <= scan.next_seq, "a journal from {first} on ends behind it");
        bytes.truncate(scan.intact);
        Ok(Self { bytes, first, next: scan.next_seq, torn })
    }
}

/// Journals in the order of writing, each once: of two that begin with the same event the longer
/// one, and of two equally long ones the first in this list. `extent` returns the first and last
/// event of a journal.
#[must_use]
pub fn in_order<T>(mut journals: Vec<T>, extent: impl Fn(&T) -> (Seq, Seq)) -> Vec<T> {
    let order = |journal: &T| {
        let (first, next) = extent(journal);
        (first, std::cmp::Reverse(next))
    };
    journals.sort_by_key(order);
    journals.dedup_by_key(|journal| extent(journal).0);
    journals
}

/// The state of a log of strong requests (`rpcs+local_persist`) with regard to the present server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogNeed {
    /// The server has its changes in memory: the log is needed if that server crashes.
    Kept,
    /// Every server that needed the log was stopped, and had stored its changes.
    Stored,
    /// A server that had it in memory crashed: it is applied again before anything else.
    Replay,
}

impl LogNeed {
    /// For a log that is needed since a term, the term of the server, and the newest one that
    /// ended without a clean stop.
    #[must_use]
    pub fn of(since: Epoch, now: Epoch, crashed: Epoch) -> Self {
        if since >= now {
            Self::Kept
        } else if since > crashed {
            Self::Stored
        } else {
            Self::Replay
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_journals_the_longer_one_counts() {
        let seqs = |first, next| (Seq(first), Seq(next));
        let stored = [(seqs(5, 9), "store"), (seqs(1, 4), "store")];
        let local = [(seqs(1, 5), "disk"), (seqs(5, 9), "disk")];
        let all: Vec<_> = stored.into_iter().chain(local).collect();
        let found = in_order(all, |journal| journal.0);
        assert_eq!(found, [(seqs(1, 5), "disk"), (seqs(5, 9), "store")]);
    }

    #[test]
    fn a_log_is_replayed_only_after_a_crash() {
        let need = |since, now, crashed| LogNeed::of(Epoch(since), Epoch(now), Epoch(crashed));
        assert_eq!(need(3, 3, 2), LogNeed::Kept);
        assert_eq!(need(3, 4, 2), LogNeed::Stored);
        assert_eq!(need(3, 4, 3), LogNeed::Replay);
    }
}
