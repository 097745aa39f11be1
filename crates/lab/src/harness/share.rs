//! A fixed share of a processor for processes, each in a control group of its own, of either
//! version.
//!
//! On a machine with few processors ranks would share them, and more ranks would only be more
//! processes. With a small share each, ranks limit and not the machine; and each uses its share
//! when it is its turn (`turns`).
//!
//! Invariant: dropping it, nothing is limited any more, and no group is left behind.

mod turns;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cudele::{Errno, Error, Result};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The least time of a process before it has to wait: as little as kernels allow, so that a share
/// is slow and does not stop for long. The smaller the share, the longer the period of this quota.
const QUOTA: Duration = Duration::from_millis(1);
/// Where control groups are.
const ROOT: &str = "/sys/fs/cgroup";
const REMEDY: &str = "run it as root where /sys/fs/cgroup/cpu (version 1) or /sys/fs/cgroup with \
                      the cpu controller (version 2) is writable";

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Share {
    groups: Vec<Group>,
}

/// A control group with one process.
#[derive(Debug)]
struct Group {
    dir: PathBuf,
    /// The group that the process is given back to.
    parent: PathBuf,
    pid: u32,
    first_version: bool,
    period: Duration,
    /// Its quota in a period.
    quota: Duration,
}

/// Pins this thread, and its later children, to one processor until it is dropped.
#[derive(Debug)]
pub(crate) struct OneProcessor {
    before: CpuSet,
}

impl OneProcessor {
    /// The last one that there is: interrupts mostly come to the first.
    ///
    /// # Errors
    /// `EPERM` where processors may not be chosen.
    pub(crate) fn here() -> Result<Self> {
        let failed = |error: rustix::io::Errno| failed(Path::new("processor"), &error.into());
        let before = sched_getaffinity(None).map_err(failed)?;
        let mut one = CpuSet::new();
        let last = (0..CpuSet::MAX_CPU).rfind(|cpu| before.is_set(*cpu));
        one.set(last.unwrap_or_default());
        sched_setaffinity(None, &one).map_err(failed)?;
        Ok(Self { before })
    }
}

impl Drop for OneProcessor {
    fn drop(&mut self) {
        let _ = sched_setaffinity(None, &self.before);
    }
}

impl Share {
    /// The same share for each of these, once it is imposed.
    ///
    /// # Errors
    /// `EPERM`, or the error of making a control group, with a remedy.
    pub(crate) fn of(pids: &[u32], share: f64) -> Result<Self> {
        let tick = turns::Tick::of_this_machine();
        let period = tick.period(pids.len(), QUOTA.div_f64(share));
        let mut groups = Vec::new();
        for pid in pids {
            // A failure drops the groups that were made.
            groups.push(Group::make(*pid, (period, share))?);
        }
        turns::take_turns(&groups, tick)?;
        Ok(Self { groups })
    }

    /// From now on.
    pub(crate) fn impose(&self) -> Result<()> {
        self.groups.iter().try_for_each(|group| group.limit(true))
    }

    /// Not any more.
    pub(crate) fn lift(&self) -> Result<()> {
        self.groups.iter().try_for_each(|group| group.limit(false))
    }
}

/// Fails as [`Share::of`] would.
pub(crate) fn possible() -> Result<()> {
    Group::empty(0, (QUOTA, 1.0)).map(drop)
}

/// Where groups with a share are made, and whether they are of the first version.
fn hierarchy(root: &Path) -> Option<(PathBuf, bool)> {
    let first = ["cpu", "cpu,cpuacct"].map(|name| root.join(name));
    let has = |dir: &&PathBuf| dir.join("cpu.cfs_quota_us").exists() || dir.join("tasks").exists();
    if let Some(dir) = first.iter().find(has) {
        return Some((dir.clone(), true));
    }
    let controllers = fs::read_to_string(root.join("cgroup.controllers")).ok()?;
    controllers.split_whitespace().any(|it| it == "cpu").then(|| (root.to_owned(), false))
}

fn failed(path: &Path, error: &std::io::Error) -> Error {
    terminal::io(path, error).remedy(REMEDY)
}

impl Group {
    fn make(pid: u32, limit: (Duration, f64)) -> Result<Self> {
        let group = Self::empty(pid, limit)?;
        let procs = group.dir.join("cgroup.procs");
        fs::write(&procs, pid.to_string()).map_err(|error| failed(&procs, &error))?;
        Ok(group)
    }

    fn empty(pid: u32, (period, share): (Duration, f64)) -> Result<Self> {
        let Some((parent, first_version)) = hierarchy(Path::new(ROOT)) else {
            let cause = "this machine has no control groups that limit processors";
            return Err(Error::new(Errno::NotSupported, ROOT, cause).remedy(REMEDY));
        };
        if !first_version {
            // If it is set already, or not allowed, the next step names the missing controller.
            let _ = fs::write(parent.join("cgroup.subtree_control"), "+cpu");
        }
        let dir = parent.join(format!("cudele-bench.{}.{pid}", std::process::id()));
        fs::create_dir(&dir).map_err(|error| failed(&dir, &error))?;
        let quota = period.mul_f64(share);
        let group = Self { dir, parent, pid, first_version, period, quota };
        group.limit(false)?;
        Ok(group)
    }

    fn limit(&self, limited: bool) -> Result<()> {
        self.set(limited.then_some(self.period))
    }

    /// Limits it to its quota in such periods, or no more.
    fn set(&self, period: Option<Duration>) -> Result<()> {
        let (quota, length) = (self.quota.as_micros(), period.unwrap_or(self.period).as_micros());
        let files = if self.first_version {
            let quota = if period.is_some() { quota.to_string() } else { "-1".to_owned() };
            vec![("cpu.cfs_period_us", length.to_string()), ("cpu.cfs_quota_us", quota)]
        } else {
            let quota = if period.is_some() { quota.to_string() } else { "max".to_owned() };
            vec![("cpu.max", format!("{quota} {length}"))]
        };
        files.into_iter().try_for_each(|(name, text)| {
            let file = self.dir.join(name);
            fs::write(&file, text).map_err(|error| failed(&file, &error))
        })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // An ended process is in no group; and process 0 means the writer itself.
        if self.pid != 0 {
            let _ = fs::write(self.parent.join("cgroup.procs"), self.pid.to_string());
        }
        let _ = fs::remove_dir(&self.dir);
    }
}

#[cfg(test)]
mod tests;
