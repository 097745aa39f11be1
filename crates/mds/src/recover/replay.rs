//! The replay: events of the journal are applied, one segment after the other, in the order of
//! their positions.
//!
//! Invariant: each event is applied once. An event that needs something of the store begins again
//! when that is in memory; a merge continues with the event at which it paused.

use journal::{BlockReader, Create, Event, JournalError, Record, segment};
use namespace::{CreateBatch, Mode};
use types::{ClientId, FileType, Ino, Result};

use super::{RecoveryCx, RecoveryNeed, Step};
use crate::MdsEffects;
use crate::chain::{Next, VerifiedSegment};
use crate::merge::Unfinished;
use crate::session::Remembered;

/// Changes of one client that are noted together.
const RUN_MAX: usize = 1024;

/// The reason why an event cannot be applied yet.
#[derive(Debug)]
pub(super) enum Pause {
    /// This directory must be in memory first.
    Directory(Ino),
    /// The store reads an object for it.
    Read,
}

impl RecoveryCx<'_> {
    /// Applies events until a segment must be read, or one needs something of the store.
    pub(super) fn replay_on(&mut self, effects: &mut MdsEffects) -> Result<Option<RecoveryNeed>> {
        self.recovery.step = Step::Replay;
        loop {
            if let Some(segment) = self.recovery.segment.take() {
                let events = &segment.bytes[..segment.intact];
                let replayed = self.replay_segment(events, effects);
                match replayed.map_err(|error| error.in_journal(&segment.name))? {
                    None => {}
                    Some(pause) => {
                        self.recovery.segment = Some(segment);
                        return Ok(match pause {
                            Pause::Directory(dir) => Some(RecoveryNeed::Directory(dir)),
                            Pause::Read => None,
                        });
                    }
                }
            }
            match self.recovery.chain.next()? {
                Next::Read(name) => {
                    self.recovery.step = Step::ReadSegment(name.clone());
                    self.get(name, effects);
                    return Ok(None);
                }
                Next::Apply(found) => self.begin_segment(found),
                Next::End => return Ok(Some(self.replayed(effects))),
            }
        }
    }

    fn begin_segment(&mut self, found: VerifiedSegment) {
        self.recovery.segment = Some(found);
        self.recovery.offset = segment::HEADER_BYTES;
        self.recovery.skip = 0;
    }

    /// Applies the rest of a segment. Returns why it pauses, if it does.
    fn replay_segment(
        &mut self,
        bytes: &[u8],
        effects: &mut MdsEffects,
    ) -> std::result::Result<Option<Pause>, JournalError> {
        self.namespace.replay_begins();
        while self.recovery.offset < bytes.len() {
            let (block, next) = journal::Block::read(bytes, self.recovery.offset)?;
            let mut events = block.events();
            for _ in 0..self.recovery.skip {
                events.next_event()?;
            }
            if let Some(pause) = self.replay_block(&mut events, effects)? {
                return Ok(Some(pause));
            }
            self.recovery.offset = next;
            self.recovery.skip = 0;
        }
        Ok(None)
    }

    fn replay_block(
        &mut self,
        events: &mut BlockReader<'_>,
        effects: &mut MdsEffects,
    ) -> std::result::Result<Option<Pause>, JournalError> {
        // Runs of requests are one client's: sessions are looked up once for each.
        let mut client = ClientId(0);
        let mut changes = Vec::new();
        // Creates of files need nothing from the store. Most events are that.
        let mut batch = std::mem::take(&mut self.recovery.batch);
        loop {
            let record = if let Some((seq, origin, create)) = events.next_create()? {
                let is_file = create.file_type() != FileType::Directory;
                if is_file && seq > self.recovery.applied {
                    if self.recovery.departed.is_due(seq) {
                        self.replay_creates(&mut batch);
                        self.forget_departed(seq);
                    }
                    if !self.recovery.departed.covers(create.parent) {
                        batch.push(seq, &create);
                    }
                    if batch.is_full() {
                        self.replay_creates(&mut batch);
                    }
                    if origin.client != client || changes.len() >= RUN_MAX {
                        self.sessions.recovered_changes(client, &mut changes);
                        client = origin.client;
                    }
                    let Create { ino, time, .. } = create;
                    changes.push(Remembered { tid: origin.tid, seq, ino, time });
                    self.recovery.applied = seq;
                    self.recovery.skip += 1;
                    continue;
                }
                Record { seq, origin, event: Event::Create(create) }
            } else if let Some(record) = events.next_event()? {
                record
            } else {
                break;
            };
            self.replay_creates(&mut batch);
            // The end of a session comes behind its changes, which would begin it again.
            if matches!(record.event, Event::Session { .. }) {
                self.sessions.recovered_changes(client, &mut changes);
            }
            // The end that a stopping server stored has this event, and its client's answers: the
            // server was killed before it had deleted the journal.
            let again = record.seq <= self.recovery.applied;
            if !again && let Err(pause) = self.replay_record(&record, effects) {
                self.sessions.recovered_changes(client, &mut changes);
                self.recovery.batch = batch;
                return Ok(Some(pause));
            }
            if record.origin.client != client || changes.len() >= RUN_MAX {
                self.sessions.recovered_changes(client, &mut changes);
                client = record.origin.client;
            }
            if !again {
                changes.extend(remembered(&record));
            }
            self.recovery.applied = self.recovery.applied.max(record.seq);
            self.recovery.skip += 1;
        }
        self.replay_creates(&mut batch);
        self.recovery.batch = batch;
        self.sessions.recovered_changes(client, &mut changes);
        Ok(None)
    }

    fn replay_creates(&mut self, batch: &mut CreateBatch) {
        self.counters.recovered_events += batch.len() as u64;
        self.namespace.apply_batch(Mode::Replay, batch, |_, _| ());
    }

    fn replay_record(
        &mut self,
        record: &Record<'_>,
        effects: &mut MdsEffects,
    ) -> std::result::Result<(), Pause> {
        self.forget_departed(record.seq);
        if self.recovery.departed.passes_over(&record.event) {
            return Ok(());
        }
        while let Some(dir) = self.namespace.needs().again(record.seq, &record.event) {
            if !self.recovery.departed.covers(dir) {
                return Err(Pause::Directory(dir));
            }
            self.namespace.handover().take_as_empty(dir);
        }
        self.purges.replayed(record.seq, &record.event);
        match record.event {
            Event::Session { client, tid } => self.sessions.recovered(client, tid),
            Event::Merged { .. } => self.replay_merged(record, effects)?,
            Event::Stored { dir } => {
                self.replace_if_stored(dir, record.seq, effects)?;
            }
            Event::Create(_)
            | Event::Link { .. }
            | Event::Unlink { .. }
            | Event::Rmdir { .. }
            | Event::Rename { .. }
            | Event::SetAttr { .. }
            | Event::SetXattr { .. }
            | Event::SetData { .. }
            | Event::SetPolicy { .. } => {
                self.namespace.apply(record.seq, Mode::Replay, &record.event);
            }
        }
        self.counters.recovered_events += 1;
        Ok(())
    }

    /// Applies a part of a client's journal again that was merged before the restart.
    fn replay_merged(
        &mut self,
        record: &Record<'_>,
        effects: &mut MdsEffects,
    ) -> std::result::Result<(), Pause> {
        let Event::Merged { subtree, client, object, first, events, losses, last } = record.event
        else {
            return Ok(());
        };
        let name = String::from_utf8_lossy(object);
        let known = self.recovery.merged.take().filter(|merged| merged.object == name);
        let Some(mut merged) = known else {
            let object = name.into_owned();
            self.recovery.step = Step::ReadMerged(object.clone());
            self.get(object, effects);
            return Err(Pause::Read);
        };
        let part = first..first.saturating_add(events);
        let wanted = self.merge_again(record.seq, subtree, part, losses, &mut merged);
        self.recovery.merged = Some(merged);
        if let Some(dir) = wanted {
            return Err(Pause::Directory(dir));
        }
        self.lose_again(record.seq, losses, effects)?;
        let name = String::from_utf8_lossy(object).into_owned();
        if last {
            self.checkpoint.note_merge(record.seq, subtree, object);
            self.recovery.merged = None;
            self.recovery.unfinished.remove(&name);
        } else {
            let known = self.recovery.unfinished.get(&name).map(|known| known.begun);
            let (begun, after) = (known.unwrap_or(record.seq), self.clock.now);
            let unfinished = Unfinished { subtree, client, begun, after };
            self.recovery.unfinished.insert(name, unfinished);
        }
        Ok(())
    }
}

/// The answer to a change, as far as its event has it.
fn remembered(record: &Record<'_>) -> Option<Remembered> {
    let (ino, time) = match record.event {
        Event::Create(ref create) => (create.ino, create.time),
        Event::SetAttr { ref change, time, .. } => (Ino(change.size.unwrap_or_default()), time),
        Event::Link { time, .. }
        | Event::Unlink { time, .. }
        | Event::Rmdir { time, .. }
        | Event::Rename { time, .. }
        | Event::SetXattr { time, .. }
        | Event::SetData { time, .. }
        | Event::SetPolicy { time, .. } => (Ino(0), time),
        Event::Session { .. } | Event::Merged { .. } | Event::Stored { .. } => return None,
    };
    Some(Remembered { tid: record.origin.tid, seq: record.seq, ino, time })
}
