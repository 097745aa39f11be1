//! The identity: a process asks in the name of its own user, unless it speaks for every user.

use types::{ConnId, Cred};
use wire::{Identities, Request};

use crate::{MdsEffects, ReplyTo};

/// The request as it is served.
pub(super) enum Identified {
    /// For the user that it names.
    AsNamed,
    /// For the user of its sender, which says that it is root.
    AsSender(Cred),
    /// Not at all: its sender may not ask in that name.
    Refused,
}

/// For which user a request is served, if any.
#[inline]
pub(super) fn of(
    identities: &Identities,
    conn: ConnId,
    request: &Request<'_>,
    effects: &mut MdsEffects,
) -> Identified {
    if identities.are_trusted() {
        return Identified::AsNamed;
    }
    identify(identities, conn, request, effects)
}

// Apart, so that the check is inlined where every peer is trusted.
#[inline(never)]
fn identify(
    identities: &Identities,
    conn: ConnId,
    request: &Request<'_>,
    effects: &mut MdsEffects,
) -> Identified {
    match identities.identify(conn, &request.cred) {
        Ok(None) => Identified::AsNamed,
        Ok(Some(cred)) => Identified::AsSender(cred),
        Err(failure) => {
            effects.reply_error(ReplyTo { conn, tid: request.tid }, failure);
            Identified::Refused
        }
    }
}

#[cfg(test)]
mod tests {
    use types::{Ino, Peer, Tid};
    use wire::{Op, ReadOp};

    use super::*;

    #[test]
    fn a_request_is_served_for_a_user_that_its_sender_may_be() {
        let conn = ConnId(5);
        let user = |uid| Cred { uid, gid: uid, groups: Vec::new() };
        let mut identities = Identities::default();
        let served = |identities: &Identities, cred: Cred| {
            let op = Op::Read(ReadOp::GetAttr { ino: Ino::ROOT });
            let request = Request::new(Tid(1), Tid(0), cred.clone(), op);
            match of(identities, conn, &request, &mut MdsEffects::default()) {
                Identified::AsNamed => Some(cred),
                Identified::AsSender(cred) => Some(cred),
                Identified::Refused => None,
            }
        };
        assert_eq!(served(&identities, Cred::root()), Some(Cred::root()));
        identities.opened(conn, Peer::User(user(7)));
        assert_eq!(served(&identities, user(7)), Some(user(7)));
        assert_eq!(served(&identities, Cred::root()), Some(user(7)));
        assert_eq!(served(&identities, user(8)), None);
    }
}
