//! Capabilities: which clients may cache which directories.
//!
//! A client that holds the capability of a directory may answer from its cache: names, also that a
//! name does not exist, the attributes of the directory, and those of files whose home it is.
//! Before another client changes any of that, the server revokes the capability, and the change
//! waits until every holder has acknowledged, or its cache has expired: a client uses its cache
//! only for so long after it sent a request that was answered (`client::cache`), and
//! [`crate::Settings::lease`] is longer. So a dead or disconnected client delays a change by a few
//! seconds at most, and need not be fenced.
//!
//! A client can have a directory *alone*: then it answers changes in it itself, before the server
//! has received them. No other client may even read the directory before the owner has returned it,
//! with all its changes. As these could be lost, the owner has more time to return it
//! ([`crate::Settings::evict`]); after that the server takes the directory away all the same, and
//! refuses late changes in it.
//!
//! A contested directory is not given to any client for a moment ([`crate::Settings::quiet`]).
//!
//! In memory only: a restarted server has given no capability to any client, and its clients drop
//! their caches when they connect. Until they do, or their caches have expired, the server makes no
//! changes: the names of these clients are in the rank's table (`Tables::expected`) before they
//! get their first capability.

mod exclusive;
mod grant;
mod lease;
mod revoke;

use std::collections::BTreeMap;

use namespace::Namespace;
use types::{ClientId, Ino, Map, Moment};

use crate::authority::Authority;
use crate::fetch::Fetches;
use crate::leases::Leases;
use crate::opens::Opens;
use crate::session::Sessions;
use crate::tables::Tables;
use crate::{Counters, Settings};

/// Directories of one client. It returns those that it uses least long before.
const HELD_MAX: usize = 32_768;

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Caps {
    dirs: BTreeMap<Ino, Vec<Holder>>,
    held: Map<ClientId, usize>,
    /// Holders that got a revocation, and have not acknowledged it, and since when.
    revoked: BTreeMap<(Ino, ClientId), Moment>,
    /// Directories that one client has alone. It holds their capability.
    exclusive: Map<Ino, ClientId>,
    /// Directories that no client gets until then.
    quiet: BTreeMap<Ino, Moment>,
    /// Since when the server is about to stop: no client gets a directory alone.
    pub(crate) ending_since: Option<Moment>,
}

/// Granting and revoking, with all that it may touch.
pub(crate) struct CapsCx<'a> {
    pub(crate) caps: &'a mut Caps,
    pub(crate) leases: &'a mut Leases,
    pub(crate) fetches: &'a mut Fetches,
    pub(crate) sessions: &'a mut Sessions,
    pub(crate) tables: &'a mut Tables,
    pub(crate) namespace: &'a mut Namespace,
    pub(crate) counters: &'a mut Counters,
    pub(crate) opens: &'a Opens,
    pub(crate) authority: &'a Authority,
    pub(crate) settings: &'a Settings,
    pub(crate) now: Moment,
    /// A merge changes a subtree bit by bit: nothing is granted.
    pub(crate) is_merging: bool,
    /// A policy is being changed.
    pub(crate) is_changing_policy: bool,
    /// No snapshot is being taken, and the server makes lasting changes for all clients.
    pub(crate) may_grant_exclusive: bool,
}

#[derive(Clone, Copy, Debug)]
struct Holder {
    client: ClientId,
    /// It got a revocation, and has not acknowledged it.
    revoked: bool,
}

impl Caps {
    /// How many capabilities are held.
    pub(crate) fn len(&self) -> usize {
        self.held.values().sum()
    }

    /// Whether no client holds any.
    pub(crate) fn is_empty(&self) -> bool {
        self.dirs.is_empty()
    }

    /// Gives a client the capability of a directory, if it can have it.
    pub(crate) fn grant(&mut self, client: ClientId, dir: Ino, now: Moment) -> bool {
        if self.exclusive.get(&dir).is_some_and(|owner| *owner != client) {
            return false;
        }
        let holders = self.dirs.get(&dir).map_or(&[][..], Vec::as_slice);
        if let Some(holder) = holders.iter().find(|holder| holder.client == client) {
            return !holder.revoked;
        }
        let contested = holders.iter().any(|holder| holder.revoked);
        if contested || self.quiet.get(&dir).is_some_and(|until| now < *until) {
            return false;
        }
        let held = self.held.entry(client).or_default();
        if *held >= HELD_MAX {
            return false;
        }
        *held += 1;
        self.dirs.entry(dir).or_default().push(Holder { client, revoked: false });
        true
    }

    /// Gives a client that holds the capability of a directory the directory alone, if no other
    /// client holds it.
    pub(crate) fn grant_exclusive(&mut self, client: ClientId, dir: Ino) -> bool {
        let holders = self.dirs.get(&dir).map_or(&[][..], Vec::as_slice);
        let exclusive = matches!(holders, [one] if one.client == client && !one.revoked);
        if exclusive {
            let before = self.exclusive.insert(dir, client);
            assert!(before.is_none_or(|before| before == client), "{dir}: one client is alone");
        }
        exclusive
    }

    /// The client that has a directory alone.
    #[inline]
    pub(crate) fn owner(&self, dir: Ino) -> Option<ClientId> {
        self.exclusive.get(&dir).copied()
    }

    /// Whether a client has a directory alone.
    #[inline]
    pub(crate) fn is_any_exclusive(&self) -> bool {
        !self.exclusive.is_empty()
    }

    /// The directories that a client has alone.
    pub(crate) fn exclusive(&self) -> impl Iterator<Item = (Ino, ClientId)> {
        self.exclusive.iter().map(|(dir, owner)| (*dir, *owner))
    }

    /// The clients that must drop a directory before `client` changes it.
    pub(crate) fn others(&self, client: ClientId, dir: Ino) -> impl Iterator<Item = ClientId> {
        let holders = self.dirs.get(&dir).into_iter().flatten().map(|holder| holder.client);
        holders.filter(move |holder| *holder != client)
    }

    /// Revokes a directory from every client but `client`. Returns the clients to notify.
    pub(crate) fn revoke(&mut self, client: ClientId, dir: Ino, now: Moment) -> Vec<ClientId> {
        let holders = self.dirs.get_mut(&dir).into_iter().flatten();
        let others = holders.filter(|holder| holder.client != client && !holder.revoked);
        let notified: Vec<ClientId> = others
            .map(|holder| {
                holder.revoked = true;
                holder.client
            })
            .collect();
        self.revoked.extend(notified.iter().map(|holder| ((dir, *holder), now)));
        notified
    }

    /// A client has dropped a directory. Returns whether the server had revoked it; then no client
    /// gets it until `until`.
    pub(crate) fn returned(&mut self, client: ClientId, dir: Ino, until: Moment) -> bool {
        let Some(holders) = self.dirs.get_mut(&dir) else { return false };
        let Some(at) = holders.iter().position(|holder| holder.client == client) else {
            return false;
        };
        let revoked = holders.swap_remove(at).revoked;
        self.revoked.remove(&(dir, client));
        if holders.is_empty() {
            self.dirs.remove(&dir);
        }
        if self.exclusive.get(&dir) == Some(&client) {
            self.exclusive.remove(&dir);
        }
        if let Some(held) = self.held.get_mut(&client) {
            assert!(*held > 0, "{dir}: the capability of {client} is counted");
            *held -= 1;
        }
        if revoked {
            self.quiet.insert(dir, until);
        }
        revoked
    }

    /// The connection of a client broke. The client may not have noticed: its capabilities count as
    /// revoked and not acknowledged.
    pub(crate) fn abandon(&mut self, client: ClientId, now: Moment) {
        for (dir, holders) in &mut self.dirs {
            for holder in holders.iter_mut().filter(|holder| holder.client == client) {
                holder.revoked = true;
                self.revoked.entry((*dir, client)).or_insert(now);
            }
        }
    }

    /// Whether a client holds anything.
    pub(crate) fn is_holding(&self, client: ClientId) -> bool {
        self.held.get(&client).is_some_and(|held| *held > 0)
    }

    /// A client has dropped its whole cache. Directories that it has alone it returns itself, when
    /// it has sent its changes there. Returns the directories that were being revoked from it.
    pub(crate) fn leave(&mut self, client: ClientId, until: Moment) -> Vec<Ino> {
        if self.held.get(&client).is_none_or(|held| *held == 0) {
            self.held.remove(&client);
            return Vec::new();
        }
        let of_client = |holders: &[Holder]| holders.iter().any(|holder| holder.client == client);
        let held = self.dirs.iter().filter(|(_, holders)| of_client(holders));
        let held: Vec<Ino> = held.map(|(dir, _)| *dir).collect();
        let shared = held.into_iter().filter(|dir| self.owner(*dir) != Some(client));
        let shared: Vec<Ino> = shared.collect();
        shared.into_iter().filter(|dir| self.returned(client, *dir, until)).collect()
    }

    /// The directories that are held.
    pub(crate) fn directories(&self) -> impl Iterator<Item = Ino> {
        self.dirs.keys().copied()
    }

    /// The directories that are being revoked, the clients that have not acknowledged, and since
    /// when.
    pub(crate) fn revoking(&self) -> Vec<(Ino, ClientId, Moment)> {
        self.revoked.iter().map(|((dir, holder), since)| (*dir, *holder, *since)).collect()
    }

    /// Forgets directories whose quiet time has passed.
    pub(crate) fn tidy(&mut self, now: Moment) {
        self.quiet.retain(|_, until| now < *until);
    }
}

mod validate;

#[cfg(test)]
mod tests {
    use super::*;
    use types::Span;

    const DIR: Ino = Ino(7);
    const ONE: ClientId = ClientId(1);
    const TWO: ClientId = ClientId(2);

    fn at(millis: u64) -> Moment {
        Moment::default() + Span::from_millis(millis)
    }

    #[test]
    fn a_change_waits_only_for_capabilities_of_other_clients() {
        let mut caps = Caps::default();
        assert!(caps.grant(ONE, DIR, at(0)) && caps.grant(TWO, DIR, at(0)));
        assert_eq!(caps.others(ONE, DIR).collect::<Vec<_>>(), [TWO]);
        assert_eq!(caps.revoke(ONE, DIR, at(0)), [TWO]);
        assert!(caps.revoke(ONE, DIR, at(0)).is_empty(), "it is told once");
        assert!(caps.grant(ONE, DIR, at(0)), "who makes the change goes on remembering");
        assert!(!caps.grant(TWO, DIR, at(0)) && !caps.grant(ClientId(3), DIR, at(0)));
        assert!(caps.returned(TWO, DIR, at(500)));
        assert_eq!((caps.others(ONE, DIR).count(), caps.len()), (0, 1));
    }

    #[test]
    fn a_contested_directory_is_granted_to_no_client_for_a_moment() {
        let mut caps = Caps::default();
        assert!(caps.grant(ONE, DIR, at(0)));
        caps.revoke(TWO, DIR, at(10));
        assert!(caps.returned(ONE, DIR, at(510)));
        assert!(!caps.grant(TWO, DIR, at(400)));
        assert!(caps.grant(TWO, DIR, at(511)));
        assert!(!caps.returned(TWO, DIR, at(1012)));
        assert!(caps.grant(ONE, DIR, at(512)), "it was given back, not taken");
    }

    #[test]
    fn a_departed_client_holds_no_capabilities() {
        let mut caps = Caps::default();
        assert!(caps.grant(ONE, DIR, at(0)) && caps.grant(ONE, Ino(8), at(0)));
        caps.revoke(TWO, DIR, at(3));
        assert_eq!(caps.revoking(), [(DIR, ONE, at(3))]);
        assert_eq!(caps.leave(ONE, at(1)), [DIR]);
        assert_eq!((caps.len(), caps.directories().count()), (0, 0));
    }

    #[test]
    fn a_directory_is_exclusive_for_its_only_holder_until_returned() {
        let mut caps = Caps::default();
        assert!(!caps.grant_exclusive(ONE, DIR), "the capability comes first");
        assert!(caps.grant(ONE, DIR, at(0)) && caps.grant(TWO, DIR, at(0)));
        assert!(!caps.grant_exclusive(ONE, DIR));
        caps.revoke(ONE, DIR, at(0));
        assert!(!caps.grant_exclusive(ONE, DIR), "the other has not forgotten it yet");
        caps.returned(TWO, DIR, at(500));
        assert!(caps.grant_exclusive(ONE, DIR));
        assert!(!caps.grant(TWO, DIR, at(1000)));
        // Its connection breaks: it comes back, and sends its changes there.
        caps.abandon(ONE, at(1000));
        assert!(caps.leave(ONE, at(2000)).is_empty());
        assert_eq!((caps.owner(DIR), caps.revoking()), (Some(ONE), vec![(DIR, ONE, at(1000))]));
        assert!(caps.returned(ONE, DIR, at(2000)));
        assert_eq!((caps.owner(DIR), caps.is_any_exclusive()), (None, false));
    }
}
