//! Directories that are being read.

use std::sync::{Arc, Mutex, PoisonError};

use cudele::{Attr, Result};

use crate::failure::about;
use crate::mount::{Mount, Use};
use crate::place::{Follow, Place};

/// A directory that is open. Names that exist throughout are seen exactly once, even while other
/// names are created and removed.
#[derive(Debug)]
pub struct OpenDir {
    open: Use,
    path: Vec<u8>,
    handle: u64,
    /// The position of the next entry.
    at: Mutex<u64>,
    _place: Place,
}

impl OpenDir {
    /// Opens a directory.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EACCES`, `EBUSY` in another client's subtree.
    pub fn open(mount: &Arc<Mount>, path: &[u8]) -> Result<Self> {
        let run = || {
            let place = mount.object(path, Follow::Last)?;
            Mount::check_dir(&place.attr)?;
            let handle = mount.fs.open_dir(place.ino)?;
            let (open, path) = (Use::of(mount), path.to_vec());
            Ok(Self { open, path, handle, at: Mutex::new(0), _place: place })
        };
        run().map_err(|error| about(path, error))
    }

    /// The next entry but `.` and `..`; nothing at the end.
    ///
    /// # Errors
    /// `EACCES`, `ESTALE`.
    pub fn next(&self) -> Result<Option<(Vec<u8>, Attr)>> {
        self.read(1).map(|mut read| read.pop())
    }

    /// The next so many entries but `.` and `..`, fewer only at the end, and none there.
    ///
    /// # Errors
    /// `EACCES`, `ESTALE`.
    pub fn read(&self, count: usize) -> Result<Vec<(Vec<u8>, Attr)>> {
        let mut at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut found, mut next) = (Vec::new(), *at);
        let mount = &self.open.0;
        let read = mount.fs.read_dir(&mount.caller, self.handle, true, *at, &mut |listed| {
            if found.len() >= count {
                return false;
            }
            next = listed.next;
            if !listed.is_dot() {
                found.push((listed.name.to_vec(), listed.attr));
            }
            true
        });
        read.map_err(|error| about(&self.path, error))?;
        *at = next;
        Ok(found)
    }

    /// Restarts the listing, which then shows later changes.
    pub fn rewind(&self) {
        *self.at.lock().unwrap_or_else(PoisonError::into_inner) = 0;
    }
}

impl Drop for OpenDir {
    fn drop(&mut self) {
        self.open.0.fs.close_dir(self.handle);
    }
}
