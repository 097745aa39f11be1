//! Open files: the requests with which programs open, share, append to and lock files by inode
//! number. The caller reads and writes the content: inline content with [`Op::SetData`], other
//! content in the object store.

use std::sync::Arc;

use types::{Attr, ClientId, Cred, Ino, Lock, Result};
use wire::{Answer, Op, Opened};

use crate::Fs;
use crate::fs::unexpected;

impl Fs {
    /// Opens a regular file for reading or for writing. Until it is closed its data stays, whatever
    /// happens to its names.
    ///
    /// If the answer is not shared, the caller may keep what it reads and writes until
    /// [`crate::Notice::Recall`] arrives; it answers with [`Fs::yield_file`]. If it is shared,
    /// nothing may be kept, content goes to the object store only, and the file's length is set by
    /// [`Fs::grow_as`] and [`Fs::append_as`]. A file that is open more than once is shared by all of
    /// them as soon as one answer says so. It is told to the server again when the connection is
    /// made anew; a file that others opened meanwhile is recalled then.
    ///
    /// # Errors
    /// `EACCES`, `EISDIR`, `EINVAL` if it is no file, `ESTALE` if the server does not know it.
    pub fn open_as(&self, cred: &Cred, ino: Ino, write: bool) -> Result<Opened> {
        let answer = self.call_as(cred, Op::Open { ino, write })?;
        let Answer::Opened(opened) = answer else { return Err(unexpected(&answer)) };
        Ok(opened)
    }

    /// Ends one [`Fs::open_as`] of the same kind. Nobody waits for the server, which is told if it
    /// was the last one.
    pub fn close_file(&self, ino: Ino, write: bool) {
        self.at_holder(ino, |link| link.close_file(ino, write, false));
    }

    /// As [`Fs::close_file`], for one who makes many requests: the server is told with the next one,
    /// or by [`Fs::tell`].
    pub fn close_file_soon(&self, ino: Ino, write: bool) {
        self.at_holder(ino, |link| link.close_file(ino, write, true));
    }

    /// Tells the server what it was not told yet. It need not know soon: until then it only keeps
    /// what nobody needs.
    pub fn tell(&self) {
        self.link().tell();
        self.ranks.others().iter().for_each(|link| link.tell());
    }

    /// The answer to a recall: everything that was kept about the file is written, and nothing is
    /// kept any more. Nothing may be written to the file from before this call until it returns,
    /// because the server moves what is inline to the object store.
    ///
    /// # Errors
    /// Those of the store: then the file is not shared, and whoever wanted it is told.
    pub fn yield_file(&self, ino: Ino) -> Result<()> {
        self.call(Op::Yield { ino }).map(drop)
    }

    /// The answer to a recall, if the file that was recalled is still open: [`Fs::yield_file`]. One
    /// that was closed and opened again since is another. Says whether it was.
    ///
    /// # Errors
    /// As [`Fs::yield_file`].
    pub fn yield_recalled(&self, ino: Ino) -> Result<bool> {
        // The answer is not waited for there: it may come only when something else has gone to another rank.
        let link = self.at_holder(ino, Arc::clone);
        link.yield_recalled(&Cred::root(), ino)
    }

    /// Whether a file that is open was recalled, and is to be given up. What was recalled while the
    /// answer to [`Fs::open_as`] was on its way is found here by who has that answer.
    #[must_use]
    pub fn is_recalled(&self, ino: Ino) -> bool {
        self.at_holder(ino, |link| link.lock().session.is_recalled(ino))
    }

    /// A decoupled subtree is merged when others ask for it.
    pub(crate) fn offer(&self, root: Ino) {
        self.link_of(root).lock().session.offer(root, true);
    }

    /// A subtree is not this client's any more.
    pub(crate) fn withdraw(&self, root: Ino) {
        self.at_holder(root, |link| link.lock().session.offer(root, false));
    }

    /// Whether somebody waits for a subtree to be merged.
    pub(crate) fn is_demanded(&self, root: Ino) -> bool {
        self.at_holder(root, |link| link.lock().session.is_demanded(root))
    }

    /// The same; who asks from now on asks for more.
    pub(crate) fn take_demand(&self, root: Ino) -> bool {
        self.at_holder(root, |link| link.lock().session.take_demand(root))
    }

    /// What a subtree held when somebody asked is merged.
    pub(crate) fn say_merged(&self, root: Ino) -> Result<()> {
        self.link_of(root).request(&Cred::root(), Op::Yield { ino: root }, &[]).map(drop)
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
        Self::attr_answer(self.call_as(cred, Op::Grow { ino, size })?)
    }

    /// Makes a file `length` bytes longer, for the caller to write just before its new end. No two
    /// callers are given the same bytes.
    ///
    /// # Errors
    /// As [`Fs::grow_as`]; `EFBIG`.
    pub fn append_as(&self, cred: &Cred, ino: Ino, length: u64) -> Result<Attr> {
        Self::attr_answer(self.call_as(cred, Op::Append { ino, length })?)
    }

    /// Sets, changes or, with [`types::LockMode::Unlock`], gives up a lock on a file. With `wait`
    /// this waits for those who are in the way, in the order of arrival; other threads go on.
    /// Owners are told apart by [`Lock::owner`] and the client; an owner is never in its own way.
    /// All locks end with the client. They are told to the server again when the connection is made
    /// anew; one that somebody else took meanwhile is lost ([`crate::Notice::LockLost`]).
    ///
    /// # Errors
    /// `EAGAIN` if it is taken and `wait` is not set, `EDEADLK` if waiting would never end, `EINTR`
    /// after [`Fs::cancel_lock`], `EINVAL` if it ends before it starts.
    pub fn lock(&self, ino: Ino, lock: Lock, wait: bool) -> Result<()> {
        self.call(Op::Lock { ino, lock, wait }).map(drop)
    }

    /// Ends another thread's wait for this very lock. If the lock was set in the meantime, it is.
    ///
    /// # Errors
    /// As [`Fs::call`].
    pub fn cancel_lock(&self, ino: Ino, lock: Lock) -> Result<()> {
        self.call(Op::CancelLock { ino, lock }).map(drop)
    }

    /// The first lock of somebody else that is in the way of this one, and whose it is.
    ///
    /// # Errors
    /// As [`Fs::call`].
    pub fn get_lock(&self, ino: Ino, lock: Lock) -> Result<Option<(ClientId, Lock)>> {
        let answer = self.call(Op::GetLock { ino, lock })?;
        let Answer::Locked(found) = answer else { return Err(unexpected(&answer)) };
        Ok(found)
    }
}
