//! Locks that their holder loses only by its death, and then for good.
//!
//! The lock is Ceph's (`cls_lock`), without a time to live. Its holder also watches the lock's
//! object. A process that finds it held asks the watchers; a living holder answers at once, and one
//! that does not answer within [`GRACE`] is blocklisted by its address before its lock is taken. So
//! a process that was only asleep cannot write when it wakes up: all OSDs that the new holder has
//! talked to reject every request of it.
//!
//! Not a lease: without a question a holder may be silent for as long as it likes.
//!
//! Invariant: between two holders of a lock lies an unlock by the first, or its exclusion.

use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use types::{Errno, Error, Result};

use super::errors::to_error;
use super::sys::{Cluster, Code, CodeResult, Holder, Pool, Signal, Watch};
use crate::LockGuard;
use crate::store::held;

/// The name of the lock on the lock's object.
const LOCK: &CStr = c"cudele";

/// A holder that does not answer for so long is taken for dead. Ceph counts whole seconds.
const GRACE: Duration = Duration::from_secs(1);
/// The wait before a holder without a watch, as during its renewal, is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// How long to wait before a lost watch is tried again.
const WATCH_AGAIN: Duration = Duration::from_secs(1);

/// How long a dead holder is shut out, in seconds: a day. Long enough for it to be noticed, and
/// short enough for the list, which every server has, not to grow for ever.
const SHUT_OUT_S: u32 = 24 * 60 * 60;

/// A lock that is held.
#[derive(Debug)]
pub(super) struct NamedLock {
    pool: Arc<Pool>,
    name: String,
    cookie: String,
    owner: String,
    signal: Arc<Signal>,
    keeper: Option<JoinHandle<()>>,
}

impl NamedLock {
    /// Takes the lock.
    pub(super) fn take(
        cluster: &Cluster,
        pool: &Arc<Pool>,
        name: &str,
        owner: &str,
    ) -> Result<Self> {
        static TAKEN: AtomicU64 = AtomicU64::new(0);
        let me = format!("client.{}", cluster.instance());
        // Unique, so that one process does not take a lock twice; the owner is for people.
        let number = TAKEN.fetch_add(1, Ordering::Relaxed);
        let cookie = format!("{}.{number} {owner}", cluster.instance());
        loop {
            match pool.lock(name, LOCK, &cookie) {
                Ok(()) => break,
                Err(Code::BUSY | Code::EXISTS) => {}
                Err(code) => return Err(to_error(name, "lock", code)),
            }
            let holder = pool.holder(name, LOCK);
            let Some(holder) =
                holder.map_err(|code| to_error(name, "see who holds the lock", code))?
            else {
                continue; // It was released meanwhile.
            };
            if holder.client == me || lives(pool, name)? {
                return Err(held(name, owner_of(&holder)));
            }
            exclude(cluster, pool, name, LOCK, &holder)?;
        }
        let signal = Arc::new(Signal::default());
        let mut lock = Self {
            pool: Arc::clone(pool),
            name: name.to_owned(),
            cookie,
            owner: owner.to_owned(),
            signal: Arc::clone(&signal),
            keeper: None,
        };
        // From here on the guard unlocks. A process that asks before the watch exists asks again.
        let watch = Watch::new(pool, name, &signal);
        let watch = watch.map_err(|code| to_error(name, "watch the lock", code))?;
        let (pool, name) = (Arc::clone(pool), name.to_owned());
        let keeper = std::thread::Builder::new().name("lock".to_owned());
        let keeper = keeper.spawn(move || keep(&pool, &name, watch, &signal));
        lock.keeper = Some(keeper.map_err(|error| {
            Error::new(Errno::Again, "lock thread", format!("cannot be started: {error}"))
                .remedy("allow this user or container more threads")
        })?);
        Ok(lock)
    }
}

impl LockGuard for NamedLock {
    fn owner(&self) -> &str {
        &self.owner
    }

    fn is_lost(&self) -> bool {
        self.signal.taken.load(Ordering::Acquire)
    }
}

impl Drop for NamedLock {
    fn drop(&mut self) {
        self.signal.set(&self.signal.ended);
        if let Some(keeper) = self.keeper.take() {
            // A keeper that panicked has lost its watch, which is going away anyway.
            let _ = keeper.join();
        }
        // If it cannot be released, the next process finds that no watcher answers for it.
        let _ = self.pool.unlock(&self.name, LOCK, &self.cookie);
    }
}

/// Keeps the watch until it is no longer needed, and renews it when the cluster has lost it.
fn keep(pool: &Arc<Pool>, name: &str, watch: Watch, signal: &Arc<Signal>) {
    let mut watch = Some(watch);
    while !signal.ended.load(Ordering::Acquire) {
        if watch.is_some() {
            signal.wait(None);
            if signal.lost.load(Ordering::Acquire) {
                watch = None;
            }
            continue;
        }
        match Watch::new(pool, name, signal) {
            Ok(new) => watch = Some(new),
            Err(Code::SHUT_OUT) => return signal.taken.store(true, Ordering::Release),
            Err(_) => signal.wait(Some(WATCH_AGAIN)),
        }
    }
}

/// Whether the holder answers.
fn lives(pool: &Pool, name: &str) -> Result<bool> {
    let start = Instant::now();
    loop {
        let answered: CodeResult<u32> = pool.ask_watchers(name, GRACE);
        match answered {
            Ok(0) | Err(Code::TIMED_OUT) => {}
            Ok(_) => return Ok(true),
            // The object went with its holder.
            Err(Code::NOT_FOUND) => return Ok(false),
            Err(code) => return Err(to_error(name, "ask who holds the lock", code)),
        }
        if start.elapsed() >= GRACE {
            return Ok(false);
        }
        std::thread::sleep(ASK_AGAIN);
    }
}

/// Takes the lock from a dead or given-up holder, which can change nothing from then on.
pub(super) fn exclude(
    cluster: &Cluster,
    pool: &Pool,
    name: &str,
    lock: &CStr,
    holder: &Holder,
) -> Result<()> {
    cluster.shut_out(&holder.address, SHUT_OUT_S).map_err(|code| {
        let doing = format!("shut out the former holder {} ({})", owner_of(holder), holder.address);
        let error = to_error(name, &doing, code);
        if error.errno == Errno::Access {
            return error.remedy(
                "let this user do it: mon 'profile rbd', or see the \
                                 administrator's guide",
            );
        }
        error
    })?;
    match pool.break_lock(name, lock, holder) {
        // Another process did it.
        Ok(()) | Err(Code::NOT_FOUND) => Ok(()),
        Err(code) => Err(to_error(name, "break the lock of a dead holder", code)),
    }
}

/// The name that the holder gave.
fn owner_of(holder: &Holder) -> &str {
    holder.cookie.split_once(' ').map_or("", |(_, owner)| owner)
}
