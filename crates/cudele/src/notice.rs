//! What the server says without having been asked, and who hears it.

use types::{Ino, Result};

use crate::Fs;
use crate::ranks;

/// What the server says without having been asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Somebody else opens a file that this client has open: what is not written is to be written,
    /// and the file given up for private use. Or somebody waits for a subtree that this client has
    /// decoupled under `merge: on_demand` ([`crate::Subtree::meet_demand`]).
    Recall {
        /// The file, or the root of the subtree.
        ino: Ino,
    },
    /// A lock on a file is lost: somebody else took it while the connection was down.
    LockLost {
        /// The file.
        ino: Ino,
    },
}

impl Fs {
    /// Listens to the server from now on, on a thread of its own that hands over one notice at a
    /// time. It may make requests; it must not keep the `Fs` alive, which ends the thread when it is
    /// dropped. A client that listens also returns to a restarted server when it asks for nothing.
    /// Only the first listener counts.
    ///
    /// # Errors
    /// `EAGAIN` if there can be no more threads.
    pub fn listen(&self, handler: impl FnMut(Notice) + Send + 'static) -> Result<()> {
        self.listen_by(self.ranks.handled_by(handler))
    }

    /// What servers say unasked is heard, also if nobody listens.
    pub(crate) fn hear(&self) -> Result<()> {
        self.listen_by(self.ranks.handled_by_nobody())
    }

    fn listen_by(&self, handler: ranks::Handler) -> Result<()> {
        for link in self.ranks.others() {
            ranks::listen_on(&self.ranks, &self.link, &link, handler.clone())?;
        }
        ranks::listen_on(&self.ranks, &self.link, &self.link, handler)
    }
}
