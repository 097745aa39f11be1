//! File data: small files inline with their metadata, larger ones straight to the object store,
//! striped over objects named by inode.

use std::io::Read;

use objstore::SyncScope;
use types::{Errno, Error, INLINE_BYTES_MAX, Ino, Result};
use wire::Op;

use crate::Fs;
use crate::fs::bytes_answer;

/// Bytes of a file per object.
pub const STRIPE_BYTES: u64 = 4 << 20;

/// The beginning of a file's content: all of it if it is small.
#[derive(Debug)]
pub(crate) enum Content {
    /// It fits inline.
    Inline(Vec<u8>),
    /// It goes to the object store; these bytes come first.
    Large(Vec<u8>),
}

impl Fs {
    /// Reads enough of a file to know whether it is stored inline.
    pub(crate) fn classify(source: &mut dyn Read) -> Result<Content> {
        let mut head = Vec::new();
        let limit = INLINE_BYTES_MAX as u64 + 1;
        source.take(limit).read_to_end(&mut head).map_err(source_error)?;
        let small = head.len() <= INLINE_BYTES_MAX;
        Ok(if small { Content::Inline(head) } else { Content::Large(head) })
    }

    /// Writes the content of a large file, from its first bytes and the rest of a source. Durable
    /// after [`Fs::sync_data`]. Returns its length.
    pub(crate) fn write_large(
        &self,
        ino: Ino,
        head: Vec<u8>,
        source: &mut dyn Read,
    ) -> Result<u64> {
        let stripe_bytes = usize::try_from(STRIPE_BYTES).unwrap_or(usize::MAX);
        let mut buffer = head;
        let mut length = 0;
        for stripe in 0.. {
            let room = (stripe_bytes - buffer.len()) as u64;
            source.take(room).read_to_end(&mut buffer).map_err(source_error)?;
            if buffer.is_empty() {
                break;
            }
            self.store().write_range(&metastore::data_name(ino, stripe), 0, &buffer)?;
            length += buffer.len() as u64;
            if buffer.len() < stripe_bytes {
                break;
            }
            buffer.clear();
        }
        Ok(length)
    }

    /// Makes all file data written so far durable.
    ///
    /// # Errors
    /// `EIO`, `ENOSPC`.
    pub fn sync_data(&self) -> Result<()> {
        self.store().sync(SyncScope::All)
    }

    /// Reads the content of a file of this length, handing it out piece by piece.
    ///
    /// # Errors
    /// `EACCES`, `EIO`, and whatever `take` returns.
    pub fn read_file(
        &self,
        ino: Ino,
        size: u64,
        take: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        if size == 0 {
            return Ok(());
        }
        let inline = if size <= INLINE_BYTES_MAX as u64 {
            bytes_answer(self.call(Op::GetData { ino })?)?
        } else {
            Vec::new()
        };
        if !inline.is_empty() {
            return take(&inline);
        }
        for stripe in 0..size.div_ceil(STRIPE_BYTES) {
            let left = (size - stripe * STRIPE_BYTES).min(STRIPE_BYTES);
            let length = usize::try_from(left).unwrap_or(usize::MAX);
            let object = metastore::data_name(ino, stripe);
            let mut bytes = match self.store().read_range(&object, 0, length) {
                Ok(bytes) => bytes,
                Err(error) if error.errno == Errno::NotFound => Vec::new(),
                Err(error) => return Err(error),
            };
            // What was never written reads as zeros.
            bytes.resize(length, 0);
            take(&bytes)?;
        }
        Ok(())
    }
}

fn source_error(error: std::io::Error) -> Error {
    let errno = error.raw_os_error().and_then(|code| u16::try_from(code).ok());
    Error::new(errno.map_or(Errno::Io, Errno::from_code), "", error.to_string())
}
