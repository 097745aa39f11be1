//! The user of a client's requests, as the servers take this process by its key.

use std::borrow::Cow;

use types::{Cred, Peer};

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Identity {
    /// The user of this process.
    cred: Cred,
    /// The peer that the servers take this process for, if its key says that.
    peer: Option<Peer>,
}

impl Identity {
    pub(crate) fn new(peer: Option<Peer>) -> Self {
        let mut identity = Self { cred: Cred::root(), peer };
        identity.cred = identity.served_as(&crate::own_cred()).into_owned();
        identity
    }

    /// The user of this process.
    pub(crate) fn cred(&self) -> &Cred {
        &self.cred
    }

    /// The user for whom the servers serve a request in the name of this one. With the key of a
    /// user, root is that user. A server refuses a request that nobody may make with this key.
    #[inline]
    pub(crate) fn served_as<'c>(&self, cred: &'c Cred) -> Cow<'c, Cred> {
        let peer = self.peer.as_ref().filter(|peer| !peer.may_act_as(cred));
        peer.and_then(|peer| peer.instead_of(cred)).map_or(Cow::Borrowed(cred), Cow::Owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_the_user_of_the_key() {
        let user = |uid| Cred { uid, gid: uid, groups: Vec::new() };
        let alice = Identity::new(Some(Peer::User(user(7))));
        assert_eq!(*alice.served_as(&Cred::root()), user(7));
        assert_eq!(*alice.served_as(&user(8)), user(8), "the server refuses it");
        for peer in [None, Some(Peer::Trusted), Some(Peer::host())] {
            let identity = Identity::new(peer);
            assert_eq!(*identity.served_as(&Cred::root()), Cred::root());
            assert_eq!(*identity.cred(), crate::own_cred());
        }
    }
}
