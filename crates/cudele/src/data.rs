//! File data: small files inline with their metadata, larger ones straight to the object store,
//! striped over objects named by inode. What is small is for the policy of a directory to say, when
//! a file is written there; who reads a file that may be inline asks.

use std::io::Read;
use std::sync::Arc;

use objstore::SyncScope;
use types::{Attr, Errno, Error, INLINE_BYTES_MAX, Ino, Result, Stripe};
use wire::Op;

use crate::fs::bytes_answer;
use crate::{Dir, Fs, NewFile};

/// The beginning of a file's content: all of it if it is small.
#[derive(Debug)]
pub(crate) enum Content {
    /// It fits inline.
    Inline(Vec<u8>),
    /// It goes to the object store; these bytes come first.
    Large(Vec<u8>),
}

impl Fs {
    /// Reads enough of a file to know whether it is stored inline where so many bytes are.
    pub(crate) fn classify(source: &mut dyn Read, inline_bytes: u32) -> Result<Content> {
        let mut head = Vec::new();
        let limit = u64::from(inline_bytes);
        source.take(limit + 1).read_to_end(&mut head).map_err(source_error)?;
        let small = head.len() as u64 <= limit;
        Ok(if small { Content::Inline(head) } else { Content::Large(head) })
    }

    /// Writes the content of a file that is striped like this, from its first bytes and the rest of
    /// a source. Returns its length, which is for the caller to set. Durable after
    /// [`Fs::sync_data`].
    ///
    /// # Errors
    /// Those of the source; `ENOSPC`, `EIO`.
    pub fn write_large(
        &self,
        (ino, stripe): (Ino, Stripe),
        head: &[u8],
        source: &mut dyn Read,
    ) -> Result<u64> {
        // There may be one byte more in front than the smallest stripe has.
        let mut content = head.chain(source);
        let mut buffer = Vec::new();
        let mut length = 0;
        for number in 0.. {
            buffer.clear();
            let piece = (&mut content).take(stripe.bytes()).read_to_end(&mut buffer);
            piece.map_err(source_error)?;
            if buffer.is_empty() {
                break;
            }
            self.store().write_range(
                &metastore::data_name(ino, stripe.pool(), number),
                0,
                &buffer,
            )?;
            length += buffer.len() as u64;
            if (buffer.len() as u64) < stripe.bytes() {
                break;
            }
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
        let head = match Self::classify(source, dir.inline_bytes())? {
            Content::Inline(data) => {
                let size = data.len() as u64;
                return dir.create(name, &NewFile { size, data: &data, ..*new });
            }
            Content::Large(head) => head,
        };
        let attr = dir.create(name, &NewFile { size: 0, data: &[], ..*new })?;
        let size = self.write_large((attr.ino, attr.stripe), &head, source)?;
        self.sync_file((attr.ino, attr.stripe), size)?;
        dir.set_data(attr.ino, &[], size)?;
        if let Some(mtime) = new.mtime {
            // Giving it its length counts as a change.
            let atime = new.atime.or(Some(mtime));
            let change = types::AttrChange { mtime: Some(mtime), atime, ..Default::default() };
            dir.set_attr_of(attr.ino, &change)?;
        }
        Ok(Attr { size, ..attr })
    }

    /// How many bytes a file may have in a directory and still be kept in its inode, as far as is
    /// known: a policy of somebody else's making is heeded a second later.
    ///
    /// # Errors
    /// `ESTALE`, `ENOTDIR`, `EBUSY`.
    pub fn inline_bytes(&self, dir: Ino) -> Result<u32> {
        self.strong_logs.known_for_dir(self, dir).map(|terms| terms.inline_bytes)
    }

    /// Whether files in a directory are shared lazily (`sharing: lazy`), as far as is known.
    ///
    /// # Errors
    /// As [`Fs::inline_bytes`].
    pub fn shares_lazily(&self, dir: Ino) -> Result<bool> {
        self.strong_logs.known_for_dir(self, dir).map(|terms| terms.lazy)
    }

    /// From now on no policy is taken to be what it was: this client has changed one.
    pub fn ask_policies_anew(&self) {
        self.strong_logs.forget_terms();
    }

    /// Makes all file data written so far durable.
    ///
    /// # Errors
    /// `EIO`, `ENOSPC`.
    pub fn sync_data(&self) -> Result<()> {
        self.store().sync(SyncScope::All)
    }

    /// Reads the content of a file with these attributes, handing it out piece by piece.
    ///
    /// # Errors
    /// `EACCES`, `EIO`, and whatever `take` returns.
    pub fn read_file(&self, attr: &Attr, take: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let inline = self.inline_content(attr)?;
        if !inline.is_empty() {
            return take(&inline);
        }
        for number in 0..attr.stripe.count(attr.size) {
            take(&self.read_stripe(attr, number)?)?;
        }
        Ok(())
    }

    /// The content of a file if it is inline, else nothing. Its length does not say where it is.
    fn inline_content(&self, attr: &Attr) -> Result<Vec<u8>> {
        if attr.size == 0 || attr.size > INLINE_BYTES_MAX as u64 {
            return Ok(Vec::new());
        }
        bytes_answer(self.call(Op::GetData { ino: attr.ino })?)
    }

    /// One object's worth of a file.
    fn read_stripe(&self, attr: &Attr, number: u64) -> Result<Vec<u8>> {
        let stripe = attr.stripe.bytes();
        let left = (attr.size - number * stripe).min(stripe);
        let length = usize::try_from(left).unwrap_or(usize::MAX);
        let object = metastore::data_name(attr.ino, attr.stripe.pool(), number);
        let mut bytes = match self.store().read_range(&object, 0, length) {
            Ok(bytes) => bytes,
            Err(error) if error.errno == Errno::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        // What was never written reads as zeros.
        bytes.resize(length, 0);
        Ok(bytes)
    }

    /// Opens the content of a file with these attributes as a stream.
    ///
    /// # Errors
    /// `EACCES`, `ESTALE`, `EIO`.
    pub fn open_file(self: &Arc<Self>, attr: &Attr) -> Result<FileReader> {
        let piece = self.inline_content(attr)?;
        // Whatever is inline is at most one stripe.
        let next = u64::from(!piece.is_empty());
        Ok(FileReader { fs: self.clone(), attr: *attr, piece, at: 0, next })
    }
}

/// The content of a file as a stream. Holds one object's worth of it at a time.
#[derive(Debug)]
pub struct FileReader {
    fs: Arc<Fs>,
    attr: Attr,
    piece: Vec<u8>,
    /// How much of the piece was read.
    at: usize,
    /// The stripe that comes next.
    next: u64,
}

impl Read for FileReader {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.at == self.piece.len() && self.next < self.attr.stripe.count(self.attr.size) {
            let piece = self.fs.read_stripe(&self.attr, self.next);
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
