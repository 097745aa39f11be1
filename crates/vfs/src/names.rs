//! Names: looking them up, making and removing them.

use std::sync::Arc;

use cudele::{Attr, Errno, Error, FileType, Fs, Ino, NewFile, RenameFlags, Result};
use posix::{Caching, Caller, Entry, NewNode, OpenMode};
use types::EntryName;

use crate::file::File;
use crate::listing::ListingsCx;
use crate::nodes::ContentVersion;
use crate::open::FilesCx;
use crate::tree::{Tree, Trees};

/// The names of a mount, with all that their changes may touch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NamesCx<'a> {
    pub(crate) fs: &'a Fs,
    pub(crate) trees: &'a Trees,
    pub(crate) files: FilesCx<'a>,
    pub(crate) listings: ListingsCx<'a>,
}

impl NamesCx<'_> {
    /// Looks a name up. The kernel holds a reference to the inode from now on.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EACCES`, `EBUSY` in another client's subtree.
    pub(crate) fn lookup(&self, caller: &Caller, parent: Ino, name: &[u8]) -> Result<Entry> {
        let attr = match name {
            b"." => self.trees.stored_attr(parent)?,
            b".." => self.trees.stored_attr(self.trees.nodes().parent(parent))?,
            _ => self.found(caller, parent, name)?,
        };
        self.entry(parent, name, attr)
    }

    /// Attributes of a name.
    fn found(&self, caller: &Caller, parent: Ino, name: &[u8]) -> Result<Attr> {
        let found = self.trees.run(
            parent,
            caller,
            |user| user.lookup(parent, name),
            |subtree| subtree.lookup(parent, name),
        );
        match found {
            // The server names the client that has the subtree: another client of this process, if
            // the subtree was attached to one.
            Err(error) if error.errno == Errno::Busy => {
                let root = self.trees.owned_named(parent, name).ok_or(error)?;
                self.trees.stored_attr(root)
            }
            found => found,
        }
    }

    /// The kernel learns of a name.
    pub(crate) fn entry(&self, parent: Ino, name: &[u8], attr: Attr) -> Result<Entry> {
        let owner = self.trees.owner_in(parent, attr.ino);
        self.trees.nodes().refer(parent, name, attr.ino, owner);
        // The root of a subtree of ours is as the subtree says, not as the server says.
        let attr = if owner == attr.ino { self.trees.stored_attr(attr.ino)? } else { attr };
        Ok(self.trees.lent_name(EntryName::new(parent, name), self.trees.as_open(attr)))
    }

    /// The kernel gives references up.
    pub(crate) fn forget(&self, ino: Ino, count: u64) {
        self.trees.nodes().forget(ino, count);
    }

    /// Makes a file, directory, symbolic link or device.
    ///
    /// # Errors
    /// `EEXIST`, `EACCES`, `EINVAL`, `ENAMETOOLONG`, `EROFS`, `EBUSY` in another client's subtree,
    /// `EDQUOT` where a policy limits the number of inodes.
    pub(crate) fn make(
        &self,
        caller: &Caller,
        parent: Ino,
        name: &[u8],
        new: &NewNode<'_>,
    ) -> Result<Entry> {
        self.trees.check_writable()?;
        let file_type = FileType::from_mode(new.mode).unwrap_or(FileType::Regular);
        let new = NewFile {
            file_type,
            permissions: new.mode & 0o7777,
            umask: new.umask,
            rdev: new.rdev,
            size: new.target.len() as u64,
            data: new.target,
            ..NewFile::default()
        };
        let attr = self.trees.run(
            parent,
            caller,
            |user| user.create(parent, name, &new),
            |subtree| {
                let ino = subtree.make(parent, name, &new)?;
                subtree.attr(ino)
            },
        )?;
        self.entry(parent, name, attr)
    }

    /// Makes a file and opens it; opens an existing file unless that is forbidden.
    ///
    /// # Errors
    /// As [`NamesCx::make`] and [`FilesCx::open`].
    pub(crate) fn create(
        &self,
        caller: &Caller,
        place: EntryName<'_>,
        new: &NewNode<'_>,
        open: OpenMode,
    ) -> Result<(Entry, Caching)> {
        match self.make_open(caller, place, new, open) {
            Ok(entry) => {
                let ino = entry.attr.ino;
                if !open.write && matches!(self.trees.tree(ino), Tree::Server) {
                    // Another process may have opened the file already. The mode applies to later
                    // opens.
                    return self.open_entry(&Caller::SELF, entry, open);
                }
                self.fs.begin_sums(ino);
                let file = self.trees.nodes().open(ino, || File::empty(&entry.attr));
                self.trees.nodes().see(ino, ContentVersion { ctime: entry.attr.ctime, size: 0 });
                let shared = self.files.join(ino, &file);
                Ok((entry, if shared { Caching::None } else { Caching::Afresh }))
            }
            Err(error) if error.errno == Errno::Exists && !open.exclusive => {
                let entry = self.lookup(caller, place.dir, place.name)?;
                match self.open_entry(caller, entry, open) {
                    Err(error) if error.errno == Errno::Stale => {
                        let entry = self.lookup(caller, place.dir, place.name)?;
                        self.open_entry(caller, entry, open)
                    }
                    opened => opened,
                }
            }
            Err(error) => Err(error),
        }
    }

    fn make_open(
        &self,
        caller: &Caller,
        EntryName { dir: parent, name }: EntryName<'_>,
        new: &NewNode<'_>,
        open: OpenMode,
    ) -> Result<Entry> {
        self.trees.check_writable()?;
        let NewNode { mode, umask, .. } = *new;
        let new = NewFile { permissions: mode & 0o7777, umask, ..NewFile::default() };
        let attr = self.trees.run(
            parent,
            caller,
            |user| {
                if open.write {
                    return user.create_open(parent, name, &new);
                }
                user.create(parent, name, &new)
            },
            |subtree| {
                let ino = subtree.make(parent, name, &new)?;
                subtree.attr(ino)
            },
        )?;
        self.entry(parent, name, attr)
    }

    fn open_entry(
        &self,
        caller: &Caller,
        entry: Entry,
        open: OpenMode,
    ) -> Result<(Entry, Caching)> {
        let opened = self.files.open(caller, entry.attr.ino, open);
        let caching = opened.inspect_err(|_| self.forget(entry.attr.ino, 1))?;
        Ok((entry, caching))
    }

    /// Gives an inode one more name.
    ///
    /// # Errors
    /// `EEXIST`, `EPERM` for a directory, `EMLINK`, `EXDEV` across the border of a decoupled
    /// subtree, `EROFS`.
    pub(crate) fn link(
        &self,
        caller: &Caller,
        ino: Ino,
        parent: Ino,
        name: &[u8],
    ) -> Result<Entry> {
        self.trees.check_writable()?;
        self.check_same_tree(ino, parent)?;
        let attr = self.trees.run_about(
            &[parent, ino],
            caller,
            |user| user.link(ino, parent, name),
            |subtree| {
                subtree.link(ino, parent, name)?;
                subtree.attr(ino)
            },
        )?;
        self.entry(parent, name, attr)
    }

    /// Removes a name of anything but a directory.
    ///
    /// # Errors
    /// `ENOENT`, `EISDIR`, `EACCES`, `EPERM`, `EROFS`.
    pub(crate) fn unlink(&self, caller: &Caller, parent: Ino, name: &[u8]) -> Result<()> {
        self.trees.check_writable()?;
        let losing = self.open_under(caller, parent, name)?;
        self.trees.run(
            parent,
            caller,
            |user| user.unlink(parent, name),
            |subtree| subtree.unlink(parent, name),
        )?;
        self.files.lose_name(losing);
        self.files.drop_freed(parent)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ENOTEMPTY`, `EACCES`, `EPERM`, `EROFS`; `EBUSY` for the root of a
    /// decoupled subtree.
    pub(crate) fn rmdir(&self, caller: &Caller, parent: Ino, name: &[u8]) -> Result<()> {
        self.trees.check_writable()?;
        self.check_no_root(caller, parent, name)?;
        let open = self.listings.open_dirs_under(parent, name);
        self.trees.run(
            parent,
            caller,
            |user| user.rmdir(parent, name),
            |subtree| subtree.rmdir(parent, name),
        )?;
        self.listings.lose_dirs(open);
        Ok(())
    }

    /// Moves or swaps names.
    ///
    /// # Errors
    /// Those of rename(2); `EXDEV` across the border of a decoupled subtree.
    pub(crate) fn rename(
        &self,
        caller: &Caller,
        from: EntryName<'_>,
        to: EntryName<'_>,
        flags: RenameFlags,
    ) -> Result<()> {
        self.trees.check_writable()?;
        self.check_same_tree(from.dir, to.dir)?;
        let losing = if flags.exchange { None } else { self.open_under(caller, to.dir, to.name)? };
        let open = if flags.exchange {
            Vec::new()
        } else {
            self.listings.open_dirs_under(to.dir, to.name)
        };
        let moved = self.moving(caller, from)?;
        // A file renamed to another of its own names: nothing happens.
        let losing = losing.filter(|attr| moved.is_none_or(|moved| moved.ino != attr.ino));
        let swapped = if flags.exchange { self.moving(caller, to)? } else { None };
        self.trees.run_about(
            &[from.dir, to.dir],
            caller,
            |user| user.rename(from, to, flags),
            |subtree| subtree.rename(from, to, flags),
        )?;
        let mut nodes = self.trees.nodes();
        if let Some(attr) = moved {
            nodes.renamed(attr.ino, to.dir, to.name);
        }
        if let Some(attr) = swapped {
            nodes.renamed(attr.ino, from.dir, from.name);
        }
        drop(nodes);
        self.files.lose_name(losing);
        self.listings.lose_dirs(open);
        self.files.drop_freed(to.dir)
    }

    /// The inode that a rename is about to move, if it must be found under its new name: a
    /// directory above inodes in use, or an open file.
    fn moving(&self, caller: &Caller, from: EntryName<'_>) -> Result<Option<Attr>> {
        match self.found(caller, from.dir, from.name) {
            Ok(attr) => Ok(Some(attr)),
            Err(error) if error.errno == Errno::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// `EINVAL` if it is none, `ESTALE`.
    pub(crate) fn read_link(&self, ino: Ino) -> Result<Vec<u8>> {
        let target = self.trees.data(ino)?;
        if target.is_empty() {
            return Err(Error::of(Errno::Invalid, "symbolic link"));
        }
        Ok(target)
    }

    fn check_same_tree(&self, one: Ino, other: Ino) -> Result<()> {
        let same = match (self.trees.tree(one), self.trees.tree(other)) {
            (Tree::Server, Tree::Server) => true,
            (Tree::Owned(one), Tree::Owned(other)) => Arc::ptr_eq(&one, &other),
            (Tree::Server, Tree::Owned(_)) | (Tree::Owned(_), Tree::Server) => false,
        };
        if same { Ok(()) } else { Err(Error::of(Errno::CrossDevice, "decoupled subtree")) }
    }

    /// The root of a subtree that is decoupled stays where it is.
    fn check_no_root(&self, caller: &Caller, parent: Ino, name: &[u8]) -> Result<()> {
        if self.trees.owned().is_empty() {
            return Ok(());
        }
        let attr = self.found(caller, parent, name)?;
        if self.trees.owned().contains_key(&attr.ino) {
            return Err(Error::new(
                Errno::Busy,
                String::from_utf8_lossy(name),
                "it is the root of a decoupled subtree",
            ));
        }
        Ok(())
    }

    /// The open file under a name that is about to be removed: its content must outlive the name.
    fn open_under(&self, caller: &Caller, parent: Ino, name: &[u8]) -> Result<Option<Attr>> {
        if !self.trees.nodes().any_open() {
            return Ok(None);
        }
        let attr = match self.found(caller, parent, name) {
            Ok(attr) => attr,
            Err(error) if error.errno == Errno::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let file = self.trees.nodes().file(attr.ino).cloned();
        if let Some(file) = file {
            self.files.keep(attr.ino, &file, attr)?;
            return Ok(Some(attr));
        }
        Ok(None)
    }
}
