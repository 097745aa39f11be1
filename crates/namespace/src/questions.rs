//! Questions that callers ask about the whole namespace, each answered by one of its parts, and the
//! settings of the parts.

use std::borrow::Cow;
use std::sync::Arc;

use journal::Event;
use types::{Attr, Cred, Ino, Path, Seq, Set};

use crate::{ActivePolicy, Hit, Hits, ListedEntry, NamedElsewhere, Namespace, Refusal, Walked};

/// The owner, the group and the mode of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permissions {
    /// File type and permissions.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

impl Namespace {
    /// Whether an inode is in memory.
    #[inline]
    #[must_use]
    pub fn knows(&self, ino: Ino) -> bool {
        self.tree.inodes.knows(ino)
    }

    /// Whether an inode in memory is a directory.
    #[inline]
    #[must_use]
    pub fn is_dir(&self, ino: Ino) -> bool {
        self.tree.inodes.is_dir(ino)
    }

    /// The directory that stores an inode, if the inode is in memory.
    #[inline]
    #[must_use]
    pub fn home_of(&self, ino: Ino) -> Option<Ino> {
        self.tree.inodes.home_of(ino)
    }

    /// Whether an inode is in memory with a name. A replay leaves inodes without a name in memory:
    /// the inodes of a directory that another directory replaced.
    #[inline]
    #[must_use]
    pub fn has_name(&self, ino: Ino) -> bool {
        self.tree.has_name(ino)
    }

    /// The directory that has the name of an inode, and the name.
    #[inline]
    #[must_use]
    pub fn name_of(&self, ino: Ino) -> Option<(Ino, Vec<u8>)> {
        self.tree.name_of(ino)
    }

    /// Whether every name of a directory is in memory.
    #[inline]
    #[must_use]
    pub fn is_complete(&self, dir: Ino) -> bool {
        self.tree.dirs.is_complete(dir)
    }

    /// Whether all names of a directory are in its fragments.
    #[inline]
    #[must_use]
    pub fn is_split(&self, dir: Ino) -> bool {
        self.tree.dirs.is_split(dir)
    }

    /// The owner and the permissions of an inode, if it is in memory.
    #[inline]
    #[must_use]
    pub fn permissions_of(&self, ino: Ino) -> Option<Permissions> {
        let inode = self.tree.inodes.get(ino)?;
        Some(Permissions { mode: inode.mode, uid: inode.uid, gid: inode.gid })
    }

    /// The attributes of an inode.
    ///
    /// # Errors
    /// `ESTALE` if it is not in memory, or [`Refusal::Cold`] for a directory whose number of
    /// entries is not known without fetching it.
    #[inline]
    pub fn getattr(&self, ino: Ino) -> Result<Attr, Refusal> {
        self.tree.getattr(ino)
    }

    /// Looks a name up in a directory.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EACCES` without search permission, `ESTALE` if the directory is not
    /// in memory, or [`Refusal::Cold`].
    #[inline]
    pub fn lookup(&self, cred: &Cred, parent: Ino, name: &[u8]) -> Result<Attr, Refusal> {
        self.tree.lookup(cred, parent, name)
    }

    /// The object of a name, without a check of permissions: for servers and merges.
    ///
    /// # Errors
    /// As [`Namespace::lookup`], without `ENOENT` and `EACCES`.
    #[inline]
    pub fn peek(&self, parent: Ino, name: &[u8]) -> Result<Option<Ino>, Refusal> {
        self.tree.peek(parent, name)
    }

    /// Follows a path from a directory. Symbolic links on the way are not followed: the client
    /// does that, because a link's text means something in the client's view only.
    ///
    /// # Errors
    /// As [`Namespace::lookup`] for every component but the last, which may be missing; `ELOOP`
    /// if a component on the way is a symbolic link.
    #[inline]
    pub fn walk(&self, cred: &Cred, base: Ino, path: &Path) -> Result<Walked, Refusal> {
        self.tree.walk(cred, base, path)
    }

    /// Lists a directory: up to `limit` entries after the name `after`, in the directory's own
    /// order (by hash of the name). The order does not depend on creates and removals, so a listing
    /// that continues from its last name sees every name that exists throughout exactly once, even
    /// if that last name is gone.
    ///
    /// With `attrs`, entries carry all attributes; sub-directories that are not in memory then
    /// report 2 links and no entries.
    ///
    /// # Errors
    /// `ENOTDIR`, `EACCES` without read permission, `ESTALE`, or [`Refusal::Cold`].
    #[inline]
    pub fn list(
        &self,
        cred: &Cred,
        dir: Ino,
        after: Option<&[u8]>,
        limit: usize,
        attrs: bool,
    ) -> Result<Vec<ListedEntry>, Refusal> {
        self.tree.list(cred, dir, after, limit, attrs)
    }

    /// The directory under a name, or `parent` itself if the name is empty, for a caller that may
    /// list it; its entries need not be in memory. The attributes are without numbers of entries
    /// and links.
    ///
    /// # Errors
    /// As [`Namespace::lookup`]; `ENOTDIR`, and `EACCES` without read permission.
    #[inline]
    pub fn directory_to_read(
        &self,
        cred: &Cred,
        parent: Ino,
        name: &[u8],
    ) -> Result<Attr, Refusal> {
        self.tree.directory_to_read(cred, parent, name)
    }

    /// Whether a caller may use an inode in these ways (`access`): bits 4 read, 2 write, 1 execute.
    ///
    /// # Errors
    /// `EACCES`, `ESTALE`.
    #[inline]
    pub fn access(&self, cred: &Cred, ino: Ino, want: u32) -> Result<(), Refusal> {
        self.tree.access(cred, ino, want)
    }

    /// The content of a small file or the target of a symbolic link; empty if there is none.
    ///
    /// # Errors
    /// `ESTALE`.
    #[inline]
    pub fn data(&self, ino: Ino) -> Result<&[u8], Refusal> {
        self.tree.data(ino)
    }

    /// The data of an inode besides its attributes: content and extended attributes, in bytes.
    #[inline]
    #[must_use]
    pub fn extra_bytes(&self, ino: Ino) -> usize {
        self.tree.inodes.extra_bytes(ino)
    }

    /// An extended attribute; an access control list in the form of Linux.
    ///
    /// # Errors
    /// `ENODATA`, `ESTALE`.
    #[inline]
    pub fn xattr(&self, ino: Ino, name: &[u8]) -> Result<Cow<'_, [u8]>, Refusal> {
        self.tree.xattr(ino, name)
    }

    /// Whether a directory has an access control list, or gives one to new inodes: its mode alone
    /// does not say who may use it, nor how inodes are made in it.
    #[inline]
    #[must_use]
    pub fn has_lists(&self, dir: Ino) -> bool {
        self.tree.has_lists(dir)
    }

    /// The names of all extended attributes, sorted.
    ///
    /// # Errors
    /// `ESTALE`.
    #[inline]
    pub fn xattr_names(&self, ino: Ino) -> Result<Vec<&[u8]>, Refusal> {
        self.tree.xattr_names(ino)
    }

    /// The directory and the directories above it, up to the root. For an inode with several
    /// names only itself, because it has no one place.
    #[inline]
    pub fn ancestors(&self, ino: Ino) -> impl Iterator<Item = Ino> {
        self.tree.ancestors(ino)
    }

    /// Whether `ino` is `subtree` or lies below it.
    #[inline]
    #[must_use]
    pub fn is_within(&self, ino: Ino, subtree: Ino) -> bool {
        self.tree.is_within(ino, subtree)
    }

    /// Whether it is known where an inode stands: all directories above it are in memory. After a
    /// recovery that need not be so, because events name directories by their numbers.
    #[inline]
    #[must_use]
    pub fn is_anchored(&self, ino: Ino) -> bool {
        self.tree.is_anchored(ino)
    }

    /// The path of a directory or of a file with one name, as far as it is in memory.
    #[inline]
    #[must_use]
    pub fn path_of(&self, ino: Ino) -> Option<Path> {
        self.tree.path_of(ino)
    }

    /// Whether an inode is at a path or below it. May be false where that holds: then the caller
    /// compares the paths ([`Namespace::path_of`]).
    #[inline]
    #[must_use]
    pub fn is_quickly_below(&self, ino: Ino, path: &Path) -> bool {
        self.tree.is_quickly_below(ino, path)
    }

    /// The text of the policy stored in a directory inode itself, if there is one.
    ///
    /// # Errors
    /// `ESTALE`.
    #[inline]
    pub fn own_policy(&self, ino: Ino) -> Result<Option<&[u8]>, Refusal> {
        self.tree.own_policy(ino)
    }

    /// The policy in force in a directory: its own or its nearest ancestor's, and the
    /// directory it comes from, or `None` for the default.
    #[inline]
    pub fn effective_policy(&mut self, dir: Ino) -> (Option<Ino>, Arc<ActivePolicy>) {
        self.tree.effective_policy(dir)
    }

    /// The directories that carry a policy of their own, as far as they are in memory.
    #[inline]
    #[must_use]
    pub fn policies(&self) -> Vec<(Ino, Arc<ActivePolicy>)> {
        self.tree.policies.list()
    }

    /// Whether an event gives or takes a name of an inode with several, or makes one.
    #[inline]
    #[must_use]
    pub fn is_about_links(&self, event: &Event<'_>) -> bool {
        self.tree.is_about_links(event)
    }

    /// The inodes with several names that have all of them in a subtree, in order. As far as the
    /// directories are in memory.
    ///
    /// # Errors
    /// [`NamedElsewhere`] if one has other names, or counts more than it has.
    #[inline]
    pub fn linked_below(&self, root: Ino) -> Result<Vec<Ino>, NamedElsewhere> {
        self.tree.linked_below(root)
    }

    /// Announces so many new names, of so many bytes in all, in a directory: where they are the
    /// first, memory for them is taken once and nothing moves while they come.
    #[inline]
    pub fn expect(&mut self, dir: Ino, names: usize, bytes: usize) {
        self.tree.dirs.expect(dir, names, bytes)
    }

    /// Whether changes from now on are in the journal. After a crash those that are not are lost
    /// unless they were stored, and replay must not undo the stored ones.
    #[inline]
    pub fn set_journalled(&mut self, journalled: bool) {
        self.tree.dirs.set_journalled(journalled)
    }

    /// Says which directories are split.
    #[inline]
    pub fn set_split(&mut self, dirs: Set<Ino>) {
        self.tree.dirs.set_split(dirs)
    }

    /// The directory that has been dirty longest, and since which event.
    #[inline]
    pub fn dirtiest(&mut self) -> Option<(Seq, Ino)> {
        self.tree.dirs.dirtiest()
    }

    /// Counts a use of a directory that does not change it; changes are counted as they are
    /// applied. A directory that is not in memory has no counter.
    #[inline]
    pub fn note_hit(&mut self, ino: Ino, hit: Hit) {
        self.tree.dirs.note_hit(ino, hit)
    }

    /// Up to `limit` directories that were used since their last report, with their hits. Fewer
    /// only if there are no more; directories that have left the memory are left out.
    #[inline]
    pub fn take_hits(&mut self, limit: usize) -> Vec<(Ino, Hits)> {
        self.tree.dirs.take_hits(limit)
    }

    /// Drops the hits of a directory since the last report.
    #[inline]
    pub fn forget_hits(&mut self, ino: Ino) {
        self.tree.dirs.forget_hits(ino)
    }

    /// Whether [`Namespace::take_hits`] would return something.
    #[inline]
    #[must_use]
    pub fn has_hits(&self) -> bool {
        self.tree.dirs.has_hits()
    }
}
