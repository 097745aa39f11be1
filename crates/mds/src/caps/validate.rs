//! The invariants of the capabilities.

use types::{ClientId, Map};

use super::{Caps, HELD_MAX};

impl Caps {
    /// Checks the invariants of the capabilities.
    ///
    /// # Panics
    /// If one of them does not hold.
    pub(crate) fn validate(&self) {
        let mut held: Map<ClientId, usize> = Map::default();
        let mut revoked = 0;
        for (dir, holders) in &self.dirs {
            assert!(!holders.is_empty(), "{dir}: a directory in the table has a holder");
            for (at, holder) in holders.iter().enumerate() {
                let client = holder.client;
                let twice = holders[..at].iter().any(|other| other.client == client);
                assert!(!twice, "{dir}: {client} holds the capability once");
                *held.entry(client).or_default() += 1;
                revoked += usize::from(holder.revoked);
                let listed = self.revoked.contains_key(&(*dir, client));
                assert!(listed == holder.revoked, "{dir}: the list of revocations has {client}");
            }
        }
        assert!(self.revoked.len() == revoked, "a revocation is of a capability that is held");
        for (client, count) in &self.held {
            let found = held.get(client).copied().unwrap_or_default();
            assert!(
                found == *count,
                "{client} holds {found} capabilities, and {count} are counted"
            );
            assert!(*count <= HELD_MAX, "{client}: capabilities of a client are bounded");
        }
        let unknown = held.keys().find(|client| !self.held.contains_key(*client));
        assert!(unknown.is_none(), "the capabilities of {unknown:?} are counted");
        for (dir, owner) in &self.exclusive {
            let holders = self.dirs.get(dir).map_or(&[][..], Vec::as_slice);
            let alone = matches!(holders, [one] if one.client == *owner);
            assert!(alone, "{dir}: the exclusive owner {owner} is the only holder");
        }
    }
}
