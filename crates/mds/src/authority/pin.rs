//! Pinned subtrees: the list of subtrees has the rank that a user wants, and the balancer leaves
//! the subtree there. A subtree at another rank is exported (`export`); one that is already at its
//! rank is only noted.

use metastore::SUBTREES_MAX;
use types::{Errno, Ino, Rank};
use wire::{Failure, MdsState};

use super::export::{Export, ExportCx};
use super::place::busy;
use super::view::Places;
use crate::ReplyTo;
use crate::op::{Performed, Performing, Refused};

impl ExportCx<'_> {
    /// Notes in the list whether a subtree is pinned to its present rank.
    pub(super) fn note_pin(&mut self, at: ReplyTo, root: Ino, pinned: bool) -> Performing {
        let known = self.base.authority.list.get(root).is_some_and(|subtree| subtree.pinned);
        if known == pinned {
            return Ok(Performed::Answer(wire::Answer::Done));
        }
        if root == Ino::ROOT {
            return Err(busy("the root of the namespace stays with mds.0"));
        }
        self.places().check_exports(root)?;
        if self.base.authority.list.len() >= SUBTREES_MAX
            && self.base.authority.list.get(root).is_none()
        {
            return Err(Errno::NoSpace.into());
        }
        let export = Export { root, to: self.base.rank, at, pinned, ..Export::default() };
        self.base.authority.exports.push(export);
        self.base.authority.note_plain();
        Ok(Performed::Later)
    }

    /// The policy that a directory with one of its own would inherit.
    pub(super) fn above(&mut self, root: Ino) -> String {
        let Some(home) = self.base.namespace.home_of(root) else { return String::new() };
        let (source, in_force) = self.base.namespace.effective_policy(home);
        source.map(|_| in_force.policy.to_yaml()).unwrap_or_default()
    }
}

impl Places<'_> {
    pub(super) fn check_target(&self, to: Rank) -> Result<(), Refused> {
        let entries = self.map.into_iter().flat_map(|map| &map.mds);
        let active = entries.into_iter().any(|it| it.rank == to && it.state == MdsState::Active);
        if active {
            return Ok(());
        }
        let text = format!("{to} is not active; `cudele mds ls` shows who is");
        Err(Refused::Failure(Failure { errno: Errno::Again, text }))
    }
}
