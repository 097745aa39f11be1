//! Questions to the namespace: they change nothing.

use std::borrow::Cow;

use journal::Event;
use types::acl::{self, ACCESS_LIST, AccessList};
use types::{Attr, Cred, Errno, FileType, Ino, Path, SYMLINK_BYTES_MAX};

use crate::Refusal;
use crate::access::{EXECUTE, READ};
use crate::inode::Inode;
use crate::tree::InodeTree;

/// Where a path leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walked {
    /// The directory that holds the last name; the root for the root itself.
    pub parent: Ino,
    /// The attributes of the last name's object, if it exists.
    pub attr: Option<Attr>,
}

/// One entry of a directory listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedEntry {
    /// The name; also the cursor from which to go on.
    pub name: Vec<u8>,
    /// Attributes; complete only if they were asked for, else inode number and type.
    pub attr: Attr,
}

impl InodeTree {
    /// An inode in memory. `ESTALE` otherwise: the caller walks the path again, which fetches it.
    pub(crate) fn inode(&self, ino: Ino) -> Result<&Inode, Refusal> {
        self.inodes.get(ino).ok_or(Refusal::Errno(Errno::Stale))
    }

    pub(crate) fn directory(&self, ino: Ino) -> Result<&Inode, Refusal> {
        let inode = self.inode(ino)?;
        if inode.is_dir() { Ok(inode) } else { Err(Errno::NotDirectory.into()) }
    }

    /// Looks a name up: the inode it names, or `None` if it does not exist.
    pub(crate) fn find(&self, parent: Ino, name: &[u8]) -> Result<Option<Ino>, Refusal> {
        types::check_name(name)?;
        self.directory(parent)?;
        if self.dirs.is_split(parent) {
            return Err(Refusal::Cold(parent));
        }
        let Some(dir) = self.dirs.get(parent) else { return Err(Refusal::Cold(parent)) };
        let dentry = dir.find_any(types::name_hash(name), name);
        let Some(dentry) = dentry else {
            return if dir.complete { Ok(None) } else { Err(Refusal::Cold(parent)) };
        };
        if dentry.is_tombstone() {
            return Ok(None);
        }
        if self.inodes.get(dentry.ino).is_none() {
            // Only the inode of a hard link can be missing while its name is here.
            let links = self.dirs.get(Ino::LINKS).is_some_and(|links| links.complete);
            return if links { Err(Errno::Io.into()) } else { Err(Refusal::Cold(Ino::LINKS)) };
        }
        Ok(Some(dentry.ino))
    }

    /// Whether an event gives or takes a name of an inode with several, or makes one.
    pub(crate) fn is_about_links(&self, event: &Event<'_>) -> bool {
        let remote = |dir: Ino, name: &[u8]| {
            let found = self.dirs.get(dir).and_then(|dir| dir.find(name));
            found.is_some_and(crate::page::Dentry::is_remote)
        };
        match *event {
            Event::Link { .. } => true,
            Event::Unlink { parent, name, .. } => remote(parent, name),
            Event::Rename { parent, name, new_parent, new_name, .. } => {
                remote(parent, name) || remote(new_parent, new_name)
            }
            Event::Create(_)
            | Event::Rmdir { .. }
            | Event::SetAttr { .. }
            | Event::SetXattr { .. }
            | Event::SetData { .. }
            | Event::SetPolicy { .. }
            | Event::Session { .. }
            | Event::Merged { .. }
            | Event::Stored { .. } => false,
        }
    }

    /// The object of a name, without a check of permissions: for servers and merges.
    pub(crate) fn peek(&self, parent: Ino, name: &[u8]) -> Result<Option<Ino>, Refusal> {
        self.find(parent, name)
    }

    /// Looks a name up in a directory.
    pub(crate) fn lookup(&self, cred: &Cred, parent: Ino, name: &[u8]) -> Result<Attr, Refusal> {
        self.allow(cred, parent, self.directory(parent)?, EXECUTE)?;
        let ino = self.find(parent, name)?.ok_or(Refusal::Errno(Errno::NotFound))?;
        self.getattr(ino)
    }

    /// The attributes of an inode.
    pub(crate) fn getattr(&self, ino: Ino) -> Result<Attr, Refusal> {
        let inode = self.inode(ino)?;
        if inode.is_dir() && self.dirs.get(ino).is_none_or(|dir| dir.count().is_none()) {
            return Err(Refusal::Cold(ino));
        }
        Ok(self.attr_of(ino, inode))
    }

    /// The directory under a name, or `parent` itself if the name is empty, for a caller that may
    /// list it; its entries need not be in memory. The attributes are without numbers of entries
    /// and links.
    pub(crate) fn directory_to_read(
        &self,
        cred: &Cred,
        parent: Ino,
        name: &[u8],
    ) -> Result<Attr, Refusal> {
        let mut ino = parent;
        if !name.is_empty() {
            self.allow(cred, parent, self.directory(parent)?, EXECUTE)?;
            ino = self.find(parent, name)?.ok_or(Refusal::Errno(Errno::NotFound))?;
        }
        let inode = self.directory(ino)?;
        self.allow(cred, ino, inode, READ)?;
        Ok(inode.attr(ino))
    }

    /// Follows a path from a directory. Symbolic links on the way are not followed: the client
    /// does that, because a link's text means something in the client's view only.
    pub(crate) fn walk(&self, cred: &Cred, base: Ino, path: &Path) -> Result<Walked, Refusal> {
        let mut at = base;
        let mut parent = base;
        let mut components = path.components().peekable();
        while let Some(name) = components.next() {
            let inode = self.directory(at)?;
            self.allow(cred, at, inode, EXECUTE)?;
            parent = at;
            match self.find(at, name)? {
                Some(ino) => at = ino,
                None if components.peek().is_none() => return Ok(Walked { parent, attr: None }),
                None => return Err(Errno::NotFound.into()),
            }
            if components.peek().is_some() && self.inode(at)?.file_type() == FileType::Symlink {
                return Err(Errno::Loop.into());
            }
        }
        Ok(Walked { parent, attr: Some(self.getattr(at)?) })
    }

    /// Lists a directory: up to `limit` entries after the name `after`, in the directory's own
    /// order (by hash of the name). The order does not depend on creates and removals, so a listing
    /// that continues from its last name sees every name that exists throughout exactly once, even
    /// if that last name is gone.
    pub(crate) fn list(
        &self,
        cred: &Cred,
        dir: Ino,
        after: Option<&[u8]>,
        limit: usize,
        attrs: bool,
    ) -> Result<Vec<ListedEntry>, Refusal> {
        self.allow(cred, dir, self.directory(dir)?, READ)?;
        let Some(content) = self.dirs.get(dir).filter(|dir| dir.complete) else {
            return Err(Refusal::Cold(dir));
        };
        let mut entries = Vec::new();
        for (name, dentry) in content.list(after).take(limit) {
            let mut attr =
                Attr { ino: dentry.ino, mode: dentry.file_type().mode_bits(), ..Attr::default() };
            if attrs {
                match self.inodes.get(dentry.ino) {
                    Some(inode) => attr = self.attr_of(dentry.ino, inode),
                    // A name of nothing, if a merge was lost in part: it can be seen and removed.
                    None if self.dirs.is_complete(Ino::LINKS) => {}
                    None => return Err(Refusal::Cold(Ino::LINKS)),
                }
            }
            entries.push(ListedEntry { name: name.to_vec(), attr });
        }
        Ok(entries)
    }

    /// The content of a small file or the target of a symbolic link; empty if there is none.
    pub(crate) fn data(&self, ino: Ino) -> Result<&[u8], Refusal> {
        let inode = self.inode(ino)?;
        let data: &[u8] = self.inodes.extra(ino, inode).map_or(&[], |extra| &extra.data);
        debug_assert!(inode.file_type() != FileType::Symlink || data.len() <= SYMLINK_BYTES_MAX);
        Ok(data)
    }

    /// An extended attribute; a list in the form of Linux.
    pub(crate) fn xattr(&self, ino: Ino, name: &[u8]) -> Result<Cow<'_, [u8]>, Refusal> {
        let inode = self.inode(ino)?;
        let found = self.inodes.extra(ino, inode).and_then(|extra| extra.xattr(name));
        let value = found.ok_or(Refusal::Errno(Errno::NoData))?;
        if !acl::is_list(name) {
            return Ok(Cow::Borrowed(value));
        }
        let list = AccessList::decode(value).ok_or(Refusal::Errno(Errno::NoData))?;
        let mode = if name == ACCESS_LIST { inode.mode } else { list.mode };
        Ok(Cow::Owned(list.to_linux(mode)))
    }

    /// The names of all extended attributes, sorted.
    pub(crate) fn xattr_names(&self, ino: Ino) -> Result<Vec<&[u8]>, Refusal> {
        let Some(extra) = self.inodes.extra(ino, self.inode(ino)?) else { return Ok(Vec::new()) };
        let mut names: Vec<_> = extra.xattrs().map(|(name, _)| name).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// The text of the policy stored in a directory inode itself, if there is one.
    pub(crate) fn own_policy(&self, ino: Ino) -> Result<Option<&[u8]>, Refusal> {
        Ok(self.inodes.extra(ino, self.inode(ino)?).and_then(|extra| extra.policy()))
    }

    /// Whether a caller may use an inode in these ways (`access`): bits 4 read, 2 write, 1 execute.
    pub(crate) fn access(&self, cred: &Cred, ino: Ino, want: u32) -> Result<(), Refusal> {
        self.allow(cred, ino, self.inode(ino)?, want)
    }

    pub(crate) fn attr_of(&self, ino: Ino, inode: &Inode) -> Attr {
        let mut attr = inode.attr(ino);
        if inode.is_dir() {
            let dir = self.dirs.get(ino);
            let count = dir.and_then(|dir| dir.count());
            attr.size = count.map_or_else(|| dir.map_or(0, |dir| dir.entries), |count| count.0);
            // A link count of one means that sub-directories are not counted: the store may have
            // more.
            let links = count.map_or(1, |(_, subdirs)| subdirs + 2);
            attr.nlink = u32::try_from(links).unwrap_or(u32::MAX);
            if self.dirs.is_split(ino) {
                // Neither is known here: a client that needs them asks the fragments.
                attr.nlink = 0;
            }
        }
        attr
    }
}
