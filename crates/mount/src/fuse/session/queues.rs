//! Requests over io_uring: threads that serve the queues of the processors.
//!
//! The kernel hands a request to the queue of the processor on which its caller runs, and a thread
//! of that processor executes the request: waking a thread of the same processor takes a twentieth
//! of the time that waking another, idle processor takes on a virtual machine. Each thread has a
//! ring and an entry of its own, so a thread that blocks keeps no other from its requests.
//!
//! Notices that the kernel forgets inodes, interrupts and notifications use the device all the
//! same.

use std::io;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::super::flights::DEVICE;
use super::super::processors::{self, Bells, Binding, Bound};
use super::super::reply::Out;
use super::super::request::{Op, Request};
use super::super::ring::{Entry, Ring};
use super::{Handler, INTERRUPTED, Inner, PROTOCOL, UNKNOWN};

/// The least number of threads at a queue: one may work on a long request while the next comes.
const WORKERS_MIN: usize = 2;

/// A longer transfer takes longer than to move its thread to another processor.
const SHORT_BYTES: usize = 64 * 1024;

/// The queues of a session.
#[derive(Debug)]
pub(super) struct Queues {
    /// Where the file system is mounted.
    pub(super) at: PathBuf,
    pub(super) bells: Bells,
    pub(super) bound: Bound,
    pub(super) gate: Gate,
}

/// Holds the first threads until the kernel has the answer to its first request: it hands out no
/// requests before every queue has an entry, so each thread must have its ring before.
#[derive(Debug, Default)]
pub(super) struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct GateState {
    /// Threads that have a ring, and threads that got none.
    arrived: usize,
    failed: usize,
    is_open: Option<bool>,
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, GateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread has a ring, or got none.
    fn arrive(&self, has_ring: bool) {
        let mut state = self.lock();
        state.arrived += usize::from(has_ring);
        state.failed += usize::from(!has_ring);
        self.changed.notify_all();
    }

    /// Blocks until so many threads have arrived. Returns whether all have a ring.
    fn await_all(&self, count: usize) -> bool {
        let mut state = self.lock();
        while state.arrived + state.failed < count {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.failed == 0
    }

    /// Lets the threads serve the queues, or end.
    pub(super) fn open(&self, are_used: bool) {
        self.lock().is_open = Some(are_used);
        self.changed.notify_all();
    }

    /// Blocks until the gate is open. Returns whether the queues are used.
    fn pass(&self) -> bool {
        let mut state = self.lock();
        loop {
            if let Some(are_used) = state.is_open {
                return are_used;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// How a thread of a queue begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beginning {
    /// With the session.
    First,
    /// In the place of a blocked thread.
    Replacement,
    /// With the entry of the request of this number, which it answers early.
    Taking(u64),
}

/// How a thread of a queue ends.
#[derive(Clone, Copy, Debug)]
struct Exit {
    was_ready: bool,
    /// The file system is unmounted.
    is_over: bool,
}

/// The number of threads at each queue; none if the machine or the process cannot have rings.
pub(super) fn crews(threads: usize) -> Vec<usize> {
    let count = processors::queue_count().unwrap_or_default();
    let each = threads.div_ceil(usize::from(count.max(1))).max(WORKERS_MIN);
    (0..count).map(|number| if processors::is_online(number) { each } else { 1 }).collect()
}

impl<H: Handler> Inner<H> {
    /// Starts the first threads of the queues, which wait at the gate. Returns whether every queue
    /// has its threads; without that, all of them end, and the device does without queues.
    pub(super) fn prepare_queues(&self, crews: &[usize]) -> bool {
        let wanted = crews.iter().sum::<usize>();
        let mut started = 0;
        for (queue, count) in crews.iter().enumerate() {
            let crew = DEVICE + 1 + queue;
            started += (0..*count).filter(|_| self.start_server(crew, Beginning::First)).count();
        }
        let are_ready = self.queues.gate.await_all(started) && started == wanted;
        if !are_ready {
            self.leave_queues(crews.len());
        }
        are_ready
    }

    /// Lets the first threads of the queues end.
    pub(super) fn leave_queues(&self, count: usize) {
        (0..count).for_each(|queue| self.flights.give_up(DEVICE + 1 + queue));
        self.queues.gate.open(false);
    }

    /// Starts a thread that serves a queue, and is counted already.
    pub(super) fn start_server(&self, crew: usize, beginning: Beginning) -> bool {
        let was_ready = !matches!(beginning, Beginning::Taking(_));
        let Some(inner) = self.this.get().and_then(std::sync::Weak::upgrade) else {
            self.flights.leave(crew, was_ready, false);
            return false;
        };
        let (thread, flights) =
            (std::thread::Builder::new().name("fuse-queue".to_owned()), self.flights.clone());
        let started = thread.spawn(move || {
            let exit = inner.serve(crew, beginning);
            // `Session::wait` promises that no thread uses the file system any more.
            drop(inner);
            flights.leave(crew, exit.was_ready, exit.is_over);
        });
        if started.is_err() {
            self.flights.leave(crew, was_ready, false);
        }
        started.is_ok()
    }

    /// The life of a thread at a queue.
    fn serve(&self, crew: usize, beginning: Beginning) -> Exit {
        let queue = u16::try_from(crew - DEVICE - 1).expect("few queues");
        let binding = self.queues.bound.bind(queue);
        let was_ready = !matches!(beginning, Beginning::Taking(_));
        let unused = Exit { was_ready, is_over: false };
        let ring = Ring::new(self.device.clone(), queue);
        if beginning == Beginning::First {
            self.queues.gate.arrive(ring.is_ok());
            if !self.queues.gate.pass() {
                return unused;
            }
        }
        let Ok(mut ring) = ring else { return unused };
        let begun = match beginning {
            Beginning::First => ring.register(Entry::new()),
            Beginning::Replacement => {
                let begun = ring.register(Entry::new());
                self.ring_bell();
                begun
            }
            Beginning::Taking(unique) => {
                let Some(mut entry) = self.flights.take_entry(unique) else { return unused };
                entry.reply(Out::new().finish(unique, INTERRUPTED));
                ring.commit(entry)
            }
        };
        let begun = begun.and_then(|()| ring.next());
        match begun {
            Ok(entry) => self.serve_ring(crew, &binding, ring, entry),
            Err(error) => {
                let is_over = is_over(&error);
                if !is_over {
                    // The kernel refuses entries: it sends the requests to the device, or to the
                    // other threads of the queue.
                    self.flights.give_up(crew);
                }
                Exit { was_ready: true, is_over }
            }
        }
    }

    /// Serves a queue until the unmount, or until another thread has taken the entry.
    fn serve_ring(
        &self,
        crew: usize,
        binding: &Binding<'_>,
        mut ring: Ring,
        mut entry: Entry,
    ) -> Exit {
        let (mut buffer, mut out) = (vec![0; super::REQUEST_BYTES_MAX], Out::new());
        loop {
            let (unique, mut given) = (entry.unique(), None);
            out.begin();
            let length = entry.request(&mut buffer);
            let request = length.and_then(|length| Request::parse(&buffer[..length]));
            let code = match request {
                None => PROTOCOL,
                Some(Request { op: Op::Destroy, .. }) => 0,
                Some(Request { op: Op::StatFs, pid, .. }) if self.queues.bells.is_from(pid) => {
                    UNKNOWN
                }
                Some(request) => {
                    let is_long = may_be_long(&request.op);
                    if is_long {
                        binding.loosen();
                    }
                    let done = self.execute(&request, &mut out, crew, Some(entry));
                    if is_long {
                        binding.tighten();
                    }
                    given = done.given;
                    let Some(left) = done.ended.entry else {
                        given.into_iter().for_each(|given| self.handler.take_back(given));
                        return Exit { was_ready: false, is_over: false };
                    };
                    entry = left;
                    done.code
                }
            };
            entry.reply(out.finish(unique, code));
            match ring.commit(entry).and_then(|()| ring.next()) {
                Ok(next) => entry = next,
                Err(error) => {
                    given.into_iter().for_each(|given| self.handler.take_back(given));
                    return Exit { was_ready: true, is_over: is_over(&error) };
                }
            }
        }
    }

    /// Lets the kernel look at the queue of this thread's processor.
    fn ring_bell(&self) {
        let Some(inner) = self.this.get().and_then(std::sync::Weak::upgrade) else { return };
        let queues = inner.queues.clone();
        let thread = std::thread::Builder::new().name("fuse-bell".to_owned());
        // Without the thread, the next request of the processor lets the kernel look.
        let _ = thread.spawn(move || queues.bells.ring(&queues.at));
    }
}

/// Whether an operation may take so long, or start so many threads, that it needs all processors:
/// a longer transfer, an end of one, and the changes that begin and end a decoupled subtree.
fn may_be_long(op: &Op<'_>) -> bool {
    let content_bytes = if let Op::Read { size, .. } = op {
        *size as usize
    } else if let Op::Write(write) = op {
        write.data.len()
    } else {
        0
    };
    let is_ending = matches!(op, Op::Flush { .. } | Op::Sync | Op::SyncDir);
    let changes_subtree = matches!(op, Op::SetXattr(..));
    content_bytes > SHORT_BYTES || is_ending || changes_subtree || matches!(op, Op::Allocate { .. })
}

/// Whether the kernel says that the file system is unmounted.
fn is_over(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let code = Errno::from_io_error(error);
    matches!(code, Some(Errno::NOTCONN | Errno::CONNABORTED | Errno::NODEV))
}

#[cfg(test)]
mod tests;
