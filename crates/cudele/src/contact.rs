//! Whether the metadata servers can be reached, for the log of a mount.
//!
//! Invariant: of one rank, news of loss and of return alternate.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Mutex, OnceLock, PoisonError};

use types::{Error, Rank};

use crate::Cluster;

/// A change in the connection to a metadata server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectionChange {
    /// The connection is lost.
    Lost {
        /// The server's rank.
        rank: Rank,
        /// How it was lost.
        error: Error,
    },
    /// There is a connection again.
    Restored {
        /// The server's rank.
        rank: Rank,
    },
}

impl fmt::Display for ConnectionChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost { rank, error } => {
                write!(f, "lost the connection to {rank}; requests wait for it: {error}")
            }
            Self::Restored { rank } => write!(f, "connected to {rank} again"),
        }
    }
}

type Watcher = Box<dyn Fn(ConnectionChange) + Send + Sync>;

/// The watcher, and the ranks that are lost.
#[derive(Default)]
pub(crate) struct Contact {
    watcher: OnceLock<Watcher>,
    lost: Mutex<BTreeSet<Rank>>,
}

impl fmt::Debug for Contact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contact").field("lost", &self.lost).finish_non_exhaustive()
    }
}

impl Contact {
    pub(crate) fn lost(&self, rank: Rank, error: &Error) {
        let Some(watcher) = self.watcher.get() else { return };
        if self.ranks().insert(rank) {
            watcher(ConnectionChange::Lost { rank, error: error.clone() });
        }
    }

    pub(crate) fn restored(&self, rank: Rank) {
        let Some(watcher) = self.watcher.get() else { return };
        if self.ranks().remove(&rank) {
            watcher(ConnectionChange::Restored { rank });
        }
    }

    fn ranks(&self) -> std::sync::MutexGuard<'_, BTreeSet<Rank>> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cluster {
    /// Reports each lost and restored connection to a metadata server, on the thread that notices
    /// it: the watcher must neither block nor make requests. The first watcher stays.
    pub fn watch_contact(&self, watcher: impl Fn(ConnectionChange) + Send + Sync + 'static) {
        let _ = self.contact.watcher.set(Box::new(watcher));
    }
}
