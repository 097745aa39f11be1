//! The identity of the process at the other end, as the kernel tells it.
//!
//! For a Unix socket these are the user and the groups that the process had when it connected,
//! outside of its user namespace: root of a namespace of its own is the user who made the
//! namespace. A process of root, or of the user of this process, speaks for every user.
//!
//! Over TCP a key tells it ([`keys`]). A peer at an address `plain:` speaks for every user: such
//! addresses are for one machine and must be asked for by name.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use rustix::net::sockopt;
use types::{Cred, Peer};

use crate::address::Stream;

/// Groups that fit at first.
const GROUPS: usize = 32;

/// The peer of a connection that was accepted.
///
/// # Errors
/// If the kernel does not say.
pub(crate) fn of(stream: &Stream) -> io::Result<Peer> {
    let Stream::Unix(stream) = stream else { return Ok(Peer::Trusted) };
    let known = sockopt::socket_peercred(stream)?;
    let (uid, gid) = (known.uid.as_raw(), known.gid.as_raw());
    if uid == 0 || uid == rustix::process::geteuid().as_raw() {
        return Ok(Peer::Trusted);
    }
    Ok(Peer::User(Cred { uid, gid, groups: groups(stream)? }))
}

/// The supplementary groups of the peer (`SO_PEERGROUPS`).
#[allow(unsafe_code, reason = "no library offers this option of a socket")]
fn groups(stream: &UnixStream) -> io::Result<Vec<u32>> {
    let mut groups = vec![0u32; GROUPS];
    loop {
        let bytes = size_of_val(groups.as_slice());
        let mut length = libc::socklen_t::try_from(bytes).map_err(io::Error::other)?;
        // SAFETY: the kernel writes at most `length` bytes, and `groups` has as many.
        let done = unsafe {
            libc::getsockopt(
                stream.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        let count = usize::try_from(length).map_err(io::Error::other)? / size_of::<u32>();
        if done == 0 {
            groups.truncate(count);
            return Ok(groups);
        }
        let error = io::Error::last_os_error();
        // The list is longer, and `length` says how long.
        if error.raw_os_error() != Some(libc::ERANGE) || count <= groups.len() {
            return Err(error);
        }
        groups.resize(count, 0);
    }
}
