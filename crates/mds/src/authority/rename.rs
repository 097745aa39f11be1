//! Renames within one rank where other ranks serve subtrees in the renamed directory.
//!
//! A directory must not come below itself. Within one tree in memory the namespace ensures that.
//! But this rank may serve several such trees, and the path from one to another leads through
//! subtrees of other ranks: only the list of subtrees knows such paths, and it lags behind renames
//! that other ranks are executing. So a directory in which another rank serves a subtree stays in
//! its tree.

use namespace::Namespace;
use types::{EntryName, Ino, Rank};
use wire::About;

use super::Authority;
use super::place::{busy, cold};
use crate::op::Refused;

impl Authority {
    /// `EBUSY` if a directory might come below itself through subtrees of other ranks.
    pub(crate) fn check_rename(
        &self,
        namespace: &Namespace,
        rank: Rank,
        from: EntryName<'_>,
        to: EntryName<'_>,
        exchanges: bool,
    ) -> Result<(), Refused> {
        let top = |dir| namespace.ancestors(dir).last();
        if self.is_plain() || from.dir == to.dir || top(from.dir) == top(to.dir) {
            return Ok(());
        }
        self.check_tree(namespace, rank, from)?;
        if exchanges { self.check_tree(namespace, rank, to) } else { Ok(()) }
    }

    /// A subtree that another rank serves is not removed, renamed, or replaced, although this
    /// rank's outdated copy of it may be empty.
    pub(crate) fn check_mounts(
        &self,
        namespace: &Namespace,
        about: &About<'_>,
    ) -> Result<(), Refused> {
        if self.is_plain() {
            return Ok(());
        }
        for EntryName { dir, name } in about.names() {
            if let Ok(Some(ino)) = namespace.peek(dir, name)
                && self.is_of_other(ino)
            {
                return Err(cold(ino));
            }
        }
        Ok(())
    }

    fn check_tree(
        &self,
        namespace: &Namespace,
        rank: Rank,
        from: EntryName<'_>,
    ) -> Result<(), Refused> {
        let Ok(Some(dir)) = namespace.peek(from.dir, from.name) else { return Ok(()) };
        if !namespace.is_dir(dir) {
            return Ok(());
        }
        let list = &self.list;
        let is_named = |root: &Ino| list.get(*root).is_some_and(|it| list.named_by(it) == rank);
        let coming = self.imports.iter().map(|import| import.root).filter(is_named);
        let mut named = self.other_roots().chain(coming);
        if named.any(|root| !namespace.is_anchored(root)) {
            return Err(busy(
                "where directories stand that other ranks serve is being found out; try again in a moment",
            ));
        }
        let mut inside = self.other_roots();
        match inside.find(|root| namespace.is_within(*root, dir)) {
            None => Ok(()),
            Some(root) => Err(self.busy_with(rank, root)),
        }
    }
}
