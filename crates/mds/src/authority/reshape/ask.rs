//! Which requests may split or join a directory, and when that is possible.

use metastore::{PartState, SUBTREES_MAX};
use namespace::Refusal;
use types::{Cred, Errno, Frag, Ino, Rank};
use wire::{Answer, Failure};

use super::super::check::UnderWay;
use super::super::fragments::Split;
use super::super::place::{busy, cold};
use super::super::view::Places;
use super::{Reshape, ReshapeCx, ReshapeStage, part_name};
use crate::authority::Authority;
use crate::op::{Performed, Performing, Refused};
use crate::{MdsEffects, ReplyTo, fetch};

impl ReshapeCx<'_> {
    /// Begins to split a directory, or a fragment of one. Only root and the owner of the namespace
    /// may ask.
    pub(crate) fn split(&mut self, at: ReplyTo, cred: &Cred, dir: Ino) -> Performing {
        if cred.uid != 0 && cred.uid != self.settings.root_owner.0 {
            return Err(Errno::NotPermitted.into());
        }
        if !self.apply.namespace.knows(dir) {
            return Err(Errno::Stale.into());
        }
        if !self.apply.namespace.is_dir(dir) {
            return Err(Errno::NotDirectory.into());
        }
        if self.authority.splits.contains_key(&dir) {
            return Ok(Performed::Answer(Answer::Done));
        }
        if self.apply.namespace.has_lists(dir) {
            return Err(busy("it has an access control list, which fragments cannot have"));
        }
        let part = self.authority.list.get(dir).and_then(|subtree| subtree.part);
        let frag = part.map_or(Frag::WHOLE, |part| part.frag);
        if frag.split().is_none() {
            return Err(busy("it cannot be split further"));
        }
        self.check_reshape(dir)?;
        if self.authority.list.len() + Frag::SPLIT_WAYS > SUBTREES_MAX {
            return Err(Errno::NoSpace.into());
        }
        if !self.apply.namespace.is_complete(dir) {
            return Err(cold(dir));
        }
        self.check_names(&[dir])?;
        for number in 0..Frag::SPLIT_WAYS {
            if self.apply.namespace.peek(dir, &part_name(number))?.is_some() {
                let name = String::from_utf8_lossy(&part_name(number)).into_owned();
                return Err(busy(format!("the name {name} in it is needed; rename it first")));
            }
        }
        let mut parts = [Ino(0); Frag::SPLIT_WAYS];
        for part in &mut parts {
            *part = self.tables.take_ino().ok_or(Refusal::Cold(fetch::TABLE_PUT))?;
        }
        self.authority.begin_reshape(Reshape::new(dir, frag, parts, false, at));
        Ok(Performed::Later)
    }

    /// Begins to join the fragments of a directory. Every user may join empty fragments.
    pub(crate) fn join(
        &mut self,
        at: ReplyTo,
        cred: &Cred,
        dir: Ino,
        effects: &mut MdsEffects,
    ) -> Performing {
        if !self.apply.namespace.knows(dir) {
            return Err(Errno::Stale.into());
        }
        let Some(split) = self.authority.splits.get(&dir).copied() else {
            return Ok(Performed::Answer(Answer::Done));
        };
        let elsewhere = self.authority.parts_here(dir).len() < Frag::SPLIT_WAYS;
        if elsewhere || !self.authority.imports.is_empty() {
            // The fragments may be moving here: the client tries again.
            self.authority.read_list(self.store, effects);
            let text = "other ranks serve fragments of it; bring them back first".into();
            return Err(Refused::Failure(Failure { errno: Errno::Again, text }));
        }
        self.check_reshape(dir)?;
        for part in split.parts {
            if self.authority.splits.contains_key(&part) {
                return Err(busy("a fragment of it is split itself; join that first"));
            }
        }
        if let Some(part) =
            split.parts.into_iter().find(|part| !self.apply.namespace.is_complete(*part))
        {
            return Err(cold(part));
        }
        self.check_names(&split.parts)?;
        let empty =
            split.parts.iter().all(|part| self.apply.namespace.dirs().names_here(*part) == 0);
        if !empty && cred.uid != 0 && cred.uid != self.settings.root_owner.0 {
            return Err(Errno::NotPermitted.into());
        }
        self.authority.begin_reshape(Reshape::new(dir, split.frag, split.parts, true, at));
        Ok(Performed::Later)
    }

    /// `EBUSY` if directories have the name of a subtree of another rank: it would have to move,
    /// too.
    fn check_names(&self, dirs: &[Ino]) -> Result<(), Refused> {
        let is_in =
            |root: &Ino| self.apply.namespace.home_of(*root).is_some_and(|it| dirs.contains(&it));
        let mut others = self.authority.list.unjoined().filter(|it| it.part.is_none());
        let Some(other) = others.find(|it| it.rank != Rank(0) && is_in(&it.root)) else {
            return Ok(());
        };
        let path = String::from_utf8_lossy(&other.path);
        Err(busy(format!(
            "{} serves {path} in it; bring that back first with `cudele mds pin {path} 0`",
            other.rank
        )))
    }

    fn check_reshape(&self, dir: Ino) -> Result<(), Refused> {
        if self.authority.rank != Rank(0) {
            let text = format!(
                "{} serves it; only mds.0 splits and joins directories",
                self.authority.rank
            );
            return Err(busy(text));
        }
        // One at a time: the client tries again.
        let under_way = if self.authority.reshape.is_some() {
            Some("another directory is being split or joined")
        } else if self.authority.is_exporting() || !self.authority.imports.is_empty() {
            Some("a subtree is on its way")
        } else {
            None
        };
        if let Some(text) = under_way {
            let failure = Failure { errno: Errno::Again, text: text.into() };
            return Err(Refused::Failure(failure));
        }
        self.places().check_at_rest(dir, self.under_way)
    }
}

impl Authority {
    fn begin_reshape(&mut self, reshape: Reshape) {
        self.reshape = Some(reshape);
        self.note_plain();
    }

    /// Continues after a crash the split or join that the list notes.
    pub(crate) fn resume_reshape(&mut self, dir: Ino, split: &Split) {
        // Only rank 0 splits directories.
        if self.reshape.is_some() || self.rank != Rank(0) {
            return;
        }
        let joins = split.state == PartState::Joining;
        let reshape = Reshape::new(dir, split.frag, split.parts, joins, ReplyTo::NOBODY);
        self.begin_reshape(Reshape { stage: ReshapeStage::Mark, ..reshape });
    }
}

impl Places<'_> {
    /// Whether nothing is under way in a subtree for which it must stay as it is.
    fn check_at_rest(&self, root: Ino, under_way: UnderWay) -> Result<(), Refused> {
        if under_way.is_taking_snapshot {
            return Err(busy("a snapshot is being taken"));
        }
        let decoupled = self.tables.decoupled.iter();
        for (other, known) in decoupled {
            if self.overlap(root, *other) || !self.namespace.is_anchored(*other) {
                let text = if known.released {
                    "a decoupled subtree in it was merged, and is not in the store yet".to_owned()
                } else {
                    format!("{} has decoupled a subtree in it; merge it first", known.client)
                };
                return Err(busy(text));
            }
        }
        self.check_no_quota(root)?;
        self.check_policies(root, under_way)
    }
}
