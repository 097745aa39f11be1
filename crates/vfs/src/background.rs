//! The threads of a mount: recalls of files, and regular write-back.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};

use cudele::{Errno, Error, Result, ServerNotice};

use crate::write_back::WRITE_BACK_EVERY;
use crate::{Vfs, held};

impl Vfs {
    /// Starts to receive recalls of files, and gives up the held content of each. `outdated` is
    /// called when a kernel must drop cached entries (`Outdated::take`).
    ///
    /// # Errors
    /// If no thread can be started.
    pub(crate) fn share(self: &Arc<Self>, outdated: impl Fn() + Send + 'static) -> Result<()> {
        let (tell, recalls) = channel();
        let vfs = Arc::downgrade(self);
        // Not on the receiving thread, which must receive the answer.
        std::thread::Builder::new()
            .name("recalls".to_owned())
            .spawn(move || {
                // Recalls from before this thread started.
                for root in vfs.upgrade().map(|vfs| vfs.owned_roots()).unwrap_or_default() {
                    let Some(vfs) = vfs.upgrade() else { return };
                    let _ = vfs.subtrees().answer_merge_request(root);
                }
                while let Ok(ino) = recalls.recv() {
                    let Some(vfs) = vfs.upgrade() else { return };
                    // After a failure the asking client gets an error, and the content stays here.
                    let _ = if vfs.is_owned(ino) {
                        vfs.subtrees().answer_merge_request(ino)
                    } else {
                        vfs.files().give_up(ino)
                    };
                    outdated();
                }
            })
            .map_err(|error| Error::new(Errno::Again, "thread", error.to_string()))?;
        self.fs().listen(move |notice| match notice {
            ServerNotice::Recall { ino } => drop(tell.send(ino)),
            ServerNotice::LockLost { .. } => {}
        })
    }

    /// Writes files back every few seconds, as long as there is something to write back to.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(crate) fn write_back_regularly(self: &Arc<Self>) -> Result<()> {
        let (alive, ended) = channel::<()>();
        *held(&self.ticking) = Some(alive);
        let vfs = Arc::downgrade(self);
        let tick = move || {
            while ended.recv_timeout(WRITE_BACK_EVERY) == Err(RecvTimeoutError::Timeout) {
                let Some(vfs) = vfs.upgrade() else { return };
                vfs.content().write_back_idle();
                vfs.fs().send_pending();
            }
        };
        let started = std::thread::Builder::new().name("write-back".to_owned()).spawn(tick);
        started.map(drop).map_err(|error| Error::new(Errno::Again, "thread", error.to_string()))
    }
}
