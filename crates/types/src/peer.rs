//! The identity of the process at the other end of a connection.
//!
//! The kernel, or a certificate, says which process that is; the process itself is not asked. The
//! identity in a request ([`Cred`]) must be one that its peer may have.

use crate::{ClientId, Cred};

/// See the module documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// Speaks for every user, and may be every client and every daemon: a process of the superuser
    /// or of the user to whom the cluster belongs.
    Trusted,
    /// A process of another user, which speaks for this user only.
    User(Cred),
}

impl Peer {
    /// Whether the process may ask in the name of `cred`: of its own user, with its own groups.
    #[must_use]
    pub fn may_act_as(&self, cred: &Cred) -> bool {
        match self {
            Self::Trusted => true,
            Self::User(own) => {
                let Cred { uid, gid, groups } = cred;
                own.uid == *uid
                    && own.in_group(*gid)
                    && groups.iter().all(|group| own.in_group(*group))
            }
        }
    }

    /// Whether the process may be this client: one that was registered by its own user.
    #[must_use]
    pub fn may_be(&self, client: ClientId) -> bool {
        match self {
            Self::Trusted => true,
            Self::User(own) => client.user() == own.uid,
        }
    }

    /// The user who registers a client of this process; 0 for one that speaks for every user.
    #[must_use]
    pub fn uid(&self) -> u32 {
        match self {
            Self::Trusted => 0,
            Self::User(own) => own.uid,
        }
    }

    /// Whether the process speaks for every user.
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
    fn a_user_is_only_a_client_that_it_has_registered() {
        let peer = Peer::User(user(7, 70, &[]));
        assert!(peer.may_be(ClientId::of_user(7, 3)));
        for other in [ClientId(3), ClientId::of_user(8, 3)] {
            assert!(!peer.may_be(other) && Peer::Trusted.may_be(other), "{other}");
        }
        assert_eq!((peer.uid(), Peer::Trusted.uid()), (7, 0));
    }
}
