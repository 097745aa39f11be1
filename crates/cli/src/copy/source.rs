//! The source of a copy.

use std::fs::{File, Metadata};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use cudele::{Attr, FileType, Fs, Path, Result, Timestamp};
use terminal::format;
use terminal::io;
use types::MODE_PERMISSIONS;

use super::{Content, Item, Target};
use crate::tree;

/// See the module documentation.
#[derive(Debug)]
pub(crate) enum Source {
    /// In the namespace.
    Space { path: Path, attr: Attr },
    /// On this machine.
    Local { path: PathBuf, meta: Metadata },
    /// Whatever comes in.
    Stdin,
}

impl Source {
    /// A file of this machine; a symbolic link itself.
    ///
    /// # Errors
    /// Those of lstat(2).
    pub(crate) fn local(path: PathBuf) -> Result<Self> {
        let meta = path.symlink_metadata().map_err(|error| io(&path, &error))?;
        Ok(Self::Local { path, meta })
    }

    /// Its last name; none for the root, `..` and standard input.
    pub(crate) fn name(&self) -> Option<Vec<u8>> {
        match self {
            Self::Space { path, .. } => path.split_last().map(|(_, name)| name.to_vec()),
            Self::Local { path, .. } => path.file_name().map(|name| name.as_bytes().to_vec()),
            Self::Stdin => None,
        }
    }

    pub(crate) fn shown(&self) -> String {
        match self {
            Self::Space { path, .. } => format::quoted(&path.to_bytes()).into_owned(),
            Self::Local { path, .. } => {
                format!("local:{}", format::quoted(path.as_os_str().as_bytes()))
            }
            Self::Stdin => "standard input".to_owned(),
        }
    }

    /// The facts.
    pub(crate) fn item(&self) -> Item {
        match self {
            Self::Space { attr, .. } => Item {
                file_type: attr.file_type(),
                permissions: attr.mode & MODE_PERMISSIONS,
                owner: (attr.uid, attr.gid),
                rdev: attr.rdev,
                mtime: attr.mtime,
                atime: attr.atime,
            },
            Self::Local { meta, .. } => Item {
                file_type: FileType::from_mode(meta.mode()).unwrap_or_default(),
                permissions: meta.mode() & MODE_PERMISSIONS,
                owner: (meta.uid(), meta.gid()),
                // Device numbers of this kernel fit: it has 12 and 20 bits for them.
                rdev: u32::try_from(meta.rdev()).unwrap_or_default(),
                mtime: Timestamp::from_parts(meta.mtime(), meta.mtime_nsec()),
                atime: Timestamp::from_parts(meta.atime(), meta.atime_nsec()),
            },
            Self::Stdin => Item {
                file_type: FileType::Regular,
                permissions: 0o644,
                owner: (cudele::own_cred().uid, cudele::own_cred().gid),
                rdev: 0,
                mtime: cudele::now(),
                atime: cudele::now(),
            },
        }
    }

    /// Whether a target lies within this directory.
    pub(crate) fn holds(&self, target: &Target) -> bool {
        match (self, target) {
            (Self::Space { path, .. }, Target::Space { dir, .. }) => dir.path().starts_with(path),
            (Self::Space { .. }, Target::Local(_) | Target::Stdout)
            | (Self::Local { .. } | Self::Stdin, _) => false,
        }
    }

    /// The entries of a directory, sorted by name.
    pub(crate) fn children(&self, fs: &Arc<Fs>) -> Result<Vec<(Vec<u8>, Source)>> {
        match self {
            Self::Space { path, .. } => {
                let entries = tree::sorted(&fs.open_dir(path.to_bytes())?)?;
                let child = |entry: cudele::DirEntry| {
                    let path = path.join(&entry.name);
                    (entry.name, Self::Space { path, attr: entry.attr })
                };
                Ok(entries.into_iter().map(child).collect())
            }
            Self::Local { path, .. } => {
                let mut children = Vec::new();
                for entry in path.read_dir().map_err(|error| io(path, &error))? {
                    let entry = entry.map_err(|error| io(path, &error))?;
                    children.push((entry.file_name().into_vec(), Self::local(entry.path())?));
                }
                children.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
                Ok(children)
            }
            Self::Stdin => Ok(Vec::new()),
        }
    }

    /// What it holds.
    pub(crate) fn content(&self, fs: &Arc<Fs>) -> Result<Content> {
        match self.item().file_type {
            FileType::Regular => {}
            FileType::Symlink => return self.read_link(fs).map(Content::Link),
            FileType::Directory
            | FileType::Fifo
            | FileType::Socket
            | FileType::CharDevice
            | FileType::BlockDevice => return Ok(Content::Nothing),
        }
        Ok(Content::Bytes(match self {
            Self::Space { path, .. } => {
                // Walking the path brings the file into the server's memory if it is not there.
                let attr = fs.stat(path.to_bytes())?;
                Box::new(fs.open_file(&attr)?)
            }
            Self::Local { path, .. } => {
                Box::new(File::open(path).map_err(|error| io(path, &error))?)
            }
            Self::Stdin => Box::new(std::io::stdin()),
        }))
    }

    fn read_link(&self, fs: &Arc<Fs>) -> Result<Vec<u8>> {
        match self {
            Self::Space { path, .. } => fs.read_link(fs.stat(path.to_bytes())?.ino),
            Self::Local { path, .. } => {
                let target = path.read_link().map_err(|error| io(path, &error))?;
                Ok(target.into_os_string().into_vec())
            }
            Self::Stdin => Ok(Vec::new()),
        }
    }
}
