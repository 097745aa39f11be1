//! The sources of `ingest` and `load`: directory trees, tar archives and dumps, read one entry
//! after the other.
//!
//! A source hands out every entry with a path relative to its root, parents before children. It
//! knows nothing of the namespace that takes them.
//!
//! Invariant: a path that is handed out is legal and stays below the root: no `..`, no absolute
//! path, no name that the namespace would refuse. Symbolic links are entries and are never
//! followed.

pub(crate) mod archive;
pub(crate) mod dumped;
pub(crate) mod tree;

use std::io::Read;
use std::path::{Path, PathBuf};

use cudele::{Errno, Error, FileType, Result, Timestamp};

pub use dumped::read as read_dump;

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceKind<'a> {
    /// A directory.
    Directory,
    /// A file of this many bytes, which are read from the content that comes with the entry.
    File {
        /// In bytes.
        size: u64,
    },
    /// A file of this many bytes, of which the source has no content.
    Hollow {
        /// In bytes.
        size: u64,
    },
    /// A symbolic link and its target.
    Symlink(&'a [u8]),
    /// A device, FIFO or socket.
    Special {
        /// Which of them.
        file_type: FileType,
        /// The number of a device.
        rdev: u32,
    },
    /// One more name for the entry at this path, which came before.
    HardLink(&'a [u8]),
}

/// One entry of a source.
#[derive(Clone, Copy, Debug)]
pub struct SourceEntry<'a> {
    /// Path below the root of the source, without `/` at its ends; empty for the root itself.
    pub path: &'a [u8],
    /// The kind.
    pub kind: SourceKind<'a>,
    /// The lower 12 bits of its mode.
    pub permissions: u32,
    /// User and group.
    pub owner: (u32, u32),
    /// The last change of its content.
    pub mtime: Timestamp,
    /// The last access, if the source knows it.
    pub atime: Option<Timestamp>,
    /// Names and values.
    pub xattrs: &'a [(Vec<u8>, Vec<u8>)],
}

/// Something in a source that is not brought in, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skip {
    /// Below the root of the source.
    pub path: Vec<u8>,
    /// Why it is left out.
    pub reason: String,
}

/// Takes the entries of a source.
pub trait EntrySink {
    /// An entry. An error ends the reading.
    ///
    /// # Errors
    /// Those of the taker.
    fn take(&mut self, entry: &SourceEntry<'_>, content: &mut dyn Read) -> Result<()>;
    /// Something that cannot be read, or is no file.
    fn skip(&mut self, skip: Skip);
    /// The policy of the directory that came last, as a policy file.
    fn policy(&mut self, _path: &[u8], _text: &str) {}
}

/// Where the entries come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A directory.
    Tree(PathBuf),
    /// A tar archive, compressed or not.
    Archive(PathBuf),
    /// A tar archive on standard input.
    StandardInput,
    /// A dump of a directory of a namespace.
    Dump(PathBuf),
    /// The same on standard input.
    DumpOnStandardInput,
}

impl Source {
    /// Opens the source that the user named.
    ///
    /// # Errors
    /// `ENOENT` and the system's other errors about the path; `EINVAL` if it is neither a directory
    /// nor a file.
    pub fn open(path: &Path) -> Result<Self> {
        if path.as_os_str() == "-" {
            return Ok(Self::StandardInput);
        }
        let data = std::fs::metadata(path).map_err(|error| terminal::io(path, &error))?;
        if data.is_dir() {
            Ok(Self::Tree(path.to_owned()))
        } else if data.is_file() {
            Ok(Self::Archive(path.to_owned()))
        } else {
            let cause = "neither a directory nor an archive";
            Err(Error::new(Errno::Invalid, path.display().to_string(), cause)
                .remedy("name a directory, a tar archive, or - for an archive on standard input"))
        }
    }

    /// Opens the dump that the user named.
    ///
    /// # Errors
    /// The system's errors about the path.
    pub fn open_dump(path: &Path) -> Result<Self> {
        if path.as_os_str() == "-" {
            return Ok(Self::DumpOnStandardInput);
        }
        std::fs::metadata(path).map_err(|error| terminal::io(path, &error))?;
        Ok(Self::Dump(path.to_owned()))
    }

    /// Hands every entry to `taker`. A directory tree leaves `without` out.
    ///
    /// # Errors
    /// The first of the source or of the taker.
    pub fn read(&self, without: Option<&Path>, taker: &mut dyn EntrySink) -> Result<()> {
        match self {
            Self::Tree(root) => tree::read(root, without, taker),
            Self::Archive(path) => archive::read(&self.name(), archive::open(path)?, taker),
            Self::StandardInput => {
                archive::read(&self.name(), Box::new(std::io::stdin().lock()), taker)
            }
            Self::Dump(path) => dumped::read(&self.name(), archive::open(path)?, taker),
            Self::DumpOnStandardInput => {
                dumped::read(&self.name(), Box::new(std::io::stdin().lock()), taker)
            }
        }
    }

    /// How many entries there are, if that can be known without reading everything.
    pub fn count(&self) -> Option<u64> {
        match self {
            Self::Tree(root) => Some(tree::count(root)),
            Self::Archive(_) | Self::StandardInput | Self::Dump(_) | Self::DumpOnStandardInput => {
                None
            }
        }
    }

    /// For people.
    pub fn name(&self) -> String {
        match self {
            Self::Tree(path) | Self::Archive(path) | Self::Dump(path) => path.display().to_string(),
            Self::StandardInput | Self::DumpOnStandardInput => "standard input".to_owned(),
        }
    }
}

/// A path of bytes, for people.
pub fn shown(path: &[u8]) -> String {
    if path.is_empty() {
        return ".".to_owned();
    }
    terminal::format::quoted(path).into_owned()
}

#[cfg(test)]
mod tests;
