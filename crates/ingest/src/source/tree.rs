//! A directory tree as a source.
//!
//! Entries come in the order of their names, so that two readings of one tree are alike. An
//! unreadable entry (permissions, or removed since) is skipped and reported.

use std::fs::{File, Metadata, OpenOptions};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use cudele::{Error, FileType, Result, Timestamp};
use types::{Map, acl};
use walkdir::WalkDir;

use super::{EntrySink, Skip, SourceEntry, SourceKind};

/// Bytes for the names and for one value of extended attributes: Linux's limit.
const XATTR_BYTES_MAX: usize = 64 * 1024;

struct Reader<'t> {
    root: &'t Path,
    taker: &'t mut dyn EntrySink,
    /// The first path of every inode with several names.
    linked: Map<(u64, u64), Vec<u8>>,
    buffer: Vec<u8>,
}

pub(super) fn count(root: &Path) -> u64 {
    WalkDir::new(root).into_iter().filter(std::result::Result::is_ok).count() as u64
}

pub(super) fn read(root: &Path, without: Option<&Path>, taker: &mut dyn EntrySink) -> Result<()> {
    let without = without.and_then(|path| std::fs::canonicalize(path).ok());
    let start = std::fs::canonicalize(root).map_err(|e| terminal::io(root, &e))?;
    let mut reader =
        Reader { root: &start, taker, linked: Map::default(), buffer: vec![0; XATTR_BYTES_MAX] };
    let mut walk = WalkDir::new(&start).sort_by_file_name().into_iter();
    while let Some(entry) = walk.next() {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                let path = error.path().map_or_else(Vec::new, |path| reader.relative(path));
                let reason =
                    error.io_error().map_or_else(|| error.to_string(), ToString::to_string);
                reader.taker.skip(Skip { path, reason });
                continue;
            }
        };
        let path = reader.relative(entry.path());
        if without.as_deref() == Some(entry.path()) {
            walk.skip_current_dir();
            let reason = "the cluster keeps its own files there".to_owned();
            reader.taker.skip(Skip { path, reason });
            continue;
        }
        match entry.metadata() {
            Ok(data) => reader.entry(entry.path(), &path, &data)?,
            Err(error) => {
                let reason =
                    error.io_error().map_or_else(|| error.to_string(), ToString::to_string);
                reader.taker.skip(Skip { path, reason });
            }
        }
    }
    Ok(())
}

impl Reader<'_> {
    fn relative(&self, path: &Path) -> Vec<u8> {
        let relative = path.strip_prefix(self.root).unwrap_or(path);
        relative.as_os_str().as_bytes().to_vec()
    }

    fn entry(&mut self, full: &Path, path: &[u8], data: &Metadata) -> Result<()> {
        let skip = |error: &std::io::Error| Skip { path: path.to_vec(), reason: error.to_string() };
        let Some(file_type) = FileType::from_mode(data.mode()) else {
            self.taker.skip(Skip { path: path.to_vec(), reason: "unknown type of file".into() });
            return Ok(());
        };
        if file_type != FileType::Directory && data.nlink() > 1 {
            let inode = (data.dev(), data.ino());
            if let Some(first) = self.linked.get(&inode).cloned() {
                let entry = entry_of(path, SourceKind::HardLink(&first), data, &[]);
                return self.taker.take(&entry, &mut std::io::empty());
            }
        }
        let target;
        let mut file = None;
        let kind = match file_type {
            FileType::Directory => SourceKind::Directory,
            FileType::Symlink => match std::fs::read_link(full) {
                Ok(link) => {
                    target = link.into_os_string().into_vec();
                    SourceKind::Symlink(&target)
                }
                Err(error) => return self.skipped(skip(&error)),
            },
            FileType::Regular => match open(full) {
                Ok(opened) => {
                    file = Some(opened);
                    SourceKind::File { size: data.size() }
                }
                Err(error) => return self.skipped(skip(&error)),
            },
            FileType::Fifo | FileType::Socket => SourceKind::Special { file_type, rdev: 0 },
            FileType::CharDevice | FileType::BlockDevice => match u32::try_from(data.rdev()) {
                Ok(rdev) => SourceKind::Special { file_type, rdev },
                Err(_) => {
                    let reason = "its device number does not fit 32 bits".to_owned();
                    return self.skipped(Skip { path: path.to_vec(), reason });
                }
            },
        };
        let xattrs = match file_type {
            FileType::Regular | FileType::Directory => self.xattrs(full),
            FileType::Symlink
            | FileType::Fifo
            | FileType::Socket
            | FileType::CharDevice
            | FileType::BlockDevice => Vec::new(),
        };
        let entry = entry_of(path, kind, data, &xattrs);
        match &mut file {
            Some(file) => self.taker.take(&entry, file),
            None => self.taker.take(&entry, &mut std::io::empty()),
        }?;
        if file_type != FileType::Directory && data.nlink() > 1 {
            self.linked.insert((data.dev(), data.ino()), path.to_vec());
        }
        Ok(())
    }

    fn skipped(&mut self, skip: Skip) -> Result<()> {
        self.taker.skip(skip);
        Ok(())
    }

    /// The attributes that users set, and access control lists. Where there are none, or they
    /// cannot be read, none.
    fn xattrs(&mut self, path: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
        let Ok(length) = rustix::fs::llistxattr(path, self.buffer.as_mut_slice()) else {
            return Vec::new();
        };
        let names: Vec<Vec<u8>> = self.buffer[..length]
            .split(|byte| *byte == 0)
            .filter(|name| name.starts_with(b"user.") || acl::is_list(name))
            .map(<[u8]>::to_vec)
            .collect();
        let mut all = Vec::new();
        for name in names {
            let value = rustix::fs::lgetxattr(path, name.as_slice(), self.buffer.as_mut_slice());
            if let Ok(length) = value {
                all.push((name, self.buffer[..length].to_vec()));
            }
        }
        all
    }
}

/// Opens a file without following a link and without waiting for the other end of a FIFO that may
/// have replaced it.
fn open(path: &Path) -> std::io::Result<File> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).unwrap_or(0);
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

fn entry_of<'a>(
    path: &'a [u8],
    kind: SourceKind<'a>,
    data: &Metadata,
    xattrs: &'a [(Vec<u8>, Vec<u8>)],
) -> SourceEntry<'a> {
    SourceEntry {
        path,
        kind,
        permissions: data.mode() & 0o7777,
        owner: (data.uid(), data.gid()),
        mtime: Timestamp::from_parts(data.mtime(), data.mtime_nsec()),
        atime: Some(Timestamp::from_parts(data.atime(), data.atime_nsec())),
        xattrs,
    }
}

/// The error of a source that could not be read.
pub(crate) fn failed(path: &[u8], error: &std::io::Error) -> Error {
    let errno = error.raw_os_error().and_then(|code| u16::try_from(code).ok());
    let errno = errno.map_or(cudele::Errno::Io, cudele::Errno::from_code);
    Error::new(errno, super::shown(path), error.to_string())
}
