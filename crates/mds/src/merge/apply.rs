//! Applying the events of a verified merge, in slices.
//!
//! Creates are applied in batches, because then their cache misses overlap; all other events one by
//! one. The order of the journal is always kept.
//!
//! Invariant: everything that an event displaces is in memory, because the objects of a displaced
//! file are deleted, and the files below a displaced directory go with it.

use journal::{Block, BlockReader, Create, Event, EventKind, InodeSnapshot, JournalError, Loss};
use namespace::{ApplyOutcome, CreateBatch, Displaces, Mode, Refusal};
use types::{EntryName, Errno, FileType, Ino, Origin, Path, Seq};
use wire::{MergeReport, MergeSample, SampleKind};

use super::logged::LogUser;
use super::outdated::{self, Extent};
use super::step::Slice;
use super::{Merge, MergeCx, SAMPLES_MAX, check};

/// Names of one directory that one request to the store looks up.
const NAMES_MAX: usize = 4096;

impl MergeCx<'_> {
    pub(super) fn apply_slice(&mut self, merge: &mut Merge) -> Result<Slice, JournalError> {
        self.namespace.set_journalled(merge.is_recorded());
        self.begin_record(merge);
        let bytes = std::mem::take(&mut merge.bytes);
        let mut batch = std::mem::take(&mut self.merges.batch);
        assert!(batch.is_empty(), "the creates of earlier slices are applied");
        let result = self.apply_blocks(merge, &bytes, &mut batch);
        // However the slice ended: `skip` counts the events of the batch as done.
        self.merge_creates(merge, &mut batch);
        self.merges.batch = batch;
        merge.bytes = bytes;
        self.namespace.set_journalled(true);
        self.purges.hold_freed(
            self.namespace,
            self.opens,
            self.log.last(),
            merge.is_recorded(),
            self.clock.now,
        );
        while merge.is_recorded() && self.purges.lacks_record(1) {
            self.append_record(merge, 0, false, &[]);
        }
        self.record(merge, matches!(result, Ok(Slice::Done)));
        if merge.is_recorded() && self.purges.lacks_record(0) {
            self.append_record(merge, 0, false, &[]);
        }
        if merge.is_noted() {
            let Merge { subtree, journal, newest, .. } = *merge;
            self.merges.note_done(subtree, journal, newest, merge.is_recorded());
        }
        result
    }

    fn apply_blocks(
        &mut self,
        merge: &mut Merge,
        bytes: &[u8],
        batch: &mut CreateBatch,
    ) -> Result<Slice, JournalError> {
        // Creates that need no report are blind, and most of any journal.
        let blind = !merge.flags.dry_run && !merge.flags.check;
        let mut budget = self.settings.merge_events;
        let done = self.merges.done_of(merge);
        if !merge.flags.dry_run && !self.namespace.is_complete(Ino::LINKS) {
            return Ok(Slice::Cold(Ino::LINKS));
        }
        // A directory in which a create displaces at most a file, until an event may change that.
        let mut plain = None;
        while merge.offset < bytes.len() {
            let (block, next) = Block::read(bytes, merge.offset)?;
            assert!(next > merge.offset, "a block has a length");
            let mut events = events_of(&block, merge)?;
            loop {
                if budget == 0 {
                    merge.mark = Some(events.mark());
                    return Ok(Slice::More);
                }
                let (seq, event) = if let Some((seq, _, create)) = events.next_create()? {
                    let blind = blind && merge.left_out.front() != Some(&seq);
                    let blind = blind && seq > done && !self.needs_look(merge, &create);
                    let dir = create.parent;
                    let displaces = if !blind || plain == Some(dir) {
                        Displaces::AtMostFile
                    } else {
                        self.displaced_by(merge, &create, &mut plain)
                    };
                    if blind && displaces == Displaces::Unknown {
                        let mut names = vec![create.name.to_vec()];
                        self.unknown_names(dir, block.events_from(&events.mark()), &mut names);
                        return Ok(Slice::Unknown(dir, names));
                    }
                    if blind && displaces == Displaces::AtMostFile {
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
                    plain = None;
                    if let Some(dir) = self.merge_event(merge, seq, &event) {
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

    /// The entry that a create displaces, as far as memory knows; `plain` becomes its directory if
    /// no name in there is of more than a file. The objects of a displaced file are deleted, so the
    /// file must be known.
    fn displaced_by(
        &self,
        merge: &Merge,
        create: &Create<'_>,
        plain: &mut Option<Ino>,
    ) -> Displaces {
        let is_new = |dir| merge.new_dirs.contains(&dir);
        let dirs = self.namespace.dirs();
        if dirs.has_plain_files_only(create.parent, is_new) {
            *plain = Some(create.parent);
            return Displaces::AtMostFile;
        }
        if !self.namespace.knows(create.parent) {
            // The directory is gone, and the create is rejected. The store may still have names of
            // the directory, which must not come back.
            return Displaces::AtMostFile;
        }
        dirs.displaced_by_file(EntryName::new(create.parent, create.name), is_new)
    }

    /// Adds the unknown names that the next creates in a directory take: one request to the store
    /// looks all of them up.
    fn unknown_names(&self, dir: Ino, mut events: BlockReader<'_>, names: &mut Vec<Vec<u8>>) {
        while names.len() < NAMES_MAX
            && let Ok(Some((_, _, create))) = events.next_create()
            && create.parent == dir
        {
            if !self.namespace.dirs().knows_name(dir, create.name) {
                names.push(create.name.to_vec());
            }
        }
    }

    /// Events that are applied from now on belong to the next record in the journal.
    fn begin_record(&mut self, merge: &mut Merge) {
        merge.recorded = merge.applied;
        merge.seq = Seq(self.log.last().0 + u64::from(merge.is_recorded()));
    }

    /// Records in the journal which creates of a journal that recovery can read were applied since
    /// the last record. Recovery then applies them between the same events of other clients.
    fn record(&mut self, merge: &mut Merge, last: bool) {
        let losses = self.namespace.take_losses();
        self.purges.hold_freed(
            self.namespace,
            self.opens,
            self.log.last(),
            merge.is_recorded(),
            self.clock.now,
        );
        assert!(merge.recorded <= merge.applied, "only an applied event is in a record");
        let events = merge.applied - merge.recorded;
        if !merge.is_recorded() || (events == 0 && losses.is_empty() && !last) {
            return;
        }
        self.append_record(merge, events, last, &losses);
    }

    fn append_record(&mut self, merge: &mut Merge, events: u64, last: bool, losses: &[Loss]) {
        let mut encoded = Vec::new();
        losses.iter().for_each(|loss| loss.put(&mut encoded));
        let removed = self.purges.name_removed(merge.seq);
        removed.iter().for_each(|loss| loss.put(&mut encoded));
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
        self.authority.journal_is_unclear(self.log.last());
        merge.begun.get_or_insert(seq);
        debug_assert_eq!(seq, merge.seq, "nothing else is journalled between records");
        if !last {
            self.begin_record(merge);
        }
    }

    /// Applies the creates of a batch. They need no directory to be fetched.
    fn merge_creates(&mut self, merge: &mut Merge, batch: &mut CreateBatch) {
        let Merge { ref mut report, .. } = *merge;
        let samples = report.samples.len();
        report.created += batch.len() as u64;
        self.counters.merged_events += batch.len() as u64;
        self.namespace.apply_batch(Mode::Merge, batch, |create, outcome| {
            if outcome != ApplyOutcome::Done {
                let event = Event::Create(*create);
                note(report, outcome, &event, Some(Errno::NotFound), None);
            }
        });
        for sample in &mut report.samples[samples..] {
            let dir = self.namespace.path_of(sample.parent);
            sample.path = dir.map(|dir| dir.join(&sample.name).to_bytes()).unwrap_or_default();
        }
    }

    /// Applies one event, or returns the directory that must be fetched first.
    fn merge_event(&mut self, merge: &mut Merge, seq: Seq, event: &Event<'_>) -> Option<Ino> {
        if event.is_nothing() {
            return None;
        }
        if merge.left_out.front() == Some(&seq) {
            merge.left_out.pop_front();
            self.leave_out(merge, event, Errno::NotFound);
            return None;
        }
        if merge.flags.check {
            return self.merge_checked(merge, event);
        }
        let dry_run = merge.flags.dry_run;
        if !dry_run && self.namespace.needs().lacks_place(event) {
            self.leave_out(merge, event, Errno::NotFound);
            return None;
        }
        let is_new = |dir| merge.new_dirs.contains(&dir);
        if !merge.sets_time_of_run(event)
            && let Some(dir) = self.namespace.needs().in_merge(event, is_new)
        {
            return Some(dir);
        }
        match self.allows(merge, event) {
            Err(Refusal::Cold(dir)) => return Some(dir),
            Err(Refusal::Errno(errno)) => {
                self.leave_out(merge, event, errno);
                return None;
            }
            Ok(()) => {}
        }
        let conflict = match self.conflict(merge, event) {
            Err(dir) => return Some(dir),
            Ok(conflict) => conflict,
        };
        merge.report.created += u64::from(event.kind() == EventKind::Create);
        if conflict {
            self.note(merge, ApplyOutcome::Replaced(Ino(0)), event, None);
        }
        if dry_run {
            return None;
        }
        let outcome = match self.extent_of(merge, event) {
            Extent::Whole => self.execute_merged(merge, event),
            Extent::Instead(events) => {
                let mut outcome = ApplyOutcome::Done;
                for event in events.into_iter().flatten() {
                    outcome = self.execute_merged(merge, &event);
                }
                outcome
            }
            Extent::Nothing => ApplyOutcome::Done,
        };
        for dir in self.namespace.adopters() {
            // It has names now that the journal did not give it.
            merge.new_dirs.remove(&dir);
        }
        if outcome != ApplyOutcome::Done {
            let reason = check::reason(self.namespace, event);
            self.note(merge, outcome, event, Some(reason));
        }
        None
    }

    /// Applies an event, so that recovery can repeat it if it can read the journal.
    pub(super) fn execute_merged(&mut self, merge: &mut Merge, event: &Event<'_>) -> ApplyOutcome {
        self.counters.merged_events += 1;
        let is_about_links = self.namespace.is_about_links(event);
        let outcome = if event.kind() != EventKind::Create && merge.is_recorded() {
            self.merge_exactly(merge, event)
        } else if let Event::Create(create) = event
            && self.may_lack_name(merge, create)
            && !matches!(self.namespace.peek(create.parent, create.name), Ok(Some(_)))
            && let Ok(attr) = self.namespace.getattr(create.ino)
        {
            // The name is free: it was looked up, or the merge made the directory. The journal of
            // the rank knows the file from its second name, and an earlier event of the client's
            // journal took the first one.
            let Create { parent, name, ino, time, data, extra, .. } = *create;
            let (home, inode) = (Ino::LINKS, InodeSnapshot { attr, data, extra });
            self.merge_link(merge, &Event::Link { parent, name, ino, home, inode, time })
        } else if is_about_links {
            self.merge_link(merge, event)
        } else {
            self.namespace.apply(merge.seq, Mode::Merge, event)
        };
        let is_linked = |ino| self.namespace.home_of(ino) == Some(Ino::LINKS);
        merge.takes_links |=
            is_about_links || matches!(outcome, ApplyOutcome::Replaced(loser) if is_linked(loser));
        self.purges.take_back_named(self.namespace, self.opens, event);
        outcome
    }

    /// As the function of this name, with the path of the event.
    pub(super) fn note(
        &self,
        merge: &mut Merge,
        outcome: ApplyOutcome,
        event: &Event<'_>,
        reason: Option<Errno>,
    ) {
        let listed = outcome != ApplyOutcome::Done && merge.report.samples.len() < SAMPLES_MAX;
        if listed {
            self.bring_to_trial(merge, event);
        }
        let path = if listed { self.path_in_merge(merge, event) } else { None };
        note(&mut merge.report, outcome, event, reason, path);
    }

    /// Whether a create cannot be applied without looking at the inode or the name.
    fn needs_look(&self, merge: &Merge, create: &Create<'_>) -> bool {
        // A log is compared with the rights of its user, and with files of several names.
        let is_compared =
            merge.flags.strong_log && (merge.rights.is_some() || self.namespace.dirs().has_links());
        is_compared || may_meet_directory(merge, create) || self.may_lack_name(merge, create)
    }

    /// How far an event is newer than what the rank knows: a log may be older.
    fn extent_of<'a>(&self, merge: &Merge, event: &Event<'a>) -> Extent<'a> {
        if !merge.flags.strong_log {
            return Extent::Whole;
        }
        outdated::extent_of(self.namespace, event)
    }

    /// Whether the user whose log is merged may make a change. In a decoupled subtree the user may.
    fn allows(&self, merge: &Merge, event: &Event<'_>) -> Result<(), Refusal> {
        if !merge.flags.strong_log || merge.cred.is_root() {
            return Ok(());
        }
        let Merge { ref cred, subtree, holder, .. } = *merge;
        LogUser { namespace: self.namespace, tables: self.tables, cred, holder, subtree }
            .check(event)
    }

    /// Whether a create may be of a file with several names that lacks this one: the journal of the
    /// rank has the names of such files, whatever the policy says, and so knows them when a client
    /// merges its journal or log again after a crash.
    fn may_lack_name(&self, merge: &Merge, create: &Create<'_>) -> bool {
        merge.takes_links
            && !merge.is_recorded()
            && self.namespace.home_of(create.ino) == Some(Ino::LINKS)
    }

    /// Applies an event about an inode with several names, and journals it although the merge is
    /// in no record: the inode is stored apart from its names, so after a crash the store may have
    /// one without the others, and the client's repeated merge would not mend that.
    fn merge_link(&mut self, merge: &mut Merge, event: &Event<'_>) -> ApplyOutcome {
        let (log, now) = (&mut *self.log, self.clock.now);
        self.namespace.first_name(event, |event| {
            log.append(now, Origin::default(), event);
        });
        let seq = Seq(log.last().0 + 1);
        self.namespace.set_journalled(true);
        let outcome = self.namespace.merge_exactly(seq, event, |event| {
            log.append(now, Origin::default(), event);
        });
        self.namespace.set_journalled(false);
        self.begin_record(merge);
        outcome
    }

    /// Applies an event other than a create. Its effects become events of the rank's journal.
    fn merge_exactly(&mut self, merge: &mut Merge, event: &Event<'_>) -> ApplyOutcome {
        self.record(merge, false);
        if merge.begun.is_none() {
            // If a crash leaves no more than these events, recovery must know to which merge they
            // belong.
            self.append_record(merge, 0, false, &[]);
        }
        let (log, now) = (&mut self.log, self.clock.now);
        let outcome = self.namespace.merge_exactly(merge.seq, event, |event| {
            log.append(now, Origin::default(), event);
        });
        self.begin_record(merge);
        self.namespace.lose_at(merge.seq);
        // It is about to be counted.
        merge.recorded += 1;
        outcome
    }

    /// Leaves out an event: its inode is not in the subtree, or it breaks a rule.
    pub(super) fn leave_out(&mut self, merge: &mut Merge, event: &Event<'_>, errno: Errno) {
        self.note(merge, ApplyOutcome::Rejected, event, Some(errno));
        self.exclude(merge);
    }

    /// An event is not executed. Recovery must not do so either: it is in no record.
    pub(super) fn exclude(&mut self, merge: &mut Merge) {
        if merge.is_recorded() {
            self.record(merge, false);
            // It is about to be counted.
            merge.recorded += 1;
        }
    }

    /// Whether, in a dry run, a create meets a name that another client made; `Err` with a
    /// directory to fetch.
    fn conflict(&self, merge: &Merge, event: &Event<'_>) -> Result<bool, Ino> {
        let Event::Create(create) = event else { return Ok(false) };
        if !merge.flags.dry_run {
            return Ok(false);
        }
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

/// Whether a new directory may take the place of one, and take over its names.
fn may_meet_directory(merge: &Merge, create: &Create<'_>) -> bool {
    create.file_type() == FileType::Directory && !merge.new_dirs.contains(&create.parent)
}

/// Notes the outcome of an event and, if it was rejected, the reason.
fn note(
    report: &mut MergeReport,
    outcome: ApplyOutcome,
    event: &Event<'_>,
    reason: Option<Errno>,
    path: Option<Path>,
) {
    let (kind, errno) = match outcome {
        ApplyOutcome::Done => return,
        ApplyOutcome::Replaced(_) => (SampleKind::Replaced, None),
        ApplyOutcome::Rejected => (SampleKind::Rejected, reason),
    };
    match kind {
        SampleKind::Replaced => report.replaced += 1,
        SampleKind::Rejected => report.rejected += 1,
    }
    if report.samples.len() < SAMPLES_MAX {
        let about = || (event.inode().unwrap_or_default(), &[][..]);
        let (parent, name) = event.dentry().unwrap_or_else(about);
        let path = path.map(|path| path.to_bytes()).unwrap_or_default();
        report.samples.push(MergeSample { kind, errno, parent, name: name.to_vec(), path });
    }
}
