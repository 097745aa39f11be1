//! Merges one event of another journal, and records its exact effect.
//!
//! The effect of an event of a client journal depends on the state that it finds: another client
//! may have moved the inode that it moves. Replay must not decide that again, because it may find
//! another state. So the rank's own journal holds the effect, as events that are replayed like all
//! events.

use journal::{Create, Event, InodeSnapshot};
use types::{AttrChange, EntryName, Ino, Seq, Timestamp};

use crate::tree::InodeTree;
use crate::{ApplyOutcome, Mode, Namespace};

impl Namespace {
    /// Applies an event other than a create in [`Mode::Merge`], and hands over the events that have
    /// the same effect in [`Mode::Replay`].
    pub fn merge_exactly(
        &mut self,
        seq: Seq,
        event: &Event<'_>,
        record: impl FnMut(&Event<'_>),
    ) -> ApplyOutcome {
        // The name that the event itself takes from an inode with further names: replay counts
        // that.
        let taken = if let Event::Rename { new_parent, new_name, .. } = *event {
            Some((new_parent, new_name))
        } else {
            event.dentry()
        };
        let taken = taken.and_then(|(dir, name)| self.tree.dirs.get(dir)?.find(name));
        let outcome = self.merge_and_record(seq, event, record);
        if let Some(taken) = taken.filter(|taken| taken.is_remote()) {
            self.displaced.losses.retain_mut(|loss| {
                if (loss.winner, loss.loser) == (Ino(0), taken.ino) {
                    loss.names -= 1;
                }
                loss.winner.0 != 0 || loss.names > 0
            });
        }
        outcome
    }

    /// Hands over the create of the one name that a file has before an event gives it a second one.
    pub fn first_name(&self, event: &Event<'_>, record: impl FnOnce(&Event<'_>)) {
        let Event::Link { ino, .. } = *event else { return };
        if self.is_dir(ino) || self.home_of(ino) == Some(Ino::LINKS) {
            return;
        }
        let Some((parent, name)) = self.name_of(ino) else { return };
        let at = EntryName::new(parent, &name);
        self.tree.inodes.with_snapshot(ino, |inode| record(&Event::Create(Create::of(at, inode))));
    }

    /// A record at this position lists the losses: their inodes show it from then on.
    pub fn lose_at(&mut self, seq: Seq) {
        let losers =
            self.displaced.losses.iter().filter(|loss| loss.winner.0 == 0).map(|loss| loss.loser);
        for ino in losers.collect::<Vec<_>>() {
            if let Some(inode) = self.tree.inodes.get_mut(ino) {
                inode.version = inode.version.max(seq);
                self.tree.mark_inode(seq, ino);
            }
        }
    }

    /// The directories that took over names of replaced directories since losses were taken last.
    pub fn adopters(&self) -> impl Iterator<Item = Ino> {
        self.displaced.losses.iter().map(|loss| loss.winner).filter(|winner| winner.0 != 0)
    }

    fn merge_and_record(
        &mut self,
        seq: Seq,
        event: &Event<'_>,
        mut record: impl FnMut(&Event<'_>),
    ) -> ApplyOutcome {
        let named = |at: EntryName<'_>| self.tree.dirs.dentry(at).map(|dentry| dentry.ino);
        let goes = |at: EntryName<'_>, ino| named(at) == Some(ino) || !self.tree.inodes.knows(ino);
        match *event {
            Event::Unlink { parent, name, time, .. } => {
                let ino = named(EntryName::new(parent, name)).unwrap_or_default();
                self.merged(seq, event, || record(&Event::Unlink { parent, name, ino, time }))
            }
            Event::Rmdir { parent, name, time, .. } => {
                let ino = named(EntryName::new(parent, name)).unwrap_or_default();
                self.merged(seq, event, || record(&Event::Rmdir { parent, name, ino, time }))
            }
            Event::Link { parent, name, ino, time, .. } => {
                let home = self.tree.inodes.home_of(ino).unwrap_or(Ino::LINKS);
                let outcome = self.apply(seq, Mode::Merge, event);
                if outcome != ApplyOutcome::Rejected {
                    self.tree.inodes.with_snapshot(ino, |inode| {
                        record(&Event::Link { parent, name, ino, home, inode, time });
                    });
                }
                outcome
            }
            Event::SetAttr { ino, change, time, .. } => {
                let home = self.tree.inodes.home_of(ino).unwrap_or_default();
                self.merged(seq, event, || record(&Event::SetAttr { ino, home, change, time }))
            }
            Event::SetXattr { ino, name, value, time, .. } => {
                let home = self.tree.inodes.home_of(ino).unwrap_or_default();
                let event_there = Event::SetXattr { ino, home, name, value, time };
                self.merged(seq, event, || record(&event_there))
            }
            Event::SetData { ino, data, size, time, .. } => {
                let home = self.tree.inodes.home_of(ino).unwrap_or_default();
                let event_there = Event::SetData { ino, home, data, size, time };
                self.merged(seq, event, || record(&event_there))
            }
            Event::Rename {
                parent,
                name,
                new_parent,
                new_name,
                ref moved,
                exchanged,
                time,
                ..
            } => {
                let (from, to) =
                    (EntryName::new(parent, name), EntryName::new(new_parent, new_name));
                let (moved, back) = (moved.attr.ino, exchanged.map(|back| back.attr.ino));
                let moved_goes = goes(from, moved);
                let back_goes = back.is_some_and(|back| goes(to, back));
                let outcome = self.apply(seq, Mode::Merge, event);
                if outcome == ApplyOutcome::Rejected {
                    return outcome;
                }
                let done = Moves { from, to, moved, moved_goes, back, back_goes, outcome, time };
                self.tree.record_moves(&done, &mut record);
                outcome
            }
            Event::Create(_)
            | Event::SetPolicy { .. }
            | Event::Session { .. }
            | Event::Merged { .. }
            | Event::Stored { .. } => {
                debug_assert!(false, "{event:?} is merged in another way");
                ApplyOutcome::Rejected
            }
        }
    }

    fn merged(&mut self, seq: Seq, event: &Event<'_>, record: impl FnOnce()) -> ApplyOutcome {
        let outcome = self.apply(seq, Mode::Merge, event);
        if outcome != ApplyOutcome::Rejected {
            record();
        }
        outcome
    }
}

impl InodeTree {
    /// Records the effect of a rename: each inode moved, or stayed because it had moved before.
    fn record_moves(&self, done: &Moves<'_>, record: &mut dyn FnMut(&Event<'_>)) {
        let Moves { from, to, moved, moved_goes, back, back_goes, outcome, time } = *done;
        let replaced = if let ApplyOutcome::Replaced(ino) = outcome { ino } else { Ino(0) };
        match back {
            Some(back) if moved_goes && back_goes => self.inodes.with_snapshot(moved, |moved| {
                self.inodes.with_snapshot(back, |back| {
                    record(&rename(from, to, moved, Some(back), Ino(0), time));
                });
            }),
            _ if moved_goes => self.inodes.with_snapshot(moved, |moved| {
                record(&rename(from, to, moved, None, replaced, time));
            }),
            Some(back) if back_goes => self.inodes.with_snapshot(back, |back| {
                record(&rename(to, from, back, None, replaced, time));
            }),
            _ => {}
        }
        // An inode that stayed has a new ctime, and the directories have new times.
        let stayed = [(!moved_goes).then_some(moved), back.filter(|_| !back_goes)];
        for ino in stayed.into_iter().flatten() {
            self.record_times(ino, AttrChange::default(), time, record);
        }
        if !moved_goes || (back.is_some() && !back_goes) {
            let change = AttrChange { mtime: Some(time), ..AttrChange::default() };
            for dir in [from.dir, to.dir] {
                let is_touched = self.inodes.get(dir).is_some_and(|dir| dir.mtime == time);
                if is_touched {
                    self.record_times(dir, change, time, record);
                }
            }
        }
    }

    fn record_times(
        &self,
        ino: Ino,
        change: AttrChange,
        time: Timestamp,
        record: &mut dyn FnMut(&Event<'_>),
    ) {
        if let Some(home) = self.inodes.home_of(ino) {
            record(&Event::SetAttr { ino, home, change, time });
        }
    }
}

/// A rename that was merged.
struct Moves<'a> {
    from: EntryName<'a>,
    to: EntryName<'a>,
    moved: Ino,
    /// Whether it was under its old name, or nowhere: else it stays.
    moved_goes: bool,
    back: Option<Ino>,
    back_goes: bool,
    outcome: ApplyOutcome,
    time: Timestamp,
}

fn rename<'a>(
    from: EntryName<'a>,
    to: EntryName<'a>,
    moved: InodeSnapshot<'a>,
    exchanged: Option<InodeSnapshot<'a>>,
    replaced: Ino,
    time: Timestamp,
) -> Event<'a> {
    let (EntryName { dir: parent, name }, EntryName { dir: new_parent, name: new_name }) =
        (from, to);
    Event::Rename { parent, name, new_parent, new_name, moved, exchanged, replaced, time }
}
