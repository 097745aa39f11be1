//! Files by path: in the namespace through the client library, without a mount; or below a
//! directory of this machine with system calls, be it a mount or a local file system.
//!
//! Both make the same calls in the same order, so that the two can be compared. Invariant: paths
//! begin with `/`; below a directory they are relative to it.

use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cudele::{Errno, Error, Result};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use terminal::io;

/// Entries that are listed at a time.
const LISTED_AT_ONCE: usize = 4096;

/// The place of the files, in the message to a client process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum At {
    /// In the namespace, through the client library.
    Namespace,
    /// Below a directory of this machine.
    Below(PathBuf),
}

/// See the module documentation.
#[derive(Clone)]
pub(crate) enum Files {
    Namespace(Arc<calls::Mount>),
    Below(PathBuf),
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    pub(crate) is_dir: bool,
}

/// A file that is open.
pub(crate) enum OpenFile {
    Namespace(Box<calls::OpenFile>, String),
    Below(File, PathBuf),
}

#[allow(clippy::needless_pass_by_value, reason = "fits map_err")]
fn failed(path: &str) -> impl Fn(calls::CallFailure) -> Error + '_ {
    move |failure| match failure {
        calls::CallFailure::Refused(error) => error,
        closed @ calls::CallFailure::Closed { .. } => {
            Error::new(Errno::Io, path, closed.to_string())
        }
    }
}

impl Files {
    /// Connects, if there is something to connect to.
    ///
    /// # Errors
    /// The error of a connection to the cluster with a monitor at `mon`.
    pub(crate) fn of(at: &At, mon: &str) -> Result<Self> {
        Ok(match at {
            At::Namespace => {
                Self::Namespace(Arc::new(calls::Mount::connect(Some(mon.to_owned()), None)?))
            }
            At::Below(dir) => Self::Below(dir.clone()),
        })
    }

    fn below(dir: &Path, path: &str) -> PathBuf {
        dir.join(path.trim_start_matches('/'))
    }

    /// Makes a directory.
    pub(crate) fn make_dir(&self, path: &str) -> Result<()> {
        match self {
            Self::Namespace(mount) => mount.make(path.as_bytes(), 0o040_755, b""),
            Self::Below(dir) => {
                let path = Self::below(dir, path);
                std::fs::create_dir(&path).map_err(|error| io(&path, &error))
            }
        }
    }

    /// Opens a file for writing, and makes it if it is not there.
    pub(crate) fn create(&self, path: &str) -> Result<OpenFile> {
        self.open_with(path, OFlags::RDWR | OFlags::CREATE)
    }

    /// Opens an existing file for reading.
    pub(crate) fn open(&self, path: &str) -> Result<OpenFile> {
        self.open_with(path, OFlags::RDONLY)
    }

    /// Opens an existing file, so that it can be made durable.
    pub(crate) fn open_to_sync(&self, path: &str) -> Result<OpenFile> {
        self.open_with(path, OFlags::RDWR)
    }

    fn open_with(&self, path: &str, flags: OFlags) -> Result<OpenFile> {
        match self {
            Self::Namespace(mount) => {
                let flags = flags.bits().cast_signed();
                let file = calls::OpenFile::open(mount, path.as_bytes(), flags, 0o644)?;
                Ok(OpenFile::Namespace(Box::new(file), path.to_owned()))
            }
            Self::Below(dir) => {
                let path = Self::below(dir, path);
                let mode = rustix::fs::Mode::from_raw_mode(0o644);
                let file = rustix::fs::open(&path, flags | OFlags::CLOEXEC, mode)
                    .map_err(|error| io(&path, &error.into()))?;
                Ok(OpenFile::Below(file.into(), path))
            }
        }
    }

    /// Moves a name, and replaces an existing entry of the new name.
    pub(crate) fn rename(&self, from: &str, to: &str) -> Result<()> {
        match self {
            Self::Namespace(mount) => mount.rename(from.as_bytes(), to.as_bytes()),
            Self::Below(dir) => {
                let from = Self::below(dir, from);
                let renamed = std::fs::rename(&from, Self::below(dir, to));
                renamed.map_err(|error| io(&from, &error))
            }
        }
    }

    /// Removes a directory with everything in it.
    pub(crate) fn remove_all(&self, path: &str) -> Result<()> {
        match self {
            Self::Namespace(mount) => {
                for entry in self.list(path)? {
                    let path = format!("{path}/{}", entry.name);
                    if entry.is_dir {
                        self.remove_all(&path)?;
                    } else {
                        mount.unlink(path.as_bytes())?;
                    }
                }
                mount.rmdir(path.as_bytes())
            }
            Self::Below(dir) => {
                let path = Self::below(dir, path);
                std::fs::remove_dir_all(&path).map_err(|error| io(&path, &error))
            }
        }
    }

    /// The entries of a directory, in order of name.
    pub(crate) fn list(&self, path: &str) -> Result<Vec<Listed>> {
        let mut listed = Vec::new();
        match self {
            Self::Namespace(mount) => {
                let dir = calls::OpenDir::open(mount, path.as_bytes())?;
                loop {
                    let read = dir.read(LISTED_AT_ONCE)?;
                    if read.is_empty() {
                        break;
                    }
                    listed.extend(read.into_iter().map(|(name, attr)| Listed {
                        name: String::from_utf8_lossy(&name).into_owned(),
                        bytes: attr.size,
                        is_dir: attr.is_dir(),
                    }));
                }
            }
            Self::Below(dir) => {
                let path = Self::below(dir, path);
                let about = |error| io(&path, &error);
                for entry in std::fs::read_dir(&path).map_err(about)? {
                    let entry = entry.map_err(about)?;
                    let name = entry.file_name().to_string_lossy().into_owned();
                    // It may be gone since, or have another name.
                    let Ok(meta) = entry.metadata() else { continue };
                    listed.push(Listed { name, bytes: meta.size(), is_dir: meta.is_dir() });
                }
            }
        }
        listed.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(listed)
    }

    /// Makes everything durable that was changed here.
    pub(crate) fn sync(&self) -> Result<()> {
        match self {
            Self::Namespace(mount) => mount.sync(),
            Self::Below(dir) => {
                let about = |error: rustix::io::Errno| io(dir, &error.into());
                let flags = OFlags::RDONLY | OFlags::CLOEXEC;
                let dir = rustix::fs::open(dir, flags, rustix::fs::Mode::empty()).map_err(about)?;
                rustix::fs::syncfs(dir).map_err(about)
            }
        }
    }

    /// Sends pending messages to the server: closed files would count as open until it knows that
    /// this client is gone.
    ///
    /// # Errors
    /// `EBUSY` if something is open.
    pub(crate) fn finish(&self) -> Result<()> {
        match self {
            Self::Namespace(mount) => mount.finish(),
            Self::Below(_) => Ok(()),
        }
    }

    /// Has a directory of the namespace for this client alone, under a policy.
    ///
    /// # Errors
    /// `ENOTSUP` below a directory of this machine.
    pub(crate) fn decouple(&self, path: &str, policy: &str) -> Result<calls::OpenSubtree> {
        match self {
            Self::Namespace(mount) => {
                calls::OpenSubtree::decouple(mount, path.as_bytes(), Some(policy.as_bytes()))
            }
            Self::Below(_) => Err(Error::of(Errno::NotSupported, path)),
        }
    }
}

impl OpenFile {
    /// Writes all of it at a position.
    pub(crate) fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        match self {
            Self::Namespace(file, path) => file.write_at(offset, data).map_err(failed(path)),
            Self::Below(file, path) => {
                file.write_all_at(data, offset).map_err(|error| io(path, &error))
            }
        }
    }

    /// Fills the buffer from a position; fewer bytes at the end.
    pub(crate) fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        match self {
            Self::Namespace(file, path) => file.read_at(offset, buffer).map_err(failed(path)),
            Self::Below(file, path) => {
                let mut read = 0;
                while read < buffer.len() {
                    let at = offset + read as u64;
                    match file.read_at(&mut buffer[read..], at) {
                        Ok(0) => break,
                        Ok(count) => read += count,
                        Err(error) => return Err(io(path, &error)),
                    }
                }
                Ok(read)
            }
        }
    }

    /// Makes its content durable, and its name where the file system promises that.
    pub(crate) fn sync(&self) -> Result<()> {
        match self {
            Self::Namespace(file, path) => file.sync().map_err(failed(path)),
            Self::Below(file, path) => file.sync_all().map_err(|error| io(path, &error)),
        }
    }

    /// Closes the file. Returns a failed write.
    pub(crate) fn close(self) -> Result<()> {
        match self {
            Self::Namespace(file, path) => file.finish().map_err(failed(&path)),
            Self::Below(..) => Ok(()),
        }
    }
}

/// The whole of a local file; it replaces the earlier content of the buffer.
pub(crate) fn read_local(path: &Path, buffer: &mut Vec<u8>) -> Result<()> {
    buffer.clear();
    let read = File::open(path).and_then(|mut file| file.read_to_end(buffer));
    read.map(drop).map_err(|error| io(path, &error))
}

/// A path of this machine, as bytes.
pub(crate) fn bytes_of(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}
