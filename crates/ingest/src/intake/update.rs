//! Bringing a source into a destination that has a part of it: after an interruption, or with an
//! earlier version of the source.
//!
//! An entry is unchanged if type, size and modification time are the same, for a link its target,
//! as for `rsync`; a changed entry is replaced. The check always finds unfinished content, because
//! a file gets its size after its content. Names that only the destination has stay.

use cudele::{Attr, Errno, Error, FileType, Result};

use super::{Intake, Known, split};
use crate::source::{SourceEntry, SourceKind, shown};

impl Intake<'_> {
    /// Whether the destination has the same entry, which stays. A different one is removed. Not for
    /// directories.
    pub(super) fn is_there(&mut self, entry: &SourceEntry<'_>) -> Result<bool> {
        if !self.resumes || self.known.contains_key(entry.path) {
            return Ok(false);
        }
        let (parent, name) = split(entry.path);
        let dir = self.directory_at(parent)?;
        let Some(found) = self.target.existing(dir, name)? else { return Ok(false) };
        if found.is_dir() {
            let cause = "a directory is there; in the source it is something else";
            return Err(Error::new(Errno::IsDirectory, shown(entry.path), cause)
                .remedy("remove it with `cudele rm -r`, and run this again"));
        }
        if !self.is_same(entry, &found)? {
            self.target.unlink(dir, name)?;
            self.tally.updated += 1;
            return Ok(false);
        }
        let change = self.attributes(entry);
        let owner = (change.uid.unwrap_or(found.uid), change.gid.unwrap_or(found.gid));
        let links = matches!(entry.kind, SourceKind::Symlink(_) | SourceKind::HardLink(_));
        let is_set = found.mode & types::MODE_PERMISSIONS == entry.permissions
            && owner == (found.uid, found.gid);
        if !links && !is_set {
            self.set_attr(dir, found.ino, &change)?;
        }
        if !links {
            self.xattrs(dir, found.ino, entry)?;
        }
        self.known.insert(entry.path.to_vec(), Known::Other(found.ino));
        self.tally.unchanged += 1;
        Ok(true)
    }

    fn is_same(&mut self, entry: &SourceEntry<'_>, found: &Attr) -> Result<bool> {
        let is = |file_type| found.file_type() == file_type;
        Ok(match entry.kind {
            SourceKind::Directory => false,
            SourceKind::File { size } | SourceKind::Hollow { size } => {
                is(FileType::Regular)
                    && (found.size, found.mtime) == (size, entry.mtime)
                    // Of two files of the source only one can be this one.
                    && self.kept.insert(found.ino)
            }
            SourceKind::Symlink(target) => {
                is(FileType::Symlink) && self.target.read_link(found.ino)? == target
            }
            SourceKind::Special { file_type, rdev } => {
                is(file_type) && found.rdev == rdev && self.kept.insert(found.ino)
            }
            SourceKind::HardLink(first) => {
                matches!(self.known.get(first), Some(Known::Other(ino)) if *ino == found.ino)
            }
        })
    }
}
