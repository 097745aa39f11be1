//! The identity for which a system call is made.

use types::{Cred, Errno, Result};

/// The process behind a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Its effective user.
    pub uid: u32,
    /// Its effective group.
    pub gid: u32,
    /// The thread.
    pub pid: u32,
}

impl Caller {
    /// This process itself, for calls that need no permission any more.
    pub const SELF: Self = Self { uid: 0, gid: 0, pid: 0 };

    /// Does something on behalf of the caller. Its further groups, which a kernel does not tell,
    /// are read from the process only if it would be refused without: that happens rarely and
    /// costs more than most requests.
    pub(crate) fn act<T>(&self, mut operation: impl FnMut(&Cred) -> Result<T>) -> Result<T> {
        let mut cred = Cred { uid: self.uid, gid: self.gid, groups: Vec::new() };
        match operation(&cred) {
            Err(error)
                if !cred.is_root()
                    && matches!(error.errno, Errno::Access | Errno::NotPermitted) =>
            {
                cred.groups = self.groups();
                if cred.groups.is_empty() { Err(error) } else { operation(&cred) }
            }
            result => result,
        }
    }

    /// With everything that is known about the caller, for decisions in which a group can also take
    /// something away.
    pub(crate) fn cred(&self) -> Cred {
        let groups = if self.uid == 0 { Vec::new() } else { self.groups() };
        Cred { uid: self.uid, gid: self.gid, groups }
    }

    /// Further groups; none if the process has ended.
    fn groups(&self) -> Vec<u32> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid));
        let status = status.unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("Groups:"));
        let groups = line.unwrap_or_default().split_ascii_whitespace();
        groups.filter_map(|group| group.parse().ok()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_those_of_the_process() {
        let me =
            Caller { uid: 1, gid: 1, pid: rustix::process::getpid().as_raw_pid().cast_unsigned() };
        let known = rustix::process::getgroups().unwrap();
        let known: Vec<u32> = known.into_iter().map(rustix::process::Gid::as_raw).collect();
        assert_eq!(me.groups(), known);
    }
}
