//! The requests in flight, and interrupting them.
//!
//! A request that waits for a server or a store occupies a thread. The session starts another
//! thread in its place, and answers a caller that has a signal to handle with `EINTR`. The waiting
//! thread continues, so an interrupted request may still take effect, as on NFS. When the request
//! ends, the thread takes back the reference, open file or lock that the caller did not receive.
//!
//! A request younger than `PATIENCE` is not interrupted: programs do not expect `EINTR` from a
//! file system that works.
//!
//! Threads form crews: the first reads from the device, each further one serves a queue of
//! io_uring. While a thread executes a request of a queue, the request's entry is kept here. An
//! early answer takes the entry to another thread, and the first thread ends.

mod signals;

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use types::{Errno, Error, Map, Result};

use super::ring::Entry;
use signals::{has_signal, was_killed};

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
/// Requests that wait for locks. Each occupies a thread, and the end of a wait needs one that is
/// free: an interrupt, or the end of the lock, is a request, too.
const WAITS_MAX: usize = THREADS_MAX / 2;
/// Interrupts that overtook their requests.
const EARLY_MAX: usize = 64;

/// The number of the crew that reads from the device.
pub(super) const DEVICE: usize = 0;

/// Cancels a wait from another thread; without effect before the wait begins.
pub(crate) type Cancel = Arc<dyn Fn() + Send + Sync>;

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Flights {
    state: Mutex<State>,
    /// Signals the watcher that a request begins, and waiters that a thread ends.
    changed: Condvar,
}

/// The threads that wait for the same requests.
#[derive(Debug)]
struct Crew {
    /// The number of threads to keep ready.
    wanted: usize,
    /// Threads that wait for a request or work on a young one.
    ready: usize,
}

#[derive(Debug)]
struct State {
    flights: Map<u64, Flight>,
    crews: Vec<Crew>,
    /// All threads.
    threads: usize,
    /// Numbers of requests that were interrupted before a thread received them.
    early: VecDeque<u64>,
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
    crew: usize,
    /// The entry of a request from a queue, until the answer.
    entry: Option<Entry>,
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

/// A request that begins.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) unique: u64,
    /// The calling thread.
    pub(super) caller: u32,
    /// The caller closes a file.
    pub(super) is_flush: bool,
    /// The crew of the thread that works on it.
    pub(super) crew: usize,
    /// The entry of a request from a queue.
    pub(super) entry: Option<Entry>,
}

/// A request that has ended.
#[derive(Debug)]
pub(super) struct Ended {
    /// The caller still waits.
    pub(super) is_awaited: bool,
    /// A thread of the device is still needed.
    pub(super) is_needed: bool,
    /// The entry for the reply, unless an early answer took it.
    pub(super) entry: Option<Entry>,
}

/// Work for the watcher after an examination.
#[derive(Default)]
pub(super) struct Due {
    /// Requests to answer with `EINTR`.
    pub(super) interrupted: Vec<u64>,
    /// The same from queues, each with its crew: a new thread takes the entry and answers.
    pub(super) to_take: Vec<(u64, usize)>,
    pub(super) cancels: Vec<Cancel>,
    /// Crews, and the number of threads to start for each.
    pub(super) threads: Vec<(usize, usize)>,
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
    fn waits(&self, unique: u64, cancel: Cancel) -> Result<()>;
}

impl Ticket<'_> {
    /// The request blocks from here on; `cancel` ends the wait with an error.
    ///
    /// # Errors
    /// `ENOLCK` if as many requests as possible wait already.
    pub(crate) fn waits(&self, cancel: Cancel) -> Result<()> {
        self.session.waits(self.unique, cancel)
    }
}

impl Flights {
    /// Counts the `wanted` workers of each crew and the watcher.
    pub(super) fn new(wanted: &[usize]) -> Self {
        let crews = wanted.iter().map(|&wanted| Crew { wanted, ready: wanted }).collect();
        let state = State {
            flights: Map::default(),
            crews,
            threads: wanted.iter().sum::<usize>() + 1,
            early: VecDeque::new(),
            is_asleep: false,
            begun: 0,
            is_busy: false,
            is_over: false,
        };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request begins, at the time that is returned.
    pub(super) fn begin(&self, begun: Begun) -> Instant {
        let Begun { unique, caller, is_flush, crew, entry } = begun;
        let since = Instant::now();
        let mut flight = Flight {
            caller,
            crew,
            entry,
            since,
            is_flush,
            is_long: false,
            is_interrupted: false,
            is_answered: false,
            cancel: None,
            cancelled: None,
        };
        let mut state = self.lock();
        if let Some(place) = state.early.iter().position(|early| *early == unique) {
            state.early.remove(place);
            flight.is_interrupted = true;
        }
        state.flights.insert(unique, flight);
        state.begun += 1;
        if std::mem::take(&mut state.is_asleep) {
            self.changed.notify_all();
        }
        since
    }

    /// Removes a request.
    pub(super) fn end(&self, unique: u64) -> Ended {
        let mut state = self.lock();
        let Some(Flight { crew, entry, is_long, is_answered, .. }) = state.flights.remove(&unique)
        else {
            return Ended { is_awaited: false, is_needed: true, entry: None };
        };
        let is_awaited = !is_answered;
        let Crew { wanted, ready } = &mut state.crews[crew];
        if crew == DEVICE {
            let is_needed = !is_long || *ready < *wanted;
            *ready += usize::from(is_long && is_needed);
            return Ended { is_awaited, is_needed, entry };
        }
        // The kernel has no way to take an entry out of a queue, so its thread stays.
        match (&entry, is_long) {
            (Some(_), true) => *ready += 1,
            (None, false) => *ready -= 1,
            (Some(_), false) | (None, true) => {}
        }
        Ended { is_awaited, is_needed: entry.is_some(), entry }
    }

    /// Marks a request whose caller has a signal to handle. Returns false for an unknown request.
    pub(super) fn interrupt(&self, unique: u64) -> bool {
        let mut state = self.lock();
        let state = &mut *state;
        let Some(flight) = state.flights.get_mut(&unique) else {
            // The interrupts of requests from queues are not repeated.
            if state.crews.len() > 1 {
                state.early.push_back(unique);
                state.early.drain(..state.early.len().saturating_sub(EARLY_MAX));
            }
            return false;
        };
        flight.is_interrupted = true;
        true
    }

    /// Takes the entry of a request that is to be answered early, for the thread that calls this,
    /// which joins the crew. `None` if the request has ended.
    pub(super) fn take_entry(&self, unique: u64) -> Option<Entry> {
        let mut state = self.lock();
        let state = &mut *state;
        let flight = state.flights.get_mut(&unique)?;
        let entry = flight.entry.take()?;
        flight.is_answered = true;
        state.crews[flight.crew].ready += 1;
        Some(entry)
    }

    /// Adds a thread to those that are counted, whether or not it is ready. Returns false if there
    /// are too many.
    pub(super) fn join(&self) -> bool {
        let mut state = self.lock();
        let is_possible = state.threads < THREADS_MAX && !state.is_over;
        state.threads += usize::from(is_possible);
        is_possible
    }

    /// Whether there are crews other than that of the device.
    pub(super) fn has_queues(&self) -> bool {
        self.lock().crews.len() > 1
    }

    /// Wants no more threads of a crew.
    pub(super) fn give_up(&self, crew: usize) {
        self.lock().crews[crew].wanted = 0;
    }

    /// Marks a request as blocked. Returns the threads to start for each crew.
    ///
    /// # Errors
    /// `ENOLCK`.
    pub(super) fn waits(&self, unique: u64, cancel: Cancel) -> Result<Vec<(usize, usize)>> {
        let mut state = self.lock();
        let state = &mut *state;
        let waiting = state.flights.values().filter(|flight| flight.cancel.is_some()).count();
        if waiting >= WAITS_MAX {
            let cause = format!("{waiting} requests of this mount wait for locks already");
            return Err(Error::new(Errno::NoLocks, "lock", cause));
        }
        let Some(flight) = state.flights.get_mut(&unique) else { return Ok(Vec::new()) };
        flight.cancel = Some(cancel);
        if !std::mem::replace(&mut flight.is_long, true) {
            state.crews[flight.crew].ready -= 1;
        }
        Ok(state.missing())
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
                if flight.entry.is_some() {
                    due.to_take.push((unique, flight.crew));
                } else {
                    flight.is_answered = true;
                    due.interrupted.push(unique);
                }
            }
            due.cancels.extend(cancel);
        }
        state.note_long(now);
        due.threads = state.missing();
        Some(due)
    }

    /// Counts a thread off that ends or could not be started.
    pub(super) fn leave(&self, crew: usize, was_ready: bool, is_over: bool) {
        let mut state = self.lock();
        state.threads -= 1;
        state.crews[crew].ready -= usize::from(was_ready);
        state.is_over |= is_over;
        self.changed.notify_all();
    }

    /// Counts the watcher off.
    pub(super) fn leave_watch(&self) {
        self.leave(DEVICE, false, true);
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
                self.crews[flight.crew].ready -= 1;
            }
        }
    }

    /// Counts and returns the threads to start for each crew.
    fn missing(&mut self) -> Vec<(usize, usize)> {
        if self.is_over {
            return Vec::new();
        }
        let mut all = Vec::new();
        for (number, crew) in self.crews.iter_mut().enumerate() {
            let room = THREADS_MAX.saturating_sub(self.threads);
            let missing = crew.wanted.saturating_sub(crew.ready).min(room);
            if missing > 0 {
                crew.ready += missing;
                self.threads += missing;
                all.push((number, missing));
            }
        }
        all
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

#[cfg(test)]
mod tests;
