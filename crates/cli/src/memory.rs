//! How much memory a process that is about to start may take.

use std::fs;
use std::path::Path;

/// Bytes of memory that are free for new processes: the kernel's available memory, or the rest of
/// the limits of this process's control groups (version 2) if that is less. `None` without the
/// kernel's figures.
pub(crate) fn available() -> Option<usize> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let left = fs::read_to_string("/proc/self/cgroup").ok().and_then(|groups| left_by(&groups));
    Some(available_of(&text)?.min(left.unwrap_or(usize::MAX)))
}

/// `MemAvailable` of `/proc/meminfo`, in bytes.
fn available_of(meminfo: &str) -> Option<usize> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// The rest of the tightest limit of this process's control group and those above it, in bytes.
fn left_by(groups: &str) -> Option<usize> {
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let root = Path::new("/sys/fs/cgroup");
    let number = |path: &Path| fs::read_to_string(path).ok()?.trim().parse::<usize>().ok();
    let left = |dir: &Path| {
        let limit = number(&dir.join("memory.max"))?;
        Some(limit.saturating_sub(number(&dir.join("memory.current"))?))
    };
    let group = root.join(group);
    group.ancestors().take_while(|dir| dir.starts_with(root)).filter_map(left).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_says_what_is_available() {
        let meminfo = "MemTotal:  100 kB\nMemAvailable:      48 kB\n";
        assert_eq!(available_of(meminfo), Some(48 * 1024));
        assert_eq!(available_of("MemTotal: 100 kB\n"), None);
        assert!(available().is_none_or(|bytes| bytes > 0));
    }
}
