//! The common case: the first rank answers, and the answer is final. It costs two comparisons and
//! allocates nothing.

use types::{Attr, Errno, Rank, Result};
use wire::{AdminOp, Answer, ChangeOp, Op, ReadOp, SessionOp};

use super::{Router, named};

/// Whether a driver may send a request to rank 0 without asking the router, as long as
/// [`Router::is_needed`] is false.
#[must_use]
pub fn is_direct(op: &Op<'_>) -> bool {
    named(op).is_none_or(|ino| ino.given_by() == Rank(0))
}

/// The rank for a request that needs no preparation.
pub(super) fn first(router: &Router, op: &Op<'_>) -> Option<Rank> {
    // All ranks execute these.
    let broadcast = op.is_for_all_ranks() && !router.ranks.is_empty();
    if broadcast || !router.fragments.is_empty() {
        return None;
    }
    let rank = named(op).map_or(Rank(0), |ino| router.place(ino));
    router.is_linked(rank).then_some(rank)
}

/// Whether the answer of the first rank to a request is final. `several` says whether the client
/// knows of another rank than 0.
#[allow(clippy::wildcard_enum_match_arm, reason = "one server executes other requests alone")]
#[must_use]
pub fn is_final(op: &Op<'_>, several: bool, result: &Result<Answer>) -> bool {
    match result {
        Ok(Answer::Redirect(_) | Answer::Fragments(_)) => false,
        Ok(Answer::Attr(attr) | Answer::Walked { attr: Some(attr), .. }) => is_whole(attr),
        Ok(Answer::Entries { entries, .. }) => {
            !is_complete(op) || entries.iter().all(|(_, attr)| is_whole(attr))
        }
        Ok(_) => !several || !is_of_open_state(op),
        Err(error) if error.errno == Errno::Stale => !several && !op.is_of_subtree(),
        // Another server may have a part of the request, and be busy.
        Err(error) => error.errno != Errno::Again || !may_need_two(op),
    }
}

/// Whether a request is about the open and lock state of a file that a client reports to the rank
/// of the file, and its repetition changes nothing: an open counts each time.
pub(super) fn is_of_open_state(op: &Op<'_>) -> bool {
    let Op::Session(op) = op else { return false };
    op.open_file().is_some() && !matches!(op, SessionOp::Open { .. })
}

/// Whether a server may need another one to execute a request.
pub(super) fn may_need_two(op: &Op<'_>) -> bool {
    matches!(
        op,
        Op::Change(ChangeOp::Link { .. } | ChangeOp::Rename { .. } | ChangeOp::Rmdir { .. })
    )
}

/// Whether attributes are those of a directory in one piece. A split one has no link: its
/// attributes are the sum of its fragments.
pub(super) fn is_whole(attr: &Attr) -> bool {
    attr.nlink != 0 || !attr.is_dir()
}

/// Whether the caller wants all attributes in the answer.
pub(super) fn is_complete(op: &Op<'_>) -> bool {
    !matches!(
        op,
        Op::Read(ReadOp::List { attrs: false, .. }) | Op::Admin(AdminOp::WriteDown { .. })
    )
}
