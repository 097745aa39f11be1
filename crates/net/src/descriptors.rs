//! How many files and sockets this process may have open, and how many of them are for peers.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// An upper limit under every limit of the system: each connection takes memory.
const CONNECTIONS_MAX: usize = 1 << 16;
/// Descriptors that a daemon keeps for everything else: objects and locks of the store, sockets to
/// a Ceph cluster, the monitor, logs.
const RESERVE: usize = 320;

/// Raises the soft limit of open files to the hard limit, as far as the system allows it.
pub fn raise() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        // Under a lower limit the daemon serves fewer peers, and names the limit in its refusal.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    }
}

/// How many connections leave enough descriptors for everything else.
pub(crate) fn connections_max() -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    // Below twice the reserve, peers get half of the descriptors.
    limit.saturating_sub(RESERVE.min(limit / 2)).clamp(1, CONNECTIONS_MAX)
}
