//! Mounting and unmounting.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use posix::{FileSystem, KnownInode};
use types::{Errno, Error, Ino, Result};

use crate::adapter::{Adapter, number};
use crate::fuse::{self, Awake, Notifier, READ_AHEAD_KIB, Session, Setup, device};
use crate::{MountMeter, MountOptions};

/// A file system that is mounted. Dropping it unmounts it.
#[derive(Debug)]
pub struct Mounted {
    fs: Arc<dyn FileSystem>,
    at: PathBuf,
    session: Option<Session>,
}

/// Mounts a file system on a directory; `mount(8)` shows `source` as its device.
///
/// # Errors
/// `EACCES` or `EPERM` without the right to mount, `ENOENT` if there is no such directory or no
/// `/dev/fuse`.
pub fn mount(
    fs: Arc<dyn FileSystem>,
    at: &Path,
    source: &str,
    options: &MountOptions,
) -> Result<Mounted> {
    mount_measured(fs, at, source, options, None)
}

/// The same with a meter for the requests of the kernel.
///
/// # Errors
/// As [`mount`].
pub fn mount_measured(
    fs: Arc<dyn FileSystem>,
    at: &Path,
    source: &str,
    options: &MountOptions,
    meter: Option<Arc<MountMeter>>,
) -> Result<Mounted> {
    let (forget, outdated) = channel();
    // For the life of the process, which has one mount, or a few.
    let ids = (!options.ids.is_empty()).then(|| &*Box::leak(Box::new(options.ids)));
    let (adapter, root) = (Adapter::new(fs.clone(), forget.clone(), ids), fs.root());
    let features = fs.features();
    let awake = options.latency_us.map(Awake::new).transpose()?;
    let device = device::mount(at, source, options).map_err(|error| mount_error(at, &error))?;
    let (threads, io_uring) = (options.threads, options.io_uring != Some(false));
    let setup = Setup { at, features, threads, awake, meter, io_uring };
    let session = fuse::start(device, adapter, setup).map_err(|error| {
        let _ = unmount(at, true);
        mount_error(at, &error)
    });
    let (session, notifier) = session?;
    // An error from here on unmounts it.
    let mounted = Mounted { fs, at: at.to_owned(), session: Some(session) };
    if options.io_uring == Some(true) && !mounted.uses_io_uring() {
        return Err(without_io_uring());
    }
    read_ahead(at);
    // After an unmount, the receiver is gone and the kernel has no caches to invalidate.
    mounted.fs.clone().start(Box::new(move |known| drop(forget.send(known))))?;
    std::thread::Builder::new()
        .name("forgetter".to_owned())
        .spawn(move || notify_kernel(&notifier, root, &outdated))
        .map_err(|error| mount_error(at, &error))?;
    Ok(mounted)
}

/// Sets the read-ahead of the kernel to the size of several transfers. Only root may do so; for
/// other users the kernel reads less at a time.
fn read_ahead(at: &Path) {
    let Ok(stat) = rustix::fs::stat(at) else { return };
    let (major, minor) = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
    let setting = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    let _ = std::fs::write(setting, READ_AHEAD_KIB.to_string());
}

/// Tells the kernel which cached entries to drop, on a thread of its own: the kernel may hold the
/// locks of the same inodes while it waits for an answer about them.
fn notify_kernel(notifier: &Notifier, root: Ino, outdated: &Receiver<Vec<KnownInode>>) {
    use std::os::unix::ffi::OsStrExt;
    while let Ok(batch) = outdated.recv() {
        for known in batch {
            // The kernel may have dropped an entry already, which is no error.
            let name = std::ffi::OsStr::from_bytes(&known.name);
            if !name.is_empty() {
                let _ = notifier.forget_name(number(root, known.parent), name);
            }
            notifier.forget_inode(number(root, known.ino));
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

fn without_io_uring() -> Error {
    let cause = "cannot mount: the kernel offers no requests over io_uring";
    let remedy = "have root write Y to /sys/module/fuse/parameters/enable_uring (Linux 6.14), and \
                  mount again; or mount without this option";
    Error::new(Errno::NotSupported, "io_uring", cause).remedy(remedy)
}

impl Mounted {
    /// Where it is mounted.
    #[must_use]
    pub fn at(&self) -> &Path {
        &self.at
    }

    /// Whether it is still mounted: a user may have unmounted it.
    #[must_use]
    pub fn is_mounted(&self) -> bool {
        self.session.as_ref().is_some_and(|session| !session.is_over())
    }

    /// Whether requests come over io_uring.
    #[must_use]
    pub fn uses_io_uring(&self) -> bool {
        self.session.as_ref().is_some_and(Session::uses_io_uring)
    }

    /// Waits until a user unmounts it.
    ///
    /// # Errors
    /// `EIO` if written content cannot be reported to the server.
    pub fn wait(mut self) -> Result<()> {
        if let Some(session) = self.session.take() {
            // Ends when the kernel says that nothing is mounted any more.
            session.wait();
        }
        self.fs.finish()
    }

    /// Unmounts it.
    ///
    /// # Errors
    /// `EBUSY` if files are open in it; `EIO` if written content cannot be reported to the server.
    pub fn unmount(self) -> Result<()> {
        unmount(&self.at, false)?;
        self.wait()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // No caller can receive the error. Open files keep the mount alive until they are closed.
        if self.session.is_some() {
            let _ = unmount(&self.at, true);
        }
    }
}

/// Changes the flags of a mount in use (`ro`, `dev`, `suid`, `noexec`, `noatime`). Flags that the
/// lists do not name stay, and so do all other options.
///
/// # Errors
/// `EINVAL` if nothing of this program is mounted there or an option is unknown; `EPERM`.
pub fn remount(at: &Path, lists: &[String]) -> Result<()> {
    let place = || at.display().to_string();
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mount = table
        .lines()
        .rev()
        .find(|line| line.split(' ').nth(4) == at.to_str() && line.contains(" - fuse.cudele "));
    let present = mount.and_then(|line| line.split(' ').nth(5)).ok_or_else(|| {
        Error::new(Errno::Invalid, place(), "cannot remount: no mount of cudele is here")
            .remedy("`cudele mount` mounts; `findmnt -t fuse.cudele` lists all mounts")
    })?;
    let mut options = MountOptions { devices: true, set_id: true, ..MountOptions::default() };
    options.parse(present)?;
    lists.iter().try_for_each(|list| options.parse(list))?;
    rustix::mount::mount_remount(at, device::flags(&options), c"").map_err(|error| {
        let errno = u16::try_from(error.raw_os_error()).map_or(Errno::Io, Errno::from_code);
        Error::new(errno, place(), format!("cannot remount: {error}"))
    })
}

/// Unmounts a directory; `lazy` also if files are open in it: then it is free at once, and the
/// mount ends when they are closed.
///
/// # Errors
/// `EBUSY` if files are open in it, `EINVAL` if nothing is mounted there, `EPERM` without the right
/// or without `fusermount3`, `ENOENT`.
pub fn unmount(at: &Path, lazy: bool) -> Result<()> {
    use rustix::mount::UnmountFlags;
    let flags = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match rustix::mount::unmount(at, flags | UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::PERM) => unmount_as_user(at, lazy),
        Err(error) => {
            let errno = u16::try_from(error.raw_os_error()).map_or(Errno::Io, Errno::from_code);
            Err(unmount_error(at, errno, &error.to_string()))
        }
    }
}

fn unmount_error(at: &Path, errno: Errno, why: &str) -> Error {
    let remedy = if errno == Errno::Busy {
        "end the programs that use it, or detach it with `cudele umount --lazy`"
    } else if errno == Errno::Invalid {
        "nothing is mounted there; `cudele mount` mounts"
    } else if errno == Errno::NotFound {
        "name the directory of a mount"
    } else {
        "only who mounted it, or root, can unmount it"
    };
    Error::new(errno, at.display().to_string(), format!("cannot unmount: {why}")).remedy(remedy)
}

/// Users other than root unmount with the help of a program that may.
fn unmount_as_user(at: &Path, lazy: bool) -> Result<()> {
    // A user gets EPERM from the kernel before any other check.
    if !at.exists() {
        return Err(unmount_error(at, Errno::NotFound, "there is no such directory"));
    }
    if !crate::table::is_mount_point(at) {
        return Err(unmount_error(at, Errno::Invalid, "it is not a mount point"));
    }
    let mut command = std::process::Command::new("fusermount3");
    command.arg("-u").args(lazy.then_some("-z")).arg(at).env("LC_ALL", "C");
    let output = command.output().map_err(|error| {
        unmount_error(at, Errno::NotPermitted, &format!("fusermount3 cannot be run: {error}"))
            .remedy("install it (Debian's package fuse3), or act as root")
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let errno = if said.contains("busy") { Errno::Busy } else { Errno::NotPermitted };
    Err(unmount_error(at, errno, &said))
}
