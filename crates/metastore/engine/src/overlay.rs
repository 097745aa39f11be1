//! A store in the state of a snapshot, for a private server: its directories, journals and tables
//! stay in memory, and end with it.
//!
//! Content of files is the exception. Clients write it themselves, to the common store, so the
//! server must find it there. The server may change the content of inodes with its own numbers;
//! changes of any other content are refused, or count as done where they would delete.
//!
//! Not here: the use of the server's journal. It stays readable to the end, trimmed or not.
//!
//! Invariant: nothing in the store is changed but content of the server's own inodes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use metastore::{ObjectName, parse_retained};
use objstore::{
    Capacity, Expect, Fencing, LockGuard, Memory, ObjectStore, Pools, PutOutcome, Reserved, Space,
    Stat, Store, Sweeping, SyncScope, Tuned, Version, absent, check_name,
};
use types::{Errno, Error, InoRange, Pool, Result};

use crate::retained::manifest_at;

/// The prefix of the names of journals of metadata servers.
const JOURNALS: &str = "journal/mds.";

/// See the module documentation.
#[derive(Debug)]
pub struct Overlay {
    base: Arc<dyn Store>,
    /// The number of the snapshot.
    number: u64,
    /// The numbers of the server's inodes.
    own: InoRange,
    /// What was written.
    above: Memory,
    /// Objects of the snapshot that were deleted.
    hidden: Mutex<BTreeSet<String>>,
}

/// Where an object is looked for.
enum Place {
    /// In memory only.
    Above,
    /// In memory, then in the snapshot.
    Dirs(ObjectName),
    /// In the common store.
    Content {
        /// It belongs to an inode of the server's.
        own: bool,
    },
}

impl Overlay {
    /// The snapshot of this number in a store, for a server whose inodes have these numbers.
    #[must_use]
    pub fn new(base: Arc<dyn Store>, number: u64, own: InoRange) -> Self {
        Self { base, number, own, above: Memory::new(), hidden: Mutex::default() }
    }

    fn place(&self, name: &str) -> Result<Place> {
        check_name(name)?;
        Ok(match ObjectName::parse(name) {
            Some(ObjectName::Data(ino, ..) | ObjectName::Sums(ino, ..)) => {
                Place::Content { own: self.own.contains(ino) }
            }
            Some(
                dirs @ (ObjectName::Manifest(_) | ObjectName::Run(..) | ObjectName::Values(..)),
            ) => Place::Dirs(dirs),
            None => Place::Above,
        })
    }

    fn hidden(&self) -> MutexGuard<'_, BTreeSet<String>> {
        // It is changed by single inserts and removals.
        self.hidden.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An object of the snapshot, unless there is a newer one.
    fn in_snapshot(&self, name: &str, object: ObjectName) -> Result<(Vec<u8>, Version)> {
        if self.hidden().contains(name) {
            return Err(absent(name));
        }
        let ObjectName::Manifest(dir) = object else { return self.base.get(name) };
        let manifest = manifest_at(&*self.base, dir, self.number)?.ok_or_else(|| absent(name))?;
        let bytes = manifest.encode();
        let version = Version::of(&bytes);
        Ok((bytes, version))
    }

    fn refused(name: &str) -> Error {
        let cause = "content that is not this server's is not written over";
        Error::new(Errno::ReadOnly, name, cause).remedy("write a new file in its place")
    }
}

/// A result of the upper store, or nothing if it has no such object.
fn optional<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.errno == Errno::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

impl ObjectStore for Overlay {
    fn put(&self, name: &str, data: &[u8], expect: Expect) -> Result<PutOutcome> {
        match self.place(name)? {
            Place::Content { own: true } => return self.base.put(name, data, expect),
            Place::Content { own: false } => return Err(Self::refused(name)),
            Place::Above => return self.above.put(name, data, expect),
            Place::Dirs(_) => {}
        }
        if expect != Expect::Any
            && let Some(conflict) = expect.conflict(optional(self.get(name))?.map(|it| it.1))
        {
            // One server writes here, and one manifest at a time: nothing can come between.
            return Ok(conflict);
        }
        let outcome = self.above.put(name, data, Expect::Any);
        self.hidden().remove(name);
        outcome
    }

    fn append(&self, name: &str, data: &[u8]) -> Result<u64> {
        match self.place(name)? {
            Place::Content { own: true } => self.base.append(name, data),
            Place::Content { own: false } => Err(Self::refused(name)),
            Place::Above | Place::Dirs(_) => self.above.append(name, data),
        }
    }

    fn write_range(&self, name: &str, offset: u64, data: &[u8]) -> Result<()> {
        match self.place(name)? {
            Place::Content { own: true } => self.base.write_range(name, offset, data),
            Place::Content { own: false } => Err(Self::refused(name)),
            Place::Above | Place::Dirs(_) => self.above.write_range(name, offset, data),
        }
    }

    fn get(&self, name: &str) -> Result<(Vec<u8>, Version)> {
        match self.place(name)? {
            Place::Content { .. } => self.base.get(name),
            Place::Above => self.above.get(name),
            Place::Dirs(object) => match optional(self.above.get(name))? {
                Some(found) => Ok(found),
                None => self.in_snapshot(name, object),
            },
        }
    }

    fn read_range(&self, name: &str, offset: u64, length: usize) -> Result<Vec<u8>> {
        match self.place(name)? {
            Place::Content { .. } => self.base.read_range(name, offset, length),
            Place::Above => self.above.read_range(name, offset, length),
            Place::Dirs(object) => match optional(self.above.read_range(name, offset, length))? {
                Some(found) => Ok(found),
                None if matches!(object, ObjectName::Run(..) | ObjectName::Values(..)) => {
                    if self.hidden().contains(name) {
                        return Err(absent(name));
                    }
                    self.base.read_range(name, offset, length)
                }
                None => {
                    let (bytes, _) = self.in_snapshot(name, object)?;
                    let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
                    let end = start.saturating_add(length).min(bytes.len());
                    Ok(bytes[start..end].to_vec())
                }
            },
        }
    }

    fn stat(&self, name: &str) -> Result<Stat> {
        match self.place(name)? {
            Place::Content { .. } => self.base.stat(name),
            Place::Above => self.above.stat(name),
            Place::Dirs(object) => match optional(self.above.stat(name))? {
                Some(stat) => Ok(stat),
                None if matches!(object, ObjectName::Run(..) | ObjectName::Values(..)) => {
                    if self.hidden().contains(name) {
                        Err(absent(name))
                    } else {
                        self.base.stat(name)
                    }
                }
                None => {
                    let (bytes, _) = self.in_snapshot(name, object)?;
                    Ok(Stat { size: bytes.len() as u64 })
                }
            },
        }
    }

    fn delete(&self, name: &str) -> Result<bool> {
        match self.place(name)? {
            Place::Content { own: true } => self.base.delete(name),
            // Other inodes may refer to it.
            Place::Content { own: false } => Ok(false),
            Place::Above if name.starts_with(JOURNALS) => Ok(false),
            Place::Above => self.above.delete(name),
            Place::Dirs(_) => {
                let there = self.above.delete(name)?;
                Ok(self.hidden().insert(name.to_owned()) || there)
            }
        }
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>> {
        let mut names = BTreeMap::new();
        if prefix.starts_with("data/") {
            for name in self.base.list(prefix)? {
                if matches!(self.place(&name), Ok(Place::Content { own: true })) {
                    names.insert(name, ());
                }
            }
        } else if prefix.starts_with("dirs/") {
            let listed = self.base.list(prefix)?;
            let hidden = self.hidden();
            let seen = listed.into_iter().filter(|name| parse_retained(name).is_none());
            names.extend(seen.filter(|name| !hidden.contains(name)).map(|name| (name, ())));
        }
        names.extend(self.above.list(prefix)?.into_iter().map(|name| (name, ())));
        Ok(names.into_keys().collect())
    }

    fn sync(&self, scope: SyncScope<'_>) -> Result<()> {
        if let SyncScope::Object(name) = scope
            && let Place::Content { .. } = self.place(name)?
        {
            return self.base.sync(scope);
        }
        self.above.sync(scope)
    }
}

impl Tuned for Overlay {
    fn lists_what_it_finds(&self) -> bool {
        self.base.lists_what_it_finds()
    }

    fn period(&self) -> u32 {
        self.base.period()
    }
}

impl Capacity for Overlay {
    fn space(&self) -> Result<Space> {
        self.base.space()
    }

    fn reserve(&self, bytes: u64) -> Result<Reserved> {
        self.base.reserve(bytes)
    }

    fn allow_reserve(&self) {
        self.base.allow_reserve();
    }

    fn lend_reserve(&self, bytes: u64) {
        self.base.lend_reserve(bytes);
    }

    fn is_short(&self) -> bool {
        self.base.is_short()
    }
}

impl Pools for Overlay {
    fn pool(&self, name: &str) -> Result<Pool> {
        self.base.pool(name)
    }
}

impl Fencing for Overlay {
    fn lock(&self, name: &str, owner: &str) -> Result<Box<dyn LockGuard>> {
        self.above.lock(name, owner)
    }
}

impl Sweeping for Overlay {}

#[cfg(test)]
mod tests;
