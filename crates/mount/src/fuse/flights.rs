//! The requests in flight, and interrupting them.
//!
//! A request that waits for a server or a store occupies a thread. The session starts another
//! thread in its place, and answers a caller that has a signal to handle with `EINTR`. The waiting
//! thread continues, so an interrupted request may still take effect, as on NFS. When the request
//! ends, the thread takes back the reference, open file or lock that the caller did not receive.
//!
//! A request younger than `PATIENCE` is not interrupted: programs do not expect `EINTR` from a
//! file system that works.

use std::fs;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use types::Map;

/// The interval at which the watcher examines slow requests.
const TICK: Duration = Duration::from_millis(100);
/// A thread that has worked on one request for this long is replaced.
const LONG: Duration = Duration::from_millis(100);
/// More requests than this between two examinations follow each other closely.
const BUSY: u64 = 50;
/// A request of this age is interruptible.
const PATIENCE: Duration = Duration::from_millis(300);
/// Threads of one mount, waiting or not.
const THREADS_MAX: usize = 1024;

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

/// Cancels a wait from another thread; without effect before the wait begins.
pub(crate) type Cancel = Arc<dyn Fn() + Send + Sync>;

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Flights {
    state: Mutex<State>,
    /// Signals the watcher that a request begins, and waiters that a thread ends.
    changed: Condvar,
    /// The number of threads to keep ready.
    wanted: usize,
}

#[derive(Debug)]
struct State {
    flights: Map<u64, Flight>,
    /// Threads that read from the device or work on a young request.
    ready: usize,
    /// All threads.
    threads: usize,
    /// The watcher sleeps until the next request begins.
    is_asleep: bool,
    /// Requests that began since the last examination.
    begun: u64,
    /// At the last examination they were more than [`BUSY`]. The watcher stays awake until it has
    /// seen the end of that.
    is_busy: bool,
    /// The file system is unmounted.
    is_over: bool,
}

struct Flight {
    /// The calling thread.
    caller: u32,
    since: Instant,
    /// The caller closes a file. A killed process closes files, too, but handles no more signals.
    is_flush: bool,
    is_long: bool,
    is_interrupted: bool,
    is_answered: bool,
    cancel: Option<Cancel>,
    cancelled: Option<Instant>,
}

impl std::fmt::Debug for Flight {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Flight").field("caller", &self.caller).finish_non_exhaustive()
    }
}

/// The part of a request that decides whether its caller must still wait.
struct Look {
    caller: u32,
    is_lock: bool,
    is_flush: bool,
    is_answered: bool,
}

impl Look {
    /// Whether the caller has left, or must be released.
    fn is_over(&self) -> bool {
        self.is_answered
            || has_signal(self.caller, self.is_lock)
            || (self.is_flush && was_killed(self.caller))
    }
}

/// Work for the watcher after an examination.
#[derive(Default)]
pub(super) struct Due {
    /// Requests to answer with `EINTR`.
    pub(super) interrupted: Vec<u64>,
    pub(super) cancels: Vec<Cancel>,
    /// The number of threads to start.
    pub(super) threads: usize,
    /// Requests follow each other closely.
    pub(super) is_busy: bool,
}

/// A request in flight, handed to its handler.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket<'a> {
    pub(super) session: &'a dyn Waits,
    pub(super) unique: u64,
}

/// The session, seen by a request.
pub(super) trait Waits: std::fmt::Debug {
    fn waits(&self, unique: u64, cancel: Cancel);
}

impl Ticket<'_> {
    /// The request blocks from here on; `cancel` ends the wait with an error.
    pub(crate) fn waits(&self, cancel: Cancel) {
        self.session.waits(self.unique, cancel);
    }
}

impl Flights {
    /// Counts `wanted` workers and the watcher.
    pub(super) fn new(wanted: usize) -> Self {
        let state = State {
            flights: Map::default(),
            ready: wanted,
            threads: wanted + 1,
            is_asleep: false,
            begun: 0,
            is_busy: false,
            is_over: false,
        };
        Self { state: Mutex::new(state), changed: Condvar::new(), wanted }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request begins, at the time that is returned.
    pub(super) fn begin(&self, unique: u64, caller: u32, is_flush: bool) -> Instant {
        let since = Instant::now();
        let flight = Flight {
            caller,
            since,
            is_flush,
            is_long: false,
            is_interrupted: false,
            is_answered: false,
            cancel: None,
            cancelled: None,
        };
        let mut state = self.lock();
        state.flights.insert(unique, flight);
        state.begun += 1;
        if std::mem::take(&mut state.is_asleep) {
            self.changed.notify_all();
        }
        since
    }

    /// Removes a request. Returns whether its caller still waits, and whether this thread is still
    /// needed.
    pub(super) fn end(&self, unique: u64) -> (bool, bool) {
        let mut state = self.lock();
        let Some(flight) = state.flights.remove(&unique) else { return (false, true) };
        if !flight.is_long {
            return (!flight.is_answered, true);
        }
        let is_needed = state.ready < self.wanted;
        state.ready += usize::from(is_needed);
        (!flight.is_answered, is_needed)
    }

    /// Marks a request whose caller has a signal to handle. Returns false for an unknown request.
    pub(super) fn interrupt(&self, unique: u64) -> bool {
        let mut state = self.lock();
        let Some(flight) = state.flights.get_mut(&unique) else { return false };
        flight.is_interrupted = true;
        true
    }

    /// Marks a request as blocked. Returns the number of threads to start.
    pub(super) fn waits(&self, unique: u64, cancel: Cancel) -> usize {
        let mut state = self.lock();
        let Some(flight) = state.flights.get_mut(&unique) else { return 0 };
        flight.cancel = Some(cancel);
        if !std::mem::replace(&mut flight.is_long, true) {
            state.ready -= 1;
        }
        state.missing(self.wanted)
    }

    /// Examines slow requests at the next tick; `None` after the unmount.
    pub(super) fn watch(&self) -> Option<Due> {
        let mut state = self.lock();
        while state.flights.is_empty() && !state.is_busy {
            if state.is_over {
                return None;
            }
            state.is_asleep = true;
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let waited = self.changed.wait_timeout(state, TICK);
        state = waited.unwrap_or_else(PoisonError::into_inner).0;
        if state.is_over && state.flights.is_empty() {
            return None;
        }
        let now = Instant::now();
        state.is_busy = std::mem::take(&mut state.begun) > BUSY;
        let due = state.flights.iter().filter(|(_, flight)| flight.is_due(now));
        let callers: Vec<_> = due.map(|(unique, flight)| (*unique, flight.look())).collect();
        // Reading procfs must not delay requests, so it happens without the lock.
        drop(state);
        let over: Vec<_> = callers.into_iter().filter(|(_, look)| look.is_over()).collect();
        state = self.lock();
        let mut due = Due { is_busy: state.is_busy, ..Due::default() };
        for (unique, _) in over {
            let Some(flight) = state.flights.get_mut(&unique) else { continue };
            let cancel = flight.next_cancel(now);
            if flight.is_to_be_answered(now) {
                flight.is_answered = true;
                due.interrupted.push(unique);
            }
            due.cancels.extend(cancel);
        }
        state.note_long(now);
        due.threads = state.missing(self.wanted);
        Some(due)
    }

    /// Counts a thread off that ends or could not be started.
    pub(super) fn leave(&self, was_ready: bool, is_over: bool) {
        let mut state = self.lock();
        state.threads -= 1;
        state.ready -= usize::from(was_ready);
        state.is_over |= is_over;
        self.changed.notify_all();
    }

    /// Blocks until the last thread has ended.
    pub(super) fn wait(&self) {
        let mut state = self.lock();
        while state.threads > 0 {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.lock().is_over
    }
}

impl State {
    /// Stops counting threads that work on old requests.
    fn note_long(&mut self, now: Instant) {
        for flight in self.flights.values_mut() {
            if !flight.is_long && now.duration_since(flight.since) >= LONG {
                flight.is_long = true;
                self.ready -= 1;
            }
        }
    }

    /// Counts and returns the threads to start.
    fn missing(&mut self, wanted: usize) -> usize {
        if self.is_over {
            return 0;
        }
        let missing =
            wanted.saturating_sub(self.ready).min(THREADS_MAX.saturating_sub(self.threads));
        self.ready += missing;
        self.threads += missing;
        missing
    }
}

impl Flight {
    /// The request waits for a lock.
    fn is_lock(&self) -> bool {
        self.cancel.is_some()
    }

    /// Whether the watcher must examine the caller. A lock wait is cancelled even after its caller
    /// was answered.
    fn is_due(&self, now: Instant) -> bool {
        let age = now.duration_since(self.since);
        (self.is_interrupted && self.is_lock())
            || (!self.is_answered && self.is_interrupted && age >= PATIENCE)
            || (!self.is_answered && self.is_flush && age >= LONG)
    }

    /// Whether the caller gets `EINTR` now: after a grace period for `cancel`, if there is one.
    fn is_to_be_answered(&self, now: Instant) -> bool {
        let patience = if self.is_flush { LONG } else { PATIENCE };
        let since = self.cancelled.unwrap_or(self.since);
        !self.is_answered && now.duration_since(since) >= patience
    }

    fn look(&self) -> Look {
        let (caller, is_lock) = (self.caller, self.is_lock());
        Look { caller, is_lock, is_flush: self.is_flush, is_answered: self.is_answered }
    }

    /// The next cancellation of a lock wait. A cancellation that overtakes its request has no
    /// effect, so it is repeated.
    fn next_cancel(&mut self, now: Instant) -> Option<Cancel> {
        let cancel = self.cancel.as_ref()?;
        let is_time = self.cancelled.is_none_or(|at| now.duration_since(at) >= PATIENCE);
        // The previous cancellation still runs while it holds a reference.
        let is_free = Arc::strong_count(cancel) == 1;
        let is_answered = self.is_answered;
        (is_time && is_free).then(|| {
            if !is_answered {
                self.cancelled.get_or_insert(now);
            }
            cancel.clone()
        })
    }
}

/// Whether a signal is pending that the thread neither blocks nor ignores. A thread outside of this
/// PID namespace counts as signalled. Every signal ends a lock wait, as POSIX demands.
fn has_signal(thread: u32, is_lock: bool) -> bool {
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
fn was_killed(thread: u32) -> bool {
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

#[cfg(test)]
mod tests;
