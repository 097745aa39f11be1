//! Notices of servers, and their listener.

use types::{Ino, Result};

use crate::Fs;
use crate::ranks;

/// A message that a server sends without a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerNotice {
    /// Another client opens a file that this client has open: this client must write its cached
    /// content, and give up private use. Or a client waits for a subtree that this client has
    /// decoupled under `merge: on_demand` ([`crate::Subtree::answer_merge_request`]).
    Recall {
        /// The file, or the root of the subtree.
        ino: Ino,
    },
    /// A lock on a file is lost: another client took it while the connection was down.
    LockLost {
        /// The file.
        ino: Ino,
    },
}

impl Fs {
    /// Starts a thread that passes one notice at a time to `handle`. The handler may make requests;
    /// it must not keep the `Fs` alive, because the drop of the `Fs` ends the thread. A client with
    /// a listener also returns to a restarted server without a request of its own. Only the first
    /// listener counts.
    ///
    /// # Errors
    /// `EAGAIN` if there can be no more threads.
    pub fn listen(&self, handler: impl FnMut(ServerNotice) + Send + 'static) -> Result<()> {
        self.listen_by(self.ranks.handled_by(handler))
    }

    /// Receives notices, also without a listener.
    pub(crate) fn receive_notices(&self) -> Result<()> {
        self.listen_by(self.ranks.handled_by_nobody())
    }

    fn listen_by(&self, handler: ranks::Handler) -> Result<()> {
        for link in self.ranks.others() {
            ranks::listen_on(&self.ranks, &self.link, &link, handler.clone())?;
        }
        ranks::listen_on(&self.ranks, &self.link, &self.link, handler)
    }
}
