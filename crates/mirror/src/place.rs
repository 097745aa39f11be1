//! A directory of the copy, on this machine or in a namespace.

mod local;
mod space;

use std::io::Read;

use cudele::{FileType, Result};

pub(crate) use local::LocalPlace;
pub(crate) use space::SpacePlace;

use crate::step::Item;

/// Begins the names of files that are being written. A run that was killed leaves at most one.
const BESIDE: &[u8] = b".cudele-sync.";

/// Whether a killed run left this name in a copy.
pub(crate) fn is_left_over(name: &[u8]) -> bool {
    name.starts_with(BESIDE)
}

/// The content of a file.
pub(crate) enum Content<'a> {
    /// Bytes of a regular file.
    Bytes(&'a mut dyn Read),
    /// The target of a symbolic link.
    Target(Vec<u8>),
    /// Nothing: a device, a socket, a FIFO.
    Nothing,
}

/// See the module documentation.
#[derive(Debug)]
pub struct CopyPlace(Kind);

#[derive(Debug)]
enum Kind {
    Local(LocalPlace),
    Space(SpacePlace),
}

/// Calls a method of either kind.
macro_rules! either {
    ($place:expr, $it:ident => $call:expr) => {
        match &$place.0 {
            Kind::Local($it) => $call,
            Kind::Space($it) => $call,
        }
    };
}

impl CopyPlace {
    /// A directory of this machine, made if it is missing. One mirror at a time has it.
    ///
    /// # Errors
    /// `EBUSY` if another mirror has it, `ENOTDIR`, and those of open(2) and mkdir(2).
    pub fn local(path: &std::path::Path) -> Result<Self> {
        LocalPlace::open(path).map(Kind::Local).map(Self)
    }

    /// A directory of a namespace.
    ///
    /// # Errors
    /// Those of [`cudele::Fs::open_dir`].
    pub fn space(fs: &std::sync::Arc<cudele::Fs>, path: &cudele::Path) -> Result<Self> {
        SpacePlace::open(fs, path).map(Kind::Space).map(Self)
    }

    /// Whether this process may give files away there.
    pub(crate) fn keeps_owner(&self) -> bool {
        either!(self, place => place.keeps_owner())
    }

    /// All names with their facts, sorted.
    pub(crate) fn list(&self) -> Result<Vec<(Vec<u8>, Item)>> {
        let mut names = either!(self, place => place.list())?;
        names.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        Ok(names)
    }

    /// The facts about a name; none if there is no such name.
    pub(crate) fn look(&self, name: &[u8]) -> Result<Option<Item>> {
        either!(self, place => place.look(name))
    }

    /// Opens a directory in this one, never through a symbolic link.
    pub(crate) fn enter(&self, name: &[u8]) -> Result<Self> {
        Ok(Self(match &self.0 {
            Kind::Local(place) => Kind::Local(place.enter(name)?),
            Kind::Space(place) => Kind::Space(place.enter(name)?),
        }))
    }

    /// Opens a directory by a relative name; none if it does not exist.
    pub(crate) fn descend(&self, relative: &[u8]) -> Result<Option<Self>> {
        let mut at = Self(match &self.0 {
            Kind::Local(place) => Kind::Local(place.again()?),
            Kind::Space(place) => Kind::Space(place.clone()),
        });
        for name in relative.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            if !at.look(name)?.is_some_and(|item| item.is_dir()) {
                return Ok(None);
            }
            at = at.enter(name)?;
        }
        Ok(Some(at))
    }

    /// Makes a directory that its owner can fill.
    pub(crate) fn make_dir(&self, name: &[u8], item: &Item) -> Result<()> {
        either!(self, place => place.make_dir(name, item.permissions | 0o700))
    }

    /// Writes a file, in the place of one that may have the name. Returns the bytes of its content.
    pub(crate) fn write(&self, name: &[u8], item: &Item, content: Content<'_>) -> Result<u64> {
        either!(self, place => place.write(name, item, content))
    }

    /// The content of a regular file.
    pub(crate) fn read(&self, name: &[u8]) -> Result<Box<dyn Read>> {
        either!(self, place => place.read(name))
    }

    /// The target of a symbolic link.
    pub(crate) fn read_link(&self, name: &[u8]) -> Result<Vec<u8>> {
        either!(self, place => place.read_link(name))
    }

    /// Gives a file one more name, in the place of one that may have the name.
    pub(crate) fn link(&self, name: &[u8], from: &Self, old: &[u8]) -> Result<()> {
        match (&self.0, &from.0) {
            (Kind::Local(place), Kind::Local(from)) => place.link(name, from, old),
            (Kind::Space(place), Kind::Space(from)) => place.link(name, from, old),
            (Kind::Local(_), Kind::Space(_)) | (Kind::Space(_), Kind::Local(_)) => Ok(()),
        }
    }

    /// Gives a file or directory the attributes of its source.
    pub(crate) fn set(&self, name: &[u8], item: &Item) -> Result<()> {
        either!(self, place => place.set(name, item))
    }

    /// Gives this directory the attributes of its source.
    pub(crate) fn set_own(&self, item: &Item) -> Result<()> {
        either!(self, place => place.set_own(item))
    }

    /// The facts about this directory.
    pub(crate) fn own(&self) -> Result<Item> {
        either!(self, place => place.own())
    }

    /// Removes a name, a directory with everything below it.
    pub(crate) fn remove(&self, name: &[u8], file_type: FileType) -> Result<()> {
        if file_type == FileType::Directory {
            either!(self, place => place.remove_tree(name))
        } else {
            either!(self, place => place.unlink(name))
        }
    }

    /// Moves a name.
    pub(crate) fn rename(&self, name: &[u8], to: &Self, new: &[u8]) -> Result<()> {
        match (&self.0, &to.0) {
            (Kind::Local(place), Kind::Local(to)) => place.rename(name, to, new),
            (Kind::Space(place), Kind::Space(to)) => place.rename(name, to, new),
            (Kind::Local(_), Kind::Space(_)) | (Kind::Space(_), Kind::Local(_)) => Ok(()),
        }
    }

    /// Waits until all changes are durable.
    ///
    /// # Errors
    /// `EIO`, and those of the cluster.
    pub fn sync(&self) -> Result<()> {
        either!(self, place => place.sync())
    }
}
