//! Worker threads that carry store operations out.
//!
//! Journal appends have a thread of their own, so that no checkpoint delays them; they reach the
//! store in the order in which they were emitted. Merging runs takes seconds and has a thread of its
//! own, too, so that nothing waits behind it. Everything else shares a small pool.

use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, unbounded};
use metastore::request::{StoreFailure, StoreOp, StoreResult, Token};
use net::Waker;
use objstore::{Carrier, ObjectStore};
use types::{Errno, Error, Result};

/// Threads beside the journal's.
const POOL: usize = 2;

pub(crate) type Finished = (Token, std::result::Result<StoreResult, Box<StoreFailure>>);

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Workers {
    journal: Option<Sender<(Token, StoreOp)>>,
    compaction: Option<Sender<(Token, StoreOp)>>,
    pool: Option<Sender<(Token, StoreOp)>>,
    carrier: Arc<Carrier>,
    finished: Receiver<Finished>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// Starts them.
    ///
    /// # Errors
    /// `EAGAIN` if there can be no more threads.
    pub(crate) fn start(store: &Arc<dyn ObjectStore>, waker: &Waker) -> Result<Self> {
        let (done, finished) = unbounded();
        let (journal, journal_ops) = unbounded();
        let (compaction, compaction_ops) = unbounded();
        let (pool, pool_ops) = unbounded();
        let carrier = Arc::new(Carrier::default());
        let mut threads = Vec::new();
        let own = [journal_ops, compaction_ops];
        let queues = own.into_iter().chain(std::iter::repeat_n(pool_ops, POOL));
        for ops in queues {
            let (store, done, waker) = (store.clone(), done.clone(), waker.clone());
            let carrier = carrier.clone();
            let thread = std::thread::Builder::new().name("store".to_owned());
            let thread = thread.spawn(move || work((&*store, &carrier), &ops, &done, &waker));
            threads.push(thread.map_err(|error| {
                Error::new(Errno::Again, "store threads", format!("cannot be started: {error}"))
                    .remedy("allow this user or container more threads")
            })?);
        }
        let (journal, compaction, pool) = (Some(journal), Some(compaction), Some(pool));
        Ok(Self { journal, compaction, pool, carrier, finished, threads })
    }

    pub(crate) fn submit(&self, token: Token, op: StoreOp) {
        let queue = match op {
            StoreOp::Append { .. } => &self.journal,
            StoreOp::CompactDir { .. } => &self.compaction,
            StoreOp::Put { .. }
            | StoreOp::Get { .. }
            | StoreOp::List { .. }
            | StoreOp::Delete { .. }
            | StoreOp::PurgeData { .. }
            | StoreOp::PurgeDir { .. }
            | StoreOp::LoadDir { .. }
            | StoreOp::LookUp { .. }
            | StoreOp::AttachDirs { .. }
            | StoreOp::ProveRuns { .. }
            | StoreOp::TakeSnapshot { .. }
            | StoreOp::CommitDir { .. } => &self.pool,
        };
        if let Some(queue) = queue {
            // The receiving threads live until `stop`.
            let _ = queue.send((token, op));
        }
    }

    pub(crate) fn finished(&self) -> Option<Finished> {
        self.finished.try_recv().ok()
    }

    /// Runs that are being merged are left as they were: the server is about to end.
    pub(crate) fn hurry(&self) {
        self.carrier.stop();
    }

    /// Waits for everything that was submitted.
    pub(crate) fn stop(mut self) {
        self.hurry();
        (self.journal, self.compaction, self.pool) = (None, None, None);
        for thread in self.threads.drain(..) {
            // A worker that panicked has already said so; its operation never reported success.
            let _ = thread.join();
        }
    }
}

fn work(
    (store, carrier): (&dyn ObjectStore, &Carrier),
    ops: &Receiver<(Token, StoreOp)>,
    done: &Sender<Finished>,
    waker: &Waker,
) {
    for (token, op) in ops {
        let result = carrier.carry_out(store, op);
        if done.send((token, result)).is_err() {
            return;
        }
        waker.wake();
    }
}
