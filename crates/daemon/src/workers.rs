//! Worker threads that execute store operations.
//!
//! Journal appends have a thread of their own, so that no checkpoint delays them; they reach the
//! store in the order in which they were emitted. Merging runs takes seconds and has a thread of
//! its own, too, so that nothing waits behind it. Purges have threads of their own, because no
//! request waits for a purge. All other operations share a small pool.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, unbounded};
use engine::Executor;
use metastore::request::{StoreFailure, StoreOp, StoreResult, Token};
use net::Waker;
use objstore::Store;
use types::{Errno, Error, Result};

use crate::copies::Copies;
use crate::metrics::store::{self, StoreTimes};

/// Threads beside the journal's.
const POOL: usize = 2;
/// Threads that purge removed inodes.
const PURGING: usize = 2;

/// An operation on its way to a worker, and since when, if that is measured.
type Submitted = (Token, StoreOp, Option<Instant>);

pub(crate) type Finished = (Token, std::result::Result<StoreResult, Box<StoreFailure>>);

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Workers {
    journal: Option<Sender<Submitted>>,
    compaction: Option<Sender<Submitted>>,
    purging: Option<Sender<Submitted>>,
    pool: Option<Sender<Submitted>>,
    times: Option<Arc<StoreTimes>>,
    executor: Arc<Executor>,
    finished: Receiver<Finished>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// Starts them. Their times are noted where they are wanted.
    ///
    /// # Errors
    /// `EAGAIN` if there can be no more threads.
    pub(crate) fn start(
        store: &Arc<dyn Store>,
        waker: &Waker,
        times: Option<Arc<StoreTimes>>,
    ) -> Result<Self> {
        let (done, finished) = unbounded();
        let (journal, journal_ops) = unbounded();
        let (compaction, compaction_ops) = unbounded();
        let (purging, purging_ops) = unbounded();
        let (pool, pool_ops) = unbounded();
        let executor = Arc::new(Executor::default());
        let worker = Worker {
            store: store.clone(),
            executor: executor.clone(),
            copies: Arc::new(Copies::default()),
            times: times.clone(),
            done,
            waker: waker.clone(),
        };
        let mut threads = Vec::new();
        let own = [journal_ops, compaction_ops];
        let queues = own
            .into_iter()
            .chain(std::iter::repeat_n(purging_ops, PURGING))
            .chain(std::iter::repeat_n(pool_ops, POOL));
        for ops in queues {
            let worker = worker.clone();
            let thread = std::thread::Builder::new().name("store".to_owned());
            let thread = thread.spawn(move || worker.run(&ops));
            threads.push(thread.map_err(|error| {
                Error::new(Errno::Again, "store threads", format!("cannot be started: {error}"))
                    .remedy("allow this user or container more threads")
            })?);
        }
        let (journal, compaction) = (Some(journal), Some(compaction));
        let (purging, pool) = (Some(purging), Some(pool));
        Ok(Self { journal, compaction, purging, pool, times, executor, finished, threads })
    }

    pub(crate) fn submit(&self, token: Token, op: StoreOp) {
        let queue = match op {
            StoreOp::Append { .. } => &self.journal,
            StoreOp::CompactDir { .. } => &self.compaction,
            StoreOp::PurgeData { .. } | StoreOp::PurgeDir { .. } => &self.purging,
            StoreOp::Put { .. }
            | StoreOp::Get { .. }
            | StoreOp::List { .. }
            | StoreOp::Delete { .. }
            | StoreOp::LoadDir { .. }
            | StoreOp::LookUp { .. }
            | StoreOp::AttachDirs { .. }
            | StoreOp::ProveRuns { .. }
            | StoreOp::TakeSnapshot { .. }
            | StoreOp::CommitDir { .. } => &self.pool,
        };
        if let Some(queue) = queue {
            // The receiving threads live until `stop`.
            let _ = queue.send((token, op, self.times.as_ref().map(|_| Instant::now())));
        }
    }

    pub(crate) fn finished(&self) -> Option<Finished> {
        self.finished.try_recv().ok()
    }

    /// Runs that are being merged are left as they were: the server is about to end.
    pub(crate) fn hurry(&self) {
        self.executor.stop();
    }

    /// Waits for everything that was submitted.
    pub(crate) fn stop(mut self) {
        self.hurry();
        (self.journal, self.compaction, self.purging, self.pool) = (None, None, None, None);
        for thread in self.threads.drain(..) {
            // A worker that panicked has already said so; its operation never reported success.
            let _ = thread.join();
        }
    }
}

/// The work of one thread.
#[derive(Clone)]
struct Worker {
    store: Arc<dyn Store>,
    executor: Arc<Executor>,
    copies: Arc<Copies>,
    times: Option<Arc<StoreTimes>>,
    done: Sender<Finished>,
    waker: Waker,
}

impl Worker {
    fn run(&self, ops: &Receiver<Submitted>) {
        for (token, op, submitted) in ops {
            let copied = self.copies.of(&op);
            let measured =
                submitted.map(|submitted| (store::kind(&op), [submitted, Instant::now()]));
            let result = self.executor.execute(&*self.store, op);
            if let (Some(times), Some((kind, at))) = (&self.times, measured) {
                times.note(kind, at, result.is_err());
            }
            let copied = copied.filter(|_| matches!(result, Ok(StoreResult::Stored(_))));
            let copied = copied.map(|(name, data)| self.copies.note(name, data));
            if self.done.send((token, result)).is_err() {
                return;
            }
            self.waker.wake();
            // Behind the answer: nothing waits for the second copy.
            if let Some(name) = copied {
                self.copies.write(&*self.store, &name);
            }
        }
    }
}
