//! Flush and sync: written content reaches the inode and becomes durable.

use cudele::{Errno, Ino, Result, Seal, StripedFile};

use crate::content::ContentCx;
use crate::file::{Body, Content};

impl ContentCx<'_> {
    /// Sends the inode the changes of the content that it lacks.
    pub(crate) fn write_back(&self, ino: Ino, content: &mut Content) -> Result<()> {
        self.drain(ino, content)?;
        self.send_length(ino, content)?;
        if !content.dirty {
            return Ok(());
        }
        if content.nameless.is_none() {
            let data: &[u8] = match &content.body {
                Body::Inline(data) => data,
                Body::Striped | Body::Unread => &[],
            };
            match self.trees.change_data(ino, data, content.size) {
                // Another client has removed the last name: the file exists here until it is
                // closed.
                Err(error) if error.errno == Errno::NotFound => content.lose_name(content.last),
                changed => {
                    changed?;
                    self.fs.repeated(ino);
                }
            }
            self.trees.nodes().see_after(ino);
        }
        content.last = content.over(content.last);
        content.dirty = false;
        Ok(())
    }

    /// A later open of the file, by any client, sees all writes before this call.
    ///
    /// # Errors
    /// `ENOSPC`, `EIO`, `EBUSY` if another client has decoupled the subtree. The content stays
    /// here, and the next flush tries again. `ENOSPC` or `EIO` of an answered write that was lost,
    /// until a program repeats the write. Once, the error of a change of any file that the server
    /// answered and did not carry out.
    pub(crate) fn flush(&self, ino: Ino) -> Result<()> {
        let file = self.trees.file(ino)?;
        let mut content = file.held();
        self.write_back(ino, &mut content)?;
        self.seal(ino, &mut content);
        self.check_lost(ino, &mut content)?;
        drop(content);
        self.fs.check_lost()
    }

    /// Makes the writes as durable as the policy promises.
    ///
    /// # Errors
    /// As [`Vfs::flush`].
    pub(crate) fn sync(&self, ino: Ino) -> Result<()> {
        let file = self.trees.file(ino)?;
        let mut content = file.held();
        self.write_back(ino, &mut content)?;
        self.sync_content(ino, &mut content)?;
        self.check_lost(ino, &mut content)?;
        if self.fs.is_unsealed(ino) && self.trees.wants_sums(ino) {
            // Leave blocks that were written in the middle until the close: with each commit of a
            // database, the seal would read each of these blocks again.
            self.fs.seal(StripedFile::new(ino, content.stripe), Seal::Durable, false);
        }
        let nameless = content.nameless.is_some();
        drop(content);
        if nameless { Ok(()) } else { self.trees.sync_metadata(ino) }
    }

    /// Fails if an acknowledged write or change of the file is lost.
    fn check_lost(&self, ino: Ino, content: &mut Content) -> Result<()> {
        content.lost.check()?;
        // The next flush sends the change to the inode again.
        self.fs.check_lost_of(ino).inspect_err(|_| content.dirty |= !content.shared)
    }

    /// Makes the content in the object store durable.
    fn sync_content(&self, ino: Ino, content: &mut Content) -> Result<()> {
        if !content.unsynced.is_any() {
            return Ok(());
        }
        if content.shared {
            self.shared_size(ino, content)?;
        } else {
            self.find(ino, content)?;
        }
        // Inline content has no part in the object store, unless a part was deleted since the last
        // sync.
        if matches!(content.body, Body::Inline(_)) && !content.unsynced.is_changed() {
            return Ok(());
        }
        content.unsynced.sync(self.fs, ino, content.stripe, content.size)
    }

    /// Writes the checksums of a file's written blocks; all of them are in the object store.
    pub(crate) fn seal(&self, ino: Ino, content: &mut Content) {
        if !self.fs.is_unsealed(ino) {
            return;
        }
        let seal = if content.unsynced.is_any() { Seal::Written } else { Seal::Durable };
        self.fs.want_sums(ino, self.trees.wants_sums(ino));
        self.fs.seal(StripedFile::new(ino, content.stripe), seal, true);
    }

    /// Whether a file holds something that its inode does not know.
    pub(crate) fn is_unwritten(&self, ino: Ino) -> bool {
        let file = self.trees.nodes().file(ino).cloned();
        file.is_some_and(|file| file.held().is_unwritten())
    }

    /// Everything that is held of files in a decoupled subtree goes to their inodes.
    pub(crate) fn write_back_below(&self, root: Ino) -> Result<()> {
        let files = self.trees.nodes().files();
        for (ino, file) in files {
            if self.trees.nodes().owner(ino) == root {
                let mut content = file.held();
                self.write_back(ino, &mut content)?;
                // After the merge other clients can write the file.
                self.seal(ino, &mut content);
                self.fs.forget_sums(ino);
            }
        }
        Ok(())
    }

    /// The same for all files, before the mount ends.
    ///
    /// # Errors
    /// The first that came up; the rest is tried all the same.
    pub(crate) fn write_back_all(&self) -> Result<()> {
        let files = self.trees.nodes().files();
        let mut result = Ok(());
        for (ino, file) in files {
            let mut content = file.held();
            let written = self.write_back(ino, &mut content);
            self.seal(ino, &mut content);
            self.send_access_time(ino, &mut content);
            result = result.and(written);
        }
        result
    }
}
