//! A view of the machine's file systems that only this process and those it starts have.

use std::path::Path;

use cudele::{Errno, Error, Result};
use rustix::mount::{MountFlags, MountPropagationFlags, mount_bind, mount_change};
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// From here on only this process and those that it starts see its mounts. Must be called before
/// any thread is started.
///
/// # Errors
/// `EPERM` where the system does not let users have views of their own.
pub(crate) fn enter() -> std::io::Result<()> {
    let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
    if !user.is_root() {
        unshare(UnshareFlags::NEWUSER)?;
        // The same user and group inside as outside.
        std::fs::write("/proc/self/setgroups", "deny")?;
        std::fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
        std::fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
    }
    unshare(UnshareFlags::NEWNS)?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    Ok(mount_change("/", private)?)
}

#[allow(unsafe_code, reason = "the one system call for it; no descriptor table is shared")]
fn unshare(flags: UnshareFlags) -> std::io::Result<()> {
    // SAFETY: FILES is not among the flags, so descriptors stay those of the whole process.
    Ok(unsafe { unshare_unsafe(flags) }?)
}

/// Shows a directory also at another place.
pub(crate) fn show(dir: &Path, at: &Path) -> Result<()> {
    mount_bind(dir, at).map_err(|error| refused(at, error, "the directory cannot be shown there"))
}

/// Mounts an empty file system in memory on a directory.
pub(crate) fn scratch(at: &Path) -> Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    let mounted = rustix::mount::mount("cudele", at, "tmpfs", flags, c"size=1m,mode=755");
    mounted.map_err(|error| refused(at, error, "no empty directory can be shown there"))
}

/// Makes a mount of [`scratch`] read-only.
pub(crate) fn make_read_only(at: &Path) -> Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::RDONLY;
    let changed = rustix::mount::mount_remount(at, flags | MountFlags::BIND, c"");
    changed.map_err(|error| refused(at, error, "it cannot be made read-only"))
}

fn refused(at: &Path, error: rustix::io::Errno, what: &str) -> Error {
    let errno = u16::try_from(error.raw_os_error()).map_or(Errno::Io, Errno::from_code);
    Error::new(errno, at.display().to_string(), format!("{what}: {error}"))
}
