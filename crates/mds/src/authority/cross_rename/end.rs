//! The end of an offer on the rank that has the name: the name stays, or it goes.

use metastore::request::StoreOp;
use metastore::{CrossRename, CrossRenameState};
use namespace::{Mode, Refusal};
use types::{Cred, EntryName, Errno, Ino, Origin, Seq};
use wire::{Answer, Failure};

use super::super::preload::Goal;
use super::depart::{DepartureStage, LOOK_AGAIN};
use crate::{Mds, MdsEffects};

impl Mds {
    /// The name stays.
    pub(super) fn withdrawn(&mut self, id: u64, effects: &mut MdsEffects) {
        let cross_renames = &mut self.authority.cross_renames;
        let Some(place) = cross_renames.departures.iter().position(|it| it.id == id) else {
            return;
        };
        let departure = cross_renames.departures.swap_remove(place);
        let objects = vec![departure.object()];
        self.checkpoint.forget(&mut self.store, StoreOp::Delete { objects }, effects);
        self.note_not_carried(departure.cross_rename.request);
        let failure = departure.refused.unwrap_or_else(|| {
            let text = "the other metadata server did not take the name; try again".into();
            Failure { errno: Errno::Again, text }
        });
        if let Some(at) = departure.at {
            self.answer_cross_rename(at, Err(failure), effects);
        }
        self.thaw(departure.cross_rename.parent, effects);
    }

    /// Whether the directory exists; `None` during the search for it. It may have been removed
    /// after the name had left, and its server crashed then.
    fn is_found(&mut self, id: u64, parent: Ino) -> Option<bool> {
        let goal = Goal::Find(parent);
        if self.namespace.is_anchored(parent) {
            return Some(true);
        }
        if self.authority.preloads.iter().any(|preload| preload.goal == goal) {
            return None;
        }
        if std::mem::replace(&mut self.departure(id)?.searched, true) {
            return Some(false);
        }
        self.authority.preload(goal);
        None
    }

    /// The name is the other rank's: it goes.
    pub(super) fn give_name(
        &mut self,
        id: u64,
        effects: &mut MdsEffects,
    ) -> Option<DepartureStage> {
        let cross_rename = self.departure(id)?.cross_rename.clone();
        let CrossRename { state, parent, name, ino, time, is_dir, .. } = cross_rename;
        let is_taken = matches!(state, CrossRenameState::Taken | CrossRenameState::Done);
        assert!(is_taken, "{ino}: a name goes when the other rank has taken it");
        let there = self.is_found(id, parent)?;
        let mut seq = Seq(0);
        let planned = match self.namespace.peek(parent, &name) {
            _ if !there => Ok(None),
            Ok(Some(here)) if here == ino => {
                let from = EntryName::new(parent, &name);
                self.namespace.plan().departure(&Cred::root(), from, time).map(Some)
            }
            // A recovery, or the journal of an earlier one, removed the name.
            Ok(_) => Ok(None),
            Err(refusal) => Err(refusal),
        };
        match planned {
            Ok(Some((_, planned))) => {
                let event = planned.event();
                let (client, tid) = cross_rename.request;
                seq = self.log.append(self.clock.now, Origin { client, tid }, &event);
                self.namespace.apply(seq, Mode::Live, &event);
            }
            Ok(None) if is_dir && !self.is_root_here(ino, effects) => return None,
            Ok(None) => {}
            Err(Refusal::Cold(dir)) => {
                self.cross_rename_waits_for(dir, effects);
                return None;
            }
            Err(Refusal::Errno(errno)) => {
                let cause = format!("{errno} when the name of {ino} was to go to another rank");
                effects.fatal = Some(types::Error::new(Errno::Io, parent.to_string(), cause));
                return None;
            }
        }
        let now = self.clock.now;
        let at = now + LOOK_AGAIN;
        let departure = self.departure(id)?;
        departure.stage = DepartureStage::Gone(seq, at);
        let at = departure.at.take();
        departure.left = Some(now);
        self.counters.renamed_away += u64::from(!is_dir);
        self.counters.dirs_renamed_away += u64::from(is_dir);
        self.note_carried(cross_rename.request, time);
        if let Some(at) = at {
            self.answer_cross_rename(at, Ok(Answer::Done), effects);
        }
        self.thaw(parent, effects);
        None
    }
}
