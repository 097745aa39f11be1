//! Files of an open region that the kernel knows.
//!
//! The mount reads files while the programs of the job change them in memory. Each file that the
//! kernel knows has one open reference in the region, so its record stays until the kernel forgets
//! it. When the region closes, the files that are open in the mount get a stand-in, and the
//! references end.
//!
//! Invariant: a file has a reference exactly as long as it is in the table.

use cudele::{Ino, Result};
use jobtree::{Denied, Inode, Visit};
use types::{Errno, Error, Map};

use crate::machine::Machine;
use crate::stand_ins::StandIns;

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct KnownFiles {
    by_ino: Map<Ino, KnownFile>,
    /// Opens of files through the mount since before the region closed.
    opens: Map<Ino, u32>,
}

#[derive(Debug)]
struct KnownFile {
    inode: Inode,
    /// References of the kernel.
    lookups: u64,
}

impl KnownFiles {
    /// The kernel gets one more reference to a file.
    ///
    /// # Errors
    /// `ENOENT` if the file has lost its last name.
    pub(crate) fn refer(&mut self, session: &Visit<'_, Machine>, inode: Inode) -> Result<()> {
        let ino = Ino(session.region().ino(inode));
        if let Some(known) = self.by_ino.get_mut(&ino) {
            known.lookups += 1;
            return Ok(());
        }
        let opened = session.open_inode(inode);
        opened.map_err(|_: Denied| Error::of(Errno::NotFound, "preload"))?;
        self.by_ino.insert(ino, KnownFile { inode, lookups: 1 });
        Ok(())
    }

    /// The kernel gives references up. A file that is open in the mount stays.
    pub(crate) fn forget(&mut self, session: &Visit<'_, Machine>, ino: Ino, count: u64) {
        let Some(known) = self.by_ino.get_mut(&ino) else { return };
        known.lookups = known.lookups.saturating_sub(count);
        self.drop_unused(session, ino);
    }

    fn drop_unused(&mut self, session: &Visit<'_, Machine>, ino: Ino) {
        let unused = self.by_ino.get(&ino).is_some_and(|known| known.lookups == 0);
        if unused
            && !self.opens.contains_key(&ino)
            && let Some(known) = self.by_ino.remove(&ino)
        {
            session.close_inode(known.inode);
        }
    }

    /// The record of a file.
    pub(crate) fn inode(&self, ino: Ino) -> Option<Inode> {
        self.by_ino.get(&ino).map(|known| known.inode)
    }

    /// Counts an open through the mount.
    pub(crate) fn open(&mut self, ino: Ino) {
        *self.opens.entry(ino).or_default() += 1;
    }

    /// Whether a file is open through the mount since before the region closed.
    pub(crate) fn is_open(&self, ino: Ino) -> bool {
        self.opens.contains_key(&ino)
    }

    /// Takes one of these opens back. False if there is none.
    pub(crate) fn close(&mut self, session: Option<&Visit<'_, Machine>>, ino: Ino) -> bool {
        let Some(count) = self.opens.get_mut(&ino) else { return false };
        *count -= 1;
        if *count == 0 {
            self.opens.remove(&ino);
        }
        if let Some(session) = session {
            self.drop_unused(session, ino);
        }
        true
    }

    /// The region is closed: files that are open through the mount get a stand-in, and all
    /// references end.
    pub(crate) fn release(
        &mut self,
        session: &Visit<'_, Machine>,
        stand_ins: &StandIns,
    ) -> Result<()> {
        for ino in self.opens.keys() {
            if let Some(known) = self.by_ino.get(ino) {
                stand_ins.make(session.region(), session, known.inode)?;
            }
        }
        for (_, known) in self.by_ino.drain() {
            session.close_inode(known.inode);
        }
        Ok(())
    }
}
