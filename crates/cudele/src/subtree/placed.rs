//! Inodes that another part of the job has made with numbers of the contract.
//!
//! The processes of a job work in memory that they share, with numbers from a block of the
//! subtree's; later the keeper of that memory places what they made.

use namespace::PlannedInode;
use types::{AttrChange, Cred, EntryName, Ino, InoRange, Result, StripedFile, Timestamp};

use super::{Subtree, inode_of};
use crate::NewFile;

/// The place and the time of an inode that exists already.
#[derive(Clone, Copy, Debug)]
pub struct Placed<'a> {
    /// Its number, from [`Subtree::reserve_numbers`].
    pub ino: Ino,
    /// The directory.
    pub parent: Ino,
    /// The name.
    pub name: &'a [u8],
    /// The last change of the inode.
    pub ctime: Timestamp,
}

impl Subtree {
    /// Takes a block of up to so many numbers out of the contract, at least one. The contract is
    /// extended if it has none left.
    ///
    /// # Errors
    /// As [`Subtree::create`] without numbers: `EDQUOT`.
    pub fn reserve_numbers(&mut self, count: u64) -> Result<InoRange> {
        if self.job.inner.inodes_left() == 0 {
            self.extend()?;
        }
        Ok(self.job.inner.reserve(count))
    }

    /// Numbers at the end of the block that was reserved last were not used.
    pub fn give_numbers_back(&mut self, unused: InoRange) {
        self.job.inner.give_back(unused);
    }

    /// Adds a file with content, a directory or a symbolic link. The name is free.
    ///
    /// # Errors
    /// `EINVAL`, `ENAMETOOLONG`, `EFBIG`; `EIO` or `ENOSPC` from the store.
    pub fn place(&mut self, at: &Placed<'_>, new: &NewFile<'_>, content: &[u8]) -> Result<()> {
        let stripe = self.job.policy.stripe;
        let inline = content.len() <= self.job.policy.inline_bytes as usize;
        let size = content.len() as u64;
        let inode = match (content.is_empty(), inline) {
            (true, _) => inode_of(new, at.ctime, stripe),
            (false, true) => {
                PlannedInode { size, data: content, ..inode_of(new, at.ctime, stripe) }
            }
            (false, false) => inode_of(new, at.ctime, stripe),
        };
        let entry = EntryName::new(at.parent, at.name);
        let owner = inode.owner.map(|(uid, gid)| self.owner_as(uid, gid));
        let inode = PlannedInode { owner, ..inode };
        let placed = self.job.inner.place(&self.cred, at.ino, entry, &inode);
        placed.map_err(|errno| {
            types::Error::of(errno, String::from_utf8_lossy(at.name).into_owned())
        })?;
        if !inline {
            self.note_content()?;
            self.fs.want_sums(at.ino, self.job.policy.checksums == policy::Checksums::On);
            let file = StripedFile::new(at.ino, stripe);
            self.fs.write_large(file, content, &mut std::io::empty())?;
            let change = AttrChange { size: Some(size), mtime: new.mtime, ..AttrChange::default() };
            self.set_placed(at, &change);
        }
        Ok(())
    }

    /// The owner in the place of this one, as [`Subtree::act_as`] has it.
    fn owner_as(&self, uid: u32, gid: u32) -> (u32, u32) {
        let owner = Cred { uid, gid, groups: Vec::new() };
        let owner = self.fs.served_as(&owner);
        (owner.uid, owner.gid)
    }

    /// Sets attributes of an inode that was placed.
    pub fn set_placed(&mut self, at: &Placed<'_>, change: &AttrChange) {
        let mut change = *change;
        if let Some(uid) = change.uid {
            let (uid, gid) = self.owner_as(uid, change.gid.unwrap_or_default());
            (change.uid, change.gid) = (Some(uid), change.gid.map(|_| gid));
        }
        self.job.inner.set_attr_blindly(at.ino, at.parent, &change, at.ctime);
    }
}
