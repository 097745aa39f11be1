//! Marks of clients with open files and locks that ended with a connection while the server lived.
//!
//! Such a client still believes that it has this state, and reports the state with its next
//! connection. The server may have granted the locks to another client by then, so the next server
//! must not believe the report before that other client has reported. Hence the server marks the
//! client in the table of the rank, and the state of the client ends only when the store has the
//! mark. The mark stays until the client has reported, and knows which reports the server rejected.
//!
//! Invariant: a client that the store may have with a mark gets no new lock and no new open file.

use std::collections::{BTreeMap, BTreeSet};

use types::{ClientId, Seq};

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Lapsed {
    /// The clients with a mark, and the event that ends their session in the journal, if there is
    /// one of this term.
    marks: BTreeMap<ClientId, Option<Seq>>,
    /// The store has the marks of these clients, and the put under way has those of `in_flight`.
    stored: BTreeSet<ClientId>,
    in_flight: BTreeSet<ClientId>,
    /// The store may have the marks of these clients.
    maybe: BTreeSet<ClientId>,
    /// Clients without a connection that still have state here.
    leaving: BTreeSet<ClientId>,
    /// Clients that had not reported all their state when the server became active: the server does
    /// not know their files.
    silent: BTreeSet<ClientId>,
}

impl Lapsed {
    /// The marks that a table has.
    pub(super) fn decoded(clients: BTreeSet<ClientId>) -> Self {
        let marks = clients.iter().map(|client| (*client, None)).collect();
        Self { marks, maybe: clients, ..Self::default() }
    }

    /// The clients with a mark, in order.
    pub(crate) fn clients(&self) -> impl ExactSizeIterator<Item = ClientId> {
        self.marks.keys().copied()
    }

    /// Marks a client. Returns whether that is new.
    pub(super) fn mark(&mut self, client: ClientId, end: Option<Seq>) -> bool {
        self.marks.insert(client, end).is_none()
    }

    /// Takes the mark of a client away. Returns whether it had one.
    pub(super) fn clear(&mut self, client: ClientId) -> bool {
        self.silent.remove(&client);
        self.marks.remove(&client).is_some()
    }

    /// Marks a client with unknown state.
    pub(super) fn mark_silent(&mut self, client: ClientId) -> bool {
        let is_new = self.mark(client, None);
        if !self.stored.contains(&client) {
            self.silent.insert(client);
        }
        is_new
    }

    /// A connection of a client broke, and its state is still here.
    pub(crate) fn leaves(&mut self, client: ClientId) {
        self.leaving.insert(client);
    }

    /// A client is back, or its state ended. Returns whether its state was still here.
    pub(crate) fn stays(&mut self, client: ClientId) -> bool {
        self.leaving.remove(&client)
    }

    /// The clients without a connection that still have state here.
    pub(crate) fn leaving(&self) -> impl Iterator<Item = ClientId> {
        self.leaving.iter().copied()
    }

    /// Those of them that the store has with a mark: their state ends.
    pub(crate) fn due(&self) -> Vec<ClientId> {
        self.leaving.intersection(&self.stored).copied().collect()
    }

    /// Whether a client has a mark.
    pub(crate) fn has(&self, client: ClientId) -> bool {
        self.marks.contains_key(&client)
    }

    /// Whether the store may have a mark of a client.
    pub(super) fn may_be_stored(&self, client: ClientId) -> bool {
        self.maybe.contains(&client)
    }

    /// Whether clients with unknown state are not marked in the store yet.
    pub(super) fn is_any_silent(&self) -> bool {
        !self.silent.is_empty()
    }

    /// Takes the marks away that no next server needs: those of clients for which it does not wait.
    pub(super) fn retain(&mut self, is_awaited: impl Fn(ClientId, Option<Seq>) -> bool) {
        let Self { marks, leaving, silent, .. } = self;
        let is_used = |client: &ClientId| leaving.contains(client) || silent.contains(client);
        marks.retain(|client, end| is_used(client) || is_awaited(*client, *end));
    }

    pub(super) fn put_begins(&mut self) {
        self.in_flight = self.marks.keys().copied().collect();
        self.maybe.extend(&self.in_flight);
    }

    pub(super) fn put_ended(&mut self, is_stored: bool) {
        let put = std::mem::take(&mut self.in_flight);
        if is_stored {
            self.silent.retain(|client| !put.contains(client));
            self.maybe.clone_from(&put);
            self.stored = put;
        }
    }

    pub(super) fn validate(&self) {
        let unknown = self.stored.difference(&self.maybe).next();
        assert!(unknown.is_none(), "the store may have each mark that it has, and not {unknown:?}");
        let unmarked = self.silent.iter().find(|client| !self.has(**client));
        assert!(unmarked.is_none(), "{unmarked:?} has reported nothing, and has no mark");
    }
}

#[cfg(test)]
mod tests {
    use metastore::request::rank_name;
    use types::Rank;

    use super::*;
    use crate::tables::Tables;

    const CLIENT: ClientId = ClientId(3);

    fn put(lapsed: &mut Lapsed, is_stored: bool) {
        lapsed.put_begins();
        lapsed.put_ended(is_stored);
    }

    #[test]
    fn the_state_of_a_client_ends_when_the_store_has_its_mark() {
        let mut lapsed = Lapsed::default();
        lapsed.leaves(CLIENT);
        put(&mut lapsed, true);
        assert!(lapsed.mark(CLIENT, None) && lapsed.due().is_empty());
        put(&mut lapsed, false);
        assert!(lapsed.due().is_empty(), "the put failed");
        put(&mut lapsed, true);
        assert_eq!(lapsed.due(), [CLIENT]);
        assert!(lapsed.stays(CLIENT) && lapsed.due().is_empty());
    }

    #[test]
    fn a_mark_may_be_stored_until_a_put_without_it_succeeds() {
        let mut lapsed = Lapsed::default();
        lapsed.mark(CLIENT, None);
        put(&mut lapsed, false);
        assert!(lapsed.clear(CLIENT) && lapsed.may_be_stored(CLIENT));
        put(&mut lapsed, false);
        assert!(lapsed.may_be_stored(CLIENT));
        put(&mut lapsed, true);
        assert!(!lapsed.may_be_stored(CLIENT));
    }

    #[test]
    fn clients_of_unknown_state_are_silent_until_the_store_has_their_marks() {
        let mut lapsed = Lapsed::default();
        assert!(lapsed.mark_silent(CLIENT) && lapsed.is_any_silent());
        put(&mut lapsed, true);
        assert!(!lapsed.is_any_silent());
        assert!(!lapsed.mark_silent(CLIENT) && !lapsed.is_any_silent(), "the store has the mark");
    }

    #[test]
    fn a_table_has_the_marks_and_one_of_version_7_has_none() {
        let mut tables = Tables::new(Rank(0));
        let none = tables.encode();
        tables.lapse(CLIENT, None);
        let bytes = tables.encode();
        let mut read = Tables::new(Rank(0));
        read.decode(&bytes).unwrap();
        assert!(read.lapsed.has(CLIENT) && read.lapsed.may_be_stored(CLIENT));
        // Version 7 ends before the marks.
        let mut older = none[..none.len() - 5].to_vec();
        older[8] = 7;
        let named = [rank_name(Rank(0)).as_bytes(), &older].concat();
        older.extend(journal::checksum(&named).to_le_bytes());
        read.decode(&older).unwrap();
        assert!(!read.lapsed.has(CLIENT));
    }
}
