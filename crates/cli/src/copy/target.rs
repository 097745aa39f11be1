//! The target of a copy.

use std::fs::{self, File, FileTimes, OpenOptions, Permissions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, chown, lchown};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cudele::{AttrChange, Dir, Errno, Error, FileType, NewFile, RenameFlags, Result, Timestamp};
use terminal::io;

use super::{Content, Copier, Item};

/// See the module documentation.
#[derive(Debug)]
pub(crate) enum Target {
    /// A name in a directory of the namespace.
    Space { dir: Dir, name: Vec<u8> },
    /// A file of this machine.
    Local(PathBuf),
    /// Standard output.
    Stdout,
}

/// A directory that is being filled.
#[derive(Debug)]
pub(crate) enum Made {
    Space { above: Dir, dir: Dir },
    Local(PathBuf),
}

impl Made {
    /// A name in it.
    pub(crate) fn child(&self, name: &[u8]) -> Target {
        match self {
            Self::Space { dir, .. } => Target::Space { dir: dir.clone(), name: name.to_vec() },
            Self::Local(path) => Target::Local(path.join(std::ffi::OsStr::from_bytes(name))),
        }
    }

    /// Sets the attributes that filling it would have changed, or that would have hindered the
    /// filling.
    pub(crate) fn finish(&self, copier: &Copier, item: &Item) -> Result<()> {
        if !copier.preserve {
            return Ok(());
        }
        match self {
            Self::Space { above, dir } => above.set_attr_of(dir.ino(), &kept(copier, item)),
            Self::Local(path) => keep_local(path, item),
        }
    }
}

/// The attributes that -p keeps, as a change.
fn kept(copier: &Copier, item: &Item) -> AttrChange {
    let owner = owner(copier, item);
    AttrChange {
        mode: Some(item.permissions),
        uid: owner.map(|(uid, _)| uid),
        gid: owner.map(|(_, gid)| gid),
        size: None,
        atime: Some(item.atime),
        mtime: Some(item.mtime),
    }
}

/// The owner to set: only root gives files away.
fn owner(copier: &Copier, item: &Item) -> Option<(u32, u32)> {
    (copier.preserve && copier.fs.cred().is_root()).then_some(item.owner)
}

impl Target {
    /// Makes a directory, or takes an existing one.
    pub(crate) fn make_dir(&self, copier: &Copier, item: &Item) -> Result<Made> {
        // Its owner must be able to fill it.
        let permissions = item.permissions | 0o700;
        match self {
            Self::Space { dir: above, name } => {
                let owner = owner(copier, item);
                let new = NewFile { permissions, owner, ..NewFile::directory() };
                let attr = match above.create(name, &new) {
                    Err(error) if error.errno == Errno::Exists => above.lookup(name)?,
                    result => result?,
                };
                if !attr.is_dir() {
                    return Err(Error::of(
                        Errno::NotDirectory,
                        above.path().join(name).to_string(),
                    ));
                }
                Ok(Made::Space { above: above.clone(), dir: above.enter(name, attr.ino)? })
            }
            Self::Local(path) => {
                let made = fs::DirBuilder::new().mode(permissions).create(path);
                match made {
                    Err(error) if error.kind() == ErrorKind::AlreadyExists && path.is_dir() => {}
                    result => result.map_err(|error| io(path, &error))?,
                }
                Ok(Made::Local(path.clone()))
            }
            Self::Stdout => Err(Error::of(Errno::IsDirectory, "standard output")),
        }
    }

    /// Writes an object other than a directory. Returns the number of bytes of its content.
    pub(crate) fn write(&self, copier: &Copier, item: &Item, content: Content) -> Result<u64> {
        match self {
            Self::Space { dir, name } => write_space(copier, dir, name, item, content),
            Self::Local(path) => write_local(copier, path, item, content),
            Self::Stdout => match content {
                Content::Bytes(mut source) => write_stdout(&mut *source),
                Content::Link(_) | Content::Nothing => {
                    Err(Error::new(Errno::Invalid, "standard output", "the source is no file")
                        .remedy("copy a regular file"))
                }
            },
        }
    }
}

fn write_space(
    copier: &Copier,
    dir: &Dir,
    name: &[u8],
    item: &Item,
    content: Content,
) -> Result<u64> {
    let there = match dir.lookup(name) {
        Ok(attr) => Some(attr),
        Err(error) if error.errno == Errno::NotFound => None,
        Err(error) => return Err(error),
    };
    let path = || dir.path().join(name).to_string();
    let Some(there) = there else { return create(copier, dir, name, item, content) };
    if copier.no_replace {
        return Err(Error::of(Errno::Exists, path())
            .remedy("choose another name, or leave -n out to replace it"));
    }
    if there.is_dir() {
        return Err(Error::of(Errno::IsDirectory, path())
            .remedy("a file does not replace a directory: remove that first"));
    }
    // Written beside it and moved over it, so that no reader sees a half-written file.
    let beside = format!(".cudele-cp.{:x}.{:x}", copier.fs.client().0, copier.files);
    let written = create(copier, dir, beside.as_bytes(), item, content)
        .and_then(|bytes| dir.rename(&beside, dir, name, RenameFlags::default()).map(|()| bytes));
    if written.is_err() {
        // The partial copy is useless; the first error is the one to report.
        let _ = dir.unlink(&beside);
    }
    written
}

fn create(copier: &Copier, dir: &Dir, name: &[u8], item: &Item, content: Content) -> Result<u64> {
    let times = copier.preserve.then_some((item.mtime, item.atime));
    let new = NewFile {
        file_type: item.file_type,
        permissions: item.permissions,
        owner: owner(copier, item),
        rdev: item.rdev,
        mtime: times.map(|(mtime, _)| mtime),
        atime: times.map(|(_, atime)| atime),
        ..NewFile::default()
    };
    match content {
        Content::Bytes(mut source) => {
            Ok(copier.fs.create_file(dir, name, &new, &mut *source)?.size)
        }
        Content::Link(target) => {
            let size = target.len() as u64;
            dir.create(name, &NewFile { size, data: &target, ..new }).map(|_| 0)
        }
        Content::Nothing => dir.create(name, &new).map(|_| 0),
    }
}

fn write_local(copier: &Copier, path: &Path, item: &Item, content: Content) -> Result<u64> {
    let failed = |error: std::io::Error| io(path, &error);
    let bytes = match content {
        Content::Bytes(mut source) => {
            let mut options = OpenOptions::new();
            options.write(true).mode(item.permissions & 0o777);
            if copier.no_replace {
                options.create_new(true);
            } else {
                options.create(true).truncate(true);
            }
            let mut file = options.open(path).map_err(failed)?;
            let bytes = pour(&mut *source, &mut file, &path.display().to_string())?;
            file.sync_all().map_err(failed)?;
            bytes
        }
        Content::Link(target) => {
            if !copier.no_replace && path.is_symlink() {
                fs::remove_file(path).map_err(failed)?;
            }
            let target = std::ffi::OsStr::from_bytes(&target);
            std::os::unix::fs::symlink(target, path).map_err(failed)?;
            0
        }
        Content::Nothing => {
            let what = format!("a {} cannot be copied out", item.file_type.word());
            return Err(Error::new(Errno::NotSupported, path.display().to_string(), what)
                .remedy("make it with mknod(1)"));
        }
    };
    if copier.preserve && item.file_type == FileType::Regular {
        keep_local(path, item)?;
    } else if copier.preserve && copier.fs.cred().is_root() {
        lchown(path, Some(item.owner.0), Some(item.owner.1)).map_err(failed)?;
    }
    Ok(bytes)
}

/// Gives a file or directory of this machine the attributes that -p keeps.
fn keep_local(path: &Path, item: &Item) -> Result<()> {
    let keep = || -> std::io::Result<()> {
        if rustix::process::geteuid().is_root() {
            chown(path, Some(item.owner.0), Some(item.owner.1))?;
        }
        fs::set_permissions(path, Permissions::from_mode(item.permissions))?;
        let times = FileTimes::new()
            .set_modified(system_time(item.mtime))
            .set_accessed(system_time(item.atime));
        File::open(path)?.set_times(times)
    };
    keep().map_err(|error| io(path, &error))
}

fn system_time(time: Timestamp) -> SystemTime {
    let nanos = Duration::from_nanos(time.0.unsigned_abs());
    if time.0 < 0 { UNIX_EPOCH - nanos } else { UNIX_EPOCH + nanos }
}

fn write_stdout(source: &mut dyn Read) -> Result<u64> {
    let mut out = std::io::stdout().lock();
    pour(source, &mut out, "standard output")
}

/// Copies bytes. A reader of standard output that left early is no error.
fn pour(source: &mut dyn Read, sink: &mut dyn Write, name: &str) -> Result<u64> {
    let mut buffer = vec![0; 1 << 20];
    let mut bytes = 0;
    loop {
        let count = match source.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => {
                let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
                return Err(inner.cloned().unwrap_or_else(|| io(Path::new(name), &error)));
            }
        };
        match sink.write_all(&buffer[..count]) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(bytes),
            result => result.map_err(|error| io(Path::new(name), &error))?,
        }
        bytes += count as u64;
    }
    sink.flush().map_err(|error| io(Path::new(name), &error))?;
    Ok(bytes)
}
