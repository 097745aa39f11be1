//! Standard output for names: bytes as they are into a pipe, quoted on a terminal.
//!
//! Invariant: a reader that left early is no error; [`Out::is_gone`] says that more is pointless.

use std::borrow::Cow;
use std::io::{BufWriter, ErrorKind, IsTerminal, StdoutLock, Write};
use std::path::Path;

use cudele::Result;

use crate::format;

/// See the module documentation.
#[derive(Debug)]
pub struct Out {
    out: BufWriter<StdoutLock<'static>>,
    terminal: bool,
    gone: bool,
}

impl Out {
    /// Locks standard output.
    pub fn open() -> Self {
        let out = std::io::stdout();
        let terminal = out.is_terminal();
        Self { out: BufWriter::with_capacity(1 << 16, out.lock()), terminal, gone: false }
    }

    /// A name or path as it is to be printed here.
    pub fn name<'a>(&self, name: &'a [u8]) -> Cow<'a, [u8]> {
        if !self.terminal {
            return Cow::Borrowed(name);
        }
        match format::quoted(name) {
            Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        }
    }

    /// Writes bytes.
    ///
    /// # Errors
    /// `ENOSPC` or `EIO` if standard output is a file that cannot be written.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let result = if self.gone { Ok(()) } else { self.out.write_all(bytes) };
        self.check(result)
    }

    /// Writes all that was buffered.
    ///
    /// # Errors
    /// As [`Out::write`].
    pub fn finish(mut self) -> Result<()> {
        let result = if self.gone { Ok(()) } else { self.out.flush() };
        self.check(result)
    }

    /// Whether the reader has gone.
    pub fn is_gone(&self) -> bool {
        self.gone
    }

    fn check(&mut self, result: std::io::Result<()>) -> Result<()> {
        match result {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                self.gone = true;
                Ok(())
            }
            Err(error) => Err(crate::io(Path::new("standard output"), &error)),
        }
    }
}
