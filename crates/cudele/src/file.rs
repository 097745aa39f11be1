//! Open files: the requests with which programs open, share, append to and lock files by inode
//! number. The caller reads and writes the content: inline content with [`ChangeOp::SetData`],
//! other content in the object store.

use std::sync::Arc;

use types::{Attr, ClientId, Cred, Ino, Lock, Result};
use wire::{Answer, ChangeOp, Op, Opened, SessionOp};

use crate::Fs;
use crate::fs::unexpected;

impl Fs {
    /// Opens a regular file for reading or for writing. Its data stays until it is closed, also
    /// without a name.
    ///
    /// If the answer is not shared, the caller may cache reads and writes until
    /// [`crate::ServerNotice::Recall`] arrives, which it answers with [`Fs::yield_file`]. If it is
    /// shared, the caller may cache nothing: content goes to the object store only, and
    /// [`Fs::grow_as`] and [`Fs::append_as`] set the length. If a file is open more than once here,
    /// one shared answer makes all of them shared. A new connection reports the open files to the
    /// server again; the server recalls those that other clients opened in between.
    ///
    /// # Errors
    /// `EACCES`, `EISDIR`, `EINVAL` if it is no file, `ESTALE` if the server does not know it.
    pub fn open_as(&self, cred: &Cred, ino: Ino, write: bool) -> Result<Opened> {
        let answer = self.call_as(cred, Op::Session(SessionOp::Open { ino, write }))?;
        let Answer::Opened(opened) = answer else { return Err(unexpected(&answer)) };
        Ok(opened)
    }

    /// Ends one [`Fs::open_as`] of the same kind. Does not wait for the server, which gets a
    /// message if it was the last one.
    pub fn close_file(&self, ino: Ino, write: bool) {
        self.at_holder(ino, |link| link.close_file(ino, write, false));
    }

    /// As [`Fs::close_file`], for a caller with many requests: the message goes with the next
    /// request, or with [`Fs::send_pending`].
    pub fn close_file_soon(&self, ino: Ino, write: bool) {
        self.at_holder(ino, |link| link.close_file(ino, write, true));
    }

    /// Sends the server all pending messages about closed files. They are not urgent: until then
    /// the server keeps unused state.
    pub fn send_pending(&self) {
        self.link().send_pending();
        self.ranks.others().iter().for_each(|link| link.send_pending());
    }

    /// Answers a recall: the caller has written all cached content of the file, and caches none
    /// from now on. Until this returns, the caller must not write to the file, because the server
    /// moves inline content to the object store.
    ///
    /// # Errors
    /// The errors of the store: the file is then not shared, and the asking client gets an error.
    pub fn yield_file(&self, ino: Ino) -> Result<()> {
        self.call(Op::Session(SessionOp::Yield { ino })).map(drop)
    }

    /// The answer to a recall, if the file that was recalled is still open: [`Fs::yield_file`]. One
    /// that was closed and opened again since is another. Says whether it was.
    ///
    /// # Errors
    /// As [`Fs::yield_file`].
    pub fn yield_recalled(&self, ino: Ino) -> Result<bool> {
        // The link must not be locked during the wait: the answer may need a move to another rank
        // first.
        let link = self.at_holder(ino, Arc::clone);
        link.yield_recalled(&Cred::root(), ino)
    }

    /// Whether the server recalled an open file. A recall may arrive before the answer to
    /// [`Fs::open_as`]; the thread with that answer asks here.
    #[must_use]
    pub fn is_recalled(&self, ino: Ino) -> bool {
        self.at_holder(ino, |link| link.lock().session.is_recalled(ino))
    }

    /// Merges a decoupled subtree when other clients ask for it.
    pub(crate) fn offer(&self, root: Ino) {
        self.link_of(root).lock().session.offer(root, true);
    }

    /// A subtree is not this client's any more.
    pub(crate) fn withdraw(&self, root: Ino) {
        self.at_holder(root, |link| link.lock().session.offer(root, false));
    }

    /// Whether a client waits for the merge of a subtree.
    pub(crate) fn has_merge_request(&self, root: Ino) -> bool {
        self.at_holder(root, |link| link.lock().session.has_merge_request(root))
    }

    /// The same, and forgets the demand: a later one asks for a later merge.
    pub(crate) fn take_merge_request(&self, root: Ino) -> bool {
        self.at_holder(root, |link| link.lock().session.take_merge_request(root))
    }

    /// Reports that the events of a subtree from before the demand are merged.
    pub(crate) fn say_merged(&self, root: Ino) -> Result<()> {
        self.link_of(root)
            .request(&Cred::root(), Op::Session(SessionOp::Yield { ino: root }), &[])
            .map(drop)
    }

    /// Whether a file that is open is shared, as far as answers have arrived.
    #[must_use]
    pub fn is_shared(&self, ino: Ino) -> bool {
        self.at_holder(ino, |link| link.lock().session.is_shared(ino))
    }

    /// Makes a file at least `size` bytes long; its mtime is now.
    ///
    /// # Errors
    /// `EACCES` if it is not open for writing and the mode does not allow it, `EISDIR`, `EINVAL`,
    /// `ESTALE`.
    pub fn grow_as(&self, cred: &Cred, ino: Ino, size: u64) -> Result<Attr> {
        Self::attr_answer(self.call_as(cred, Op::Change(ChangeOp::Grow { ino, size }))?)
    }

    /// Makes a file `length` bytes longer, for the caller to write just before its new end. No two
    /// callers are given the same bytes.
    ///
    /// # Errors
    /// As [`Fs::grow_as`]; `EFBIG`.
    pub fn append_as(&self, cred: &Cred, ino: Ino, length: u64) -> Result<Attr> {
        Self::attr_answer(self.call_as(cred, Op::Change(ChangeOp::Append { ino, length }))?)
    }

    /// Sets, changes or, with [`types::LockMode::Unlock`], releases a lock on a file. With `wait`
    /// this waits for conflicting locks, in the order of arrival; other threads continue.
    /// [`Lock::owner`] and the client identify an owner, whose locks do not conflict with each
    /// other. All locks end with the client. A new connection sets them again; a lock that another
    /// client took in between is lost ([`crate::ServerNotice::LockLost`]).
    ///
    /// # Errors
    /// `EAGAIN` if it is taken and `wait` is not set, `EDEADLK` if waiting would never end, `EINTR`
    /// after [`Fs::cancel_lock`], `EINVAL` if it ends before it starts.
    pub fn lock(&self, ino: Ino, lock: Lock, wait: bool) -> Result<()> {
        self.call(Op::Session(SessionOp::Lock { ino, lock, wait })).map(drop)
    }

    /// Ends another thread's wait for this very lock. If the lock was set in the meantime, it is.
    ///
    /// # Errors
    /// As [`Fs::call`].
    pub fn cancel_lock(&self, ino: Ino, lock: Lock) -> Result<()> {
        self.call(Op::Session(SessionOp::CancelLock { ino, lock })).map(drop)
    }

    /// The first conflicting lock, and its client.
    ///
    /// # Errors
    /// As [`Fs::call`].
    pub fn get_lock(&self, ino: Ino, lock: Lock) -> Result<Option<(ClientId, Lock)>> {
        let answer = self.call(Op::Session(SessionOp::GetLock { ino, lock }))?;
        let Answer::Locked(found) = answer else { return Err(unexpected(&answer)) };
        Ok(found)
    }
}
