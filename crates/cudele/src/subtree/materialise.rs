//! Loads the old entries of a decoupled subtree from the object store (U-04): a large directory, or
//! all directories, with the content of inodes. The client works on them, and appends to its
//! journal.
//!
//! The server writes its changes to the store, and sends no entries: its cost does not depend on
//! the number of entries or directories.

use metastore::InodeRecord;
use types::{Cred, EntryName, Ino, Result, Seq};

use super::Subtree;
use crate::Scanned;

/// The amount of loaded data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Materialised {
    /// Directories that were read.
    pub directories: u64,
    /// Entries in them.
    pub entries: u64,
    /// Bytes that were read for that.
    pub bytes: u64,
}

impl Subtree {
    /// Loads all old entries of the subtree into the view of this client, with one request to each
    /// known metadata server, and one for each file with several names. Entries in the view, and
    /// entries that this client has made, stay. If other clients may work in the subtree
    /// (`interfere_policy: allow`), each directory has its state of some moment since.
    ///
    /// # Errors
    /// `EIO` if the server cannot write to the store; `EBADMSG` for damaged objects; the errors of
    /// the store. Entries that were loaded before stay.
    pub fn materialise(&mut self) -> Result<Materialised> {
        self.fs.checkpoint()?;
        let mut done = Materialised::default();
        let mut pending = vec![self.root()];
        while let Some(dir) = pending.pop() {
            if !self.job.inner.view().namespace().is_complete(dir) && !self.job.is_own(dir) {
                let Scanned { entries, bytes } = self.load_written(dir)?;
                done.directories += 1;
                (done.entries, done.bytes) = (done.entries + entries, done.bytes + bytes);
            }
            let below = self.list_from(dir, None, usize::MAX, false)?;
            pending.extend(below.iter().filter(|it| it.attr.is_dir()).map(|it| it.attr.ino));
        }
        Ok(done)
    }

    /// Brings a large directory of the base into the view.
    pub(super) fn fetch_stored(&mut self, dir: Ino) -> Result<()> {
        let op = wire::Op::Admin(wire::AdminOp::WriteDown { parent: dir, name: b"" });
        self.fs.call_as(&Cred::root(), op)?;
        self.load_written(dir).map(drop)
    }

    /// Loads a directory that the server has written down.
    fn load_written(&mut self, dir: Ino) -> Result<Scanned> {
        let (fs, bare, places) = (self.fs.clone(), &mut self.bare, &mut self.job.places);
        // Before the first event nothing has gone from anywhere.
        let may_have_moved = self.job.inner.next_seq() > Seq(1);
        let namespace = self.job.inner.view().namespace_mut();
        let scanned = fs.scan_written(dir, true, &mut |name, record| {
            let InodeRecord { attr, data, extra, .. } = record;
            namespace.store().load_entry(dir, name, attr, data);
            if may_have_moved || attr.nlink > 1 {
                places.note_loaded(namespace, EntryName::new(dir, name), attr);
            }
            // The rest is loaded when it is needed.
            let is_whole = extra.is_empty() && attr.nlink <= 1 && attr.size == data.len() as u64;
            if !attr.is_dir() && !is_whole {
                bare.insert(attr.ino);
            }
            Ok(())
        })?;
        namespace.store().finish_load(dir, Seq(0), Default::default());
        Ok(scanned)
    }
}
