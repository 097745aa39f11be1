//! The identity for which a system call is made.

use posix::Caller;
use types::{Cred, Errno, Result};

/// Work on behalf of a caller.
pub(crate) trait OnBehalf {
    /// Does something on behalf of the caller. Its further groups, which a kernel does not tell,
    /// are read from the process only if it would be refused without: that happens rarely and
    /// costs more than most requests.
    fn act<T>(&self, operation: impl FnMut(&Cred) -> Result<T>) -> Result<T>;

    /// With everything that is known about the caller, for decisions in which a group can also take
    /// something away.
    fn cred(&self) -> Cred;
}

impl OnBehalf for Caller {
    fn act<T>(&self, mut operation: impl FnMut(&Cred) -> Result<T>) -> Result<T> {
        let mut cred = Cred { uid: self.uid, gid: self.gid, groups: Vec::new() };
        match operation(&cred) {
            Err(error)
                if !cred.is_root()
                    && matches!(error.errno, Errno::Access | Errno::NotPermitted) =>
            {
                cred.groups = groups_of(self);
                if cred.groups.is_empty() { Err(error) } else { operation(&cred) }
            }
            result => result,
        }
    }

    fn cred(&self) -> Cred {
        let groups = if self.uid == 0 { Vec::new() } else { groups_of(self) };
        Cred { uid: self.uid, gid: self.gid, groups }
    }
}

/// The further groups of a caller, by the cluster's numbers.
fn groups_of(caller: &Caller) -> Vec<u32> {
    let here = groups(caller.pid);
    match caller.ids {
        Some(ids) => ids.further_groups(here),
        None => here,
    }
}

/// The further groups of a process; none if it has ended.
fn groups(pid: u32) -> Vec<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
    let status = status.unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Groups:"));
    let groups = line.unwrap_or_default().split_ascii_whitespace();
    groups.filter_map(|group| group.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_those_of_the_process() {
        let me = rustix::process::getpid().as_raw_pid().cast_unsigned();
        let known = rustix::process::getgroups().unwrap();
        let known: Vec<u32> = known.into_iter().map(rustix::process::Gid::as_raw).collect();
        assert_eq!(groups(me), known);
    }
}
