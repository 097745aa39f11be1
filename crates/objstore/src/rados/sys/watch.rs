//! Watches on objects: a sign of life on request.

use std::ffi::{CString, c_int};
use std::ptr::null;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::library::{Api, Handle};
use super::{CodeResult, Io, Pool, check, text};

/// A watch on an object: it answers [`Pool::ask_watchers`], as long as this process runs and the
/// cluster hears of it.
#[derive(Debug)]
pub(in crate::rados) struct Watch {
    pool: Arc<Pool>,
    number: u64,
    /// The argument of the callbacks; they have a pointer to it.
    context: *mut Context,
}

// SAFETY: any thread of librados may read the context, and all its parts may be shared.
unsafe impl Send for Watch {}

#[derive(Debug)]
struct Context {
    api: &'static Api,
    io: Handle,
    object: CString,
    signal: Arc<Signal>,
}

/// Tells the keeper of a watch that it is lost, or that it is no longer needed.
#[derive(Debug, Default)]
pub(in crate::rados) struct Signal {
    state: Mutex<()>,
    changed: Condvar,
    pub(in crate::rados) lost: AtomicBool,
    pub(in crate::rados) ended: AtomicBool,
    /// The watch is lost for good: this process was shut out.
    pub(in crate::rados) taken: AtomicBool,
}

impl Signal {
    pub(in crate::rados) fn set(&self, flag: &AtomicBool) {
        let _state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        flag.store(true, Ordering::Release);
        self.changed.notify_all();
    }

    /// Waits until the watch is no longer needed or, unless that is known, lost; or so long.
    pub(in crate::rados) fn wait(&self, patience: Option<Duration>) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let happened = || {
            self.ended.load(Ordering::Acquire)
                || (patience.is_none() && self.lost.load(Ordering::Acquire))
        };
        let patience = patience.unwrap_or(Duration::MAX);
        let waited = self.changed.wait_timeout_while(state, patience, |()| !happened());
        drop(waited);
    }
}

/// A client that is not heard for so long watches nothing any more, in seconds.
const WATCH_TIMEOUT_S: u32 = 30;

impl Watch {
    pub(in crate::rados) fn new(
        pool: &Arc<Pool>,
        object: &str,
        signal: &Arc<Signal>,
    ) -> CodeResult<Self> {
        let Io(api, io) = pool.io;
        let object = text(object)?;
        signal.lost.store(false, Ordering::Release);
        let context = Context { api, io, object: object.clone(), signal: Arc::clone(signal) };
        let context = Box::into_raw(Box::new(context));
        let mut number = 0;
        // SAFETY: the context lives until the watch is gone and its callbacks have returned.
        let result = check(unsafe {
            (api.rados_watch3)(
                io,
                object.as_ptr(),
                &raw mut number,
                on_notify,
                on_lost,
                WATCH_TIMEOUT_S,
                context.cast(),
            )
        });
        if let Err(code) = result {
            // SAFETY: without a watch no thread has the pointer.
            drop(unsafe { Box::from_raw(context) });
            return Err(code);
        }
        Ok(Self { pool: Arc::clone(pool), number, context })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let Io(api, io) = self.pool.io;
        // SAFETY: after both calls no callback runs or will run, so the context is ours again.
        unsafe {
            (api.rados_unwatch2)(io, self.number);
            (api.rados_watch_flush)(self.pool.cluster.handle);
            drop(Box::from_raw(self.context));
        }
    }
}

extern "C" fn on_notify(
    context: Handle,
    notification: u64,
    watch: u64,
    _asker: u64,
    _data: Handle,
    _bytes: usize,
) {
    // SAFETY: what `Watch::new` gave; it outlives the watch.
    let Context { api, io, object, .. } = unsafe { &*context.cast::<Context>() };
    // SAFETY: librados allows this call from here. A lost answer is requested again.
    unsafe { (api.rados_notify_ack)(*io, object.as_ptr(), notification, watch, null(), 0) };
}

extern "C" fn on_lost(context: Handle, _watch: u64, _code: c_int) {
    // SAFETY: as above.
    let Context { signal, .. } = unsafe { &*context.cast::<Context>() };
    signal.set(&signal.lost);
}
