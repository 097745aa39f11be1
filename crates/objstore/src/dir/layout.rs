//! The directory as a whole: is it a store, is it one we understand, and how to make one.
//!
//! Not here: objects. The layout is described in `docs/formats/store.md`.
//!
//! Invariant: the marker is written last, so a directory with a marker is a complete store, and a
//! directory without one is never touched unless it is empty.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, OFlags};
use rustix::io::retry_on_intr;
use types::{Errno, Error, Result};

use super::scratch;
use super::sys::{self, Flock, Sys, SysResult, explain};

/// The file that says that a directory is a store.
const MARKER: &str = "cudele-store";
/// The marker before it is complete.
const MARKER_NEW: &str = "cudele-store.new";
/// The version of the layout that this program reads and writes.
const FORMAT: u32 = 1;
/// Longer markers are not ours.
const MARKER_BYTES_MAX: usize = 4096;

const OBJECTS: &str = "objects";
const TMP: &str = "tmp";
const LOCKS: &str = "locks";

/// The directories of an open store.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) root: OwnedFd,
    pub(super) objects: OwnedFd,
    pub(super) tmp: OwnedFd,
    pub(super) locks: OwnedFd,
    /// Tells stores apart: 32 hexadecimal digits.
    pub(super) id: String,
}

impl Layout {
    /// Opens the store in `root`, or makes one there if it is missing or empty and `create` is set.
    /// `store` is its name in messages.
    pub(super) fn open(root: &Path, store: &str, create: bool) -> Result<Self> {
        let to_error = |attempted: &'static str| move |errno| explain(store, "", attempted, errno);
        if create {
            create_directories(root).map_err(to_error("create the directory"))?;
        }
        let directory = open_root(root).map_err(|errno| match errno {
            Sys::NOENT => no_store(store, "there is no such directory"),
            errno => explain(store, "", "open the directory", errno),
        })?;
        // Two processes must not both make the store, nor one sweep the beginnings of the other.
        let lock = Flock::wait(directory.as_fd()).map_err(to_error("lock the directory"))?;
        if !sys::exists(directory.as_fd(), MARKER).map_err(to_error("look for the marker"))? {
            check_unused(directory.as_fd(), store)?;
            if !create {
                return Err(no_store(store, "the directory is empty"));
            }
            initialise(directory.as_fd()).map_err(to_error("create the store"))?;
        }
        let id = read_marker(directory.as_fd(), store)?;
        let part = |name| {
            sys::open_directory(directory.as_fd(), name)
                .map_err(to_error("open a part of the store"))
        };
        // Nothing in these two outlives the processes. Tools for backups drop empty directories.
        for part in [TMP, LOCKS] {
            sys::make_directory(directory.as_fd(), part)
                .map_err(to_error("create a part of the store"))?;
        }
        let has_objects = sys::exists(directory.as_fd(), OBJECTS);
        if !has_objects.map_err(to_error("open a part of the store"))? {
            let cause = format!("the folder {OBJECTS:?} of the store is missing");
            return Err(Error::new(Errno::BadMessage, store, cause)
                .remedy("all data was in this folder: bring it back from a backup"));
        }
        let (objects, tmp, locks) = (part(OBJECTS)?, part(TMP)?, part(LOCKS)?);
        scratch::sweep(tmp.as_fd());
        drop(lock);
        Ok(Self { root: directory, objects, tmp, locks, id })
    }
}

fn open_root(root: &Path) -> SysResult<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    retry_on_intr(|| rustix::fs::openat(CWD, root, flags, rustix::fs::Mode::empty()))
}

/// Makes a directory and those above it, durably.
fn create_directories(path: &Path) -> SysResult<()> {
    let missing: Vec<&Path> = path
        .ancestors()
        .take_while(|path| !path.as_os_str().is_empty() && !path.exists())
        .collect();
    for directory in missing.into_iter().rev() {
        let mode = rustix::fs::Mode::from_raw_mode(0o700);
        match retry_on_intr(|| rustix::fs::mkdir(directory, mode)) {
            Ok(()) | Err(Sys::EXIST) => {}
            Err(errno) => return Err(errno),
        }
        let parent = directory.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = open_root(parent.unwrap_or(Path::new(".")))?;
        retry_on_intr(|| rustix::fs::fsync(&parent))?;
    }
    Ok(())
}

fn no_store(store: &str, cause: &str) -> Error {
    Error::new(Errno::NotFound, store, cause).remedy("check the path, or create a store there")
}

/// Rejects a directory with any entries but the leftovers of a crash in [`initialise`], or those of
/// a new file system.
fn check_unused(root: BorrowedFd<'_>, store: &str) -> Result<()> {
    let to_error = |errno| explain(store, "", "read the directory", errno);
    for sys::Entry { name: entry, .. } in sys::entries(root, "").map_err(to_error)? {
        let harmless = match entry.as_slice() {
            b"lost+found" => true,
            name if name == MARKER_NEW.as_bytes() => true,
            name if [OBJECTS, TMP, LOCKS].map(str::as_bytes).contains(&name) => {
                let name = String::from_utf8_lossy(name);
                sys::entries(root, &name).is_ok_and(|inside| inside.is_empty())
            }
            _ => false,
        };
        if !harmless {
            let entry = String::from_utf8_lossy(&entry).into_owned();
            let cause = format!("not a Cudele store, and not empty: it holds {entry:?}");
            return Err(
                Error::new(Errno::Invalid, store, cause).remedy("name an empty or a new directory")
            );
        }
    }
    Ok(())
}

fn initialise(root: BorrowedFd<'_>) -> SysResult<()> {
    for part in [OBJECTS, TMP, LOCKS] {
        sys::make_directory(root, part)?;
    }
    let marker = format!("{MARKER} {FORMAT}\nid {:032x}\n", random_id()?);
    let file = sys::open(root, MARKER_NEW, OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC)?;
    sys::write_at(&file, marker.as_bytes(), 0)?;
    retry_on_intr(|| rustix::fs::fdatasync(&file))?;
    retry_on_intr(|| rustix::fs::renameat(root, MARKER_NEW, root, MARKER))?;
    retry_on_intr(|| rustix::fs::fsync(root))
}

fn random_id() -> SysResult<u128> {
    let mut id = [0; 16];
    getrandom::fill(&mut id).map_err(|_| Sys::IO)?;
    Ok(u128::from_le_bytes(id))
}

/// Returns the store's id.
fn read_marker(root: BorrowedFd<'_>, store: &str) -> Result<String> {
    let bytes = sys::open(root, MARKER, OFlags::RDONLY)
        .and_then(|file| sys::read_at(file, 0, MARKER_BYTES_MAX))
        .map_err(|errno| explain(store, "", "read the marker", errno))?;
    let damaged = || {
        Error::new(Errno::BadMessage, store, format!("the file {MARKER} is damaged"))
            .remedy("restore it from a backup, or name another directory")
    };
    let text = String::from_utf8(bytes).map_err(|_| damaged())?;
    let mut lines = text.lines();
    let format = lines.next().and_then(|line| line.strip_prefix(MARKER)?.strip_prefix(' '));
    let format: u32 = format.and_then(|format| format.parse().ok()).ok_or_else(damaged)?;
    if format != FORMAT {
        let cause = format!("the store has format {format}; this program knows format {FORMAT}");
        return Err(Error::new(Errno::NotSupported, store, cause)
            .remedy("use the version of the program that made it, or a newer one"));
    }
    let id = lines.next().and_then(|line| line.strip_prefix("id ")).ok_or_else(damaged)?;
    let is_id = id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_id { Ok(id.to_string()) } else { Err(damaged()) }
}
