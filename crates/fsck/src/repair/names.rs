//! Repairs of names: an inode loses the wrong one, has as many as it counts, or gets one in
//! `/lost+found`.

use metastore::{InodeRecord, Manifest, RowValue, Rows, manifest_name};
use objstore::Expect;
use types::{Attr, DirFragId, FileType, Ino, Result};

use super::{Edit, Mending, whole};
use crate::{FsckReport, fragment};

/// The directory for inodes without a name.
const LOST_AND_FOUND: &[u8] = b"lost+found";

impl Mending<'_> {
    /// Takes an inode out of a directory where it was before.
    pub(super) fn leave(&self, dirfrag: DirFragId, ino: Ino) -> Result<Option<String>> {
        let mut report = FsckReport::default();
        let read = fragment::read(self.store, dirfrag, &mut report)?;
        let name = read.as_ref().and_then(|fragment| {
            fragment.rows.iter().find_map(|row| match row.value {
                RowValue::Inode(record) if record.attr.ino == ino => Some(row.name.to_vec()),
                RowValue::Inode(_) | RowValue::Remote { .. } | RowValue::Removed => None,
            })
        });
        match name {
            Some(name) => self.amend(dirfrag, &[Edit::Remove(&name)]),
            None => Ok(Some("its name cannot be found".to_owned())),
        }
    }

    /// The record of an inode with several names and the directory that it is in, handed to `then`.
    fn linked(
        &self,
        ino: Ino,
        then: impl FnOnce(DirFragId, &[u8], InodeRecord<'_>) -> Result<Option<String>>,
    ) -> Result<Option<String>> {
        let is_it = |row: &metastore::Row<'_>| matches!(row.value, RowValue::Inode(record) if record.attr.ino == ino);
        for dirfrag in engine::links_dirs(self.store)?.into_iter().map(whole) {
            let read = fragment::read(self.store, dirfrag, &mut FsckReport::default())?;
            let rows = read.map(|fragment| fragment.rows).unwrap_or_default();
            let Some(row) = rows.iter().find(is_it) else { continue };
            let mut one = Rows::new();
            one.push(row.name, row.value);
            // It may go to another directory, which has other value segments.
            let one = engine::resolve(self.store, dirfrag, one)?;
            if let Some(row) = one.last()
                && let RowValue::Inode(record) = row.value
            {
                return then(dirfrag, row.name, record);
            }
        }
        Ok(Some("it cannot be found".to_owned()))
    }

    pub(super) fn count_names(&self, ino: Ino, has: u32) -> Result<Option<String>> {
        self.linked(ino, |dirfrag, name, mut record| {
            record.attr.nlink = has;
            self.amend(dirfrag, &[Edit::Put(name, record)])
        })
    }

    /// An inode that has lost all its names gets one, and is an ordinary file again.
    pub(super) fn one_name(&self, ino: Ino) -> Result<Option<String>> {
        self.linked(ino, |dirfrag, name, mut record| {
            record.attr.nlink = 1;
            if let Some(why) = self.found(ino, record)? {
                return Ok(Some(why));
            }
            self.amend(dirfrag, &[Edit::Remove(name)])
        })
    }

    /// Gives a directory without a name a new one, owned by root: its attributes are lost.
    pub(super) fn name_again(&self, dir: Ino) -> Result<Option<String>> {
        self.found(dir, InodeRecord { attr: self.directory(dir), ..InodeRecord::default() })
    }

    fn directory(&self, ino: Ino) -> Attr {
        let (mode, now) = (FileType::Directory.mode_bits() | 0o700, self.now);
        Attr {
            ino,
            mode,
            nlink: 2,
            mtime: now,
            ctime: now,
            atime: now,
            btime: now,
            ..Attr::default()
        }
    }

    /// Puts an inode into `/lost+found`, which is made if it is not there.
    fn found(&self, ino: Ino, record: InodeRecord<'_>) -> Result<Option<String>> {
        let mut report = FsckReport::default();
        let Some(root) = fragment::read(self.store, whole(Ino::ROOT), &mut report)? else {
            return Ok(Some("the root directory cannot be read".to_owned()));
        };
        let there = root.rows.iter().find(|row| row.name == LOST_AND_FOUND);
        let place = match there.map(|row| row.value) {
            Some(RowValue::Inode(record)) if record.attr.is_dir() => record.attr.ino,
            Some(_) => {
                return Ok(Some("/lost+found is not a directory: give it another name".to_owned()));
            }
            None => {
                let attr = self.directory(Ino::LOST_AND_FOUND);
                let record = InodeRecord { attr, ..InodeRecord::default() };
                let edit = Edit::Put(LOST_AND_FOUND, record);
                if let Some(why) = self.amend(whole(Ino::ROOT), &[edit])? {
                    return Ok(Some(why));
                }
                Ino::LOST_AND_FOUND
            }
        };
        let empty = Manifest::new(whole(place)).encode();
        let _there_already =
            self.store.put(&manifest_name(whole(place)), &empty, Expect::Absent)?;
        let name = format!("#{:x}", ino.0);
        self.amend(whole(place), &[Edit::Put(name.as_bytes(), record)])
    }
}
