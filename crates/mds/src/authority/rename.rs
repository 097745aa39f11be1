//! Renames within one rank where other ranks serve subtrees in the renamed directory.
//!
//! A directory must not come below itself. Within one tree in memory the namespace ensures that.
//! But this rank may serve several such trees, and the path from one to another leads through
//! subtrees of other ranks: only the list of subtrees knows such paths, and it lags behind renames
//! that other ranks are executing. So a directory in which another rank serves a subtree stays in
//! its tree.

use types::Ino;
use wire::Op;

use super::place::{busy, cold};
use crate::Mds;
use crate::op::{Refused, touched};

impl Mds {
    /// `EBUSY` if a directory might come below itself through subtrees of other ranks.
    pub(crate) fn check_rename(
        &self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        exchanges: bool,
    ) -> Result<(), Refused> {
        let top = |dir| self.namespace.ancestors(dir).last();
        if self.authority.is_plain() || from.0 == to.0 || top(from.0) == top(to.0) {
            return Ok(());
        }
        self.check_tree(from)?;
        if exchanges { self.check_tree(to) } else { Ok(()) }
    }

    /// A subtree that another rank serves is not removed, renamed, or replaced, although this
    /// rank's outdated copy of it may be empty.
    pub(crate) fn check_mounts(&self, op: &Op<'_>) -> Result<(), Refused> {
        if self.authority.is_plain() {
            return Ok(());
        }
        for (parent, name) in touched(op).1.into_iter().flatten() {
            if let Ok(Some(ino)) = self.namespace.peek(parent, name)
                && self.authority.is_of_other(ino)
            {
                return Err(cold(ino));
            }
        }
        Ok(())
    }

    fn check_tree(&self, (parent, name): (Ino, &[u8])) -> Result<(), Refused> {
        let Ok(Some(dir)) = self.namespace.peek(parent, name) else { return Ok(()) };
        if !self.namespace.is_dir(dir) {
            return Ok(());
        }
        let list = &self.authority.list;
        let is_named = |root: &Ino| list.get(*root).is_some_and(|it| self.is_named_here(it));
        let coming = self.authority.imports.iter().map(|import| import.root).filter(is_named);
        let mut named = self.authority.other_roots().chain(coming);
        if named.any(|root| !self.namespace.is_anchored(root)) {
            return Err(busy(
                "where directories stand that other ranks serve is being found out; try again in a moment",
            ));
        }
        let mut inside = self.authority.other_roots();
        match inside.find(|root| self.namespace.is_within(*root, dir)) {
            None => Ok(()),
            Some(root) => Err(self.busy_with(root)),
        }
    }
}
