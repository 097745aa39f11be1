//! Pinned subtrees: the list of subtrees has the rank that a user wants, and the balancer leaves
//! the subtree there. A subtree at another rank is exported (`export`); one that is already at its
//! rank is only noted.

use metastore::SUBTREES_MAX;
use types::{Errno, Ino, Rank};
use wire::{Failure, MdsState};

use super::export::Export;
use super::place::busy;
use crate::Mds;
use crate::ReplyTo;
use crate::op::{Performed, Performing, Refused};

impl Mds {
    /// Notes in the list whether a subtree is pinned to its present rank.
    pub(super) fn note_pin(&mut self, at: ReplyTo, root: Ino, pinned: bool) -> Performing {
        let known = self.authority.list.get(root).is_some_and(|subtree| subtree.pinned);
        if known == pinned {
            return Ok(Performed::Answer(wire::Answer::Done));
        }
        if root == Ino::ROOT {
            return Err(busy("the root of the namespace stays with mds.0"));
        }
        self.check_exports(root)?;
        if self.authority.list.len() >= SUBTREES_MAX && self.authority.list.get(root).is_none() {
            return Err(Errno::NoSpace.into());
        }
        let export = Export { pinned, ..Export::new((root, self.rank), at) };
        self.authority.exports.push(export);
        self.authority.note_plain();
        Ok(Performed::Later)
    }

    pub(super) fn check_target(&self, to: Rank) -> Result<(), Refused> {
        let entries = self.map.iter().flat_map(|map| &map.mds);
        let active = entries.into_iter().any(|it| it.rank == to && it.state == MdsState::Active);
        if active {
            return Ok(());
        }
        let text = format!("{to} is not active; `cudele mds ls` shows who is");
        Err(Refused::Failure(Failure { errno: Errno::Again, text }))
    }

    /// The policy that a directory with one of its own would inherit.
    pub(super) fn above(&mut self, root: Ino) -> String {
        let Some(home) = self.namespace.home_of(root) else { return String::new() };
        let (source, in_force) = self.namespace.effective_policy(home);
        source.map(|_| in_force.policy.to_yaml()).unwrap_or_default()
    }
}
