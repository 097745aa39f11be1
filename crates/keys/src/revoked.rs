//! The list of revoked keys: a file with one id in each line, which the daemons of a host read
//! again when it changes. The cluster map has the lists of all hosts.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use types::Result;

use crate::holder::KeyId;

/// The state of a file: its time and length. A list is appended to, so a change shows.
type Version = (SystemTime, u64);

/// See the module documentation.
#[derive(Debug)]
pub struct Revoked {
    file: PathBuf,
    known: Mutex<(Option<Version>, BTreeSet<KeyId>)>,
}

impl Revoked {
    /// The list in this file; there need not be one.
    #[must_use]
    pub fn in_file(file: &Path) -> Self {
        Self { file: file.to_owned(), known: Mutex::default() }
    }

    /// All keys that were revoked, in order.
    #[must_use]
    pub fn all(&self) -> Vec<KeyId> {
        self.known().1.iter().copied().collect()
    }

    /// Other hosts revoked these keys.
    pub fn learn(&self, ids: &[KeyId]) {
        self.known().1.extend(ids);
    }

    /// The same, also for later processes of this host: new ones are written down. A file that
    /// cannot be written is left as it is.
    pub fn keep(&self, ids: &[KeyId]) {
        let new: Vec<KeyId> = {
            let known = self.known();
            ids.iter().filter(|id| !known.1.contains(id)).copied().collect()
        };
        self.learn(&new);
        for id in new {
            // The map of the cluster has it, too.
            let _ = self.add(id);
        }
    }

    /// Whether the key was revoked. A list that cannot be read revokes what it did when it could.
    #[must_use]
    pub fn has(&self, id: KeyId) -> bool {
        self.known().1.contains(&id)
    }

    fn known(&self) -> MutexGuard<'_, (Option<Version>, BTreeSet<KeyId>)> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let now = version(&self.file);
        if known.0 != now {
            if let Ok(text) = std::fs::read_to_string(&self.file) {
                known.1.extend(text.lines().filter_map(|line| line.trim().parse::<KeyId>().ok()));
            }
            known.0 = now;
        }
        known
    }

    /// Revokes a key, durably.
    ///
    /// # Errors
    /// `EIO` if the file cannot be written.
    pub fn add(&self, id: KeyId) -> Result<()> {
        use std::io::Write;
        let append = || -> std::io::Result<()> {
            let mut file = crate::file::private().append(true).create(true).open(&self.file)?;
            // In front, too: a full disk may have cut the line before off.
            file.write_all(format!("\n{id}\n").as_bytes())?;
            file.sync_all()
        };
        append().map_err(|error| crate::failed(&self.file, &error))
    }
}

fn version(file: &Path) -> Option<Version> {
    let known = std::fs::metadata(file).ok()?;
    Some((known.modified().ok()?, known.len()))
}
