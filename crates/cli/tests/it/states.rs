//! The state of a process after a signal.

use rustix::process::Pid;

/// Whether all threads of a process that are left are in one of these states of `/proc`.
///
/// `ZX` means that a process has ended, whether or not its parent has waited for it: its files are
/// closed and its locks are gone, which its empty command line does not show yet.
pub(crate) fn are_in_state(pid: Pid, states: &str) -> bool {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())) else {
        return true;
    };
    tasks.filter_map(Result::ok).all(|task| {
        // A thread that has just ended does not matter.
        let Ok(stat) = std::fs::read_to_string(task.path().join("stat")) else { return true };
        let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
        state.is_some_and(|state| states.contains(state))
    })
}
