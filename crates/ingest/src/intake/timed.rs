//! The time of reading a source.

use std::io::Read;
use std::time::{Duration, Instant};

/// Measures how long the source takes.
pub(super) struct Timed<'r> {
    pub(super) inner: &'r mut dyn Read,
    pub(super) spent: Duration,
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let start = Instant::now();
        let result = self.inner.read(buffer);
        self.spent += start.elapsed();
        result
    }
}
