//! The identity for which a system call is made.

use crate::IdMap;

/// The process behind a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Its effective user.
    pub uid: u32,
    /// Its effective group.
    pub gid: u32,
    /// The thread.
    pub pid: u32,
    /// The translation of the further groups of the thread, if the machine has numbers of its own;
    /// user and group are the cluster's already.
    pub ids: Option<&'static IdMap>,
}

impl Caller {
    /// This process itself, for calls that need no permission any more.
    pub const SELF: Self = Self { uid: 0, gid: 0, pid: 0, ids: None };
}
