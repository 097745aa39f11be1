//! The thread that fills the reserve and measures the room of the store. The server's own thread
//! must not wait for a slow store.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use mds::Room;
use net::Waker;
use objstore::Store;
use types::{Errno, Error, Result};

/// The interval between two measurements.
const INTERVAL: Duration = Duration::from_millis(500);
/// The interval while the store is full: clients wait for the end of that.
const INTERVAL_FULL: Duration = Duration::from_millis(100);

/// See the module documentation. Ends with this value.
#[derive(Debug)]
pub(crate) struct Keeper {
    store: Arc<dyn Store>,
    seen: Receiver<Room>,
    known: Room,
    _alive: Sender<()>,
}

impl Keeper {
    /// Starts the thread, and allows this process to use the reserve.
    ///
    /// # Errors
    /// `EAGAIN` if there can be no more threads.
    pub(crate) fn start(store: &Arc<dyn Store>, bytes: u64, waker: Waker) -> Result<Self> {
        store.allow_reserve();
        let (saw, seen) = unbounded();
        let (alive, ended) = bounded::<()>(0);
        let looked_at = store.clone();
        let thread = std::thread::Builder::new().name("room".to_owned()).spawn(move || {
            loop {
                let room = look(&*looked_at, bytes);
                let pause = if room.held < room.wanted { INTERVAL_FULL } else { INTERVAL };
                if saw.send(room).is_err() {
                    return;
                }
                waker.wake();
                if ended.recv_timeout(pause) != Err(crossbeam_channel::RecvTimeoutError::Timeout) {
                    return;
                }
            }
        });
        thread.map_err(|error| {
            Error::new(Errno::Again, "the thread for the store's room", error.to_string())
                .remedy("allow this user or container more threads")
        })?;
        Ok(Self { store: store.clone(), seen, known: Room::default(), _alive: alive })
    }

    /// The room of the store, if it has changed. A use of the reserve shows without delay.
    pub(crate) fn changed(&mut self) -> Option<Room> {
        let mut now = self.seen.try_iter().last().unwrap_or(self.known);
        if self.store.is_short() && now.held >= now.wanted {
            now = Room { wanted: now.wanted.max(1), held: 0, ..now };
        }
        (now != self.known).then(|| {
            self.known = now;
            now
        })
    }
}

fn look(store: &dyn Store, bytes: u64) -> Room {
    // Fill the reserve first: the rest is for all clients.
    let reserved = store.reserve(bytes);
    let read_only = reserved.as_ref().is_err_and(|error| error.errno == Errno::ReadOnly);
    let reserved = reserved.unwrap_or_default();
    let space = store.space().unwrap_or_default();
    Room {
        total: space.total,
        available: space.available,
        wanted: reserved.wanted,
        held: reserved.held,
        read_only,
    }
}
