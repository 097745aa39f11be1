//! Replaces a file by a copy: clients of a branch's server do so before they write to a file that
//! the job has not made (crate `jobserver`). The old file does not change, because the trunk and
//! other branches refer to it.
//!
//! Invariant: at any time the name leads to the old file or to the whole copy, and to one copy
//! only, however many clients ask for one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use types::{
    Errno, Error, Ino, Lock, LockKind, LockMode, Path, RenameFlags, Result, XattrChange, XattrFlags,
};
use wire::{Op, ReadOp};

use crate::{Dir, Fs, NewFile};

/// Tells the threads of this client apart.
static NEXT_OWNER: AtomicU64 = AtomicU64::new(1 << 63);

impl Fs {
    /// Replaces a file by a copy, if the name still leads to the file. Afterwards the name leads to
    /// another inode. Needed where an open for writing fails with `EROFS`.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if the file has several names; `EPERM` if its owner cannot be kept; the errors
    /// of reading and writing content. The file is then unchanged.
    pub fn replace_by_copy(self: &Arc<Self>, parent: Ino, name: &[u8], ino: Ino) -> Result<()> {
        // Programs take no write locks on directories, so this lock conflicts only with other
        // replacements.
        let owner = NEXT_OWNER.fetch_add(1, Ordering::Relaxed);
        let (kind, mode, pid) = (LockKind::Posix, LockMode::Write, std::process::id());
        let lock = Lock { kind, mode, owner, pid, start: ino.0, end: ino.0 };
        self.lock(parent, lock, true)?;
        let replaced = self.replace_locked(parent, name, ino);
        let unlocked = self.lock(parent, Lock { mode: LockMode::Unlock, ..lock }, false);
        replaced.and(unlocked)
    }

    fn replace_locked(self: &Arc<Self>, parent: Ino, name: &[u8], ino: Ino) -> Result<()> {
        let about = |error: Error| error.about(String::from_utf8_lossy(name));
        let there = match self
            .call(Op::Read(ReadOp::Lookup { parent, name }))
            .and_then(Self::attr_answer)
        {
            Ok(there) if there.ino == ino => there,
            // Another client was faster.
            Ok(_) => return Ok(()),
            Err(error) if error.errno == Errno::NotFound => return Ok(()),
            Err(error) => return Err(about(error)),
        };
        if there.nlink > 1 {
            let cause = "it has several names, and what is in the snapshot is not written over";
            return Err(Error::new(Errno::NotSupported, String::from_utf8_lossy(name), cause)
                .remedy("write a new file, and give it these names"));
        }
        let dir = Dir::open(self.clone(), Path::root(), parent)?;
        let copy = format!(".cudele-copy.{:x}", ino.0);
        match dir.unlink(&copy) {
            Ok(()) => {} // Of somebody who died.
            Err(error) if error.errno == Errno::NotFound => {}
            Err(error) => return Err(error),
        }
        let new = NewFile {
            permissions: there.mode & 0o7777,
            owner: Some((there.uid, there.gid)),
            mtime: Some(there.mtime),
            atime: Some(there.atime),
            ..NewFile::default()
        };
        let mut content = self.open_file(&there).map_err(about)?;
        let made = self.create_file(&dir, &copy, &new, &mut content).and_then(|made| {
            for attribute in self.list_xattr(ino)? {
                let value = self.get_xattr(ino, &attribute)?;
                let (name, value) = (&attribute[..], Some(&value[..]));
                let change = XattrChange { name, value, flags: XattrFlags::default() };
                self.as_user(self.cred()).set_xattr(parent, made.ino, &change)?;
            }
            dir.rename(&copy, &dir, name, RenameFlags::default())
        });
        made.map_err(|error| {
            // It may not even be there.
            let _ = dir.unlink(&copy);
            about(error)
        })
    }
}
