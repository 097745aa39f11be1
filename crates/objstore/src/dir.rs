//! A store in a directory of a local file system.
//!
//! The embedded default: no server, any number of processes of one machine. Objects are files
//! ([`place`] maps their names), new content becomes an object by rename ([`scratch`]), appends go
//! through a few open descriptors ([`handles`]), processes exclude each other with the kernel's
//! file locks ([`locks`]). Not for network file systems with weaker locks or renames.
//!
//! Invariant: `put` and `sync` return only after the content, the object's entry and the entries
//! of all directories above it have reached the disk; the content of a `put` gets there before it
//! gets the name.

mod handles;
mod layout;
mod locks;
mod period;
mod place;
mod poison;
mod reserve;
mod scratch;
mod sys;

use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{AtFlags, OFlags};
use rustix::io::retry_on_intr;
use types::{Errno, Error, Result};

use self::handles::{Appended, Handle, Handles};
use self::layout::Layout;
use self::locks::{Buckets, NamedLock};
use self::place::{EntryMeaning, ObjectPlace};
use self::poison::Poison;
use self::reserve::Reserve;
use self::scratch::Scratch;
use self::sys::{Flock, Sys, SysResult};
use crate::name::is_printable;
use crate::store::{absent, check_end, held};
use crate::{
    Expect, Fencing, LockGuard, NAME_BYTES_MAX, ObjectStore, Pools, PutOutcome, Stat, Sweeping,
    SyncScope, Tuned, Version, check_name,
};

/// How often an append starts over because another process replaces the object under it.
const ATTEMPTS_MAX: usize = 64;
/// So many directories are remembered as durable; then the memory starts afresh.
const DURABLE_DIRECTORIES_MAX: usize = 4096;

/// The store.
#[derive(Debug)]
pub struct DirStore {
    layout: Layout,
    /// The store's name in messages: `dir:` and the path.
    store: String,
    /// Made by the first put, so that a store on a read-only file system can be read.
    scratch: Mutex<Option<Arc<Scratch>>>,
    buckets: Buckets,
    handles: Handles,
    poison: Poison,
    reserve: Reserve,
    /// Directories known to be durable with all those above them. They are never removed, so
    /// knowing it once is enough.
    durable_directories: Mutex<BTreeSet<String>>,
    period: u32,
}

impl DirStore {
    /// Opens the store in `root`. If there is none and `create` is set, makes one, provided that
    /// `root` is missing or empty. Leftovers of killed processes are removed.
    ///
    /// # Errors
    /// `ENOENT` if there is no store, `EINVAL` if the directory holds something else, `EOPNOTSUPP`
    /// if the store has another format version, `EBADMSG` if its marker is damaged, and the errors
    /// of the file system.
    pub fn open(root: impl AsRef<Path>, create: bool) -> Result<Self> {
        let root = root.as_ref();
        let store = format!("dir:{}", root.display());
        let layout = Layout::open(root, &store, create)?;
        Ok(Self {
            period: period::of(layout.objects.as_fd()),
            layout,
            store,
            scratch: Mutex::default(),
            buckets: Buckets::new(),
            handles: Handles::default(),
            poison: Poison::default(),
            reserve: Reserve::default(),
            durable_directories: Mutex::default(),
        })
    }

    /// The identity of this store: 32 hexadecimal digits, chosen when it was made.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.layout.id
    }

    fn objects(&self) -> BorrowedFd<'_> {
        self.layout.objects.as_fd()
    }

    /// Turns a kernel error about one object into one for people.
    fn to_error(&self, name: &str, attempted: &'static str) -> impl Fn(Sys) -> Error {
        move |errno| sys::explain(&self.store, name, attempted, errno)
    }

    fn scratch(&self) -> SysResult<Arc<Scratch>> {
        let mut scratch = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(scratch) = scratch.as_ref() {
            return Ok(Arc::clone(scratch));
        }
        let _lock = Flock::wait(self.layout.root.as_fd())?;
        Ok(Arc::clone(scratch.insert(Arc::new(Scratch::create(self.layout.tmp.as_fd())?))))
    }

    fn open_to_read(&self, place: &ObjectPlace<'_>) -> Result<OwnedFd> {
        sys::open(self.objects(), &place.path, OFlags::RDONLY).map_err(|errno| match errno {
            Sys::NOENT => absent(place.name),
            errno => self.to_error(place.name, "open the object")(errno),
        })
    }

    fn current(&self, place: &ObjectPlace<'_>) -> Result<Option<Version>> {
        let file = match self.open_to_read(place) {
            Ok(file) => file,
            Err(error) if error.errno == Errno::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let data = sys::read_at(file, 0, usize::MAX).map_err(self.to_error(place.name, "read"))?;
        Ok(Some(Version::of(&data)))
    }

    fn conflict(&self, place: &ObjectPlace<'_>, expect: Expect) -> Result<Option<PutOutcome>> {
        match expect {
            Expect::Any => Ok(None),
            Expect::Absent | Expect::Is(_) => Ok(expect.conflict(self.current(place)?)),
        }
    }

    /// The handle of an object, created if it is absent.
    fn handle_or_create(&self, place: &ObjectPlace<'_>) -> SysResult<Arc<Handle>> {
        if let Some(handle) = self.handles.find(place.name) {
            return Ok(handle);
        }
        let open = |flags| sys::open(self.objects(), &place.path, OFlags::RDWR | flags);
        let (file, created) = match open(OFlags::empty()) {
            Err(Sys::NOENT) => {
                let new = OFlags::CREATE | OFlags::EXCL;
                match sys::with_parents(self.objects(), &place.path, || open(new)) {
                    Err(Sys::EXIST) => (open(OFlags::CREATE)?, false),
                    result => (result?, true),
                }
            }
            result => (result?, false),
        };
        let handle = Arc::new(Handle::new(file, created));
        self.handles.keep(place.name, &handle);
        Ok(handle)
    }

    /// The handle of an object that exists.
    fn handle(&self, place: &ObjectPlace<'_>) -> SysResult<Option<Arc<Handle>>> {
        if let Some(handle) = self.current_handle(place)? {
            return Ok(Some(handle));
        }
        match sys::open(self.objects(), &place.path, OFlags::RDWR) {
            Ok(file) => {
                let handle = Arc::new(Handle::new(file, false));
                self.handles.keep(place.name, &handle);
                Ok(Some(handle))
            }
            Err(Sys::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// The open handle of an object, if there is one and the object still has this file.
    fn current_handle(&self, place: &ObjectPlace<'_>) -> SysResult<Option<Arc<Handle>>> {
        let Some(handle) = self.handles.find(place.name) else { return Ok(None) };
        if sys::state(&handle.file)?.has_name {
            return Ok(Some(handle));
        }
        self.handles.forget(place.name);
        Ok(None)
    }

    /// Makes the entry of an object durable, or its absence.
    fn sync_entry(&self, place: &ObjectPlace<'_>) -> SysResult<()> {
        sys::sync_directory(self.objects(), place.directory())?;
        let mut unknown = Vec::new();
        {
            let known = self.durable_directories.lock().unwrap_or_else(PoisonError::into_inner);
            unknown.extend(place.directories().filter(|directory| !known.contains(*directory)));
        }
        for directory in &unknown {
            sys::sync_directory(self.objects(), place::parent(directory))?;
        }
        if !unknown.is_empty() {
            let mut known = self.durable_directories.lock().unwrap_or_else(PoisonError::into_inner);
            if known.len() >= DURABLE_DIRECTORIES_MAX {
                known.clear();
            }
            known.extend(unknown.into_iter().map(str::to_string));
        }
        Ok(())
    }

    fn sync_object(&self, name: &str) -> Result<()> {
        let place = ObjectPlace::of(name)?;
        self.poison.check(&self.store, name)?;
        let handle = self.handle(&place).map_err(self.to_error(name, "open the object"))?;
        let result = match &handle {
            None => self.sync_absence(&place),
            Some(handle) => self.sync_file(&place, handle),
        };
        result.map_err(|errno| {
            self.poison.add(name);
            self.to_error(name, "sync")(errno)
        })
    }

    fn sync_file(&self, place: &ObjectPlace<'_>, handle: &Handle) -> SysResult<()> {
        retry_on_intr(|| rustix::fs::fdatasync(&handle.file))?;
        if !handle.entry_durable.load(Ordering::Acquire) {
            self.sync_entry(place)?;
            handle.entry_durable.store(true, Ordering::Release);
        }
        Ok(())
    }

    fn sync_absence(&self, place: &ObjectPlace<'_>) -> SysResult<()> {
        match self.sync_entry(place) {
            // Without its directory the object cannot come back.
            Err(Sys::NOENT) => Ok(()),
            result => result,
        }
    }

    fn sync_prefix(&self, prefix: &str) -> Result<()> {
        // Objects first: where one is, the directory that it needs is made durable with it.
        for name in self.walk(prefix, |_| Ok(()))? {
            self.sync_object(&name)?;
        }
        // Removed objects. A directory is never removed, so it is still visited.
        self.walk(prefix, |directory| match sys::sync_directory(self.objects(), directory) {
            Err(Sys::NOENT) => Ok(()),
            result => result.map_err(|errno| {
                // The removed objects whose absence is lost are unknown.
                self.poison.add_all();
                self.to_error(prefix, "sync a directory")(errno)
            }),
        })?;
        Ok(())
    }

    fn sync_everything(&self) -> Result<()> {
        self.poison.check_all(&self.store)?;
        retry_on_intr(|| rustix::fs::syncfs(&self.layout.root)).map_err(|errno| {
            self.poison.add_all();
            self.to_error("", "sync the file system")(errno)
        })
    }

    /// The names that start with a prefix, sorted; `visit` is called for every directory in which
    /// there may be such names.
    fn walk(&self, prefix: &str, mut visit: impl FnMut(&str) -> Result<()>) -> Result<Vec<String>> {
        if prefix.len() > NAME_BYTES_MAX || !is_printable(prefix) {
            return Ok(Vec::new()); // No name starts so.
        }
        let (path, covered) = place::encode_directory(prefix);
        let mut found = Vec::new();
        let mut pending = vec![(path, covered.to_string())];
        while let Some((path, covered)) = pending.pop() {
            visit(&path)?;
            let entries = match sys::entries(self.objects(), &path) {
                Err(Sys::NOENT) => continue,
                entries => entries.map_err(self.to_error("", "list a directory"))?,
            };
            for entry in entries {
                // A file of foreign origin is not an object.
                let Some(part) = place::decode(&entry.name, entry.kind) else { continue };
                let (EntryMeaning::File(text) | EntryMeaning::Directory(text)) = &part;
                let name = format!("{covered}{text}");
                match part {
                    EntryMeaning::File(_) if name.starts_with(prefix) => found.push(name),
                    EntryMeaning::Directory(_)
                        if name.starts_with(prefix) || prefix.starts_with(&name) =>
                    {
                        let below = String::from_utf8_lossy(&entry.name);
                        let slash = if path.is_empty() { "" } else { "/" };
                        pending.push((format!("{path}{slash}{below}"), name));
                    }
                    EntryMeaning::File(_) | EntryMeaning::Directory(_) => {}
                }
            }
        }
        found.retain(|name| check_name(name).is_ok());
        found.sort_unstable();
        Ok(found)
    }

    /// Undoes the creation of an object whose first append found the disk full. A process that
    /// opened it since notices, because it looks for the name under the file's lock.
    fn remove_empty(&self, place: &ObjectPlace<'_>, handle: &Handle) -> SysResult<()> {
        let _lock = Flock::wait(&handle.file)?;
        let state = sys::state(&handle.file)?;
        if state.has_name && state.size == 0 {
            sys::remove(self.objects(), &place.path)?;
        }
        Ok(())
    }
}

impl ObjectStore for DirStore {
    fn put(&self, name: &str, data: &[u8], expect: Expect) -> Result<PutOutcome> {
        let place = ObjectPlace::of(name)?;
        check_end(name, 0, data.len())?;
        // Looked at twice: here to save a losing put the disk write, below to decide.
        if let Some(conflict) = self.conflict(&place, expect)? {
            return Ok(conflict);
        }
        let scratch = self.grow(|| self.scratch());
        let scratch = scratch.map_err(self.to_error(name, "make a temporary directory"))?;
        let temporary = self.grow(|| scratch.write(data));
        let mut temporary = temporary.map_err(self.to_error(name, "write the new content"))?;
        {
            let bucket = self.bucket(name);
            let _bucket = bucket.map_err(self.to_error(name, "lock the object"))?;
            if let Some(conflict) = self.conflict(&place, expect)? {
                return Ok(conflict);
            }
            let placed = self.grow(|| temporary.place(self.objects(), &place.path));
            placed.map_err(self.to_error(name, "replace the object"))?;
            self.handles.forget(name);
            self.poison.remove(name);
        }
        self.sync_entry(&place).map_err(self.to_error(name, "sync the directory"))?;
        Ok(PutOutcome::Done(Version::of(data)))
    }

    fn append(&self, name: &str, data: &[u8]) -> Result<u64> {
        let place = ObjectPlace::of(name)?;
        check_end(name, 0, data.len())?;
        self.poison.check(&self.store, name)?;
        for _ in 0..ATTEMPTS_MAX {
            let handle = self.grow(|| self.handle_or_create(&place));
            let handle = handle.map_err(self.to_error(name, "open the object"))?;
            let mut refused = None;
            // A write that finds the disk full is repeated with the reserve.
            let appended = self.grow(|| match handle.append(data)? {
                Appended::Refused(full @ (Sys::NOSPC | Sys::DQUOT), must_go) => {
                    refused = Some(Appended::Refused(full, must_go));
                    Err(full)
                }
                other @ (Appended::At(_)
                | Appended::Stale
                | Appended::Refused(..)
                | Appended::Torn(_)) => Ok(other),
            });
            let appended = appended.or_else(|errno| refused.take().ok_or(errno));
            match appended.map_err(self.to_error(name, "append"))? {
                Appended::At(offset) => return Ok(offset),
                Appended::Stale => self.handles.forget(name),
                Appended::Refused(errno, must_go) => {
                    if must_go {
                        self.handles.forget(name);
                        let removed = self.remove_empty(&place, &handle);
                        removed.map_err(self.to_error(name, "remove the unfinished object"))?;
                    }
                    return Err(self.to_error(name, "append")(errno));
                }
                Appended::Torn(errno) => {
                    self.poison.add(name);
                    return Err(self.to_error(name, "append")(errno));
                }
            }
        }
        Err(Error::new(Errno::Busy, name, "other processes keep replacing the object"))
    }

    fn write_range(&self, name: &str, offset: u64, data: &[u8]) -> Result<()> {
        let place = ObjectPlace::of(name)?;
        check_end(name, offset, data.len())?;
        self.poison.check(&self.store, name)?;
        let handle = self.current_handle(&place).map_err(self.to_error(name, "open the object"))?;
        let root = self.layout.root.as_fd();
        let written = self.reserve.with(root, || match &handle {
            Some(handle) => self.write_file(&handle.file, data, offset),
            None => {
                let open = |flags| sys::open(self.objects(), &place.path, OFlags::WRONLY | flags);
                let file = match open(OFlags::empty()) {
                    Err(Sys::NOENT) => {
                        self.reserve.check_growth(root)?;
                        sys::with_parents(self.objects(), &place.path, || open(OFlags::CREATE))?
                    }
                    file => file?,
                };
                self.write_file(&file, data, offset)
            }
        });
        written.map_err(self.to_error(name, "write"))
    }

    fn get(&self, name: &str) -> Result<(Vec<u8>, Version)> {
        let data = self.read_range(name, 0, usize::MAX)?;
        let version = Version::of(&data);
        Ok((data, version))
    }

    fn read_range(&self, name: &str, offset: u64, length: usize) -> Result<Vec<u8>> {
        let place = ObjectPlace::of(name)?;
        let file = self.open_to_read(&place)?;
        sys::read_at(file, offset, length).map_err(self.to_error(name, "read"))
    }

    fn stat(&self, name: &str) -> Result<Stat> {
        let place = ObjectPlace::of(name)?;
        match rustix::fs::statat(self.objects(), &place.path, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Stat { size: stat.st_size.cast_unsigned() }),
            Err(Sys::NOENT) => Err(absent(name)),
            Err(errno) => Err(self.to_error(name, "stat")(errno)),
        }
    }

    fn delete(&self, name: &str) -> Result<bool> {
        let place = ObjectPlace::of(name)?;
        let bucket = self.bucket(name);
        let _bucket = bucket.map_err(self.to_error(name, "lock the object"))?;
        match sys::remove(self.objects(), &place.path) {
            Ok(()) => {}
            Err(Sys::NOENT) => return Ok(false),
            Err(errno) => return Err(self.to_error(name, "delete")(errno)),
        }
        self.handles.forget(name);
        self.poison.remove(name);
        Ok(true)
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>> {
        self.walk(prefix, |_| Ok(()))
    }

    fn sync(&self, scope: SyncScope<'_>) -> Result<()> {
        match scope {
            SyncScope::Object(name) => self.sync_object(name),
            SyncScope::Prefix(prefix) => self.sync_prefix(prefix),
            SyncScope::All => self.sync_everything(),
        }
    }
}

impl Tuned for DirStore {
    fn read_into(&self, name: &str, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let place = ObjectPlace::of(name)?;
        let file = self.open_to_read(&place)?;
        sys::read_into(file, offset, buffer).map_err(self.to_error(name, "read"))
    }

    fn period(&self) -> u32 {
        self.period
    }
}

impl Pools for DirStore {}

impl Fencing for DirStore {
    fn lock(&self, name: &str, owner: &str) -> Result<Box<dyn LockGuard>> {
        check_name(name)?;
        let root = self.layout.root.as_fd();
        let take = || NamedLock::take(self.layout.locks.as_fd(), name, owner);
        match self.reserve.with(root, take) {
            Ok(Ok(lock)) => Ok(Box::new(lock)),
            Ok(Err(holder)) => Err(held(name, &holder)),
            Err(errno) => Err(self.to_error(name, "lock")(errno)),
        }
    }
}

impl Sweeping for DirStore {}

#[cfg(test)]
mod tests;
