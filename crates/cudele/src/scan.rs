//! Reading a large directory straight from the object store (U-04).
//!
//! One request makes the metadata server write its changes of the directory to the store. Then the
//! client reads manifest and runs itself, piece by piece, in order of name. The scan has the names
//! at the time of the request, and perhaps later changes. A name that exists throughout is seen
//! once.

use engine::ValueReader;
use metastore::{InodeRecord, Manifest, RowValue, Scan, manifest_name};
use objstore::ObjectStore;
use types::{Attr, Cred, DirFragId, EntryName, Errno, Error, Frag, Ino, Result};
use wire::{AdminOp, Op, ReadOp};

use crate::fs::parse;
use crate::{Dir, DirEntry, Fs};

/// So often the directory may be rewritten under a reader that finds nothing new in between.
const TRIES_MAX: u32 = 100;

/// How a directory was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scanned {
    /// Entries that were given.
    pub entries: u64,
    /// Bytes that were read from the object store for that.
    pub bytes: u64,
}

impl Fs {
    /// Gives all entries of the directory at a path, in order of name, from the object store. The
    /// server need not have the directory in memory, and this process holds a small part. The
    /// attributes of sub-directories lack the numbers of entries and links.
    ///
    /// # Errors
    /// The errors of [`Fs::walk`]; `ENOTDIR`, `EACCES` without read permission, `EBUSY` in a
    /// blocked subtree of another client; `EBADMSG` for damaged objects; an error of `take` ends
    /// the scan.
    pub fn scan(
        &self,
        path: impl AsRef<[u8]>,
        mut take: impl FnMut(&[u8], &Attr) -> Result<()>,
    ) -> Result<Scanned> {
        let path = parse(path)?;
        let (parent, name) = match path.split_last() {
            // Only the directory above has to be in the server's memory for that.
            Some((above, name)) => {
                let found = self.walk(&above)?.1;
                let above = found.ok_or_else(|| Error::of(Errno::NotFound, above.to_string()))?;
                (above.ino, name.to_vec())
            }
            None => (Ino::ROOT, Vec::new()),
        };
        let scanned =
            self.scan_at(self.cred(), EntryName::new(parent, &name), &mut |name, record| {
                take(name, &record.attr)
            });
        scanned.map_err(|error| {
            if error.subject.is_empty() { error.about(path.to_string()) } else { error }
        })
    }

    /// The same for a name in a directory, or for `parent` itself if the name is empty.
    pub(crate) fn scan_at(
        &self,
        cred: &Cred,
        EntryName { dir: parent, name }: EntryName<'_>,
        take: &mut dyn FnMut(&[u8], &InodeRecord<'_>) -> Result<()>,
    ) -> Result<Scanned> {
        let written = self.call_as(cred, Op::Admin(AdminOp::WriteDown { parent, name }))?;
        self.scan_written(Self::attr_answer(written)?.ino, false, take)
    }

    /// The same for a directory that the server has written to the store, without a request. With
    /// `content`, reads the content of inodes, too.
    pub(crate) fn scan_written(
        &self,
        dir: Ino,
        content: bool,
        take: &mut dyn FnMut(&[u8], &InodeRecord<'_>) -> Result<()>,
    ) -> Result<Scanned> {
        let dirfrag = DirFragId { ino: dir, frag: Frag::WHOLE };
        let mut done = Scanned::default();
        let (mut after, mut tries) = (Vec::new(), 0);
        loop {
            let manifest = match self.store().get(&manifest_name(dirfrag)) {
                Ok((bytes, _)) => Manifest::decode_as(dirfrag, &bytes)?,
                // Nothing was ever stored of it.
                Err(error) if error.errno == Errno::NotFound => return Ok(done),
                Err(error) => return Err(error),
            };
            let before = done.entries;
            let mut scan = Scan::new(&manifest, &after);
            let mut content = content.then(|| Content::of(&**self.store(), dirfrag, &after));
            match self.scan_runs(dir, &mut scan, content.as_mut(), &mut done, take) {
                Ok(()) => return Ok(done),
                // The directory was rewritten: the runs of the new manifest continue behind the
                // last name.
                Err(error) if error.errno == Errno::NotFound && tries < TRIES_MAX => {
                    tries = if done.entries > before { 0 } else { tries + 1 };
                    after = content.map_or_else(|| scan.after().to_vec(), |content| content.after);
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn scan_runs(
        &self,
        dir: Ino,
        scan: &mut Scan,
        mut content: Option<&mut Content<'_>>,
        done: &mut Scanned,
        take: &mut dyn FnMut(&[u8], &InodeRecord<'_>) -> Result<()>,
    ) -> Result<()> {
        loop {
            let wants = scan.wants();
            for want in &wants {
                let bytes = self.store().read_range(&want.object, want.offset, want.length)?;
                done.bytes += bytes.len() as u64;
                scan.feed(want, bytes)?;
            }
            if !wants.is_empty() {
                continue;
            }
            let mut result = Ok(());
            let more = scan.rows(&mut |name, value| {
                if result.is_err() {
                    return;
                }
                result = match (&mut content, value) {
                    (Some(content), RowValue::Inode(record)) => {
                        content.entry(name, record, done, take)
                    }
                    _ => self.entry(EntryName::new(dir, name), value, done, take),
                };
                if let (Some(content), Ok(())) = (&mut content, &result) {
                    content.after.clear();
                    content.after.extend_from_slice(name);
                }
            })?;
            result?;
            if !more {
                return Ok(());
            }
        }
    }

    #[inline]
    fn entry(
        &self,
        EntryName { dir, name }: EntryName<'_>,
        value: &RowValue<'_>,
        done: &mut Scanned,
        take: &mut dyn FnMut(&[u8], &InodeRecord<'_>) -> Result<()>,
    ) -> Result<()> {
        match value {
            RowValue::Inode(record) => {
                done.entries += 1;
                take(name, record)
            }
            RowValue::Remote { ino, file_type } => {
                // An inode with several names is stored apart from them.
                // A name of nothing, if a merge was lost in part, can be seen and removed.
                let nothing = Attr { ino: *ino, mode: file_type.mode_bits(), ..Attr::default() };
                let attr = self.linked(dir, name, *ino)?.unwrap_or(nothing);
                done.entries += 1;
                take(name, &InodeRecord { attr, ..InodeRecord::default() })
            }
            RowValue::Removed => Ok(()),
        }
    }

    /// The attributes of an inode with several names. The server that has not loaded it is asked
    /// by one of the names, which loads it.
    fn linked(&self, dir: Ino, name: &[u8], ino: Ino) -> Result<Option<Attr>> {
        match self.call(Op::Read(ReadOp::GetAttr { ino })).and_then(Self::attr_answer) {
            Err(error) if matches!(error.errno, Errno::Stale | Errno::NotFound) => {}
            found => return found.map(Some),
        }
        match self.call(Op::Read(ReadOp::Lookup { parent: dir, name })).and_then(Self::attr_answer)
        {
            Ok(attr) => Ok(Some(attr).filter(|attr| attr.ino == ino)),
            // A server that has a name of nothing says EIO.
            Err(error) if matches!(error.errno, Errno::Stale | Errno::NotFound | Errno::Io) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// Content and attributes of the inodes of a directory during a scan.
struct Content<'a> {
    values: ValueReader<'a>,
    /// The name before the first one whose content was unreadable: the next attempt begins behind
    /// it.
    after: Vec<u8>,
}

impl<'a> Content<'a> {
    fn of(store: &'a dyn ObjectStore, dirfrag: DirFragId, after: &[u8]) -> Self {
        Self { values: ValueReader::new(store, dirfrag), after: after.to_vec() }
    }

    fn entry(
        &mut self,
        name: &[u8],
        record: &InodeRecord<'_>,
        done: &mut Scanned,
        take: &mut dyn FnMut(&[u8], &InodeRecord<'_>) -> Result<()>,
    ) -> Result<()> {
        match record.pointer {
            None => take(name, record)?,
            Some(pointer) => {
                let (data, extra) = self.values.read(pointer)?;
                done.bytes += pointer.bytes();
                take(name, &InodeRecord { data, extra, pointer: None, ..*record })?;
            }
        }
        done.entries += 1;
        Ok(())
    }
}

impl Dir {
    /// All entries in order of name, as [`Fs::scan`] gives them.
    ///
    /// # Errors
    /// As [`Fs::scan`].
    pub fn list_stored(&self) -> Result<Vec<DirEntry>> {
        let mut all = Vec::new();
        let fs = self.fs();
        fs.scan_at(fs.cred(), EntryName::new(self.ino(), b""), &mut |name, record| {
            all.push(DirEntry { name: name.to_vec(), attr: record.attr });
            Ok(())
        })
        .map_err(|error| error.about(self.path().to_string()))?;
        Ok(all)
    }
}
