//! The list of files whose content was found damaged ([`metastore::DamagedFiles`]).
//!
//! The list is for the administrator, and no read depends on it. So a reader that cannot add a file
//! reports the damage to its caller all the same.

use metastore::{DAMAGED_FILES_NAME, DamagedFiles};
use objstore::{Expect, ObjectStore, PutOutcome, Version};
use types::{Errno, Error, Ino, Result};

/// Attempts to replace the object while other clients replace it, too.
const TRIES_MAX: usize = 16;

/// The files whose content was found damaged.
///
/// # Errors
/// The error of the store; `EBADMSG` if the list is damaged.
pub fn damaged_files(store: &dyn ObjectStore) -> Result<DamagedFiles> {
    Ok(read(store)?.0)
}

fn read(store: &dyn ObjectStore) -> Result<(DamagedFiles, Option<Version>)> {
    match store.get(DAMAGED_FILES_NAME) {
        Ok((bytes, version)) => Ok((DamagedFiles::decode(&bytes)?, Some(version))),
        Err(error) if error.errno == Errno::NotFound => Ok((DamagedFiles::default(), None)),
        Err(error) => Err(error),
    }
}

/// Replaces the list by the files that a check of all content found.
///
/// # Errors
/// The error of the store.
pub fn replace_damaged_files<'a>(
    store: &dyn ObjectStore,
    found: impl IntoIterator<Item = (Ino, &'a str)>,
) -> Result<()> {
    let mut files = DamagedFiles::default();
    found.into_iter().for_each(|(ino, cause)| files.add(ino, cause));
    if files.all().len() == 0 {
        return store.delete(DAMAGED_FILES_NAME).map(drop);
    }
    store.put(DAMAGED_FILES_NAME, &files.encode(), Expect::Any).map(drop)
}

/// Adds a file to the list. A client that may not write to the store only reports the damage.
pub(crate) fn add_damaged_file(store: &dyn ObjectStore, ino: Ino, cause: &str) {
    let _ = try_add(store, ino, cause);
}

fn try_add(store: &dyn ObjectStore, ino: Ino, cause: &str) -> Result<()> {
    for _ in 0..TRIES_MAX {
        let (mut files, version) = match read(store) {
            Err(error) if error.errno == Errno::BadMessage => Default::default(),
            known => known?,
        };
        let before = files.clone();
        files.add(ino, cause);
        if files == before {
            return Ok(());
        }
        let expect = version.map_or(Expect::Any, Expect::Is);
        if let PutOutcome::Done(_) = store.put(DAMAGED_FILES_NAME, &files.encode(), expect)? {
            return Ok(());
        }
    }
    Err(Error::new(Errno::Again, DAMAGED_FILES_NAME, "other clients replace it all the time"))
}
