//! Applying the events of a verified merge, in slices.
//!
//! Creates are applied in batches, because then their cache misses overlap; everything else one by
//! one. The order of the journal is kept, whatever it holds.

use journal::{Block, BlockReader, Event, JournalError};
use namespace::{Batch, Mode, Outcome, Refusal};
use types::{FileType, Ino, Origin, Seq};
use wire::{MergeFlags, MergeReport, MergeSample, SampleKind};

use super::{Merge, SAMPLES_MAX, Slice};
use crate::Mds;

impl Mds {
    pub(super) fn apply_slice(&mut self, merge: &mut Merge) -> Result<Slice, JournalError> {
        self.namespace.set_journalled(merge.is_recorded());
        self.begin_record(merge);
        let bytes = std::mem::take(&mut merge.bytes);
        let mut batch = std::mem::take(&mut self.merges.batch);
        let result = self.apply_blocks(merge, &bytes, &mut batch);
        // However the slice ended: `skip` counts what is in the batch as done.
        self.merge_creates(merge, &mut batch);
        self.merges.batch = batch;
        merge.bytes = bytes;
        self.namespace.set_journalled(true);
        self.record(merge, matches!(result, Ok(Slice::Done)));
        if merge.is_noted() {
            self.merges.note_done(merge.subtree, merge.journal, merge.newest);
        }
        self.note_freed();
        result
    }

    fn apply_blocks(
        &mut self,
        merge: &mut Merge,
        bytes: &[u8],
        batch: &mut Batch,
    ) -> Result<Slice, JournalError> {
        // Creates that nobody asks about are blind, and most of any journal.
        let blind = !merge.flags.dry_run && !merge.flags.check;
        let mut budget = self.settings.merge_events;
        let done = self.merges.done_of(merge);
        while merge.offset < bytes.len() {
            let (block, next) = Block::read(bytes, merge.offset)?;
            let mut events = events_of(&block, merge)?;
            loop {
                if budget == 0 {
                    merge.mark = Some(events.mark());
                    return Ok(Slice::More);
                }
                let (seq, event) = if let Some((seq, _, create)) = events.next_create()? {
                    let blind = blind && merge.left_out.front() != Some(&seq);
                    if seq > done && blind && !may_meet_directory(merge, &create) {
                        batch.push(merge.seq, &create);
                        if batch.is_full() {
                            self.merge_creates(merge, batch);
                        }
                        (seq, None)
                    } else {
                        (seq, Some(Event::Create(create)))
                    }
                } else if let Some(record) = events.next_event()? {
                    (record.seq, Some(record.event))
                } else {
                    break;
                };
                if seq <= done {
                    merge.skip += 1;
                    merge.applied += 1;
                    merge.recorded += 1;
                    continue;
                }
                if let Some(event) = event {
                    self.merge_creates(merge, batch);
                    if let Some(dir) = self.merge_event(merge, (seq, &event)) {
                        return Ok(Slice::Cold(dir));
                    }
                }
                merge.newest = seq;
                merge.skip += 1;
                merge.applied += 1;
                budget -= 1;
                if self.namespace.has_losses() {
                    // They are repeated behind the creates of a record, so they end it.
                    self.merge_creates(merge, batch);
                    self.record(merge, false);
                }
            }
            merge.offset = next;
            merge.skip = 0;
        }
        Ok(Slice::Done)
    }

    /// What is applied from now on belongs to the next record in the journal.
    fn begin_record(&mut self, merge: &mut Merge) {
        merge.recorded = merge.applied;
        merge.seq = Seq(self.last_seq().0 + u64::from(merge.is_recorded()));
    }

    /// Says in the journal which creates of a journal that recovery can read were applied since
    /// the last record. Recovery then applies them between the same events of others.
    fn record(&mut self, merge: &mut Merge, last: bool) {
        let losses = self.namespace.take_losses();
        let events = merge.applied - merge.recorded;
        if !merge.is_recorded() || (events == 0 && losses.is_empty() && !last) {
            return;
        }
        let mut encoded = Vec::new();
        losses.iter().for_each(|loss| loss.put(&mut encoded));
        let event = Event::Merged {
            subtree: merge.subtree,
            client: merge.client,
            object: &merge.object,
            first: merge.recorded,
            events,
            last,
            losses: &encoded,
        };
        merge.recorded = merge.applied;
        let seq = self.log.append(self.clock.now, Origin::default(), &event);
        debug_assert_eq!(seq, merge.seq, "nothing else is journalled between records");
        if !last {
            self.begin_record(merge);
        }
    }

    /// Applies the creates of a batch. They need no directory to be fetched.
    fn merge_creates(&mut self, merge: &mut Merge, batch: &mut Batch) {
        let Merge { ref mut report, .. } = *merge;
        report.created += batch.len() as u64;
        self.counters.merged_events += batch.len() as u64;
        self.namespace.apply_batch(Mode::Merge, batch, |create, outcome| {
            if outcome != Outcome::Done {
                note(report, outcome, &Event::Create(*create));
            }
        });
    }

    /// Applies one event, or returns the directory that must be fetched first.
    fn merge_event(&mut self, merge: &mut Merge, (seq, event): (Seq, &Event<'_>)) -> Option<Ino> {
        if event.is_nothing() {
            return None;
        }
        if merge.left_out.front() == Some(&seq) {
            merge.left_out.pop_front();
            self.leave_out(merge, event);
            return None;
        }
        if !merge.flags.dry_run && self.namespace.lacks_place(event) {
            self.leave_out(merge, event);
            return None;
        }
        let is_new = |dir| merge.new_dirs.contains(&dir);
        if let Some(dir) = self.namespace.needs_in_merge(event, is_new) {
            return Some(dir);
        }
        let MergeFlags { dry_run, check, .. } = merge.flags;
        let creates = event.kind() == journal::EventKind::Create;
        if dry_run || check {
            match self.conflict(merge, event) {
                Err(dir) => return Some(dir),
                Ok(true) if check => {
                    sample(&mut merge.report, SampleKind::Rejected, event);
                    return None;
                }
                Ok(true) => {
                    merge.report.created += u64::from(creates);
                    sample(&mut merge.report, SampleKind::Replaced, event);
                    return None;
                }
                Ok(false) => {}
            }
        }
        merge.report.created += u64::from(creates);
        if dry_run {
            return None;
        }
        self.counters.merged_events += 1;
        let outcome = if creates || !merge.is_recorded() {
            self.namespace.apply(merge.seq, Mode::Merge, event)
        } else {
            self.merge_exactly(merge, event)
        };
        note(&mut merge.report, outcome, event);
        None
    }

    /// Applies an event other than a create. What it did becomes events of the rank's journal.
    fn merge_exactly(&mut self, merge: &mut Merge, event: &Event<'_>) -> Outcome {
        self.record(merge, false);
        let (log, now) = (&mut self.log, self.clock.now);
        let outcome = self.namespace.merge_exactly(merge.seq, event, |event| {
            log.append(now, Origin::default(), event);
        });
        self.begin_record(merge);
        // It is about to be counted.
        merge.recorded += 1;
        outcome
    }

    /// Leaves out an event about something that is not in the subtree. Recovery must, too: it is in
    /// no record.
    fn leave_out(&mut self, merge: &mut Merge, event: &Event<'_>) {
        sample(&mut merge.report, SampleKind::Rejected, event);
        if merge.is_recorded() {
            self.record(merge, false);
            // It is about to be counted.
            merge.recorded += 1;
        }
    }

    /// Whether a create meets a name that somebody else made; `Err` with a directory to fetch.
    fn conflict(&self, merge: &Merge, event: &Event<'_>) -> Result<bool, Ino> {
        let Event::Create(create) = event else { return Ok(false) };
        if merge.new_dirs.contains(&create.parent) && !self.namespace.knows(create.parent) {
            return Ok(false);
        }
        match self.namespace.peek(create.parent, create.name) {
            Ok(found) => Ok(found.is_some_and(|ino| ino != create.ino)),
            Err(Refusal::Cold(dir)) => Err(dir),
            Err(Refusal::Errno(_)) => Ok(false),
        }
    }
}

/// The events of a block that are not applied yet.
fn events_of<'a>(block: &Block<'a>, merge: &mut Merge) -> Result<BlockReader<'a>, JournalError> {
    if let Some(mark) = merge.mark.take() {
        return Ok(block.events_from(&mark));
    }
    let mut events = block.events();
    for _ in 0..merge.skip {
        events.next_event()?;
    }
    Ok(events)
}

/// Whether a new directory may take the place of one, whose names it then takes over.
fn may_meet_directory(merge: &Merge, create: &journal::Create<'_>) -> bool {
    create.file_type() == FileType::Directory && !merge.new_dirs.contains(&create.parent)
}

fn note(report: &mut MergeReport, outcome: Outcome, event: &Event<'_>) {
    match outcome {
        Outcome::Done => {}
        Outcome::Replaced(_) => sample(report, SampleKind::Replaced, event),
        Outcome::Rejected => sample(report, SampleKind::Rejected, event),
    }
}

fn sample(report: &mut MergeReport, kind: SampleKind, event: &Event<'_>) {
    match kind {
        SampleKind::Replaced => report.replaced += 1,
        SampleKind::Rejected => report.rejected += 1,
    }
    if report.samples.len() < SAMPLES_MAX {
        let (parent, name) = event.dentry().unwrap_or_default();
        report.samples.push(MergeSample { kind, parent, name: name.to_vec() });
    }
}
