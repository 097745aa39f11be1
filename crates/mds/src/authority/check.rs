//! Which subtrees may move to another rank, and which must stay.

use metastore::{MovedSubtree, SUBTREES_MAX};
use types::{Errno, Ino};

use super::place::{FRAGMENTED, busy, cold};
use super::view::Places;
use crate::op::Refused;
use crate::search::look_into;
use crate::tables::LINKED_MAX;

/// So many subtrees leave a rank side by side: each has its changes written, and waits for the
/// store a few times.
const EXPORTS_MAX: usize = 16;
/// The bytes that inodes with several names may have besides their attributes if they leave
/// together.
const LINKED_BYTES_MAX: usize = 4 << 20;

/// Work for which all subtrees stay where they are.
#[derive(Clone, Copy)]
pub(crate) struct UnderWay {
    pub(crate) is_taking_snapshot: bool,
    pub(crate) is_changing_policy: bool,
}

impl Places<'_> {
    /// `EBUSY` if a directory is in a moving subtree, or has one below it that another rank serves:
    /// for policies and decouplings, which concern everything below a directory.
    pub(crate) fn check_all_here(&self, dir: Ino) -> Result<(), Refused> {
        if self.authority.is_plain() {
            return Ok(());
        }
        let mut exports = self.authority.exports.iter();
        if let Some(export) = exports.find(|export| self.overlap(dir, export.root)) {
            return Err(busy(format!(
                "it is on its way to {}; try again when it is there",
                export.to
            )));
        }
        // The list would undo a change made before the import ends.
        let mut imports = self.authority.imports.iter().map(|import| import.root);
        if imports.any(|root| self.overlap(dir, root) || !self.namespace.is_anchored(root)) {
            return Err(busy("it comes from another rank; try again when it is here"));
        }
        let mut passing = self.authority.cross_renames.directories();
        let mut leaving = self.authority.cross_renames.leaving();
        if passing.any(|it| self.namespace.is_within(it, dir))
            || leaving.any(|it| self.overlap(dir, it))
        {
            return Err(busy("a name is on its way between two ranks; try again in a moment"));
        }
        if self.authority.reshape.is_some() {
            return Err(busy("a directory is being split or joined; try again when that is done"));
        }
        let mut splits = self.authority.splits.keys();
        if splits.any(|split| self.overlap(dir, *split) || !self.namespace.is_anchored(*split)) {
            return Err(busy(FRAGMENTED));
        }
        for subtree in self.authority.list.unjoined() {
            let MovedSubtree { root, rank, path, .. } = subtree;
            if *rank != self.authority.rank
                && self.authority.is_named_here(subtree)
                && (self.overlap(dir, *root) || !self.namespace.is_anchored(*root))
            {
                let path = String::from_utf8_lossy(path);
                return Err(busy(format!(
                    "{rank} serves {path}; bring it back first with `cudele mds pin {path} 0`"
                )));
            }
        }
        Ok(())
    }

    /// `EBUSY` if a directory must not be removed at once with everything below it: parts of it are
    /// not this rank's alone.
    pub(crate) fn check_discard(&self, root: Ino, under_way: UnderWay) -> Result<(), Refused> {
        self.check_all_here(root)?;
        if under_way.is_changing_policy {
            return Err(busy("a policy is being changed"));
        }
        let here = self.authority.list.iter().filter(|it| it.rank == self.authority.rank);
        for MovedSubtree { root: other, path, .. } in here {
            if self.namespace.is_within(*other, root) || !self.namespace.is_anchored(*other) {
                let path = String::from_utf8_lossy(path);
                return Err(busy(format!(
                    "{path} is a subtree of its own; `cudele mds ls` shows it"
                )));
            }
        }
        let decoupled = self.tables.decoupled.iter().filter(|(_, known)| !known.released);
        for (subtree, known) in decoupled {
            if self.overlap(*subtree, root) {
                let client = known.client;
                return Err(busy(format!("{client} has decoupled a subtree of it, or around it")));
            }
        }
        Ok(())
    }

    pub(super) fn check_subtree(&self, root: Ino, under_way: UnderWay) -> Result<(), Refused> {
        self.check_exports(root)?;
        if under_way.is_taking_snapshot {
            return Err(busy("a snapshot is being taken"));
        }
        self.check_fragments(root)?;
        self.check_quotas(root)?;
        if self.namespace.is_within(root, Ino::TRASH) {
            return Err(Errno::NotFound.into());
        }
        if root == Ino::ROOT {
            return Err(busy("the root of the namespace stays with mds.0"));
        }
        // Which subtrees of other ranks are in it must be known.
        if self.authority.other_roots().any(|other| !self.namespace.is_anchored(other)) {
            return Err(Errno::Again.into());
        }
        if self.authority.list.len() >= SUBTREES_MAX && self.authority.list.get(root).is_none() {
            return Err(Errno::NoSpace.into());
        }
        self.check_decoupled(root)?;
        self.check_policies(root, under_way)
    }

    /// A quota is counted by one rank: a subtree moves with the quotas in it, not away from one
    /// around it.
    fn check_quotas(&self, root: Ino) -> Result<(), Refused> {
        self.namespace.home_of(root).map_or(Ok(()), |home| self.check_no_quota(home))
    }

    /// `EBUSY` if a quota holds in a directory.
    pub(super) fn check_no_quota(&self, dir: Ino) -> Result<(), Refused> {
        let Some(above) = self.namespace.quota_root(dir) else { return Ok(()) };
        let path = self.namespace.path_of(above).unwrap_or_else(types::Path::root);
        Err(busy(format!("the quota of {path} holds there, and one rank counts it")))
    }

    /// Moving subtrees must not overlap, and their number is bounded.
    pub(super) fn check_exports(&self, root: Ino) -> Result<(), Refused> {
        let exports = &self.authority.exports;
        if let Some(export) = exports.iter().find(|export| self.overlap(root, export.root)) {
            return Err(busy(format!(
                "it, or what is above or below it, is on its way to {}",
                export.to
            )));
        }
        if exports.len() >= EXPORTS_MAX {
            return Err(busy(format!("{EXPORTS_MAX} other subtrees are on their way")));
        }
        Ok(())
    }

    /// Policies stay as they are, and none of them keeps logs with clients.
    pub(super) fn check_policies(&self, root: Ino, under_way: UnderWay) -> Result<(), Refused> {
        if under_way.is_changing_policy {
            return Err(busy("a policy is being changed"));
        }
        let logged = self
            .namespace
            .policies()
            .into_iter()
            .any(|(dir, policy)| policy.policy.logs_requests() && self.overlap(dir, root));
        if logged {
            let text =
                "its policy keeps logs with clients (rpcs+local_persist), which one rank replays";
            return Err(busy(text));
        }
        Ok(())
    }

    /// A split directory stays with rank 0, and so does everything in it except its fragments, and
    /// theirs.
    fn check_fragments(&self, root: Ino) -> Result<(), Refused> {
        if self.authority.reshape.is_some() {
            return Err(busy("a directory is being split or joined"));
        }
        let list = &self.authority.list;
        let mut splits = self.authority.splits.keys();
        if splits.any(|dir| self.namespace.is_within(*dir, root)) {
            return Err(busy("a directory in it is split; `cudele mds join` puts it together"));
        }
        let whole = self.authority.whole_of(root).unwrap_or(root);
        if self.namespace.ancestors(whole).skip(1).any(|dir| self.authority.is_part(dir)) {
            return Err(busy(
                "it is in a directory that is split; `cudele mds join` puts that together",
            ));
        }
        if !self.authority.is_part(root) {
            return Ok(());
        }
        let mut others = self.authority.other_roots();
        if let Some(other) = others.find(|other| self.namespace.is_within(*other, root)) {
            let path = list.get(other).map(|it| String::from_utf8_lossy(&it.path).into_owned());
            let path = path.unwrap_or_default();
            return Err(busy(format!(
                "it is a fragment, and {path} in it is served by another rank; bring that back first"
            )));
        }
        match self.decoupled_below(root).first() {
            None => Ok(()),
            Some(_) => Err(busy("it is a fragment, and a client has decoupled a subtree in it")),
        }
    }

    /// The inodes with several names that leave with a subtree: all their names are in it. An inode
    /// does not know its names, so the whole subtree must be in memory.
    pub(super) fn check_links(&self, root: Ino) -> Result<Vec<Ino>, Refused> {
        if !self.namespace.is_complete(Ino::LINKS) {
            return Err(cold(Ino::LINKS));
        }
        if !self.namespace.dirs().has_links() {
            return Ok(Vec::new());
        }
        self.check_known(root)?;
        let linked = self.namespace.linked_below(root).map_err(|named| {
            let path = self.namespace.path_of(named.dir).unwrap_or_else(types::Path::root);
            let path = path.join(&named.name);
            busy(format!(
                "{path} ({}) is a file with several names, of which some are not in it; all are on one rank",
                named.ino
            ))
        })?;
        let bytes: usize = linked.iter().map(|ino| self.namespace.extra_bytes(*ino)).sum();
        if linked.len() > LINKED_MAX || bytes > LINKED_BYTES_MAX {
            return Err(busy(format!(
                "{} files in it have several names, with {bytes} bytes in their inodes; {LINKED_MAX} files and \
                 {LINKED_BYTES_MAX} bytes can go at once",
                linked.len()
            )));
        }
        Ok(linked)
    }

    /// Everything in a subtree must be in memory.
    pub(super) fn check_known(&self, root: Ino) -> Result<(), Refused> {
        let below = self.namespace.dirs().below(root).into_iter();
        let mut below = below.filter(|dir| !self.authority.is_of_other(*dir));
        let unknown = below.find(|dir| !self.namespace.is_complete(*dir));
        match unknown.or_else(|| self.unknown_below(root)) {
            Some(dir) => Err(cold(dir)),
            None => Ok(()),
        }
    }

    /// As [`Places::check_links`], for a subtree that could go before: why it must stay.
    pub(super) fn linked_now(&self, root: Ino) -> Result<Vec<Ino>, String> {
        self.check_links(root).map_err(|refused| match refused {
            Refused::Failure(failure) => failure.text,
            // Directories that were here were forgotten, to make room.
            Refused::Refusal(_) => "memory is short; try again".into(),
        })
    }

    /// A directory of a subtree that is not in memory at all.
    fn unknown_below(&self, root: Ino) -> Option<Ino> {
        let below = self.namespace.dirs().below(root).into_iter();
        below
            .filter_map(|dir| look_into(self.namespace, self.authority, dir).ok())
            .flatten()
            .find(|dir| !self.namespace.is_complete(*dir))
    }
}
