//! File data: small files inline with their metadata, larger ones straight to the object store,
//! striped over objects named by inode.

use std::io::Read;
use std::sync::Arc;

use objstore::SyncScope;
use types::{Attr, Errno, Error, INLINE_BYTES_MAX, Ino, Result};
use wire::Op;

use crate::fs::bytes_answer;
use crate::{Dir, Fs, NewFile};

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

    /// Writes the content of a file that is not stored inline, from its first bytes and the rest of
    /// a source. Returns its length, which is for the caller to set. Durable after
    /// [`Fs::sync_data`].
    ///
    /// # Errors
    /// Those of the source; `ENOSPC`, `EIO`.
    pub fn write_large(&self, ino: Ino, head: Vec<u8>, source: &mut dyn Read) -> Result<u64> {
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

    /// Creates a file with all of a source as its content, whatever `new` says about size and
    /// data. A small file takes one request; a large one is created empty and gets its length when
    /// its content is durable, so that nobody ever sees a length without content.
    ///
    /// # Errors
    /// As [`Dir::create`]; those of the source, `ENOSPC` and `EIO`. The name may exist then, with
    /// an empty file.
    pub fn create_file(
        &self,
        dir: &Dir,
        name: impl AsRef<[u8]>,
        new: &NewFile<'_>,
        source: &mut dyn Read,
    ) -> Result<Attr> {
        let head = match Self::classify(source)? {
            Content::Inline(data) => {
                let size = data.len() as u64;
                return dir.create(name, &NewFile { size, data: &data, ..*new });
            }
            Content::Large(head) => head,
        };
        let attr = dir.create(name, &NewFile { size: 0, data: &[], ..*new })?;
        let size = self.write_large(attr.ino, head, source)?;
        self.sync_file(attr.ino, size)?;
        dir.set_data(attr.ino, &[], size)?;
        if let Some(mtime) = new.mtime {
            // Giving it its length counts as a change.
            let atime = new.atime.or(Some(mtime));
            let change = types::AttrChange { mtime: Some(mtime), atime, ..Default::default() };
            dir.set_attr_of(attr.ino, &change)?;
        }
        Ok(Attr { size, ..attr })
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
            take(&self.read_stripe(ino, size, stripe)?)?;
        }
        Ok(())
    }

    /// One object's worth of a file of this length.
    fn read_stripe(&self, ino: Ino, size: u64, stripe: u64) -> Result<Vec<u8>> {
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
        Ok(bytes)
    }

    /// Opens the content of a file of this length as a stream.
    ///
    /// # Errors
    /// `EACCES`, `ESTALE`, `EIO`.
    pub fn open_file(self: &Arc<Self>, ino: Ino, size: u64) -> Result<FileReader> {
        let mut reader =
            FileReader { fs: self.clone(), ino, size, piece: Vec::new(), at: 0, next: 0 };
        if size > 0 && size <= INLINE_BYTES_MAX as u64 {
            reader.piece = bytes_answer(self.call(Op::GetData { ino })?)?;
            if !reader.piece.is_empty() {
                reader.next = 1;
            }
        }
        Ok(reader)
    }
}

/// The content of a file as a stream. Holds one object's worth of it at a time.
#[derive(Debug)]
pub struct FileReader {
    fs: Arc<Fs>,
    ino: Ino,
    size: u64,
    piece: Vec<u8>,
    /// How much of the piece was read.
    at: usize,
    /// The stripe that comes next.
    next: u64,
}

impl Read for FileReader {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.at == self.piece.len() && self.next < self.size.div_ceil(STRIPE_BYTES) {
            let piece = self.fs.read_stripe(self.ino, self.size, self.next);
            self.piece = piece.map_err(std::io::Error::other)?;
            (self.at, self.next) = (0, self.next + 1);
        }
        let count = (&self.piece[self.at..]).read(buffer)?;
        self.at += count;
        Ok(count)
    }
}

#[allow(clippy::needless_pass_by_value, reason = "fits map_err")]
fn source_error(error: std::io::Error) -> Error {
    // A source that is itself a file of the namespace says what happened there.
    if let Some(inner) = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        return inner.clone();
    }
    let errno = error.raw_os_error().and_then(|code| u16::try_from(code).ok());
    Error::new(errno.map_or(Errno::Io, Errno::from_code), "", error.to_string())
}
