//! Journals of decoupled clients that the server merged.

use types::{Ino, Tid, Timestamp};

use super::{Applied, Key, Oracle, Violation};
use crate::call::CallKind;
use crate::invariants::merges;

impl Oracle {
    /// The server merged a journal: the model follows.
    pub(super) fn merged(
        &mut self,
        key: Key,
        subtree: Ino,
        journal: &[u8],
    ) -> Result<(), Violation> {
        let call = self.requests[&key].call.clone();
        let Some(at) = self.regions.iter().position(|region| region.root == subtree) else {
            return Err("merged into a subtree that nobody decoupled".into());
        };
        let durable = matches!(&call.what, CallKind::Merge { object, .. } if !object.is_empty());
        self.regions[at].last_merge = journal.to_vec();
        self.regions[at].soft |= !durable && journal.len() > journal::segment::HEADER_BYTES;
        if self.regions[at].known {
            if !self.is_merged(key, journal) {
                merges::apply(&mut self.model, subtree, journal)?;
                self.log.push(key);
            }
            let applied = Applied { seq: self.safe, ino: Ino(0), time: Timestamp(1) };
            self.requests.get_mut(&key).expect("found above").applied = Some(applied);
        }
        Ok(())
    }

    /// Whether the model has a journal already: a client that did not hear of its merge asks again,
    /// and either request may be answered first. The server knows how far a journal is merged. The
    /// model does not, and a file that the journal replaces by a later one of its own would come
    /// back.
    fn is_merged(&self, key: Key, journal: &[u8]) -> bool {
        let mut all = self.requests.range((key.0, Tid(0))..=(key.0, Tid(u64::MAX)));
        all.any(|(_, issued)| {
            let merges = matches!(issued.call.what, CallKind::Merge { .. });
            merges && issued.applied.is_some() && issued.journal == journal
        })
    }
}
