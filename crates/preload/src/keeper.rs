//! Requests to the process that keeps the region. They go over a socket, one connection each.

use std::ffi::{c_int, c_void};

use jobtree::{Denied, Description, Inode, KeeperRequest};

use crate::job::Job;
use crate::real;

/// Asks, and waits. Returns an error number or 0, and a descriptor that came with the answer.
fn ask(job: &Job, request: KeeperRequest, about: u64) -> (c_int, Option<c_int>) {
    // SAFETY: plain system calls with memory of this function.
    unsafe {
        let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
        let socket = crate::real::sys!(libc::SYS_socket, libc::AF_UNIX, kind, 0) as c_int;
        if socket < 0 {
            return (real::errno(), None);
        }
        let answer = converse(job, socket, request, about);
        crate::real::sys!(libc::SYS_close, socket);
        answer
    }
}

/// # Safety
/// `socket` is a new socket.
unsafe fn converse(
    job: &Job,
    socket: c_int,
    request: KeeperRequest,
    about: u64,
) -> (c_int, Option<c_int>) {
    let mut address = libc::sockaddr_un { sun_family: libc::AF_UNIX as u16, sun_path: [0; 108] };
    let name = job.socket();
    // An abstract name: it begins with a zero byte, and has no file.
    for (place, byte) in address.sun_path[1..].iter_mut().zip(name) {
        *place = *byte as _;
    }
    let len = size_of::<u16>() + 1 + name.len().min(107);
    let message = request.message(about);
    // SAFETY: all pointers are to live values of the stated sizes.
    unsafe {
        let at = std::ptr::from_ref(&address).cast::<c_void>();
        if crate::real::sys!(libc::SYS_connect, socket, at, len) != 0 {
            return (libc::EIO, None);
        }
        let sent = crate::real::sys!(
            libc::SYS_sendto,
            socket,
            message.as_ptr(),
            message.len(),
            libc::MSG_NOSIGNAL,
            0,
            0
        );
        if sent != message.len() as libc::c_long {
            return (libc::EIO, None);
        }
        receive(socket)
    }
}

/// # Safety
/// `socket` is connected.
unsafe fn receive(socket: c_int) -> (c_int, Option<c_int>) {
    let mut status = [0_u8; 4];
    let mut control = [0_u64; 8];
    let mut part = libc::iovec { iov_base: status.as_mut_ptr().cast(), iov_len: 4 };
    // SAFETY: all pointers are to live values of the stated sizes; control messages are parsed as
    // cmsg(3) says.
    unsafe {
        let mut header: libc::msghdr = std::mem::zeroed();
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = size_of_val(&control) as _;
        loop {
            let flags = libc::MSG_CMSG_CLOEXEC;
            let got = crate::real::sys!(libc::SYS_recvmsg, socket, &raw mut header, flags);
            if got == 4 {
                break;
            }
            if got >= 0 || real::errno() != libc::EINTR {
                return (libc::EIO, None);
            }
        }
        let first = libc::CMSG_FIRSTHDR(&raw const header);
        let has_one = !first.is_null()
            && (*first).cmsg_level == libc::SOL_SOCKET
            && (*first).cmsg_type == libc::SCM_RIGHTS;
        let descriptor = has_one.then(|| libc::CMSG_DATA(first).cast::<c_int>().read_unaligned());
        (c_int::from_ne_bytes(status), descriptor)
    }
}

/// A call was not answered from the region. Returns whether it is to be repeated; otherwise the
/// error is set.
#[cold]
pub(crate) fn again(job: &Job, denied: Denied) -> bool {
    let asked = match denied {
        Denied::Errno(errno) => errno,
        Denied::Closed => return true,
        Denied::Numbers => match ask(job, KeeperRequest::Numbers, 0).0 {
            0 => return true,
            _ => ask(job, KeeperRequest::Close, 0).0,
        },
        Denied::Unable => ask(job, KeeperRequest::Close, 0).0,
    };
    let repeat = asked == 0 && !matches!(denied, Denied::Errno(_));
    if !repeat {
        real::set_errno(asked);
    }
    repeat
}

/// The region is closed when this returns, unless the keeper is gone.
#[cold]
pub(crate) fn close(job: &Job) -> bool {
    ask(job, KeeperRequest::Close, 0).0 == 0
}

/// A descriptor of the kernel for a description of the region.
#[cold]
pub(crate) fn descriptor(job: &Job, description: Description) -> Result<c_int, c_int> {
    match ask(job, KeeperRequest::Descriptor, description.0) {
        (0, Some(descriptor)) => Ok(descriptor),
        (0, None) => Err(libc::EIO),
        (errno, _) => Err(errno),
    }
}

/// Makes the content of a stand-in as durable as the policy promises.
#[cold]
pub(crate) fn sync(job: &Job, inode: Inode) -> Result<(), c_int> {
    match ask(job, KeeperRequest::Sync, inode.0).0 {
        0 => Ok(()),
        errno => Err(errno),
    }
}
