//! A connection, and the calls that need nothing but a path.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use calls::{CallFailure, Follow, Mount, OpenDir, OpenFile, OpenSubtree, Times};
use cudele::{Attr, FileType, Timestamp};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error::call;
use crate::file::File;
use crate::held::Held;
use crate::subtree::Subtree;

/// Attributes as Python makes `os.stat_result` of them: type and permissions, inode, names, owner,
/// group, length, and access, content and attribute times in nanoseconds.
pub(crate) type Stat = (u32, u64, u32, u32, u32, u64, i64, i64, i64);

pub(crate) fn stat_of(attr: &Attr) -> Stat {
    let Attr { mode, ino, nlink, uid, gid, size, .. } = *attr;
    (mode, ino.0, nlink, uid, gid, size, attr.atime.0, attr.mtime.0, attr.ctime.0)
}

/// Connects to a cluster.
#[pyfunction]
#[pyo3(signature = (mon, dir))]
pub(crate) fn connect(
    py: Python<'_>,
    mon: Option<String>,
    dir: Option<&[u8]>,
) -> PyResult<Connection> {
    let dir = dir.map(|dir| PathBuf::from(OsStr::from_bytes(dir)));
    let mount = call(py, || Ok(Mount::connect(mon, dir)?))?;
    Ok(Connection { mount: Held::new("connection", Arc::new(mount)) })
}

/// A connection to a cluster.
#[pyclass(frozen, module = "cudele._cudele")]
#[derive(Debug)]
pub(crate) struct Connection {
    mount: Held<Arc<Mount>>,
}

impl Connection {
    fn call<T: Send>(
        &self,
        py: Python<'_>,
        run: impl FnOnce(&Arc<Mount>) -> Result<T, CallFailure> + Send,
    ) -> PyResult<T> {
        call(py, || run(&self.mount.get()?))
    }
}

fn follow(follow: bool) -> Follow {
    if follow { Follow::Last } else { Follow::Not }
}

#[pymethods]
impl Connection {
    /// Ends the connection after flushing written data to the server.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, |mount| Ok(mount.finish()?))?;
        // The threads of the connection are waited for.
        let mount = self.mount.take();
        py.detach(|| drop(mount));
        Ok(())
    }

    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, |mount| Ok(mount.sync()?))
    }

    fn stat(&self, py: Python<'_>, path: &[u8], follow_link: bool) -> PyResult<Stat> {
        self.call(py, |mount| Ok(stat_of(&mount.stat(path, follow(follow_link))?)))
    }

    fn access(&self, py: Python<'_>, path: &[u8], want: u32) -> PyResult<()> {
        self.call(py, |mount| Ok(mount.access(path, want)?))
    }

    fn mkdir(&self, py: Python<'_>, path: &[u8], mode: u32) -> PyResult<()> {
        let mode = FileType::Directory.mode_bits() | (mode & 0o7777);
        self.call(py, |mount| Ok(mount.make(path, mode, &[])?))
    }

    fn create(&self, py: Python<'_>, path: &[u8], mode: u32) -> PyResult<()> {
        let mode = FileType::Regular.mode_bits() | (mode & 0o7777);
        self.call(py, |mount| Ok(mount.make(path, mode, &[])?))
    }

    fn symlink(&self, py: Python<'_>, target: &[u8], path: &[u8]) -> PyResult<()> {
        self.call(py, |mount| Ok(mount.symlink(target, path)?))
    }

    fn link(&self, py: Python<'_>, path: &[u8], new: &[u8]) -> PyResult<()> {
        self.call(py, |mount| Ok(mount.link(path, new)?))
    }

    fn readlink<'py>(&self, py: Python<'py>, path: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        let target = self.call(py, |mount| Ok(mount.read_link(path)?))?;
        Ok(PyBytes::new(py, &target))
    }

    fn unlink(&self, py: Python<'_>, path: &[u8]) -> PyResult<()> {
        self.call(py, |mount| Ok(mount.unlink(path)?))
    }

    fn rmdir(&self, py: Python<'_>, path: &[u8]) -> PyResult<()> {
        self.call(py, |mount| Ok(mount.rmdir(path)?))
    }

    fn rename(&self, py: Python<'_>, path: &[u8], new: &[u8]) -> PyResult<()> {
        self.call(py, |mount| Ok(mount.rename(path, new)?))
    }

    fn truncate(&self, py: Python<'_>, path: &[u8], size: u64) -> PyResult<()> {
        self.call(py, |mount| Ok(mount.truncate(path, size)?))
    }

    fn chmod(&self, py: Python<'_>, path: &[u8], mode: u32) -> PyResult<()> {
        self.call(py, |mount| Ok(mount.set_permissions(path, mode)?))
    }

    /// Sets times, in nanoseconds.
    fn utime(
        &self,
        py: Python<'_>,
        path: &[u8],
        atime: Option<i64>,
        mtime: Option<i64>,
        follow_link: bool,
    ) -> PyResult<()> {
        let times = Times { atime: atime.map(Timestamp), mtime: mtime.map(Timestamp) };
        self.call(py, |mount| Ok(mount.set_times(path, times, follow(follow_link))?))
    }

    fn get_xattr<'py>(
        &self,
        py: Python<'py>,
        path: &[u8],
        name: &[u8],
    ) -> PyResult<Bound<'py, PyBytes>> {
        let value = self.call(py, |mount| Ok(mount.xattr(path, name)?))?;
        Ok(PyBytes::new(py, &value))
    }

    fn list_xattr<'py>(&self, py: Python<'py>, path: &[u8]) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let names = self.call(py, |mount| Ok(mount.xattrs(path)?))?;
        Ok(names.iter().map(|name| PyBytes::new(py, name)).collect())
    }

    fn set_xattr(
        &self,
        py: Python<'_>,
        path: &[u8],
        name: &[u8],
        value: Option<&[u8]>,
    ) -> PyResult<()> {
        self.call(py, |mount| Ok(mount.set_xattr(path, name, value)?))
    }

    fn policy<'py>(&self, py: Python<'py>, path: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        let text = self.call(py, |mount| Ok(mount.policy(path)?))?;
        Ok(PyBytes::new(py, &text))
    }

    fn set_policy(&self, py: Python<'_>, path: &[u8], policy: Option<&[u8]>) -> PyResult<()> {
        self.call(py, |mount| Ok(mount.set_policy(path, policy)?))
    }

    /// Bytes of the object store: in all, and free.
    fn space(&self, py: Python<'_>) -> PyResult<(u64, u64)> {
        let space = self.call(py, |mount| Ok(mount.space()?))?;
        Ok((space.total, space.available))
    }

    fn open_dir(&self, py: Python<'_>, path: &[u8]) -> PyResult<Listing> {
        let dir = self.call(py, |mount| Ok(OpenDir::open(mount, path)?))?;
        Ok(Listing { dir: Held::new("directory", Arc::new(dir)) })
    }

    fn open(&self, py: Python<'_>, path: &[u8], flags: i32, mode: u32) -> PyResult<File> {
        let file = self.call(py, |mount| Ok(OpenFile::open(mount, path, flags, mode)?))?;
        Ok(File::new(file))
    }

    fn decouple(&self, py: Python<'_>, path: &[u8], policy: Option<&[u8]>) -> PyResult<Subtree> {
        let subtree = self.call(py, |mount| Ok(OpenSubtree::decouple(mount, path, policy)?))?;
        Ok(Subtree::new(subtree))
    }

    fn attach(&self, py: Python<'_>, path: &[u8]) -> PyResult<Subtree> {
        let subtree = self.call(py, |mount| Ok(OpenSubtree::attach(mount, path)?))?;
        Ok(Subtree::new(subtree))
    }
}

/// A directory that is being read.
#[pyclass(frozen, module = "cudele._cudele")]
#[derive(Debug)]
pub(crate) struct Listing {
    dir: Held<Arc<OpenDir>>,
}

#[pymethods]
impl Listing {
    /// The next so many entries; fewer only at the end.
    fn read<'py>(
        &self,
        py: Python<'py>,
        count: usize,
    ) -> PyResult<Vec<(Bound<'py, PyBytes>, Stat)>> {
        let entries = call(py, || Ok(self.dir.get()?.read(count)?))?;
        let entry = |(name, attr): &(Vec<u8>, Attr)| (PyBytes::new(py, name), stat_of(attr));
        Ok(entries.iter().map(entry).collect())
    }

    fn close(&self) {
        drop(self.dir.take());
    }
}
