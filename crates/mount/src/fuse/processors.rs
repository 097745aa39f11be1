//! The processors of the machine, for the queues of io_uring: one for each that it may ever have.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::thread::CpuSet;
use types::Set;

/// Processors that the machine may have, as ranges.
const POSSIBLE: &str = "/sys/devices/system/cpu/possible";
/// The most queues: a thread waits at each.
const QUEUES_MAX: u16 = 256;

/// The number of queues of the kernel; `None` for a machine with too many or unusual numbers.
pub(super) fn queue_count() -> Option<u16> {
    let text = std::fs::read_to_string(POSSIBLE).ok()?;
    let last = match text.trim().split_once('-') {
        None => text.trim().parse::<u16>().ok().filter(|number| *number == 0)?,
        Some(("0", last)) => last.parse().ok()?,
        Some(_) => return None,
    };
    Some(last + 1).filter(|count| *count <= QUEUES_MAX)
}

/// Whether a processor is on.
pub(super) fn is_online(number: u16) -> bool {
    // The file is missing for a processor that cannot be switched off.
    let state = std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu{number}/online"));
    state.map_or(true, |state| state.trim() != "0")
}

/// The threads that are bound to a processor each.
///
/// A thread that a bound one starts inherits its processor, be it a thread of another part of the
/// program. [`Bound::free_heirs`] lets such threads use all processors.
#[derive(Debug, Default)]
pub(super) struct Bound(Mutex<Set<u32>>);

/// A thread is bound to one processor.
#[derive(Debug)]
pub(super) struct Binding<'a> {
    all: &'a Bound,
    thread: u32,
    one: CpuSet,
}

impl Bound {
    /// Binds this thread to a processor. Without effect if the processor is off, or forbidden for
    /// this process.
    pub(super) fn bind(&self, number: u16) -> Binding<'_> {
        let mut one = CpuSet::new();
        one.set(usize::from(number));
        let thread = this_thread();
        held(&self.0).insert(thread);
        let binding = Binding { all: self, thread, one };
        binding.tighten();
        binding
    }

    /// Lets threads that inherited a processor use all that the process may use.
    pub(super) fn free_heirs(&self) {
        let Some(allowed) = allowed() else { return };
        let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return };
        for thread in threads.flatten() {
            let number = thread.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
            let Some(number) = number.filter(|number| !held(&self.0).contains(number)) else {
                continue;
            };
            let thread = rustix::process::Pid::from_raw(number.cast_signed());
            let set = rustix::thread::sched_getaffinity(thread);
            if set.is_ok_and(|set| set != allowed) {
                let _ = rustix::thread::sched_setaffinity(thread, &allowed);
            }
        }
    }
}

impl Binding<'_> {
    /// Keeps the thread on its processor.
    pub(super) fn tighten(&self) {
        let _ = rustix::thread::sched_setaffinity(None, &self.one);
    }

    /// Lets the thread, and threads that it starts, use all processors.
    pub(super) fn loosen(&self) {
        roam();
    }
}

impl Drop for Binding<'_> {
    fn drop(&mut self) {
        self.loosen();
        held(&self.all.0).remove(&self.thread);
    }
}

/// Lets this thread use all processors that the process may use.
pub(super) fn roam() {
    if let Some(allowed) = allowed() {
        let _ = rustix::thread::sched_setaffinity(None, &allowed);
    }
}

/// The processors that the process may use: those of its first thread, which is never bound.
fn allowed() -> Option<CpuSet> {
    rustix::thread::sched_getaffinity(Some(rustix::process::getpid())).ok()
}

fn this_thread() -> u32 {
    rustix::thread::gettid().as_raw_pid().cast_unsigned()
}

fn held(threads: &Mutex<Set<u32>>) -> MutexGuard<'_, Set<u32>> {
    threads.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Threads that send a request to their own mount, so that the kernel looks at a queue.
///
/// The kernel hands a waiting request to an entry when the entry's last request has its reply, but
/// not when a new entry arrives. Where all entries of a queue were blocked when the request came,
/// the bell's reply lets the kernel look.
#[derive(Debug, Default)]
pub(super) struct Bells(Mutex<Set<u32>>);

impl Bells {
    /// Sends the request from this thread, which is bound to the queue's processor.
    pub(super) fn ring(&self, at: &Path) {
        let thread = this_thread();
        held(&self.0).insert(thread);
        // The answer is an error, and after an unmount that of another file system.
        let _ = rustix::fs::statfs(at);
        held(&self.0).remove(&thread);
    }

    /// Whether a request comes from such a thread.
    pub(super) fn is_from(&self, thread: u32) -> bool {
        held(&self.0).contains(&thread)
    }
}

#[cfg(test)]
mod tests;
