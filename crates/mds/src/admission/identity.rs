//! The identity: a process asks in the name of its own user, unless it speaks for every user.

use types::ConnId;
use wire::{Identities, Request};

use crate::{MdsEffects, ReplyTo};

/// Whether the request is refused, because its sender may not ask in that name.
#[inline]
pub(super) fn refuses(
    identities: &Identities,
    conn: ConnId,
    request: &Request<'_>,
    effects: &mut MdsEffects,
) -> bool {
    !identities.are_trusted() && is_refused(identities, conn, request, effects)
}

// Apart, so that the check is inlined where every peer is trusted.
#[inline(never)]
fn is_refused(
    identities: &Identities,
    conn: ConnId,
    request: &Request<'_>,
    effects: &mut MdsEffects,
) -> bool {
    let refused = identities.check(conn, &request.cred);
    let is_refused = refused.is_err();
    if let Err(failure) = refused {
        effects.reply_error(ReplyTo { conn, tid: request.tid }, failure);
    }
    is_refused
}
