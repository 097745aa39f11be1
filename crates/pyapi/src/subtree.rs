//! Subtrees that this process has decoupled.

use std::sync::Arc;

use calls::{CallFailure, Ending, OpenSubtree};
use cudele::{Completion, Ino, NewFile};
use pyo3::prelude::*;

use crate::error::call;
use crate::held::Held;

/// The result of a completion or merge: events, bytes of the journal, inodes made, names of other
/// clients that lost, rejected events, and the time in seconds.
type Done = (u64, u64, u64, u64, u64, f64);

fn completion_of(done: &Completion) -> Done {
    let merge = done.merge.as_ref();
    (
        done.events,
        done.bytes,
        merge.map_or(0, |merge| merge.created),
        merge.map_or(0, |merge| merge.replaced),
        merge.map_or(0, |merge| merge.rejected),
        done.seconds,
    )
}

/// A decoupled subtree.
#[pyclass(frozen, module = "cudele._cudele")]
#[derive(Debug)]
pub(crate) struct Subtree {
    open: Held<Arc<OpenSubtree>>,
}

impl Subtree {
    pub(crate) fn new(open: OpenSubtree) -> Self {
        Self { open: Held::new("subtree", Arc::new(open)) }
    }

    fn call<T: Send>(
        &self,
        py: Python<'_>,
        run: impl FnOnce(&OpenSubtree) -> Result<T, CallFailure> + Send,
    ) -> PyResult<T> {
        call(py, || run(&*self.open.get()?))
    }

    fn end(&self, py: Python<'_>, ending: Ending) -> PyResult<Done> {
        self.call(py, |open| Ok(completion_of(&open.end(ending)?)))
    }
}

#[pymethods]
impl Subtree {
    /// The inode number of its root.
    fn root(&self, py: Python<'_>) -> PyResult<u64> {
        self.call(py, |open| Ok(open.root().0))
    }

    fn append_file(
        &self,
        py: Python<'_>,
        parent: u64,
        name: &[u8],
        data: &[u8],
        mode: u32,
    ) -> PyResult<u64> {
        let new = NewFile { permissions: mode & 0o7777, data, ..NewFile::default() };
        self.call(py, |open| Ok(open.append(Ino(parent), name, &new)?.0))
    }

    fn append_mkdir(&self, py: Python<'_>, parent: u64, name: &[u8], mode: u32) -> PyResult<u64> {
        let new = NewFile { permissions: mode & 0o7777, ..NewFile::directory() };
        self.call(py, |open| Ok(open.append(Ino(parent), name, &new)?.0))
    }

    /// Appends many files with content in one call, in order. Those before one that fails are made.
    fn append_files(
        &self,
        py: Python<'_>,
        parent: u64,
        files: Vec<(Vec<u8>, Vec<u8>)>,
        mode: u32,
    ) -> PyResult<()> {
        self.call(py, |open| {
            for (name, data) in files {
                let new = NewFile { permissions: mode & 0o7777, data: &data, ..NewFile::default() };
                open.append(Ino(parent), &name, &new)?;
            }
            Ok(())
        })
    }

    /// Events that are held and not merged.
    fn pending(&self, py: Python<'_>) -> PyResult<u64> {
        self.call(py, |open| Ok(open.pending()?))
    }

    fn persist(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, |open| Ok(open.persist()?))
    }

    fn complete(&self, py: Python<'_>) -> PyResult<Done> {
        self.end(py, Ending::Complete)
    }

    fn keep(&self, py: Python<'_>) -> PyResult<Done> {
        self.end(py, Ending::Keep)
    }

    fn sync(&self, py: Python<'_>) -> PyResult<Done> {
        self.call(py, |open| Ok(completion_of(&open.sync()?)))
    }

    fn merge(&self, py: Python<'_>) -> PyResult<Done> {
        let done = self.end(py, Ending::Merge)?;
        self.close(py);
        Ok(done)
    }

    fn discard(&self, py: Python<'_>) -> PyResult<()> {
        self.end(py, Ending::Discard)?;
        self.close(py);
        Ok(())
    }

    /// Ends work that succeeded as the policy says, and closes the handle. Says how.
    fn finish(&self, py: Python<'_>) -> PyResult<(&'static str, Done)> {
        let (ending, done) = self.call(py, |open| {
            let (ending, done) = open.finish()?;
            Ok((ending, completion_of(&done)))
        })?;
        self.close(py);
        Ok((ending.name(), done))
    }

    /// Closes the handle and nothing else.
    fn close(&self, py: Python<'_>) {
        let open = self.open.take();
        py.detach(|| drop(open));
    }
}
