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

/// A log with this many events asks for a checkpoint and begins again. This bounds the events that
/// a crash replays, and the later changes of other clients that a replay may undo.
const EVENTS_MAX: u64 = 8192;
/// The number of logs of dead clients that are kept only for a crash of the server: beyond it, the
/// server is asked to store their events.
const KEPT_MAX: usize = 32;

/// The next step with a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogStep {
    /// None: the log stays as it is.
    Keep,
    /// The log begins again: its events are stored.
    BeginAgain,
    /// The log is needed since the present term.
    NoteTerm,
    /// Its events are replayed, and the log is needed since the present term.
    Replay,
    /// The log of a dead client is removed.
    Remove,
}

/// The part of a log that this process decides about.
#[derive(Clone, Copy, Debug)]
pub struct LogState {
    /// A write failed: a later event would follow a hole.
    pub failed: bool,
    /// The server of this term did not accept it, and is not asked again.
    pub refused_in: Option<Epoch>,
    /// With how many events it is long: more than before, if shortening it failed.
    long: u64,
}

impl Default for LogState {
    fn default() -> Self {
        Self { failed: false, refused_in: None, long: EVENTS_MAX }
    }
}

impl LogState {
    /// The step before any other request of a client that lives.
    #[must_use]
    pub fn step(&self, need: LogNeed, now: Epoch, events: u64) -> LogStep {
        match need {
            _ if self.refused_in == Some(now) => LogStep::Keep,
            LogNeed::Kept => LogStep::Keep,
            LogNeed::Stored => LogStep::BeginAgain,
            LogNeed::Replay if events == 0 => LogStep::NoteTerm,
            LogNeed::Replay => LogStep::Replay,
        }
    }

    /// The step with the log of a dead client.
    #[must_use]
    pub fn step_of_dead(need: LogNeed, events: u64) -> LogStep {
        match need {
            _ if events == 0 => LogStep::Remove,
            LogNeed::Kept => LogStep::Keep,
            // Every term that it was needed for was stopped, and had stored everything by then.
            LogNeed::Stored => LogStep::Remove,
            LogNeed::Replay => LogStep::Replay,
        }
    }

    /// Whether the server is asked to store the events of the kept logs of dead clients.
    #[must_use]
    pub fn is_store_due(kept: usize, replayed: bool) -> bool {
        replayed || kept > KEPT_MAX
    }

    /// The log began again without its old events.
    pub fn begin_again(&mut self) {
        (self.failed, self.long) = (false, EVENTS_MAX);
    }

    /// Whether the log is long, and a checkpoint is asked for: only once for so many more events,
    /// because other threads need not try as well.
    pub fn is_long(&mut self, events: u64) -> bool {
        let is_long = events >= self.long;
        self.long += if is_long { EVENTS_MAX } else { 0 };
        is_long
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

    #[test]
    fn a_log_is_replayed_once_and_a_server_that_rejects_it_is_not_asked_again() {
        let mut log = LogState::default();
        assert_eq!(log.step(LogNeed::Replay, Epoch(4), 3), LogStep::Replay);
        assert_eq!(log.step(LogNeed::Replay, Epoch(4), 0), LogStep::NoteTerm);
        assert_eq!(log.step(LogNeed::Stored, Epoch(4), 3), LogStep::BeginAgain);
        log.refused_in = Some(Epoch(4));
        assert_eq!(log.step(LogNeed::Replay, Epoch(4), 3), LogStep::Keep);
        assert_eq!(log.step(LogNeed::Replay, Epoch(5), 3), LogStep::Replay);
    }

    #[test]
    fn a_log_of_a_dead_client_goes_when_no_crash_can_need_it() {
        assert_eq!(LogState::step_of_dead(LogNeed::Stored, 3), LogStep::Remove);
        assert_eq!(LogState::step_of_dead(LogNeed::Replay, 3), LogStep::Replay);
        assert_eq!(LogState::step_of_dead(LogNeed::Replay, 0), LogStep::Remove);
        assert_eq!(LogState::step_of_dead(LogNeed::Kept, 3), LogStep::Keep);
        assert!(LogState::is_store_due(1, true) && LogState::is_store_due(KEPT_MAX + 1, false));
        assert!(!LogState::is_store_due(KEPT_MAX, false));
    }

    #[test]
    fn a_long_log_asks_for_one_checkpoint() {
        let mut log = LogState::default();
        assert!(!log.is_long(EVENTS_MAX - 1));
        assert!(log.is_long(EVENTS_MAX) && !log.is_long(EVENTS_MAX + 1));
        assert!(log.is_long(2 * EVENTS_MAX));
    }
}
