//! Requests by inode number, on behalf of a user: the form that a mount gives system calls.
//!
//! A path costs the server a walk and may be another one by the time it is used; a kernel has inode
//! numbers. Where the policy is `rpcs+local_persist`, changes are logged as [`Dir`](crate::Dir)
//! logs them, so the caller passes the home directory of an inode.

use std::sync::Arc;

use types::acl::{self, ACCESS_LIST, AccessList};
use types::{
    Attr, AttrChange, Cred, EntryName, Error, Ino, MODE_PERMISSIONS, RenameFlags, Result,
    Timestamp, XattrChange, quota,
};
use wire::{Answer, ChangeOp, Op, ReadOp};

use crate::fs::{bytes_answer, unexpected};
use crate::strong_log::StrongLog;
use crate::{DirEntry, Fs, NewFile};

/// See the module documentation.
#[derive(Clone, Copy, Debug)]
pub struct User<'a> {
    fs: &'a Fs,
    cred: &'a Cred,
}

/// Up to so many entries of a directory, and whether there may be more.
pub type Page = (Vec<DirEntry>, bool);

impl Fs {
    /// Requests on behalf of a user. A server refuses them with `EPERM` if the process of this
    /// client may not ask in the name of that user.
    #[must_use]
    pub fn as_user<'a>(&'a self, cred: &'a Cred) -> User<'a> {
        User { fs: self, cred }
    }
}

impl<'a> User<'a> {
    /// On behalf of another user, if one is given.
    #[must_use]
    pub fn acting(self, cred: Option<&'a Cred>) -> Self {
        Self { cred: cred.unwrap_or(self.cred), ..self }
    }

    fn call(&self, op: Op<'_>) -> Result<Answer> {
        self.fs.call_as(self.cred, op)
    }

    /// The log of changes in a directory, if its policy has one. Asked for before a change: a
    /// change that was carried out must not fail because the policy cannot be asked for.
    fn log_of(&self, dir: Ino) -> Result<Option<Arc<StrongLog>>> {
        Ok(self.fs.strong_logs.known_for_dir(self.fs, dir)?.log)
    }

    /// Logs the request that was just executed.
    fn logged(
        &self,
        log: Option<&StrongLog>,
        note: impl FnOnce(&StrongLog) -> Result<()>,
    ) -> Result<()> {
        let Some(log) = log else { return Ok(()) };
        note(log)?;
        log.shorten(self.fs);
        Ok(())
    }

    /// Attributes of a name.
    ///
    /// # Errors
    /// `ENOENT`, `EACCES`, `ESTALE`, `EBUSY` in another client's subtree.
    pub fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        Fs::attr_answer(self.call(Op::Read(ReadOp::Lookup { parent, name }))?)
    }

    /// Attributes of an inode.
    ///
    /// # Errors
    /// `ESTALE`, `EBUSY`.
    pub fn attr(&self, ino: Ino) -> Result<Attr> {
        Fs::attr_answer(self.call(Op::Read(ReadOp::GetAttr { ino }))?)
    }

    /// Creates a file, directory, symbolic link or device.
    ///
    /// # Errors
    /// As `Dir::create`.
    pub fn create(&self, parent: Ino, name: &[u8], new: &NewFile<'_>) -> Result<Attr> {
        let log = self.log_of(parent)?;
        let attr = Fs::attr_answer(self.call(Op::Change(ChangeOp::Create {
            parent,
            name,
            new: new.wire(),
        }))?)?;
        self.logged(log.as_deref(), |log| log.created(parent, name, &attr, new.data))?;
        if attr.is_dir() {
            self.fs.strong_logs.inherit_terms(parent, attr.ino);
        }
        Ok(attr)
    }

    /// Creates a file that is open for writing from then on, as if by `Fs::open_as`.
    ///
    /// # Errors
    /// As `Dir::create`.
    pub fn create_open(&self, parent: Ino, name: &[u8], new: &NewFile<'_>) -> Result<Attr> {
        let log = self.log_of(parent)?;
        let new_open = wire::NewInode { open: true, ..new.wire() };
        let attr = Fs::attr_answer(self.call(Op::Change(ChangeOp::Create {
            parent,
            name,
            new: new_open,
        }))?)?;
        let logged = self.logged(log.as_deref(), |log| log.created(parent, name, &attr, new.data));
        // A file that could not be opened is never closed by the caller.
        logged.inspect_err(|_| self.fs.close_file(attr.ino, true))?;
        Ok(attr)
    }

    /// Gives an inode one more name, and returns its attributes with it.
    ///
    /// # Errors
    /// As `Dir::link`.
    pub fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr> {
        let log = self.log_of(parent)?;
        self.call(Op::Change(ChangeOp::Link { ino, parent, name }))?;
        let attr = self.lookup(parent, name)?;
        self.logged(log.as_deref(), |log| log.linked(parent, name, &attr))?;
        Ok(attr)
    }

    /// Removes a name of anything but a directory.
    ///
    /// # Errors
    /// As `Dir::unlink`.
    pub fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()> {
        let log = self.log_of(parent)?;
        self.call(Op::Change(ChangeOp::Unlink { parent, name }))?;
        self.logged(log.as_deref(), |log| log.removed(parent, name, false))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As `Dir::rmdir`.
    pub fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()> {
        let log = self.log_of(parent)?;
        self.call(Op::Change(ChangeOp::Rmdir { parent, name }))?;
        self.logged(log.as_deref(), |log| log.removed(parent, name, true))
    }

    /// Moves or swaps names.
    ///
    /// # Errors
    /// Those of rename(2).
    pub fn rename(&self, from: EntryName<'_>, to: EntryName<'_>, flags: RenameFlags) -> Result<()> {
        let (EntryName { dir: parent, name }, EntryName { dir: new_parent, name: new_name }) =
            (from, to);
        let log = match self.log_of(parent)? {
            Some(log) => Some(log),
            None => self.log_of(new_parent)?,
        };
        self.call(Op::Change(ChangeOp::Rename { parent, name, new_parent, new_name, flags }))?;
        let Some(log) = log else { return Ok(()) };
        let back = if flags.exchange { Some(self.lookup(parent, name)?) } else { None };
        let moved = self.lookup(new_parent, new_name)?;
        log.renamed(from, to, &moved, back.as_ref())?;
        log.shorten(self.fs);
        Ok(())
    }

    /// Changes attributes of an inode that stands in the directory `home`, or in [`Ino::ANCHOR`]
    /// for the root of the namespace.
    ///
    /// # Errors
    /// `ESTALE`, `EPERM`, `EACCES`, `EINVAL`, `EISDIR`.
    pub fn set_attr(&self, home: Ino, ino: Ino, change: &AttrChange) -> Result<()> {
        // The root of the namespace has no parent whose policy could apply.
        let log = self.log_of(if ino == Ino::ROOT { ino } else { home })?;
        self.call(Op::Change(ChangeOp::SetAttr { ino, change: *change }))?;
        self.logged(log.as_deref(), |log| log.set_attr(home, ino, change))
    }

    /// Says that content was read then: the time of the last access, unless a later one is known.
    /// It is in no log: it is not worth one.
    ///
    /// # Errors
    /// `ESTALE`, `EPERM` for users who may not change it.
    pub fn accessed(&self, ino: Ino, at: Timestamp) -> Result<()> {
        self.call(Op::Change(ChangeOp::Accessed { ino, at })).map(drop)
    }

    /// The content of a small file, or the target of a symbolic link; empty if there is none.
    ///
    /// # Errors
    /// `ESTALE`, `EACCES`.
    pub fn data(&self, ino: Ino) -> Result<Vec<u8>> {
        bytes_answer(self.call(Op::Read(ReadOp::GetData { ino }))?)
    }

    /// Replaces the inline content of a file that stands in `home`, and sets its size.
    ///
    /// # Errors
    /// `EISDIR`, `EINVAL`, `EACCES`, `ESTALE`.
    pub fn set_data(&self, home: Ino, ino: Ino, data: &[u8], size: u64) -> Result<()> {
        let log = self.log_of(home)?;
        self.call(Op::Change(ChangeOp::SetData { ino, data, size }))?;
        self.logged(log.as_deref(), |log| log.set_data(home, ino, data, size))
    }

    /// The value of an extended attribute.
    ///
    /// # Errors
    /// `ENODATA`, `ESTALE`.
    pub fn xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        bytes_answer(self.call(Op::Read(ReadOp::GetXattr { ino, name }))?)
    }

    /// The names of all extended attributes, sorted.
    ///
    /// # Errors
    /// `ESTALE`.
    pub fn xattrs(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        let answer = self.call(Op::Read(ReadOp::ListXattr { ino }))?;
        let Answer::Names(names) = answer else { return Err(unexpected(&answer)) };
        Ok(names)
    }

    /// Sets or, without a value, removes an extended attribute of an inode that stands in the
    /// directory `home`, or in [`Ino::ANCHOR`] for the root of the namespace.
    ///
    /// # Errors
    /// `EPERM`, `ENODATA`, `EEXIST`, `EFBIG`, `ERANGE`.
    pub fn set_xattr(&self, home: Ino, ino: Ino, change: &XattrChange<'_>) -> Result<()> {
        let XattrChange { name, value, flags } = *change;
        let log = self.log_of(if ino == Ino::ROOT { ino } else { home })?;
        self.call(Op::Change(ChangeOp::SetXattr { ino, name, value, flags }))?;
        let Some(log) = log.filter(|_| name != quota::LIMITS) else { return Ok(()) };
        let record = match value {
            Some(list) if acl::is_list(name) => Some(self.record_of(ino, name, list)?),
            value => value.map(<[u8]>::to_vec),
        };
        self.logged(Some(&log), |log| {
            log.set_xattr(EntryName::new(home, name), ino, record.as_deref())
        })
    }

    /// The record of an access control list that was just set, as events have it.
    fn record_of(&self, ino: Ino, name: &[u8], list: &[u8]) -> Result<Vec<u8>> {
        let subject = || String::from_utf8_lossy(name).into_owned();
        let mut list = AccessList::from_linux(list).map_err(|errno| Error::of(errno, subject()))?;
        if name == ACCESS_LIST {
            // The server has decided about the bits above the permissions.
            list.mode |= self.attr(ino)?.mode & MODE_PERMISSIONS & !0o777;
        }
        Ok(list.encode())
    }

    /// Up to `limit` entries of a directory after a name, in its own order: names that exist
    /// throughout are seen exactly once, in spite of other creates and removals during that.
    /// Without `attrs` entries have number and type only.
    ///
    /// # Errors
    /// `EACCES`, `ENOTDIR`, `ESTALE`.
    pub fn list(&self, dir: Ino, after: Option<&[u8]>, limit: u32, attrs: bool) -> Result<Page> {
        let answer = self.call(Op::Read(ReadOp::List { dir, after, limit, attrs }))?;
        let Answer::Entries { entries, more } = answer else { return Err(unexpected(&answer)) };
        let entries = entries.into_iter().map(|(name, attr)| DirEntry { name, attr }).collect();
        Ok((entries, more))
    }
}
