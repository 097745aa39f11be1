//! Names: looking them up, making and removing them.

use cudele::{Attr, Errno, Error, FileType, Ino, NewFile, RenameFlags, Result};
use posix::{Caller, Entry, NewNode};
use types::EntryName;

use crate::Vfs;
use crate::tree::Tree;

impl Vfs {
    /// Looks a name up. The kernel holds a reference to the inode from now on.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EACCES`, `EBUSY` in another client's subtree.
    pub(crate) fn lookup(&self, caller: &Caller, parent: Ino, name: &[u8]) -> Result<Entry> {
        let attr = match name {
            b"." => self.stored_attr(parent)?,
            b".." => self.stored_attr(self.nodes().parent(parent))?,
            _ => self.found(caller, parent, name)?,
        };
        self.entry(parent, name, attr)
    }

    /// Attributes of a name.
    fn found(&self, caller: &Caller, parent: Ino, name: &[u8]) -> Result<Attr> {
        let found = self.run(
            parent,
            caller,
            |user| user.lookup(parent, name),
            |subtree| subtree.lookup(parent, name),
        );
        match found {
            // The server names the client that has the subtree: another client of this process, if
            // the subtree was attached to one.
            Err(error) if error.errno == Errno::Busy => {
                let root = self.owned_named(parent, name).ok_or(error)?;
                self.stored_attr(root)
            }
            found => found,
        }
    }

    /// The kernel learns of a name.
    pub(crate) fn entry(&self, parent: Ino, name: &[u8], attr: Attr) -> Result<Entry> {
        let owner = self.owner_in(parent, attr.ino);
        self.nodes().refer(parent, name, attr.ino, owner);
        // The root of a subtree of ours is as the subtree says, not as the server says.
        let attr = if owner == attr.ino { self.stored_attr(attr.ino)? } else { attr };
        Ok(Entry::new(self.as_open(attr), self.valid(attr.ino)))
    }

    /// For so long it may be taken for granted that a name does not exist.
    #[must_use]
    pub(crate) fn absent_valid(&self, parent: Ino) -> std::time::Duration {
        self.valid(parent)
    }

    /// The kernel gives references up.
    pub(crate) fn forget(&self, ino: Ino, count: u64) {
        self.nodes().forget(ino, count);
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
        self.check_writable()?;
        let file_type = FileType::from_mode(new.mode).unwrap_or(FileType::Regular);
        let new = NewFile {
            file_type,
            permissions: new.mode & 0o7777,
            rdev: new.rdev,
            size: new.target.len() as u64,
            data: new.target,
            ..NewFile::default()
        };
        let attr = self.run(
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
        self.check_writable()?;
        self.check_same_tree(ino, parent)?;
        let attr = self.run_about(
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
        self.check_writable()?;
        let losing = self.open_under(caller, parent, name)?;
        self.run(
            parent,
            caller,
            |user| user.unlink(parent, name),
            |subtree| subtree.unlink(parent, name),
        )?;
        self.lose_name(losing);
        self.drop_freed(parent)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ENOTEMPTY`, `EACCES`, `EPERM`, `EROFS`; `EBUSY` for the root of a
    /// decoupled subtree.
    pub(crate) fn rmdir(&self, caller: &Caller, parent: Ino, name: &[u8]) -> Result<()> {
        self.check_writable()?;
        self.check_no_root(caller, parent, name)?;
        let open = self.open_dirs_under(parent, name);
        self.run(
            parent,
            caller,
            |user| user.rmdir(parent, name),
            |subtree| subtree.rmdir(parent, name),
        )?;
        self.lose_dirs(open);
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
        self.check_writable()?;
        self.check_same_tree(from.dir, to.dir)?;
        let losing = if flags.exchange { None } else { self.open_under(caller, to.dir, to.name)? };
        let open = if flags.exchange { Vec::new() } else { self.open_dirs_under(to.dir, to.name) };
        let moved = self.moving(caller, from)?;
        // A file renamed to another of its own names: nothing happens.
        let losing = losing.filter(|attr| moved.is_none_or(|moved| moved.ino != attr.ino));
        let swapped = if flags.exchange { self.moving(caller, to)? } else { None };
        self.run_about(
            &[from.dir, to.dir],
            caller,
            |user| user.rename((from.dir, from.name), (to.dir, to.name), flags),
            |subtree| subtree.rename((from.dir, from.name), (to.dir, to.name), flags),
        )?;
        let mut nodes = self.nodes();
        if let Some(attr) = moved {
            nodes.renamed(attr.ino, to.dir, to.name);
        }
        if let Some(attr) = swapped {
            nodes.renamed(attr.ino, from.dir, from.name);
        }
        drop(nodes);
        self.lose_name(losing);
        self.lose_dirs(open);
        self.drop_freed(to.dir)
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
        let target = self.data(ino)?;
        if target.is_empty() {
            return Err(Error::of(Errno::Invalid, "symbolic link"));
        }
        Ok(target)
    }

    fn check_same_tree(&self, one: Ino, other: Ino) -> Result<()> {
        let same = match (self.tree(one), self.tree(other)) {
            (Tree::Server, Tree::Server) => true,
            (Tree::Owned(one), Tree::Owned(other)) => std::sync::Arc::ptr_eq(&one, &other),
            (Tree::Server, Tree::Owned(_)) | (Tree::Owned(_), Tree::Server) => false,
        };
        if same { Ok(()) } else { Err(Error::of(Errno::CrossDevice, "decoupled subtree")) }
    }

    /// The root of a subtree that is decoupled stays where it is.
    fn check_no_root(&self, caller: &Caller, parent: Ino, name: &[u8]) -> Result<()> {
        if self.owned().is_empty() {
            return Ok(());
        }
        let attr = self.found(caller, parent, name)?;
        if self.owned().contains_key(&attr.ino) {
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
        if !self.nodes().any_open() {
            return Ok(None);
        }
        let attr = match self.found(caller, parent, name) {
            Ok(attr) => attr,
            Err(error) if error.errno == Errno::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let file = self.nodes().file(attr.ino).cloned();
        if let Some(file) = file {
            self.keep(attr.ino, &file, attr)?;
            return Ok(Some(attr));
        }
        Ok(None)
    }
}
