//! Work on a branch: changes are checked against its view, and become its next layer.
//!
//! Content that is not inline goes to the store at once, under an inode number that no other
//! process has; the layer that names it follows. Content of the trunk or of another branch is not
//! overwritten: a replaced file gets a new inode.
//!
//! Invariant: the changes that [`Work::commit`] returned for survive, and no other change of this
//! work is visible.

use std::io::Read;
use std::ops::{Deref, DerefMut};

use cudele::{ContentStart, Fs, NewFile};
use metastore::{Branch, LAYERS_MAX, Layer};
use namespace::PlannedInode;
use objstore::{Expect, LockGuard, Version};
use types::{
    Attr, AttrChange, EntryName, Errno, Error, FileType, Ino, MODE_PERMISSIONS, RenameFlags,
    Result, Seq, Set, Stripe, StripedFile, Timestamp, XattrChange, XattrFlags,
};

use crate::squash::squashed;
use crate::{Branches, SnapshotView};

/// Inode numbers that are taken at a time at first, and at most.
const NUMBERS_MIN: u64 = 256;
const NUMBERS_MAX: u64 = 1 << 20;
/// Events of this length become a layer.
pub(crate) const LAYER_BYTES: u64 = 64 << 20;

/// See the module documentation. Dropping it discards the changes since the last commit.
#[derive(Debug)]
pub struct Work {
    branches: Branches,
    name: String,
    branch: Branch,
    version: Version,
    view: SnapshotView,
    numbers: u64,
    /// Inodes that this process made, and that no layer has yet.
    fresh: Set<Ino>,
    /// Held as long as this is.
    lock: Box<dyn LockGuard>,
}

impl Deref for Work {
    type Target = SnapshotView;

    fn deref(&self) -> &SnapshotView {
        &self.view
    }
}

impl DerefMut for Work {
    fn deref_mut(&mut self) -> &mut SnapshotView {
        &mut self.view
    }
}

impl Work {
    pub(crate) fn new(
        branches: Branches,
        name: &str,
        branch: Branch,
        version: Version,
        view: SnapshotView,
        lock: Box<dyn LockGuard>,
    ) -> Self {
        let name = name.to_owned();
        let (numbers, fresh) = (NUMBERS_MIN, Set::default());
        Self { branches, name, branch, version, view, numbers, fresh, lock }
    }

    /// Events that are not committed.
    #[must_use]
    pub fn pending_events(&self) -> u64 {
        self.view.inner.events()
    }

    /// Creates a file, directory, symbolic link or device, with every rule of POSIX checked.
    ///
    /// # Errors
    /// The errors of `open` with `O_CREAT` and `O_EXCL`; `ESTALE` if another process has changed
    /// the branch.
    pub fn create(&mut self, parent: Ino, name: &[u8], new: &NewFile<'_>) -> Result<Ino> {
        let stripe = match new.file_type {
            FileType::Regular => self.view.policy(parent).stripe,
            FileType::Directory
            | FileType::Symlink
            | FileType::CharDevice
            | FileType::BlockDevice
            | FileType::Fifo
            | FileType::Socket => Stripe::default(),
        };
        self.have_numbers()?;
        let new = PlannedInode {
            umask: new.umask,
            mode: new.mode(),
            owner: new.owner,
            rdev: new.rdev,
            stripe,
            size: new.size,
            time: cudele::now(),
            mtime: new.mtime,
            atime: new.atime,
            data: new.data,
        };
        let cred = self.view.cred.clone();
        let ino =
            self.view.on(name, |inner| inner.create(&cred, EntryName::new(parent, name), &new))?;
        self.fresh.insert(ino);
        self.commit_much()?;
        Ok(ino)
    }

    /// Creates a file with the content of a source, or replaces an existing one.
    ///
    /// # Errors
    /// As [`Work::create`], but for `EEXIST`; `EISDIR`; those of the source; `ENOSPC`, `EIO`.
    pub fn put(
        &mut self,
        parent: Ino,
        name: &[u8],
        new: &NewFile<'_>,
        source: &mut dyn Read,
    ) -> Result<Attr> {
        let content = Fs::classify(source, self.view.policy(parent).inline_bytes)?;
        match self.lookup(parent, name) {
            Ok(there) if there.is_dir() => {
                return Err(Error::of(Errno::IsDirectory, String::from_utf8_lossy(name)));
            }
            Ok(_) => self.unlink(parent, name)?,
            Err(error) if error.errno == Errno::NotFound => {}
            Err(error) => return Err(error),
        }
        let head = match content {
            ContentStart::Inline(data) => {
                let new = NewFile { size: data.len() as u64, data: &data, ..*new };
                let ino = self.create(parent, name, &new)?;
                return self.view.attr(ino);
            }
            ContentStart::Large(head) => head,
        };
        let ino = self.create(parent, name, &NewFile { size: 0, data: &[], ..*new })?;
        let attr = self.view.attr(ino)?;
        self.give_length(ino, attr.stripe, &head, source)?;
        if new.mtime.is_some() {
            // Giving it its length counts as a change.
            let atime = new.atime.or(new.mtime);
            self.set_attr(ino, &AttrChange { mtime: new.mtime, atime, ..AttrChange::default() })?;
        }
        self.view.attr(ino)
    }

    /// Replaces the content of a file by that of a source. If the trunk or a layer may refer to the
    /// old content, the file becomes another inode under the same name. Returns the number of the
    /// inode.
    ///
    /// # Errors
    /// The errors of the source; `EISDIR`, `EACCES`; `EOPNOTSUPP` for long content of an old file
    /// with several names; `ENOSPC`, `EIO`.
    pub fn set_content(&mut self, ino: Ino, source: &mut dyn Read) -> Result<Ino> {
        let attr = self.view.attr(ino)?;
        let place = self.view.inner.namespace().name_of(ino);
        let (home, name) = place.ok_or_else(|| Error::of(Errno::Stale, ino.to_string()))?;
        let fresh = self.fresh.contains(&ino);
        let content = Fs::classify(source, self.view.policy(home).inline_bytes)?;
        let kept =
            self.view.on(b"", |inner| inner.namespace().data(ino).map(|data| !data.is_empty()))?;
        let head = match content {
            ContentStart::Inline(data) if attr.size == 0 || kept => {
                let (cred, time, size) = (self.view.cred.clone(), cudele::now(), data.len() as u64);
                self.view.on(b"", |inner| {
                    inner
                        .change(|namespace| namespace.plan().setdata(&cred, ino, &data, size, time))
                })?;
                return Ok(ino);
            }
            ContentStart::Inline(head) | ContentStart::Large(head) => head,
        };
        if fresh {
            self.give_length(ino, attr.stripe, &head, source)?;
            return Ok(ino);
        }
        if home == Ino::LINKS {
            let cause = "it has several names, and what is in the snapshot is not written over";
            return Err(Error::new(Errno::NotSupported, String::from_utf8_lossy(&name), cause)
                .remedy("write a new file, and give it these names"));
        }
        let xattrs = self.xattrs_of(ino)?;
        self.unlink(home, &name)?;
        let new = NewFile {
            file_type: attr.file_type(),
            permissions: attr.mode & 0o7777,
            owner: self.view.cred.is_root().then_some((attr.uid, attr.gid)),
            ..NewFile::default()
        };
        let made = self.create(home, &name, &new)?;
        self.take_over(made, &attr, &xattrs)?;
        let stripe = self.view.attr(made)?.stripe;
        self.give_length(made, stripe, &head, source)?;
        Ok(made)
    }

    fn xattrs_of(&mut self, ino: Ino) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let names = self.view.xattrs(ino)?.into_iter();
        names.map(|name| Ok((name.clone(), self.view.xattr(ino, &name)?))).collect()
    }

    /// The copy of a file has the extended attributes and the permissions of the file, in place of
    /// those that its directory gives to new files.
    fn take_over(&mut self, copy: Ino, of: &Attr, xattrs: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        let flags = XattrFlags::default();
        for name in self.view.xattrs(copy)? {
            if xattrs.iter().all(|(known, _)| *known != name) {
                self.set_xattr(copy, XattrChange { name: &name, value: None, flags })?;
            }
        }
        for (name, value) in xattrs {
            self.set_xattr(copy, XattrChange { name, value: Some(value), flags })?;
        }
        if self.view.attr(copy)?.mode == of.mode {
            return Ok(());
        }
        let mode = Some(of.mode & MODE_PERMISSIONS);
        self.set_attr(copy, &AttrChange { mode, ..AttrChange::default() })
    }

    /// Writes content, and then says how long it is.
    fn give_length(
        &mut self,
        ino: Ino,
        stripe: Stripe,
        head: &[u8],
        source: &mut dyn Read,
    ) -> Result<()> {
        let size = self.view.content.write_new(StripedFile::new(ino, stripe), head, source)?;
        let (cred, time) = self.now();
        self.view.on(b"", |inner| {
            inner.change(|namespace| namespace.plan().setdata(&cred, ino, b"", size, time))
        })
    }

    /// Attributes of a name.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EACCES`.
    pub fn lookup(&mut self, parent: Ino, name: &[u8]) -> Result<Attr> {
        let cred = self.view.cred.clone();
        self.view.on(name, |inner| inner.namespace().lookup(&cred, parent, name))
    }

    /// Removes a name of anything but a directory.
    ///
    /// # Errors
    /// `ENOENT`, `EISDIR`, `EACCES`, `EPERM`.
    pub fn unlink(&mut self, parent: Ino, name: &[u8]) -> Result<()> {
        let (cred, time) = self.now();
        self.view.on(name, |inner| {
            inner.change(|namespace| namespace.plan().unlink(&cred, parent, name, time))
        })
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ENOTEMPTY`, `EACCES`, `EPERM`.
    pub fn rmdir(&mut self, parent: Ino, name: &[u8]) -> Result<()> {
        let (cred, time) = self.now();
        self.view.on(name, |inner| {
            inner.change(|namespace| namespace.plan().rmdir(&cred, parent, name, time))
        })
    }

    /// Moves or swaps names.
    ///
    /// # Errors
    /// Those of rename(2).
    pub fn rename(
        &mut self,
        from: EntryName<'_>,
        to: EntryName<'_>,
        flags: RenameFlags,
    ) -> Result<()> {
        let (cred, time) = self.now();
        self.view.on(from.name, |inner| inner.rename(&cred, from, to, flags, time))
    }

    /// Gives an inode one more name.
    ///
    /// # Errors
    /// `EEXIST`, `EPERM` for a directory, `EMLINK`.
    pub fn link(&mut self, ino: Ino, parent: Ino, name: &[u8]) -> Result<()> {
        let (cred, time) = self.now();
        self.view.on(name, |inner| {
            inner.change(|namespace| {
                namespace.plan().link(&cred, ino, EntryName::new(parent, name), time)
            })
        })
    }

    /// Changes attributes of an inode.
    ///
    /// # Errors
    /// `EPERM`, `EACCES`, `EINVAL`, `EISDIR`.
    pub fn set_attr(&mut self, ino: Ino, change: &AttrChange) -> Result<()> {
        let (cred, time) = self.now();
        self.view.on(b"", |inner| {
            inner.change(|namespace| namespace.plan().setattr(&cred, ino, change, time))
        })
    }

    /// Sets or, without a value, removes an extended attribute.
    ///
    /// # Errors
    /// `EPERM`, `ENODATA`, `EEXIST`, `EFBIG`, `ERANGE`; for an access control list also `EINVAL`,
    /// `EACCES`, `ENOSPC`.
    pub fn set_xattr(&mut self, ino: Ino, change: XattrChange<'_>) -> Result<()> {
        let (cred, time) = self.now();
        self.view.on(change.name, |inner| {
            inner.change(|namespace| namespace.plan().setxattr(&cred, ino, change, time))
        })
    }

    /// Makes all changes so far durable, and a part of the branch: the next process that opens the
    /// branch finds them. Returns the number of events.
    ///
    /// # Errors
    /// `ESTALE` if another process has changed the branch: this work is lost. `ENOSPC`, `EIO`: it
    /// may be called again.
    pub fn commit(&mut self) -> Result<u64> {
        let events = self.view.inner.events();
        if events == 0 {
            return Ok(0);
        }
        if self.lock.is_lost() {
            return Err(Error::new(Errno::Stale, &*self.name, "somebody else has this branch now"));
        }
        if self.branch.layers.len() >= LAYERS_MAX {
            let cause = format!("it has {LAYERS_MAX} layers");
            return Err(Error::new(Errno::NoSpace, &*self.name, cause)
                .remedy("publish and merge it, and go on in another one"));
        }
        let (first, bytes) = self.view.inner.seal();
        debug_assert_eq!(first, self.branch.next_seq().max(Seq(1)));
        let (owner, number) = (self.branch.id, self.branch.next_layer());
        let layer = Layer { owner, number, first, events, ..Layer::default() }.with_object(&bytes);
        // An object of this name is left from a process that died here: no branch lists it.
        let _ = self.branches.store().put(&layer.name(), &bytes, Expect::Any)?;
        let mut branch = self.branch.clone();
        branch.layers.push(layer);
        let branch = squashed(&**self.branches.store(), branch)?;
        self.replace(branch)?;
        self.view.inner.sealed();
        self.fresh.clear();
        Ok(events)
    }

    fn commit_much(&mut self) -> Result<()> {
        if self.view.inner.bytes() >= LAYER_BYTES {
            self.commit()?;
        }
        Ok(())
    }

    /// Provides an inode number for the next create. The claim of the branch to the number is
    /// durable first.
    fn have_numbers(&mut self) -> Result<()> {
        if self.view.inner.numbers_left() > 0 {
            return Ok(());
        }
        let range = self.branches.grant(self.numbers)?;
        let mut branch = self.branch.clone();
        match branch.ranges.last_mut().filter(|last| last.end == range.start) {
            Some(last) => last.end = range.end,
            None => branch.ranges.push(range),
        }
        self.replace(branch)?;
        self.view.inner.number_from(range);
        self.numbers = (self.numbers * 4).min(NUMBERS_MAX);
        Ok(())
    }

    fn replace(&mut self, branch: Branch) -> Result<()> {
        self.version = self.branches.put(&self.name, &branch, Expect::Is(self.version))?;
        self.branch = Branch { changes: branch.changes + 1, ..branch };
        Ok(())
    }

    fn now(&self) -> (types::Cred, Timestamp) {
        (self.view.cred.clone(), cudele::now())
    }
}
