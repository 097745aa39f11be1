//! The signals of a thread that waits for an answer, as procfs shows them.

use std::fs;

/// Signals that ask a program to end: SIGHUP, SIGINT, SIGQUIT, SIGKILL and SIGTERM. The kernel adds
/// SIGKILL to every other signal that is fatal. Handlers of timers and children must not make
/// system calls fail: `git` has a timer for its progress and treats `EINTR` from stat(2) as an
/// error.
const ENDING: &[u32] = &[1, 2, 3, 9, 15];
/// The flag of a process that exits (`PF_EXITING`).
const EXITING: i64 = 4;
/// The bits of an exit status that hold a signal.
const SIGNALLED: i64 = 0x7f;
/// Numbers of fields of `/proc/PID/stat`, and of the first field behind the program's name.
const STAT_FIRST: usize = 3;
const STAT_FLAGS: usize = 9;
const STAT_EXIT_CODE: usize = 52;

/// Whether a signal is pending that the thread neither blocks nor ignores. A thread outside of this
/// PID namespace counts as signalled. Every signal ends a lock wait, as POSIX demands.
pub(super) fn has_signal(thread: u32, is_lock: bool) -> bool {
    let Ok(status) = fs::read_to_string(format!("/proc/{thread}/status")) else { return true };
    let set = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
    };
    let ending = ENDING.iter().fold(0, |mask, signal| mask | 1 << (signal - 1));
    let relevant = if is_lock { u64::MAX } else { ending };
    let waiting = set("SigPnd:") | set("ShdPnd:");
    waiting & !set("SigBlk:") & !set("SigIgn:") & relevant != 0
}

/// Whether a signal killed a thread, which closes its files now. A process that exits of its own
/// accord waits: other clients must see its content when it has ended.
pub(super) fn was_killed(thread: u32) -> bool {
    // A process that executes another program closes files, too, and a read of its `stat` would
    // wait for that. Unlike a process that exits, it has memory.
    let Ok(status) = fs::read_to_string(format!("/proc/{thread}/status")) else { return true };
    if status.lines().any(|line| line.starts_with("VmSize:")) {
        return false;
    }
    let Ok(stat) = fs::read_to_string(format!("/proc/{thread}/stat")) else { return true };
    // The program's name is in parentheses and may contain spaces and parentheses.
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let field = |number: usize| {
        let field = rest.split_ascii_whitespace().nth(number - STAT_FIRST);
        field.and_then(|field| field.parse::<i64>().ok()).unwrap_or_default()
    };
    field(STAT_FLAGS) & EXITING != 0 && field(STAT_EXIT_CODE) & SIGNALLED != 0
}
