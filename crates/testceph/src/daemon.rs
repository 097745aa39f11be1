//! Daemons that run, by their pid files.
//!
//! Invariant: a process counts as a daemon only if its command line names this cluster's
//! configuration, so a process with a reused number is left alone.

use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process};

/// A daemon.
#[derive(Debug)]
pub(crate) struct Daemon {
    pub(crate) name: String,
    pub(crate) pid: Pid,
    conf: PathBuf,
}

impl Daemon {
    /// The daemon of this name, if it runs.
    pub(crate) fn find(dir: &Path, name: &str) -> Option<Self> {
        let text = std::fs::read_to_string(dir.join(format!("{name}.pid"))).ok()?;
        let pid = Pid::from_raw(text.trim().parse().ok()?)?;
        let daemon = Self { name: name.to_owned(), pid, conf: dir.join("ceph.conf") };
        daemon.runs().then_some(daemon)
    }

    pub(crate) fn runs(&self) -> bool {
        let line = std::fs::read(format!("/proc/{}/cmdline", self.pid.as_raw_nonzero()));
        let conf = self.conf.as_os_str().as_encoded_bytes();
        // Of one that has ended and was not waited for yet, the line is empty.
        line.is_ok_and(|line| line.split(|byte| *byte == 0).any(|argument| argument == conf))
    }

    /// Whether it stands still, as after `STOP`.
    pub(crate) fn stands_still(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid.as_raw_nonzero()));
        stat.is_ok_and(|stat| stat.contains(") T "))
    }

    pub(crate) fn signal(&self, signal: Signal) {
        if self.runs() {
            // Most signals are sent to end the process, so an ended process is no error.
            let _ = kill_process(self.pid, signal);
        }
    }
}
