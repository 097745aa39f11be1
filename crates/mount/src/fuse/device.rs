//! The device `/dev/fuse`, and mounting it.
//!
//! The type of a mount is `fuse.cudele`: for the bare type `fuse`, `mount(8)` runs the source as a
//! shell command.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::mount::MountFlags;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};

use super::reply::Out;
use crate::MountOptions;

const DEVICE: &str = "/dev/fuse";
const TYPE: &str = "fuse.cudele";

/// The set-user-id program that mounts for users other than root.
const HELPER: &str = "fusermount3";

/// An open `/dev/fuse`. Threads may read and write it at the same time.
#[derive(Debug)]
pub(super) struct Device(OwnedFd);

impl Device {
    pub(super) fn new(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// Reads the next request; an error after the unmount.
    pub(super) fn read(&self, buffer: &mut [u8]) -> Result<usize, rustix::io::Errno> {
        use rustix::io::Errno;
        loop {
            match rustix::io::read(&self.0, &mut *buffer) {
                // The kernel withdrew the request, or a signal interrupted this thread.
                Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => {}
                result => return result,
            }
        }
    }

    /// Sends a reply or a notification. Returns false if the kernel does not want it any more.
    pub(super) fn write(&self, unique: u64, code: i32, out: &mut Out) -> bool {
        self.send(unique, code, out).is_ok()
    }

    /// The same.
    ///
    /// # Errors
    /// `ENOENT` for a request that the kernel has withdrawn; all requests are, by an unmount.
    pub(super) fn send(
        &self,
        unique: u64,
        code: i32,
        out: &mut Out,
    ) -> Result<(), rustix::io::Errno> {
        rustix::io::write(&self.0, out.finish(unique, code)).map(drop)
    }
}

impl AsRawFd for Device {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Mounts the file system on a directory, and returns the device.
///
/// # Errors
/// As mount(2), or the helper's message.
pub(crate) fn mount(at: &Path, source: &str, options: &MountOptions) -> io::Result<OwnedFd> {
    let at = at.canonicalize()?;
    let mode = File::open(&at)?.metadata()?.permissions().mode();
    let device = File::options().read(true).write(true).open(DEVICE)?;
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let fd = device.as_raw_fd();
    let mut data = format!("fd={fd},rootmode={mode:o},user_id={uid},group_id={gid}");
    if options.ids.all.is_none() {
        data.push_str(",default_permissions");
    }
    if options.allow_other {
        data.push_str(",allow_other");
    }
    let data = CString::new(data)?;
    match rustix::mount::mount(source, &at, TYPE, flags(options), data.as_c_str()) {
        Ok(()) => Ok(device.into()),
        Err(rustix::io::Errno::PERM) => mount_as_user(&at, source, options),
        Err(error) => Err(error.into()),
    }
}

pub(crate) fn flags(options: &MountOptions) -> MountFlags {
    let is_wanted = [
        (options.read_only, MountFlags::RDONLY),
        (!options.devices, MountFlags::NODEV),
        (!options.set_id, MountFlags::NOSUID),
        (options.no_exec, MountFlags::NOEXEC),
        (options.atime == posix::Atime::Never, MountFlags::NOATIME),
    ];
    let wanted = is_wanted.into_iter().filter(|(is_wanted, _)| *is_wanted);
    wanted.fold(MountFlags::empty(), |flags, (_, flag)| flags | flag)
}

/// The mount options in the helper's form.
fn list(source: &str, options: &MountOptions) -> String {
    let source = source.replace('\\', "\\\\").replace(',', "\\,");
    let on = |wanted, yes, no| if wanted { yes } else { no };
    let mut list = vec![
        format!("fsname={source}"),
        "subtype=cudele".to_owned(),
        on(options.read_only, "ro", "rw").to_owned(),
        on(options.devices, "dev", "nodev").to_owned(),
        on(options.set_id, "suid", "nosuid").to_owned(),
        on(options.no_exec, "noexec", "exec").to_owned(),
    ];
    if options.ids.all.is_none() {
        list.push("default_permissions".to_owned());
    }
    if options.atime == posix::Atime::Never {
        list.push("noatime".to_owned());
    }
    if options.allow_other {
        list.push("allow_other".to_owned());
    }
    list.join(",")
}

/// Mounts through the helper, which sends the device over the socket that is its standard input.
fn mount_as_user(at: &Path, source: &str, options: &MountOptions) -> io::Result<OwnedFd> {
    let (ours, helpers) = UnixStream::pair()?;
    let mut command = Command::new(HELPER);
    command.arg("-o").arg(list(source, options)).arg("--").arg(at);
    command.env("_FUSE_COMMFD", "0").stdin(OwnedFd::from(helpers));
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    // The command holds the helper's end of the socket, which must close when the helper ends.
    drop(command);
    let received = receive(&ours);
    let said = child.wait_with_output()?;
    match received? {
        Some(device) => Ok(device),
        None => {
            let said = String::from_utf8_lossy(&said.stderr).trim().to_owned();
            let is_forbidden = said.contains("user_allow_other");
            let kind =
                if is_forbidden { io::ErrorKind::PermissionDenied } else { io::ErrorKind::Other };
            Err(io::Error::new(kind, said))
        }
    }
}

fn receive(socket: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut parts = [io::IoSliceMut::new(&mut byte)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    rustix::net::recvmsg(socket.as_fd(), &mut parts, &mut control, flags)?;
    let mut received = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut files) = message {
            received = files.next();
        }
    }
    Ok(received)
}
