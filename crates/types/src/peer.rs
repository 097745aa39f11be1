//! The identity of the process at the other end of a connection.
//!
//! The kernel, or a certificate, says which process that is; the process itself is not asked. The
//! identity in a request ([`Cred`]) must be one that its peer may have.

use crate::{ClientId, Cred, IdRanges, KeyRules};

/// See the module documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// Speaks for every user, and may be every client and every daemon: a process of the superuser
    /// or of the user to whom the cluster belongs.
    Trusted,
    /// The mount of another host: it speaks for the users of its host, and is no daemon.
    Host {
        /// The users for which it speaks. Without root among them, its root is nobody here.
        users: IdRanges,
        /// The groups that its users have here.
        groups: IdRanges,
    },
    /// A process of another user, which speaks for this user only.
    User(Cred),
    /// The same as another peer that is no daemon, with the rights of these rules only.
    Limited(Box<Peer>, KeyRules),
}

/// The user and group of requests of a root without rights here, as in NFS.
pub const NOBODY: u32 = 65534;

fn nobody() -> Cred {
    Cred { uid: NOBODY, gid: NOBODY, groups: Vec::new() }
}

impl Peer {
    /// The mount of a host that speaks for every user.
    #[must_use]
    pub fn host() -> Self {
        Self::Host { users: IdRanges::all(), groups: IdRanges::all() }
    }

    /// The mount of a host that speaks for every user but root.
    #[must_use]
    pub fn host_without_root() -> Self {
        Self::Host { users: IdRanges::without_root(), groups: IdRanges::all() }
    }

    /// The peer without its rules.
    #[must_use]
    pub fn unlimited(&self) -> &Self {
        if let Self::Limited(peer, _) = self { peer } else { self }
    }

    /// The rules of its key; `None` if it has every right of its kind.
    #[must_use]
    pub fn rules(&self) -> Option<&KeyRules> {
        if let Self::Limited(_, rules) = self { Some(rules) } else { None }
    }

    /// Whether the process may ask in the name of `cred`: of one of its users, with its groups.
    #[must_use]
    pub fn may_act_as(&self, cred: &Cred) -> bool {
        match self {
            Self::Trusted => true,
            Self::Limited(peer, _) => peer.may_act_as(cred),
            Self::Host { users, groups } => {
                let Cred { uid, gid, groups: all } = cred;
                // A root that is nobody here may say so.
                *cred == nobody()
                    || users.has(*uid)
                        && groups.has(*gid)
                        && all.iter().all(|group| groups.has(*group))
            }
            Self::User(own) => {
                let Cred { uid, gid, groups } = cred;
                own.uid == *uid
                    && own.in_group(*gid)
                    && groups.iter().all(|group| own.in_group(*group))
            }
        }
    }

    /// The user for whom a request is served in whose name the process may not ask; `None` if it is
    /// refused. Root of a host or of a user namespace is another user here, and a user of a host
    /// loses the groups that are not the host's to give.
    #[must_use]
    pub fn instead_of(&self, cred: &Cred) -> Option<Cred> {
        match self {
            Self::Limited(peer, _) => peer.instead_of(cred),
            Self::User(own) => cred.is_root().then(|| own.clone()),
            Self::Host { users, .. } if cred.is_root() && !users.has(0) => Some(nobody()),
            Self::Host { users, groups } if users.has(cred.uid) && groups.has(cred.gid) => {
                let given = cred.groups.iter().copied().filter(|group| groups.has(*group));
                Some(Cred { groups: given.collect(), ..*cred })
            }
            Self::Trusted | Self::Host { .. } => None,
        }
    }

    /// Whether the process may be this client: one that was registered by its own user. The mounts
    /// of all hosts are clients of root.
    #[must_use]
    pub fn may_be(&self, client: ClientId) -> bool {
        match self {
            Self::Trusted => true,
            Self::Limited(peer, _) => peer.may_be(client),
            Self::Host { .. } => client.user() == 0,
            Self::User(own) => client.user() == own.uid,
        }
    }

    /// The user of the clients of this process; 0 if the process speaks for several users.
    #[must_use]
    pub fn uid(&self) -> u32 {
        match self {
            Self::Trusted | Self::Host { .. } => 0,
            Self::Limited(peer, _) => peer.uid(),
            Self::User(own) => own.uid,
        }
    }

    /// Whether the process speaks for every user, and may be a daemon.
    #[must_use]
    pub fn is_trusted(&self) -> bool {
        *self == Self::Trusted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(uid: u32, gid: u32, groups: &[u32]) -> Cred {
        Cred { uid, gid, groups: groups.to_vec() }
    }

    #[test]
    fn a_user_is_nobody_else_and_has_no_other_groups() {
        let peer = Peer::User(user(7, 70, &[71, 72]));
        assert!(peer.may_act_as(&user(7, 70, &[71, 72])));
        assert!(peer.may_act_as(&user(7, 72, &[])));
        for other in [Cred::root(), user(8, 70, &[]), user(7, 0, &[]), user(7, 70, &[71, 0])] {
            assert!(!peer.may_act_as(&other), "{other:?}");
            assert!(Peer::Trusted.may_act_as(&other));
        }
    }

    #[test]
    fn a_host_speaks_for_its_users_and_perhaps_for_its_root() {
        let [host, squashed] = [Peer::host(), Peer::host_without_root()];
        for peer in [&host, &squashed] {
            assert!(peer.may_act_as(&user(7, 70, &[0])) && !peer.is_trusted());
            assert!(peer.may_be(ClientId(3)) && !peer.may_be(ClientId::of_user(7, 3)));
        }
        assert!(host.may_act_as(&Cred::root()) && !squashed.may_act_as(&Cred::root()));
        assert_eq!(squashed.instead_of(&Cred::root()), Some(user(NOBODY, NOBODY, &[])));
    }

    #[test]
    fn a_host_speaks_for_the_users_of_its_ranges_with_the_groups_of_its_ranges() {
        let ids = |text: &str| text.parse().unwrap();
        let host = Peer::Host { users: ids("1000-1999"), groups: ids("100,1000-1999") };
        let own = user(1000, 1000, &[100, 1500]);
        assert!(host.may_act_as(&own));
        let more = user(1000, 1000, &[0, 100, 1500, 27]);
        assert!(!host.may_act_as(&more));
        assert_eq!(host.instead_of(&more), Some(own));
        for other in [user(999, 1000, &[]), user(1000, 0, &[]), user(2000, 1000, &[1000])] {
            assert!(!host.may_act_as(&other) && host.instead_of(&other).is_none(), "{other:?}");
        }
        let nobody = user(NOBODY, NOBODY, &[]);
        assert_eq!(host.instead_of(&Cred::root()), Some(nobody.clone()));
        assert!(host.may_act_as(&nobody) && !host.may_act_as(&user(NOBODY, 0, &[])));
        let with_root = Peer::Host { users: ids("0"), groups: ids("0") };
        assert!(with_root.may_act_as(&Cred::root()) && !with_root.may_act_as(&user(7, 0, &[])));
    }

    #[test]
    fn a_limited_peer_is_what_the_peer_is_without_rules() {
        let peer = Peer::User(user(7, 70, &[]));
        let limited = Peer::Limited(Box::new(peer.clone()), KeyRules::reading());
        assert_eq!((limited.rules(), limited.unlimited()), (Some(&KeyRules::reading()), &peer));
        assert!(peer.rules().is_none() && !limited.is_trusted());
        assert!(limited.may_act_as(&user(7, 70, &[])) && !limited.may_act_as(&user(8, 70, &[])));
        assert!(limited.may_be(ClientId::of_user(7, 3)) && !limited.may_be(ClientId(3)));
        let instead = limited.instead_of(&Cred::root());
        assert_eq!((limited.uid(), instead), (7, Some(user(7, 70, &[]))));
    }

    #[test]
    fn a_user_is_only_a_client_that_it_has_registered() {
        let peer = Peer::User(user(7, 70, &[]));
        assert!(peer.may_be(ClientId::of_user(7, 3)));
        for other in [ClientId(3), ClientId::of_user(8, 3)] {
            assert!(!peer.may_be(other) && Peer::Trusted.may_be(other), "{other}");
        }
        assert_eq!((peer.uid(), Peer::Trusted.uid()), (7, 0));
    }
}
