//! The journals of a decoupled subtree that earlier processes of this client left, on this disk and
//! in the object store.
//!
//! A process may have ended at any moment. Invariant: all events of a completed persist are found,
//! and the remains of an interrupted one do no harm.

use client::Earlier;
use objstore::SyncScope;
use types::{Error, Result};

use super::Subtree;
use crate::mechanism;

impl Subtree {
    /// The journals that Local Persist left on this disk, as far as they are intact.
    pub(super) fn local_journals(&self) -> Result<Vec<Earlier>> {
        let mut journals = Vec::new();
        for path in self.state.journals()? {
            let bytes =
                std::fs::read(&path).map_err(|error| crate::state::io_error(&path, &error))?;
            journals.push(Earlier::read(path.display().to_string(), bytes, None)?);
        }
        Ok(journals)
    }

    /// The journals that Global Persist left in the object store, under any present policy: the
    /// last one may have been another.
    fn stored_journals(&mut self) -> Result<Vec<Earlier>> {
        let store = self.fs.store();
        let prefix = self.job.object_prefix();
        let listed = store.list(&prefix).map_err(|error| {
            let cause = format!("cannot be listed: {}: {}", error.subject, error.cause);
            Error::new(error.errno, prefix.clone(), cause).remedy(error.remedy)
        })?;
        let mut journals = Vec::new();
        for (name, unnoted) in self.job.left_objects(&listed) {
            let bytes = mechanism::get(&self.fs, &name)?;
            if bytes.is_some() {
                // Its writer may have ended before the end of it was durable.
                store.sync(SyncScope::Object(&name))?;
            }
            journals.extend(self.job.take_object(name, unnoted, bytes)?);
        }
        Ok(journals)
    }

    /// Takes up the journals of earlier processes.
    pub(super) fn load_journals(&mut self) -> Result<()> {
        let stored = self.stored_journals()?;
        let local = self.local_journals()?;
        self.job.load(stored, local)
    }
}
