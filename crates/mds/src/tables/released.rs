//! Released subtrees: their entries stay until no client has to repeat a merge.
//!
//! A merge that releases its subtree is the last one that the client may send for it. If the answer
//! is lost with a connection, the client sends the same request again, when the subtree may be
//! nobody's or another client's.
//!
//! Invariant: while a client may lack the answer to a merge that released a subtree, this server
//! answers the repeated request as it answered the first. After Nonvolatile Apply the entry stays
//! as long, so that a later server does not reject the request either.

use types::{ClientId, Ino, Tid};

use super::Tables;
use crate::ReplyTo;
use crate::session::Sessions;

/// So many answers are kept for one client. A client that never says which answers it has must not
/// make the table grow.
const ANSWERS_MAX: usize = 64;

/// The request that released a subtree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReleasedBy {
    client: ClientId,
    tid: Tid,
}

impl ReleasedBy {
    /// The request of a client.
    pub(crate) fn new(client: ClientId, tid: Tid) -> Self {
        Self { client, tid }
    }

    /// The same, unless the merge was not the client's own request: then the client cannot repeat
    /// it.
    pub(crate) fn at(client: ClientId, ReplyTo { conn, tid }: ReplyTo) -> Option<Self> {
        conn.is_of_client().then_some(Self { client, tid })
    }
}

/// The merge that released a subtree.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastMerge {
    /// The request.
    by: Option<ReleasedBy>,
    /// The metadata store had its events before the release (Nonvolatile Apply).
    is_stored: bool,
}

impl Tables {
    /// Releases a subtree, with everything that its client merged. The store may have all of it
    /// already.
    pub(crate) fn release(&mut self, subtree: Ino, by: Option<ReleasedBy>, is_stored: bool) {
        if let Some(known) = self.decoupled.get_mut(&subtree) {
            known.released = true;
            self.given_back.insert(subtree, LastMerge { by, is_stored });
            self.unsure.insert(subtree);
            if let Some(by) = by {
                self.keep_answer(by, subtree);
            }
        }
    }

    /// Keeps the answer to a request that released a subtree, and not too many for its client.
    fn keep_answer(&mut self, by: ReleasedBy, subtree: Ino) {
        self.released_by.insert(by, subtree);
        let of_client = |tid| ReleasedBy { tid, ..by };
        let kept = self.released_by.range(of_client(Tid(0))..=of_client(Tid(u64::MAX)));
        let mut kept = kept.map(|(by, _)| *by);
        if kept.clone().count() > ANSWERS_MAX
            && let Some(oldest) = kept.next()
        {
            self.released_by.remove(&oldest);
        }
    }

    /// Whether this request has released the subtree.
    pub(crate) fn is_released_by(&self, subtree: Ino, by: ReleasedBy) -> bool {
        self.released_by.get(&by) == Some(&subtree)
    }

    /// Forgets the released subtrees with all merges in the metadata store: their clients need not
    /// repeat a merge. After a crash that undid a merge, a client may have repeated only a part of
    /// it so far: it has repeated all when it releases the subtree again.
    pub(crate) fn forget_released(
        &mut self,
        sessions: &Sessions,
        may_be_lost: impl Fn(Ino) -> bool,
    ) {
        self.released_by.retain(|by, _| {
            let session = sessions.get(by.client);
            session.is_some_and(|session| !session.has_answer(by.tid))
        });
        let released_by = &self.released_by;
        let decoupled = &mut self.decoupled;
        let dirty = &mut self.dirty;
        self.given_back.retain(|subtree, last| {
            if !decoupled.get(subtree).is_some_and(|known| known.released) {
                return false;
            }
            // After Volatile Apply the entry does not wait for the client: a later server would
            // merge the journal once more, over the changes of other clients.
            let is_awaited =
                last.is_stored && last.by.is_some_and(|by| released_by.contains_key(&by));
            if is_awaited || may_be_lost(*subtree) {
                return true;
            }
            decoupled.remove(subtree);
            *dirty = true;
            false
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_confirms_no_answer_keeps_the_newest_only() {
        let mut tables = Tables::default();
        let by = |client, tid| ReleasedBy::new(ClientId(client), Tid(tid));
        tables.keep_answer(by(1, 7), Ino(7));
        for tid in 1..=1000 {
            tables.keep_answer(by(2, tid), Ino(tid));
        }
        assert!(tables.is_released_by(Ino(7), by(1, 7)), "another client loses nothing");
        assert!(tables.is_released_by(Ino(1000), by(2, 1000)));
        assert!(!tables.is_released_by(Ino(1), by(2, 1)));
        assert_eq!(tables.released_by.len(), 1 + ANSWERS_MAX);
    }
}
