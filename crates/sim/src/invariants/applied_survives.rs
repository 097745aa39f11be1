//! Promise: a change that was *applied* survives the crash of the server if its client lives: the
//! client sends it again (design section 5, two-phase reply).
//!
//! The exception is a change that depended on a lost one: its client was killed, came back too
//! late, or never received the reply and so did not repeat the change as an applied one. Then the
//! client learns of the loss at its next `sync`.

use crate::oracle::Issued;

/// Whether a change may be refused when it is sent again, given whether some other change that a
/// crash undid has not come back (yet).
#[must_use]
pub fn may_be_lost(issued: &Issued, others_undone: bool) -> bool {
    !issued.delivered || others_undone
}

/// In a quiet cluster: every acknowledged change is part of the namespace.
///
/// # Errors
/// If a change is missing and its client does not know.
pub fn check<'a>(requests: impl Iterator<Item = &'a Issued>) -> Result<(), String> {
    for issued in requests {
        let change = issued.call.what.is_change() && issued.delivered;
        if change && issued.applied.is_none() && !issued.reported_lost && !issued.no_change {
            return Err(format!("silently lost: {:?}", issued.call));
        }
    }
    Ok(())
}
