//! The content of files: small files inline with their metadata, larger ones in the object store,
//! striped over objects named by inode number. The policy of the directory decides at the write
//! which file is small; a reader asks the server if a file may be inline.

use std::io::Read;
use std::sync::Arc;

use objstore::SyncScope;
use types::{Attr, Errno, Error, INLINE_BYTES_MAX, Ino, Result, StripedFile};
use wire::{Op, ReadOp};

use crate::fs::bytes_answer;
use crate::{Dir, Fs, NewFile, Seal, extents};

/// The beginning of a file's content: all of it if it is small.
#[derive(Debug)]
pub enum ContentStart {
    /// It fits inline.
    Inline(Vec<u8>),
    /// It goes to the object store; these bytes come first.
    Large(Vec<u8>),
}

impl Fs {
    /// Reads enough of a file to know whether it is stored inline where so many bytes are.
    ///
    /// # Errors
    /// Those of the source.
    pub fn classify(source: &mut dyn Read, inline_bytes: u32) -> Result<ContentStart> {
        let mut head = Vec::new();
        let limit = u64::from(inline_bytes);
        source.take(limit + 1).read_to_end(&mut head).map_err(source_error)?;
        let small = head.len() as u64 <= limit;
        Ok(if small { ContentStart::Inline(head) } else { ContentStart::Large(head) })
    }

    /// Writes the content of a file, with checksums, from its first bytes and the rest of a source.
    /// The file has this stripe, and no other client may know it. Returns the length of the
    /// content, which the caller sets. Durable after [`Fs::sync_data`].
    ///
    /// # Errors
    /// Those of the source; `ENOSPC`, `EIO`.
    pub fn write_large(
        &self,
        file: StripedFile,
        head: &[u8],
        source: &mut dyn Read,
    ) -> Result<u64> {
        // There may be one byte more in front than the smallest stripe has.
        let mut content = head.chain(source);
        let mut buffer = Vec::new();
        let mut length = 0;
        let StripedFile { ino, stripe } = file;
        let span = stripe.bytes() * extents::at_once(&**self.store(), stripe) as u64;
        self.share_sums(ino, false);
        loop {
            buffer.clear();
            let piece = (&mut content).take(span).read_to_end(&mut buffer);
            piece.map_err(source_error)?;
            self.write_at(file, length, &buffer)?;
            length += buffer.len() as u64;
            if (buffer.len() as u64) < span {
                self.seal(file, Seal::Written, true);
                return Ok(length);
            }
        }
    }

    /// Creates a file with the content of a source; size and data of `new` are ignored. A small
    /// file takes one request. A large file is created empty and gets its length when its content
    /// is durable, so that no client sees a length without content.
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
        let name = name.as_ref();
        let head = match Self::classify(source, dir.inline_bytes())? {
            ContentStart::Inline(data) => {
                let size = data.len() as u64;
                return dir.create(name, &NewFile { size, data: &data, ..*new });
            }
            ContentStart::Large(head) => head,
        };
        let attr = dir.create(name, &NewFile { size: 0, data: &[], ..*new })?;
        self.want_sums(attr.ino, dir.checksums());
        let size = self.write_large(attr.striped(), &head, source)?;
        self.sync_file(attr.striped(), size)?;
        self.seal(attr.striped(), Seal::Durable, true);
        self.forget_sums(attr.ino);
        if let Err(error) = dir.set_data_under(name, attr.ino, &[], size) {
            if matches!(error.errno, Errno::Stale | Errno::NotFound) {
                // Another client removed the file, and the server does not know its content.
                self.delete_data(attr.striped(), size)?;
            }
            return Err(error);
        }
        if let Some(mtime) = new.mtime {
            // Giving it its length counts as a change.
            let atime = new.atime.or(Some(mtime));
            let change = types::AttrChange { mtime: Some(mtime), atime, ..Default::default() };
            dir.set_attr_under(name, attr.ino, &change)?;
        }
        Ok(Attr { size, ..attr })
    }

    /// The largest file in bytes that a directory keeps inline, as far as this client knows: a
    /// policy that another client sets is known a second later.
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

    /// Whether the policy of a directory, as this client knows it, demands checksums of content.
    ///
    /// # Errors
    /// As [`Fs::inline_bytes`].
    pub fn checksums(&self, dir: Ino) -> Result<bool> {
        self.strong_logs.known_for_dir(self, dir).map(|terms| terms.checksums)
    }

    /// Forgets all policies, because this client has set one.
    pub fn ask_policies_anew(&self) {
        self.strong_logs.forget_terms();
    }

    /// Makes all file data written so far durable.
    ///
    /// # Errors
    /// `EIO`, `ENOSPC`.
    pub fn sync_data(&self) -> Result<()> {
        let written = self.sums.written();
        self.store().sync(SyncScope::All)?;
        self.sums.hold_for_good(&**self.store(), &written);
        Ok(())
    }

    /// Reads the content of a file with these attributes, handing it out piece by piece.
    ///
    /// # Errors
    /// `EACCES`, `EIO`, and the errors of `take`.
    pub fn read_file(&self, attr: &Attr, take: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let inline = self.inline_content(attr)?;
        if !inline.is_empty() {
            return take(&inline);
        }
        let mut at = 0;
        while at < attr.size {
            let span = self.read_span(attr, at)?;
            at += span.len() as u64;
            take(&span)?;
        }
        Ok(())
    }

    /// The content of a file if it is inline, else nothing. Its length does not say where it is.
    fn inline_content(&self, attr: &Attr) -> Result<Vec<u8>> {
        if attr.size == 0 || attr.size > INLINE_BYTES_MAX as u64 {
            return Ok(Vec::new());
        }
        bytes_answer(self.call(Op::Read(ReadOp::GetData { ino: attr.ino }))?)
    }

    /// As much of a file as is best read at a time, from an offset before its end on.
    fn read_span(&self, attr: &Attr, at: u64) -> Result<Vec<u8>> {
        let stripe = attr.stripe.bytes();
        let span = stripe * extents::at_once(&**self.store(), attr.stripe) as u64;
        let length = usize::try_from((attr.size - at).min(span)).unwrap_or(usize::MAX);
        let bytes = self.read_at(attr.striped(), at, length)?;
        let stripe = usize::try_from(stripe).unwrap_or(usize::MAX);
        if bytes.chunks(stripe).any(|chunk| chunk.iter().all(|byte| *byte == 0)) {
            self.check_exists(attr.ino)?;
        }
        Ok(bytes)
    }

    /// Checks that a file with a stripe of zeros exists: the stripe may be deleted because the file
    /// was removed.
    fn check_exists(&self, ino: Ino) -> Result<()> {
        match self.call(Op::Read(ReadOp::GetAttr { ino })) {
            Err(error) if matches!(error.errno, Errno::Stale | Errno::NotFound) => {
                let cause = "the file was removed while it was read";
                let remedy = "read it again by its name, if another file has that now";
                Err(Error::new(Errno::Stale, ino.to_string(), cause).remedy(remedy))
            }
            // Another client's decoupled subtree blocks the question.
            Err(error) if error.errno == Errno::Busy => Ok(()),
            answer => answer.map(drop),
        }
    }

    /// Opens the content of a file with these attributes as a stream.
    ///
    /// # Errors
    /// `EACCES`, `ESTALE`, `EIO`.
    pub fn open_file(self: &Arc<Self>, attr: &Attr) -> Result<FileReader> {
        let piece = self.inline_content(attr)?;
        // Inline content is complete.
        let next = if piece.is_empty() { 0 } else { attr.size };
        Ok(FileReader { fs: self.clone(), attr: *attr, piece, at: 0, next })
    }
}

/// The content of a file as a stream. Holds a few objects' worth of it at a time.
#[derive(Debug)]
pub struct FileReader {
    fs: Arc<Fs>,
    attr: Attr,
    piece: Vec<u8>,
    /// How much of the piece was read.
    at: usize,
    /// Where the next piece begins.
    next: u64,
}

impl Read for FileReader {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.at == self.piece.len() && self.next < self.attr.size {
            let piece = self.fs.read_span(&self.attr, self.next);
            self.piece = piece.map_err(std::io::Error::other)?;
            (self.at, self.next) = (0, self.next + self.piece.len() as u64);
        }
        let count = (&self.piece[self.at..]).read(buffer)?;
        self.at += count;
        Ok(count)
    }
}

#[allow(clippy::needless_pass_by_value, reason = "fits map_err")]
fn source_error(error: std::io::Error) -> Error {
    // A source that is a file of the namespace has its own error.
    if let Some(inner) = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        return inner.clone();
    }
    let errno = error.raw_os_error().and_then(|code| u16::try_from(code).ok());
    Error::new(errno.map_or(Errno::Io, Errno::from_code), "", error.to_string())
}
