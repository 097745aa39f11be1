//! A directory of the copy in a namespace.

use std::io::Read;
use std::sync::Arc;

use cudele::{AttrChange, Dir, Errno, Error, FileType, Fs, NewFile, Path, RenameFlags, Result};

use super::{BESIDE, Content};
use crate::step::Item;

/// See the module documentation.
#[derive(Clone, Debug)]
pub(crate) struct SpacePlace {
    fs: Arc<Fs>,
    dir: Dir,
}

impl SpacePlace {
    pub(crate) fn open(fs: &Arc<Fs>, path: &Path) -> Result<Self> {
        Ok(Self { fs: fs.clone(), dir: fs.open_dir(path.to_bytes())? })
    }

    pub(crate) fn keeps_owner(&self) -> bool {
        self.fs.cred().is_root()
    }

    pub(crate) fn list(&self) -> Result<Vec<(Vec<u8>, Item)>> {
        let entries = self.dir.list()?.into_iter();
        Ok(entries.map(|entry| (entry.name, Item::of(&entry.attr))).collect())
    }

    pub(crate) fn look(&self, name: &[u8]) -> Result<Option<Item>> {
        match self.dir.lookup(name) {
            Ok(attr) => Ok(Some(Item::of(&attr))),
            Err(error) if error.errno == Errno::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn enter(&self, name: &[u8]) -> Result<Self> {
        let attr = self.dir.lookup(name)?;
        if !attr.is_dir() {
            return Err(Error::of(Errno::NotDirectory, self.dir.path().join(name).quoted()));
        }
        Ok(Self { fs: self.fs.clone(), dir: self.dir.enter(name, attr.ino)? })
    }

    pub(crate) fn make_dir(&self, name: &[u8], permissions: u32) -> Result<()> {
        self.dir.create(name, &NewFile { permissions, ..NewFile::directory() }).map(drop)
    }

    pub(crate) fn write(&self, name: &[u8], item: &Item, content: Content<'_>) -> Result<u64> {
        if self.look(name)?.is_none() {
            return self.create(name, item, content);
        }
        self.beside(name, |beside| self.create(beside, item, content))
    }

    /// Makes a file under another name, and moves it over the present one.
    fn beside<T>(&self, name: &[u8], make: impl FnOnce(&[u8]) -> Result<T>) -> Result<T> {
        let mut beside = BESIDE.to_vec();
        beside.extend_from_slice(format!("{:x}", self.fs.client().0).as_bytes());
        let made = make(&beside).and_then(|value| {
            self.dir.rename(&beside, &self.dir, name, RenameFlags::default()).map(|()| value)
        });
        if made.is_err() {
            // The first error is the one to report.
            let _ = self.dir.unlink(&beside);
        }
        made
    }

    fn create(&self, name: &[u8], item: &Item, content: Content<'_>) -> Result<u64> {
        let new = NewFile {
            file_type: item.file_type,
            permissions: item.permissions,
            owner: self.keeps_owner().then_some(item.owner),
            rdev: u32::try_from(item.rdev).unwrap_or_default(),
            mtime: Some(item.mtime),
            ..NewFile::default()
        };
        match content {
            Content::Bytes(source) => Ok(self.fs.create_file(&self.dir, name, &new, source)?.size),
            Content::Target(target) => {
                let size = target.len() as u64;
                self.dir.create(name, &NewFile { size, data: &target, ..new }).map(|_| 0)
            }
            Content::Nothing => self.dir.create(name, &new).map(|_| 0),
        }
    }

    pub(crate) fn read(&self, name: &[u8]) -> Result<Box<dyn Read>> {
        let file = self.fs.open_file(&self.dir.lookup(name)?)?;
        Ok(Box::new(file))
    }

    pub(crate) fn read_link(&self, name: &[u8]) -> Result<Vec<u8>> {
        self.fs.read_link(self.dir.lookup(name)?.ino)
    }

    pub(crate) fn link(&self, name: &[u8], from: &Self, old: &[u8]) -> Result<()> {
        let ino = from.dir.lookup(old)?.ino;
        match self.dir.link(ino, name) {
            Err(error) if error.errno == Errno::Exists => {
                self.beside(name, |beside| self.dir.link(ino, beside))
            }
            result => result,
        }
    }

    pub(crate) fn set(&self, name: &[u8], item: &Item) -> Result<()> {
        self.dir.set_attr(name, &self.change(item))
    }

    pub(crate) fn set_own(&self, item: &Item) -> Result<()> {
        self.dir.set_attr_of(self.dir.ino(), &self.change(item))
    }

    pub(crate) fn own(&self) -> Result<Item> {
        self.fs.stat(self.dir.path().to_bytes()).map(|attr| Item::of(&attr))
    }

    fn change(&self, item: &Item) -> AttrChange {
        let owner = self.keeps_owner().then_some(item.owner);
        AttrChange {
            mode: (item.file_type != FileType::Symlink).then_some(item.permissions),
            uid: owner.map(|(uid, _)| uid),
            gid: owner.map(|(_, gid)| gid),
            size: None,
            atime: None,
            mtime: Some(item.mtime),
        }
    }

    pub(crate) fn unlink(&self, name: &[u8]) -> Result<()> {
        self.dir.unlink(name)
    }

    pub(crate) fn remove_tree(&self, name: &[u8]) -> Result<()> {
        self.dir.remove_tree(name).map(drop)
    }

    pub(crate) fn rename(&self, name: &[u8], to: &Self, new: &[u8]) -> Result<()> {
        self.dir.rename(name, &to.dir, new, RenameFlags::default())
    }

    pub(crate) fn sync(&self) -> Result<()> {
        self.fs.sync().map(drop)
    }
}
