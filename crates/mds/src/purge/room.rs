//! Checkpoints that give room back: of small files, whose content is in directories and in the
//! journal, and of inodes that wait in the purge queue for the metadata store.
//!
//! On a quiet server, a checkpoint and a trim of the journal follow a removal after a while. On a
//! busy server they follow at once only a removal of many bytes, because directories that change
//! are written again soon; a removal of fewer bytes waits for a few seconds.

use namespace::FreedInode;
use types::{Moment, Seq, Span};

use super::Purges;

/// How long after a removal its room is given back.
const AFTER: Span = Span::from_millis(2000);
/// A server without an event for so long is quiet.
const STILL: Span = Span::from_millis(1000);
/// How long after a removal its room is given back on a busy server.
const AFTER_BUSY: Span = Span::from_millis(4000);
/// Removed bytes that are worth a checkpoint on a busy server at once.
const WORTH: u64 = 4 << 20;
/// Removed bytes that are worth a checkpoint on a busy server after [`AFTER_BUSY`].
const WORTH_BUSY: u64 = 256 << 10;
/// Bytes that a removed name counts beside its content.
const NAME: u64 = 64;

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// The first removal since the last checkpoint of this kind, and the removed bytes.
    since: Option<Moment>,
    bytes: u64,
    /// The newest event, and when it was seen.
    newest: (Seq, Moment),
    /// The position up to which the journal is to be trimmed.
    trimming: Option<Seq>,
}

impl Room {
    /// Counts a removed inode; `journalled` is whether the journal has the event.
    pub(super) fn note(&mut self, freed: &FreedInode, journalled: bool, now: Moment) {
        self.ask(now);
        // Data objects are deleted without a checkpoint.
        let content = if freed.is_stored && journalled { 0 } else { freed.size };
        self.bytes = self.bytes.saturating_add(content).saturating_add(NAME);
    }

    /// Asks for a checkpoint after a while.
    pub(super) fn ask(&mut self, now: Moment) {
        self.since.get_or_insert(now);
    }

    /// Whether no removal waits for a checkpoint.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        self.since.is_none()
    }
}

/// The next step after removals, to give their room back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RoomWork {
    /// Nothing now.
    Nothing,
    /// Journal segments up to a former checkpoint can go.
    Trim,
    /// Everything is to be written, so that the room is given back.
    Checkpoint,
}

impl Purges {
    /// Whether room should be given back now. `last` is the newest event, and the journal begins
    /// with `first`.
    pub(crate) fn room_work(
        &mut self,
        first: Seq,
        last: Seq,
        is_writing: bool,
        now: Moment,
    ) -> RoomWork {
        let room = &mut self.room;
        if room.newest.0 != last {
            room.newest = (last, now);
        }
        let mut work = RoomWork::Nothing;
        if let Some(seq) = room.trimming
            && !is_writing
        {
            if first > seq {
                room.trimming = None;
            } else {
                work = RoomWork::Trim;
            }
        }
        let Some(since) = room.since else { return work };
        let age = now.since(since);
        let is_still = now.since(room.newest.1) >= STILL;
        let worth = if age < AFTER_BUSY { WORTH } else { WORTH_BUSY };
        if age < AFTER || !(is_still || room.bytes >= worth) {
            return work;
        }
        (room.since, room.bytes, room.trimming) = (None, 0, Some(last));
        RoomWork::Checkpoint
    }
}
