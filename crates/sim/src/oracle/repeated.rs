//! Creates that arrive at the server again.
//!
//! The server answers with the present attributes of the inode, and keeps this answer until the
//! journal has the create. Changes by other clients in between are not in it: the answer is true at
//! a moment between the arrival and the answer, and promises no more.

use types::{Attr, Ino};

use super::{Key, Oracle};

impl Oracle {
    /// A request arrives at the server.
    pub(crate) fn arrived(&mut self, key: Key) {
        let Some(issued) = self.requests.get_mut(&key) else { return };
        let created = issued.applied.map(|applied| applied.ino).filter(|ino| *ino != Ino(0));
        if let Some(Ok(attr)) = created.map(|ino| self.model.getattr(ino)) {
            note(&mut issued.since, attr);
        }
    }

    /// The model has changed.
    pub(super) fn note_attributes(&mut self) {
        for issued in self.requests.values_mut().filter(|issued| !issued.since.is_empty()) {
            if let Some(applied) = issued.applied
                && let Ok(attr) = self.model.getattr(applied.ino)
            {
                note(&mut issued.since, attr);
            }
        }
    }
}

fn note(since: &mut Vec<Attr>, attr: Attr) {
    if since.last() != Some(&attr) {
        since.push(attr);
    }
}
