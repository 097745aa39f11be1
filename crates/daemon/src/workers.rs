//! Worker threads that carry store operations out.
//!
//! Journal appends have a thread of their own, so that no checkpoint delays them; they reach the
//! store in the order in which they were emitted. Everything else shares a small pool.

use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, unbounded};
use metastore::request::{StoreFailure, StoreOp, StoreResult, Token};
use net::Waker;
use objstore::{ObjectStore, carry_out};
use types::{Errno, Error, Result};

/// Threads beside the journal's.
const POOL: usize = 2;

pub(crate) type Finished = (Token, std::result::Result<StoreResult, Box<StoreFailure>>);

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Workers {
    journal: Option<Sender<(Token, StoreOp)>>,
    pool: Option<Sender<(Token, StoreOp)>>,
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
        let (pool, pool_ops) = unbounded();
        let mut threads = Vec::new();
        let queues = [journal_ops].into_iter().chain(std::iter::repeat_n(pool_ops, POOL));
        for ops in queues {
            let (store, done, waker) = (store.clone(), done.clone(), waker.clone());
            let thread = std::thread::Builder::new().name("store".to_owned());
            let thread = thread.spawn(move || work(&*store, &ops, &done, &waker));
            threads.push(thread.map_err(|error| {
                Error::new(Errno::Again, "store threads", format!("cannot be started: {error}"))
                    .remedy("allow this user or container more threads")
            })?);
        }
        Ok(Self { journal: Some(journal), pool: Some(pool), finished, threads })
    }

    pub(crate) fn submit(&self, token: Token, op: StoreOp) {
        let queue = match op {
            StoreOp::Append { .. } => &self.journal,
            StoreOp::Put { .. }
            | StoreOp::Get { .. }
            | StoreOp::List { .. }
            | StoreOp::Delete { .. }
            | StoreOp::PurgeData { .. }
            | StoreOp::PurgeDir { .. }
            | StoreOp::LoadDir { .. }
            | StoreOp::AttachDirs { .. }
            | StoreOp::ProveRun { .. }
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

    /// Waits for everything that was submitted.
    pub(crate) fn stop(mut self) {
        (self.journal, self.pool) = (None, None);
        for thread in self.threads.drain(..) {
            // A worker that panicked has already said so; its operation never reported success.
            let _ = thread.join();
        }
    }
}

fn work(
    store: &dyn ObjectStore,
    ops: &Receiver<(Token, StoreOp)>,
    done: &Sender<Finished>,
    waker: &Waker,
) {
    for (token, op) in ops {
        let result = carry_out(store, op);
        if done.send((token, result)).is_err() {
            return;
        }
        waker.wake();
    }
}
