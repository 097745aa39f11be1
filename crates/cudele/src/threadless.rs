//! A client on the thread of its caller only: for a process that may fork at any moment.
//!
//! It drives the same values as every client ([`client::Session`], [`client::Route`],
//! [`client::JobRun`]) over the same link, of which the thread that asks also reads. No thread
//! listens, sends later, merges in the background or works on a member of a parallel composition:
//! the members run one after the other, and a merge at an interval is a part of an append. So this
//! client caches nothing, and a policy with `merge: on_demand` is refused.
//!
//! A child that the process forks has copies of the sockets, locks and files of its parent. It
//! leaves them alone, and the parent keeps its session. In the child a
//! [`ThreadlessClient`] begins a session of its own with the next call, and a [`ThreadlessSubtree`]
//! returns `ESTALE`, because the parent has the subtree. The child's copies are open until it ends
//! or executes another program, and so long the parent's locks on this machine's disk last.
//!
//! Invariant: no process sends or closes anything for a session that it did not begin.

use std::sync::Arc;

use net::{Address, Keyring};
use rustix::process::{Pid, getpid};
use types::{Attr, ClientId, Errno, Error, RenameFlags, Result};

use crate::{Cluster, DirEntry, Fs, Locator, NewFile, Policy, Subtree};

/// A value of one process, which another process neither uses nor drops.
#[derive(Debug)]
struct OfProcess<T> {
    process: Pid,
    value: Option<T>,
}

impl<T> OfProcess<T> {
    fn new(value: T) -> Self {
        Self { process: getpid(), value: Some(value) }
    }

    fn get(&mut self) -> Option<&mut T> {
        self.value.as_mut().filter(|_| self.process == getpid())
    }

    fn take(&mut self) -> Option<T> {
        if self.process == getpid() { self.value.take() } else { None }
    }
}

impl<T> Drop for OfProcess<T> {
    fn drop(&mut self) {
        if self.process != getpid() {
            std::mem::forget(self.value.take());
        }
    }
}

/// See the module documentation.
#[derive(Debug)]
pub struct ThreadlessClient {
    monitor: Address,
    keys: Keyring,
    fs: OfProcess<Arc<Fs>>,
}

impl ThreadlessClient {
    /// Finds a cluster, and begins a session.
    ///
    /// # Errors
    /// As [`Cluster::find`] and [`Cluster::mount`].
    pub fn find(locator: &Locator) -> Result<Self> {
        let found = locator.find()?;
        Self::connect(&found.mon, &found.keys)
    }

    /// Begins a session with the cluster of this monitor; over TCP with a key.
    ///
    /// # Errors
    /// As [`Cluster::connect_with`] and [`Cluster::mount`].
    pub fn connect(monitor: &Address, keys: &Keyring) -> Result<Self> {
        let fs = Cluster::connect_threadless(monitor, keys)?.mount()?;
        Ok(Self { monitor: monitor.clone(), keys: keys.clone(), fs: OfProcess::new(fs) })
    }

    fn fs(&mut self) -> Result<&Arc<Fs>> {
        if self.fs.get().is_none() {
            *self = Self::connect(&self.monitor, &self.keys)?;
        }
        self.fs.get().map(|fs| &*fs).ok_or_else(of_parent)
    }

    /// The number of this client in this process.
    ///
    /// # Errors
    /// Those of a new session, in a child.
    pub fn client(&mut self) -> Result<ClientId> {
        Ok(self.fs()?.client())
    }

    /// As [`Fs::make_dir`].
    ///
    /// # Errors
    /// The same.
    pub fn make_dir(&mut self, path: impl AsRef<[u8]>, mode: u32) -> Result<Attr> {
        self.fs()?.make_dir(path, mode)
    }

    /// Creates a file, symbolic link or device.
    ///
    /// # Errors
    /// As [`crate::Dir::create`].
    pub fn create(&mut self, path: impl AsRef<[u8]>, new: &NewFile<'_>) -> Result<Attr> {
        let (dir, name) = self.fs()?.open_parent(path)?;
        dir.create(name, new)
    }

    /// As [`Fs::stat`].
    ///
    /// # Errors
    /// The same.
    pub fn stat(&mut self, path: impl AsRef<[u8]>) -> Result<Attr> {
        self.fs()?.stat(path)
    }

    /// The entries of a directory.
    ///
    /// # Errors
    /// As [`crate::Dir::list`].
    pub fn list(&mut self, path: impl AsRef<[u8]>) -> Result<Vec<DirEntry>> {
        self.fs()?.open_dir(path)?.list()
    }

    /// As [`Fs::rename`].
    ///
    /// # Errors
    /// The same.
    pub fn rename(&mut self, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> Result<()> {
        self.fs()?.rename(from, to, RenameFlags::default())
    }

    /// Removes a name of anything but a directory.
    ///
    /// # Errors
    /// As [`crate::Dir::unlink`].
    pub fn remove(&mut self, path: impl AsRef<[u8]>) -> Result<()> {
        let (dir, name) = self.fs()?.open_parent(path)?;
        dir.unlink(name)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As [`crate::Dir::rmdir`].
    pub fn remove_dir(&mut self, path: impl AsRef<[u8]>) -> Result<()> {
        let (dir, name) = self.fs()?.open_parent(path)?;
        dir.rmdir(name)
    }

    /// Waits until everything this client changed is as durable as its policies promise.
    ///
    /// # Errors
    /// As [`Fs::sync`].
    pub fn sync(&mut self) -> Result<()> {
        self.fs()?.sync().map(drop)
    }

    /// As [`Fs::decouple`].
    ///
    /// # Errors
    /// The same; `EAGAIN` for a policy with `merge: on_demand`.
    pub fn decouple(
        &mut self,
        path: impl AsRef<[u8]>,
        policy: &Policy,
    ) -> Result<ThreadlessSubtree> {
        self.fs()?.decouple(path, policy).map(|it| ThreadlessSubtree(OfProcess::new(it)))
    }

    /// As [`Fs::attach`].
    ///
    /// # Errors
    /// The same.
    pub fn attach(&mut self, path: impl AsRef<[u8]>) -> Result<ThreadlessSubtree> {
        self.fs()?.attach(path).map(|it| ThreadlessSubtree(OfProcess::new(it)))
    }
}

/// A decoupled subtree of a [`ThreadlessClient`].
#[derive(Debug)]
pub struct ThreadlessSubtree(OfProcess<Subtree>);

impl ThreadlessSubtree {
    /// The subtree, for appends, merges and everything that does not end it.
    ///
    /// # Errors
    /// `ESTALE` in a child: the subtree is its parent's.
    pub fn get(&mut self) -> Result<&mut Subtree> {
        self.0.get().ok_or_else(of_parent)
    }

    /// As [`Subtree::forget`], after a merge.
    ///
    /// # Errors
    /// The same, and those of [`ThreadlessSubtree::get`].
    pub fn forget(mut self) -> Result<()> {
        self.0.take().ok_or_else(of_parent)?.forget()
    }

    /// As [`Subtree::discard`].
    ///
    /// # Errors
    /// The same, and those of [`ThreadlessSubtree::get`].
    pub fn discard(mut self) -> Result<()> {
        self.0.take().ok_or_else(of_parent)?.discard()
    }
}

fn of_parent() -> Error {
    Error::new(Errno::Stale, "subtree", "it belongs to the process that forked this one")
        .remedy("merge it in that process, or decouple another subtree in this one")
}
