//! Mounting and unmounting.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use cudele::{Errno, Error, Result};
use fuser::{BackgroundSession, Notifier, Session};
use vfs::{Ending, Known, Vfs};

use crate::filesystem::{Filesystem, number};
use crate::{Options, kernel};

/// A file system that is mounted. Dropping it unmounts it.
#[derive(Debug)]
pub struct Mounted {
    vfs: Arc<Vfs>,
    at: PathBuf,
    session: Option<BackgroundSession>,
    forget: Option<Sender<Vec<Known>>>,
}

/// Mounts a file system on a directory; `source` is what `mount(8)` shows as its device.
///
/// # Errors
/// `EACCES` or `EPERM` without the right to mount, `ENOENT` if there is no such directory or no
/// `/dev/fuse`.
pub fn mount(vfs: Arc<Vfs>, at: &Path, source: &str, options: &Options) -> Result<Mounted> {
    let config = kernel::config(source, options);
    let (forget, outdated) = channel();
    let filesystem = Filesystem::new(vfs.clone(), forget.clone());
    let session = Session::new(filesystem, at, &config).and_then(Session::spawn);
    let session = session.map_err(|error| mount_error(at, &error))?;
    read_ahead(at);
    vfs.write_back_regularly()?;
    let notifier = session.notifier();
    let root = vfs.root();
    let (shared, outdated_now) = (Arc::downgrade(&vfs), forget.clone());
    vfs.share(move || {
        if let Some(vfs) = shared.upgrade() {
            let _ = outdated_now.send(vfs.take_outdated());
        }
    })?;
    std::thread::Builder::new()
        .name("forgetter".to_owned())
        .spawn(move || tell_kernel(&notifier, root, &outdated))
        .map_err(|error| mount_error(at, &error))?;
    Ok(Mounted { vfs, at: at.to_owned(), session: Some(session), forget: Some(forget) })
}

/// Lets the kernel ask for as much at once as it may, which it does not of its own accord. Only root
/// may say so; for others it reads less at a time.
fn read_ahead(at: &Path) {
    let Ok(stat) = rustix::fs::stat(at) else { return };
    let (major, minor) = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
    let setting = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    let _ = std::fs::write(setting, kernel::READ_AHEAD_KIB.to_string());
}

/// Tells the kernel what it must forget. In a thread of its own: the kernel may hold the very
/// inodes while it waits for an answer about them.
fn tell_kernel(notifier: &Notifier, root: cudele::Ino, outdated: &Receiver<Vec<Known>>) {
    use std::os::unix::ffi::OsStrExt;
    while let Ok(batch) = outdated.recv() {
        for known in batch {
            // What the kernel has forgotten already is not there any more.
            let name = std::ffi::OsStr::from_bytes(&known.name);
            if !name.is_empty() {
                let _ = notifier.inval_entry(number(root, known.parent), name);
            }
            let _ = notifier.inval_inode(number(root, known.ino), 0, 0);
        }
    }
}

pub(crate) fn mount_error(at: &Path, error: &std::io::Error) -> Error {
    let errno = error.raw_os_error().and_then(|code| u16::try_from(code).ok());
    let errno = errno.map_or(Errno::Io, Errno::from_code);
    let remedy = "mounting needs /dev/fuse, an existing directory, and either root or fusermount3 \
                  (Debian's package fuse3)";
    Error::new(errno, at.display().to_string(), format!("cannot mount: {error}")).remedy(remedy)
}

impl Mounted {
    /// The file system.
    #[must_use]
    pub fn vfs(&self) -> &Arc<Vfs> {
        &self.vfs
    }

    /// Where it is mounted.
    #[must_use]
    pub fn at(&self) -> &Path {
        &self.at
    }

    /// Whether it is still mounted: somebody may have unmounted it from outside.
    #[must_use]
    pub fn is_mounted(&self) -> bool {
        self.session.as_ref().is_some_and(|session| !session.guard.is_finished())
    }

    /// Ends the work in a decoupled subtree ([`Vfs::end`]); the kernel forgets what it knew of it.
    ///
    /// # Errors
    /// As [`Vfs::end`].
    pub fn end(&self, root: cudele::Ino, ending: Ending) -> Result<cudele::Completion> {
        let done = self.vfs.end(root, ending);
        if let Some(forget) = &self.forget {
            let _ = forget.send(self.vfs.take_outdated());
        }
        done
    }

    /// Waits until somebody unmounts it.
    ///
    /// # Errors
    /// `EIO` if what was written cannot be told to the server.
    pub fn wait(mut self) -> Result<()> {
        if let Some(session) = self.session.take() {
            // Ends when the kernel says that nothing is mounted any more.
            let _ = session.join();
        }
        self.finish()
    }

    /// Unmounts it.
    ///
    /// # Errors
    /// `EBUSY` if files are open in it; `EIO` if what was written cannot be told to the server.
    pub fn unmount(self) -> Result<()> {
        unmount(&self.at, false)?;
        self.wait()
    }

    fn finish(&mut self) -> Result<()> {
        self.forget = None;
        self.vfs.write_back_all()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Nobody is there to be told. What is still open keeps the mount alive until it is closed.
        if self.session.is_some() {
            let _ = unmount(&self.at, true);
        }
        self.forget = None;
    }
}

/// Unmounts a directory; `lazy` also if files are open in it: then it is free at once, and the
/// mount ends when they are closed.
///
/// # Errors
/// `EBUSY` if files are open in it, `EINVAL` if nothing is mounted there, `EPERM`.
pub fn unmount(at: &Path, lazy: bool) -> Result<()> {
    use rustix::mount::UnmountFlags;
    let flags = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    let error = match rustix::mount::unmount(at, flags | UnmountFlags::NOFOLLOW) {
        Ok(()) => return Ok(()),
        Err(rustix::io::Errno::PERM) => match unmount_as_user(at, lazy) {
            Ok(()) => return Ok(()),
            Err(error) => error,
        },
        Err(error) => error.into(),
    };
    let errno = error.raw_os_error().and_then(|code| u16::try_from(code).ok());
    let errno = errno.map_or(Errno::Io, Errno::from_code);
    let remedy = if errno == Errno::Busy {
        "end the programs that use it, or detach it with `cudele umount --lazy`"
    } else if errno == Errno::Invalid {
        "nothing is mounted there; `cudele mount` mounts"
    } else {
        "only who mounted it, or root, can unmount it"
    };
    Err(Error::new(errno, at.display().to_string(), format!("cannot unmount: {error}"))
        .remedy(remedy))
}

/// Users other than root unmount with the help of a program that may.
fn unmount_as_user(at: &Path, lazy: bool) -> std::io::Result<()> {
    let mut command = std::process::Command::new("fusermount3");
    command.arg("-u").args(lazy.then_some("-z")).arg(at);
    let status = command.stderr(std::process::Stdio::null()).status()?;
    if status.success() {
        return Ok(());
    }
    Err(std::io::Error::from_raw_os_error(i32::from(Errno::Busy.code())))
}
