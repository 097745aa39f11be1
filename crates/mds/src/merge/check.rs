//! `check: merge` (F-07): every event is judged by the rules of live requests, on behalf of the
//! user who merges, against the state of the namespace when the event's turn comes. An event that
//! breaks a rule is left out and reported with its error, and so are the events that build on it.
//!
//! With `dry_run` the same is done on a copy of the directories that the journal touches, so that a
//! later event sees the effect of an earlier one, and the report is that of the merge that follows.

use journal::{Event, EventKind};
use namespace::{ApplyOutcome, Judge, Mode, Namespace, Planned, Refusal, TrialNamespace};
use policy::{Check, Policy};
use types::{Errno, Ino, Path, Rights};

use super::{Merge, MergeCx};
use crate::ReplyTo;

/// Directories deeper than this have no path: their journal was made up.
const DEPTH_MAX: usize = 2048;

/// An inode whose create was left out.
#[derive(Debug)]
pub(super) struct Absent {
    errno: Errno,
    parent: Ino,
    name: Vec<u8>,
}

impl Merge {
    /// Why an event cannot be executed that depends on a rejected one.
    fn rejected_before(&self, event: &Event<'_>) -> Option<Errno> {
        if self.absent.is_empty() {
            return None;
        }
        places(event).into_iter().flatten().find_map(|ino| Some(self.absent.get(&ino)?.errno))
    }

    /// An event is left out: the inode that it would have created is absent.
    pub(super) fn note_absent(&mut self, event: &Event<'_>, errno: Errno) {
        if let Event::Create(create) = event {
            let absent = Absent { errno, parent: create.parent, name: create.name.to_vec() };
            self.absent.insert(create.ino, absent);
        }
    }

    fn judge<'a>(
        &self,
        namespace: &Namespace,
        event: &Event<'a>,
    ) -> Result<Option<Planned<'a>>, Refusal> {
        if namespace.needs().lacks_place(event) {
            return Err(Errno::NotFound.into());
        }
        let is_new = |dir| self.new_dirs.contains(&dir);
        if let Some(dir) = namespace.needs().in_merge(event, is_new) {
            return Err(Refusal::Cold(dir));
        }
        let own = event.inode().is_some_and(|ino| self.ranges.iter().any(|r| r.contains(ino)));
        let judge = Judge { cred: &self.cred, subtree: self.subtree };
        namespace.plan().judge(&judge, event, own)
    }
}

impl MergeCx<'_> {
    /// Whether the policy of a subtree asks for the check, independent of its client's flags, or
    /// the key of the client does not have the right to merge unchecked.
    pub(super) fn must_check(&mut self, at: ReplyTo, subtree: Ino) -> bool {
        if self.lacks_right_unchecked(at, subtree) {
            return true;
        }
        let Some(known) = self.tables.decoupled.get(&subtree) else { return false };
        if known.policy.is_empty() {
            return self.namespace.effective_policy(subtree).1.policy.check == Check::Merge;
        }
        let parsed = Policy::parse_bytes(known.policy.as_bytes());
        parsed.is_ok_and(|parsed| parsed.policy.check == Check::Merge)
    }

    /// Whether the key of the sender does not have the right to merge unchecked in a subtree.
    fn lacks_right_unchecked(&self, at: ReplyTo, subtree: Ino) -> bool {
        let Some(rules) = self.identities.rules(at.conn) else { return false };
        let path = self.namespace.path_of(subtree);
        path.is_none_or(|path| rules.giving(Rights::MERGE_UNCHECKED, &path).is_none())
    }

    /// A dry run with checks begins.
    pub(super) fn begin_trial(&self, merge: &mut Merge) {
        if merge.flags.check && merge.flags.dry_run {
            merge.trial = Some(Box::new(TrialNamespace::new(self.namespace, merge.subtree)));
        }
    }

    /// Applies one event if no rule is against it, or returns the directory that must be fetched
    /// first.
    pub(super) fn merge_checked(&mut self, merge: &mut Merge, event: &Event<'_>) -> Option<Ino> {
        if merge.sets_time_of_run(event) {
            // From a verifier, which has judged the summed-up events.
            self.execute_checked(merge, None, event);
            return None;
        }
        if let Some(errno) = merge.rejected_before(event) {
            self.reject(merge, event, errno);
            return None;
        }
        let mut trial = merge.trial.take();
        let judged = match &mut trial {
            Some(trial) => self.judge_on_trial(merge, trial, event),
            None => merge.judge(self.namespace, event),
        };
        if let Ok(Some(planned)) = &judged {
            self.execute_checked(merge, trial.as_deref_mut(), &planned.event());
        }
        merge.trial = trial;
        match judged {
            Ok(Some(_)) => {}
            // Both names are of one inode already.
            Ok(None) => self.exclude(merge),
            Err(Refusal::Cold(dir)) => return Some(dir),
            Err(Refusal::Errno(errno)) => self.reject(merge, event, errno),
        }
        None
    }

    /// Judges an event on the copy, to which all inodes that the answer depends on are added.
    fn judge_on_trial<'a>(
        &self,
        merge: &Merge,
        trial: &mut TrialNamespace,
        event: &Event<'a>,
    ) -> Result<Option<Planned<'a>>, Refusal> {
        for ino in places(event).into_iter().chain([event.inode()]).flatten() {
            trial.bring(self.namespace, ino).map_err(Refusal::Cold)?;
        }
        loop {
            match merge.judge(trial.namespace(), event) {
                Err(Refusal::Cold(dir)) if !trial.namespace().is_complete(dir) => {
                    trial.load(self.namespace, dir).map_err(Refusal::Cold)?;
                }
                // It is complete and does not have the answer: the metadata are damaged.
                Err(Refusal::Cold(_)) => return Err(Errno::Io.into()),
                judged => return judged,
            }
        }
    }

    fn execute_checked(
        &mut self,
        merge: &mut Merge,
        trial: Option<&mut TrialNamespace>,
        event: &Event<'_>,
    ) {
        let create = event.kind() == EventKind::Create;
        merge.report.created += u64::from(create);
        if create && let Some(ino) = event.inode() {
            merge.absent.remove(&ino);
        }
        let outcome = if let Some(trial) = trial {
            let namespace = trial.namespace_mut();
            let outcome = namespace.apply(merge.seq, Mode::Merge, event);
            // Nothing comes of them in a trial.
            namespace.take_losses();
            namespace.take_freed();
            outcome
        } else {
            self.execute_merged(merge, event)
        };
        // A planned event knows the name that it replaces: no other name is lost.
        if outcome == ApplyOutcome::Rejected {
            let errno = reason(self.namespace, event);
            self.note(merge, outcome, event, Some(errno));
        }
    }

    fn reject(&mut self, merge: &mut Merge, event: &Event<'_>, errno: Errno) {
        merge.note_absent(event, errno);
        self.leave_out(merge, event, errno);
    }

    /// An event that is left out before it is judged has a path in a trial, too.
    pub(super) fn bring_to_trial(&self, merge: &mut Merge, event: &Event<'_>) {
        let Some(trial) = &mut merge.trial else { return };
        for ino in places(event).into_iter().flatten() {
            // If only the path would need a fetch, the event is shown without a path.
            let _ = trial.bring(self.namespace, ino);
        }
    }

    /// The path of an event when its turn comes.
    pub(super) fn path_in_merge(&self, merge: &Merge, event: &Event<'_>) -> Option<Path> {
        let (mut at, mut below) = match event.dentry() {
            Some((dir, name)) => (dir, vec![name]),
            None => (event.inode()?, Vec::new()),
        };
        // A left-out inode has a path, too: the one that it would have.
        while let Some(Absent { parent, name, .. }) = merge.absent.get(&at) {
            if below.len() > DEPTH_MAX {
                return None;
            }
            below.push(name);
            at = *parent;
        }
        let top = match &merge.trial {
            Some(trial) => trial.path_of(self.namespace, at),
            None => self.namespace.path_of(at),
        };
        Some(below.iter().rev().fold(top?, |path, name| path.join(name)))
    }
}

/// The directories and inodes that an event builds on.
fn places(event: &Event<'_>) -> [Option<Ino>; 4] {
    let dir = event.dentry().map(|(dir, _)| dir);
    match *event {
        // Its own number is no place.
        Event::Create(_) => [dir, None, None, None],
        Event::Rename { new_parent, ref moved, ref exchanged, .. } => {
            let back = exchanged.as_ref().map(|back| back.attr.ino);
            [dir, Some(new_parent), Some(moved.attr.ino), back]
        }
        Event::Link { .. }
        | Event::Unlink { .. }
        | Event::Rmdir { .. }
        | Event::SetAttr { .. }
        | Event::SetXattr { .. }
        | Event::SetData { .. }
        | Event::SetPolicy { .. }
        | Event::Session { .. }
        | Event::Merged { .. }
        | Event::Stored { .. } => [dir, event.inode(), None, None],
    }
}

/// Why the namespace did not execute an event that was not judged.
pub(super) fn reason(namespace: &Namespace, event: &Event<'_>) -> Errno {
    let found = |(dir, name)| namespace.peek(dir, name).ok().flatten();
    match *event {
        _ if namespace.needs().lacks_place(event) => Errno::NotFound,
        Event::Unlink { .. } => Errno::IsDirectory,
        Event::Rmdir { parent, name, .. } => match found((parent, name)) {
            Some(ino) if namespace.is_dir(ino) => Errno::NotEmpty,
            Some(_) | None => Errno::NotDirectory,
        },
        Event::Rename { .. } => Errno::Invalid,
        Event::Link { .. }
        | Event::SetPolicy { .. }
        | Event::Session { .. }
        | Event::Merged { .. }
        | Event::Stored { .. } => Errno::NotPermitted,
        Event::Create(_)
        | Event::SetAttr { .. }
        | Event::SetXattr { .. }
        | Event::SetData { .. } => Errno::NotFound,
    }
}
