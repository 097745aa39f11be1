//! Copying between the namespace and this machine: one tree walk for every pair of sides.
//!
//! A [`Source`] is an object that can be read, a [`Target`] a name for a copy; both have an
//! [`Item`], the facts about a file. Not here: the meaning of paths (`command::cp`).
//!
//! Invariant: a file of the namespace that is replaced has its old or its new content at any time.

mod source;
mod target;

use std::io::Read;
use std::sync::Arc;

use cudele::{Errno, Error, FileType, Fs, Result, Timestamp};
use terminal::progress::ProgressCounter;

pub(crate) use source::Source;
pub(crate) use target::Target;

/// Bits of a mode that are copied without -p.
const PLAIN: u32 = 0o777;

/// The facts about a file on either side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item {
    pub(crate) file_type: FileType,
    /// Twelve bits.
    pub(crate) permissions: u32,
    pub(crate) owner: (u32, u32),
    pub(crate) rdev: u32,
    pub(crate) mtime: Timestamp,
    pub(crate) atime: Timestamp,
}

/// The content of a file.
pub(crate) enum Content {
    /// Bytes.
    Bytes(Box<dyn Read>),
    /// The target of a symbolic link.
    Link(Vec<u8>),
    /// Nothing: a device, a socket, a FIFO.
    Nothing,
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Copier {
    fs: Arc<Fs>,
    recursive: bool,
    pub(crate) preserve: bool,
    pub(crate) no_replace: bool,
    progress: ProgressCounter,
    /// Regular files copied.
    pub(crate) files: u64,
    /// Directories made or found.
    pub(crate) directories: u64,
    /// Symbolic links and special files copied.
    pub(crate) others: u64,
    /// Bytes of regular files copied.
    pub(crate) bytes: u64,
}

impl Copier {
    pub(crate) fn new(fs: Arc<Fs>, recursive: bool, preserve: bool, no_replace: bool) -> Self {
        let progress = ProgressCounter::new("copied");
        let (files, directories, others, bytes) = (0, 0, 0, 0);
        Self { fs, recursive, preserve, no_replace, progress, files, directories, others, bytes }
    }

    /// Copies the sources of the command line.
    ///
    /// # Errors
    /// `EISDIR` without -r, `EINVAL` for a directory into itself, and those of either side.
    #[allow(clippy::needless_pass_by_value, reason = "a source is used up")]
    pub(crate) fn copy_root(&mut self, source: Source, target: Target) -> Result<()> {
        if source.item().file_type == FileType::Directory {
            if !self.recursive {
                return Err(Error::of(Errno::IsDirectory, source.shown())
                    .remedy("copy it with everything below by `cudele cp -r`"));
            }
            if source.holds(&target) {
                let cause = "a directory cannot be copied into itself";
                return Err(Error::new(Errno::Invalid, source.shown(), cause)
                    .remedy("choose a destination outside"));
            }
            if matches!(target, Target::Stdout) {
                return Err(Error::of(Errno::IsDirectory, source.shown())
                    .remedy("standard output takes one file"));
            }
        }
        self.copy(&source, &target)
    }

    fn copy(&mut self, source: &Source, target: &Target) -> Result<()> {
        let item = self.reduced(source.item());
        if item.file_type == FileType::Directory {
            let made = target.make_dir(self, &item)?;
            for (name, child) in source.children(&self.fs)? {
                self.copy(&child, &made.child(&name))?;
            }
            self.directories += 1;
            self.progress.step();
            return made.finish(self, &item);
        }
        let content = source.content(&self.fs)?;
        let bytes = target.write(self, &item, content)?;
        self.progress.step();
        if item.file_type == FileType::Regular {
            self.files += 1;
            self.bytes += bytes;
        } else {
            self.others += 1;
        }
        Ok(())
    }

    fn reduced(&self, item: Item) -> Item {
        if self.preserve { item } else { Item { permissions: item.permissions & PLAIN, ..item } }
    }
}
