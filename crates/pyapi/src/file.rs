//! Files that are open. Buffers, text and modes are Python's business.

use std::sync::Arc;

use calls::OpenFile;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::connection::{Stat, stat_of};
use crate::error::call;
use crate::held::Held;

/// A file that is open.
#[pyclass(frozen, module = "cudele._cudele")]
#[derive(Debug)]
pub(crate) struct File {
    file: Held<Arc<OpenFile>>,
}

impl File {
    pub(crate) fn new(file: OpenFile) -> Self {
        Self { file: Held::new("file", Arc::new(file)) }
    }
}

#[pymethods]
impl File {
    /// Reads where the last read or write ended; fewer bytes than asked for only at the end.
    fn read<'py>(&self, py: Python<'py>, length: usize) -> PyResult<Bound<'py, PyBytes>> {
        self.fill(py, length, OpenFile::read)
    }

    fn pread<'py>(
        &self,
        py: Python<'py>,
        length: usize,
        offset: u64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        self.fill(py, length, |file, buffer| file.read_at(offset, buffer))
    }

    fn write(&self, py: Python<'_>, data: &[u8]) -> PyResult<()> {
        call(py, || self.file.get()?.write(data))
    }

    fn pwrite(&self, py: Python<'_>, data: &[u8], offset: u64) -> PyResult<()> {
        call(py, || self.file.get()?.write_at(offset, data))
    }

    fn seek(&self, py: Python<'_>, offset: u64) -> PyResult<()> {
        call(py, || {
            self.file.get()?.seek(offset);
            Ok(())
        })
    }

    fn tell(&self, py: Python<'_>) -> PyResult<u64> {
        call(py, || Ok(self.file.get()?.position()))
    }

    fn stat(&self, py: Python<'_>) -> PyResult<Stat> {
        call(py, || Ok(stat_of(&self.file.get()?.attr()?)))
    }

    fn truncate(&self, py: Python<'_>, size: u64) -> PyResult<()> {
        call(py, || self.file.get()?.truncate(size))
    }

    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        call(py, || self.file.get()?.sync())
    }

    /// Closes the file. If that fails, the file stays open and keeps the written data.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        call(py, || self.file.get()?.finish())?;
        let file = self.file.take();
        py.detach(|| drop(file));
        Ok(())
    }
}

impl File {
    /// Reads into a new bytes object, in place.
    fn fill<'py>(
        &self,
        py: Python<'py>,
        length: usize,
        read: impl FnOnce(&OpenFile, &mut [u8]) -> Result<usize, calls::CallFailure> + Send,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let file = call(py, || self.file.get())?;
        let mut count = 0;
        let bytes = PyBytes::new_with(py, length, |buffer| {
            count = call(py, || read(&file, buffer))?;
            Ok(())
        })?;
        if count == length {
            return Ok(bytes);
        }
        Ok(PyBytes::new(py, bytes.as_bytes().get(..count).unwrap_or_default()))
    }
}
