//! Files that several clients have open while one of them writes. The content is in the object
//! store only, the length at the server only, and this process holds neither. So all clients see a
//! write when it returns.
//!
//! Under a policy that shares lazily, writes are buffered as those of a private file, and the
//! server learns the length at the flush. All clients write to the same objects, so no client
//! undoes the writes of another unless both write the same bytes.
//!
//! Content is written before the length: no client sees a length without its content, except for
//! the range of an append that is not yet written, which reads as zeros.

use std::ops::Range;

use cudele::{Attr, AttrChange, Errno, Error, Ino, Result, StripedFile};
use posix::{Caller, KnownInode};

use crate::caller::OnBehalf;
use crate::content::ContentCx;
use crate::file::{Content, File, checked_end};
use crate::open::FilesCx;
use crate::tree::Tree;

/// The place of a write to a shared file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteAt {
    Offset(u64),
    /// The end of the file at the time of the write, which only the server knows.
    End,
}

/// Whether an error may mean that an open file has lost its last name. `ENOENT` means that;
/// `ESTALE` is the answer of a server that was restarted and does not know the file.
pub(crate) fn lost_name(error: &Error) -> bool {
    matches!(error.errno, Errno::Stale | Errno::NotFound)
}

impl ContentCx<'_> {
    /// How long a shared file is. One that has lost its name is as long as this process knows: the
    /// server does not know it any more.
    pub(crate) fn shared_size(&self, ino: Ino, content: &mut Content) -> Result<u64> {
        if content.nameless.is_some() {
            return Ok(content.size);
        }
        match self.trees.stored_attr(ino) {
            Ok(attr) => content.last = attr,
            Err(error) if lost_name(&error) => content.lose_name(content.last),
            Err(error) => return Err(error),
        }
        content.size = content.last.size.max(content.grown);
        Ok(content.size)
    }

    /// Writes to a file whose other clients may see the write later.
    pub(crate) fn write_lazily(
        &self,
        ino: Ino,
        content: &mut Content,
        offset: u64,
        data: &[u8],
    ) -> Result<()> {
        let end = checked_end(offset, data.len() as u64)?;
        self.write_buffered(ino, content, offset, data)?;
        content.grown = content.grown.max(end);
        Ok(())
    }

    /// Tells the server how far a file was written that is shared lazily.
    pub(crate) fn send_length(&self, ino: Ino, content: &mut Content) -> Result<()> {
        if content.grown == 0 {
            return Ok(());
        }
        if content.nameless.is_none() {
            let (cred, end) = (Caller::SELF.cred(), content.grown);
            match self.trees.walked(ino, || self.fs.grow_as(&cred, ino, end)) {
                // It has no name any more.
                Err(error) if lost_name(&error) => {}
                answer => content.last = answer?,
            }
        }
        content.grown = 0;
        Ok(())
    }

    pub(crate) fn write_shared(
        &self,
        ino: Ino,
        content: &mut Content,
        at: WriteAt,
        data: &[u8],
    ) -> Result<()> {
        let (cred, length) = (Caller::SELF.cred(), data.len() as u64);
        let named = content.nameless.is_none();
        let reserved = if at == WriteAt::End && named {
            match self.trees.walked(ino, || self.fs.append_as(&cred, ino, length)) {
                Err(error) if lost_name(&error) => None,
                answer => Some(answer?.size - length),
            }
        } else {
            None
        };
        let start = match (reserved, at) {
            (Some(start), _) | (None, WriteAt::Offset(start)) => start,
            (None, WriteAt::End) => self.shared_size(ino, content)?,
        };
        let end = checked_end(start, length)?;
        content.note_change(start..end);
        self.fs.write_at(StripedFile::new(ino, content.stripe), start, data)?;
        content.size = content.size.max(end);
        if reserved.is_none() && named {
            match self.trees.walked(ino, || self.fs.grow_as(&cred, ino, end)) {
                // It has no name any more.
                Err(error) if lost_name(&error) => {}
                answer => drop(answer?),
            }
        }
        Ok(())
    }

    pub(crate) fn truncate_shared(
        &self,
        caller: &Caller,
        ino: Ino,
        size: u64,
        is_open: bool,
    ) -> Result<()> {
        let Attr { size: before, stripe, .. } = self.trees.stored_attr(ino)?;
        let change = AttrChange { size: Some(size), ..AttrChange::default() };
        let caller = if is_open { &Caller::SELF } else { caller };
        self.trees.change_attr(caller, ino, &change)?;
        if size < before {
            self.fs.zero_range(StripedFile::new(ino, stripe), before, size..before)?;
        }
        Ok(())
    }

    pub(crate) fn allocate_shared(
        &self,
        ino: Ino,
        range: Range<u64>,
        zero: bool,
        keep: bool,
    ) -> Result<()> {
        let Attr { size, stripe, .. } = self.trees.stored_attr(ino)?;
        if zero && range.start < size {
            let zeroed = range.start..range.end.min(size);
            self.fs.zero_range(StripedFile::new(ino, stripe), size, zeroed)?;
        }
        if !keep {
            self.trees.walked(ino, || self.fs.grow_as(&Caller::SELF.cred(), ino, range.end))?;
        }
        Ok(())
    }
}

impl FilesCx<'_> {
    /// Writes the held content of a file back, and holds none from now on.
    ///
    /// An unknown file has no content here: a thread is closing or opening it. The opening thread
    /// takes the file for shared before any write ([`FilesCx::join`]).
    pub(crate) fn give_up(&self, ino: Ino) -> Result<()> {
        let file = self.trees.nodes().file(ino).cloned();
        let Some(file) = file else { return self.fs.yield_recalled(ino).map(drop) };
        // The server must move inline content to the object store before the first write.
        let mut content = file.held();
        if !self.fs.is_recalled(ino) {
            return Ok(());
        }
        self.content.write_back(ino, &mut content)?;
        self.content.seal(ino, &mut content);
        if !self.fs.yield_recalled(ino)? {
            return Ok(());
        }
        self.fs.share_sums(ino, true);
        content.share(self.trees.is_lazy(ino));
        let known = KnownInode { ino, parent: Ino(0), name: Vec::new() };
        self.outdated.add(known);
        Ok(())
    }

    /// After an open: takes the file for shared if it is, and gives up its content if the recall
    /// came before the open. Returns whether the kernel may cache none of it.
    pub(crate) fn join(&self, ino: Ino, file: &File) -> bool {
        if self.fs.is_recalled(ino) {
            // After a failure, as in `share`, the asking client gets an error.
            let _ = self.give_up(ino);
        }
        let mut content = file.held();
        if content.nameless.is_none() && matches!(self.trees.tree(ino), Tree::Server) {
            // The newest answer counts, which may be newer than that of this open.
            match (content.shared, self.fs.is_shared(ino)) {
                (false, true) => {
                    self.fs.share_sums(ino, true);
                    content.share(self.trees.is_lazy(ino));
                }
                (true, false) => {
                    self.fs.share_sums(ino, false);
                    content.unshare();
                }
                (true, true) | (false, false) => {}
            }
        }
        content.shared && !content.lazy
    }

    /// Another client has removed the last name of a file that is open here. False if it is not
    /// open.
    pub(crate) fn lost_elsewhere(&self, ino: Ino) -> bool {
        let Some(file) = self.trees.nodes().file(ino).cloned() else { return false };
        let mut content = file.held();
        if content.nameless.is_none() {
            let last = content.last;
            content.lose_name(last);
        }
        true
    }
}
