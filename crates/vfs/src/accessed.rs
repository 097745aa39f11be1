//! When files were read last.
//!
//! A read is recorded in the open file, and its inode gets the time when the file is closed. No
//! caller waits for that, and a failure is ignored: reading must work on a read-only store. Reads
//! from the kernel's own cache are not seen here. Times of directories and symbolic links are left
//! alone.

use cudele::Ino;
use posix::Caller;

use crate::content::ContentCx;
use crate::file::Content;

impl ContentCx<'_> {
    /// A file is being read.
    pub(crate) fn note_read(&self, content: &mut Content) {
        let seen = content.over(content.last);
        if !self.options.read_only && self.options.atime.is_due(&seen, cudele::now_coarse()) {
            content.accessed = Some(cudele::now());
        }
    }

    /// Tells the inode, if there is something to tell.
    pub(crate) fn send_access_time(&self, ino: Ino, content: &mut Content) {
        let Some(at) = content.accessed.filter(|_| content.nameless.is_none()) else { return };
        // A lost access time is not worth another try.
        let _ = self.trees.run(
            ino,
            &Caller::SELF,
            |user| user.accessed(ino, at),
            |subtree| subtree.accessed(ino, at),
        );
        content.last.atime = content.last.atime.max(at);
        content.accessed = None;
    }
}
