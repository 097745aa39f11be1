//! When files were read last.
//!
//! A read is recorded in the open file, and its inode gets the time when the file is closed. No
//! caller waits for that, and a failure is ignored: reading must work on a read-only store. Reads
//! from the kernel's own cache are not seen here. Times of directories and symbolic links are left
//! alone.

use cudele::{Attr, Ino, Timestamp};

use crate::file::Content;
use crate::{Caller, Vfs};

/// For so long a time of the last access is good enough, in nanoseconds.
const GOOD_NANOS: i64 = 24 * 3600 * 1_000_000_000;

/// Which reads are noted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Atime {
    /// None.
    Never,
    /// The first after a change, and one a day.
    #[default]
    Relative,
    /// All.
    Always,
}

impl Atime {
    fn is_due(self, attr: &Attr, now: Timestamp) -> bool {
        match self {
            Self::Never => false,
            Self::Relative => {
                let age = now.0.saturating_sub(attr.atime.0);
                attr.atime <= attr.mtime.max(attr.ctime) || age >= GOOD_NANOS
            }
            Self::Always => true,
        }
    }
}

impl Vfs {
    /// A file is being read.
    pub(crate) fn note_read(&self, content: &mut Content) {
        let seen = content.over(content.last);
        if !self.options.read_only && self.options.atime.is_due(&seen, cudele::now_coarse()) {
            content.accessed = Some(cudele::now());
        }
    }

    /// Tells the inode, if there is something to tell.
    pub(crate) fn tell_read(&self, ino: Ino, content: &mut Content) {
        let Some(at) = content.accessed.filter(|_| content.nameless.is_none()) else { return };
        // A lost access time is not worth another try.
        let _ = self.run(
            ino,
            &Caller::SELF,
            |user| user.accessed(ino, at),
            |subtree| subtree.accessed(ino, at),
        );
        content.last.atime = content.last.atime.max(at);
        content.accessed = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_noted_after_a_change_and_once_a_day() {
        let attr = |atime, mtime, ctime| Attr {
            atime: Timestamp(atime),
            mtime: Timestamp(mtime),
            ctime: Timestamp(ctime),
            ..Attr::default()
        };
        let due = |attr, now| Atime::Relative.is_due(&attr, Timestamp(now));
        assert!(due(attr(5, 5, 4), 6), "as it was made");
        assert!(due(attr(5, 4, 6), 7), "changed since");
        assert!(!due(attr(5, 4, 4), 7));
        assert!(!due(attr(5, 4, 4), 4 + GOOD_NANOS));
        assert!(due(attr(5, 4, 4), 5 + GOOD_NANOS));
        assert!(!due(attr(9, 4, 4), 5), "set to what is to come");
        assert!(Atime::Always.is_due(&attr(5, 4, 4), Timestamp(7)));
        assert!(!Atime::Never.is_due(&attr(5, 5, 5), Timestamp(7)));
    }
}
