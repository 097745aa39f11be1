//! Warnings about policies that make little sense.
//!
//! Any composition can be executed and is therefore accepted; a warning names a part with another
//! effect than its author may expect (P-12). Strict callers reject policies with warnings.
//! Invariant: the nine compositions of Table II and every preset are free of warnings.

use std::fmt;

use types::{Errno, Error};

use crate::order::Order;
use crate::{Composition, Mechanism};

/// A part of a policy that has no effect or an unexpected one (P-12).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PolicyWarning {
    /// Neither `rpcs` nor `append_client_journal`.
    NoUpdates,
    /// Both `rpcs` and `append_client_journal`.
    AppendWithRpcs,
    /// `stream` beside a client journal, which the server does not journal.
    StreamWithoutRpcs,
    /// `stream` and a persist: the updates are kept twice.
    StreamWithPersist,
    /// An apply without `append_client_journal`.
    ApplyWithoutAppend,
    /// An apply that does not wait for `append_client_journal`.
    ApplyBeforeAppend,
    /// Both applies.
    AppliedTwice,
    /// A persist that does not wait for the updates it is to keep.
    PersistBeforeUpdates,
    /// An apply that does not wait for the persist.
    ApplyBeforePersist,
    /// A mechanism occurs more than once.
    Repeated(Mechanism),
    /// `ack: safe` where no mechanism ever makes an update durable.
    SafeAckNeverComes,
    /// `ack: async` under leases, which never give a client exclusive use of a directory.
    NeverExclusive,
    /// A merge trigger where nothing is applied.
    MergeTriggerUnused,
    /// `merge: on_demand` with `interfere_policy: block`.
    NobodyAsks,
    /// A merge check where nothing is decoupled.
    CheckUnused,
    /// `merge_by: reference` where nothing is applied.
    ReferenceUnused,
    /// `merge_by: reference` with `check: merge`, for which the server looks at every event.
    ReferenceChecked,
}

impl PolicyWarning {
    /// The part, and the reason.
    fn cause(self) -> String {
        let text = match self {
            Self::NoUpdates => {
                "nothing carries updates: neither rpcs nor append_client_journal is present"
            }
            Self::AppendWithRpcs => {
                "append_client_journal with rpcs: every update is sent and journalled as well"
            }
            Self::StreamWithoutRpcs => {
                "stream without rpcs does nothing: the metadata server journals only what it was \
                 sent by RPC"
            }
            Self::StreamWithPersist => {
                "stream with a persist: updates that stream already keeps are kept a second time"
            }
            Self::ApplyWithoutAppend => {
                "an apply without append_client_journal has nothing to apply"
            }
            Self::ApplyBeforeAppend => {
                "an apply that does not wait for append_client_journal misses updates"
            }
            Self::AppliedTwice => {
                "volatile_apply with nonvolatile_apply: the same journal is applied twice"
            }
            Self::PersistBeforeUpdates => {
                "a persist that does not wait for the updates misses some of them"
            }
            Self::ApplyBeforePersist => {
                "an apply that does not wait for the persist shows updates to others which a \
                 crash can still take back"
            }
            Self::Repeated(mechanism) => return format!("{mechanism} occurs more than once"),
            Self::SafeAckNeverComes => {
                "ack: safe waits for durability, and no mechanism here gives any"
            }
            Self::MergeTriggerUnused => "a merge trigger without an apply has nothing to trigger",
            Self::NobodyAsks => {
                "merge: on_demand with interfere_policy: block: others are refused before they ask"
            }
            Self::NeverExclusive => "ack: async under leases: nobody has a directory alone there",
            Self::CheckUnused => "a merge check without append_client_journal has nothing to check",
            Self::ReferenceUnused => "merge_by: reference without an apply has nothing to merge",
            Self::ReferenceChecked => {
                "merge_by: reference with check: merge: what is checked is always merged by value"
            }
        };
        text.to_owned()
    }

    /// The text to write instead.
    fn remedy(self) -> &'static str {
        match self {
            Self::NoUpdates => "add rpcs or append_client_journal to the consistency",
            Self::AppendWithRpcs => "keep one of the two",
            Self::StreamWithoutRpcs => "use global_persist to keep a client's journal",
            Self::StreamWithPersist => "keep one of the two",
            Self::ApplyWithoutAppend => "add append_client_journal before it, or remove it",
            Self::ApplyBeforeAppend => "write append_client_journal first, then + and the apply",
            Self::AppliedTwice => "keep one of the two",
            Self::PersistBeforeUpdates => {
                "write rpcs or append_client_journal first, then + and the persist"
            }
            Self::ApplyBeforePersist => "write the persist first, then + and the apply",
            Self::Repeated(_) => "remove the repetition",
            Self::SafeAckNeverComes => "add stream, local_persist or global_persist",
            Self::NobodyAsks | Self::NeverExclusive => "remove one of the two",
            Self::MergeTriggerUnused => "remove the key, or add volatile_apply",
            Self::CheckUnused => "remove the key",
            Self::ReferenceUnused => "remove the key, or add volatile_apply",
            Self::ReferenceChecked => "remove one of the two",
        }
    }
}

/// The cause, then the remedy.
impl fmt::Display for PolicyWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.cause(), self.remedy())
    }
}

/// The warnings about an effective composition (P-12), each once.
#[must_use]
pub fn warnings(effective: &Composition) -> Vec<PolicyWarning> {
    let order = Order::of(effective);
    let append = order.has(Mechanism::AppendClientJournal);
    let rpcs = order.has(Mechanism::Rpcs);
    let stream = order.has(Mechanism::Stream);
    let persists = order.has_any(Mechanism::persists);
    let applies = order.has_any(Mechanism::applies);
    let is_append = |kind| kind == Mechanism::AppendClientJournal;
    let applied_twice =
        order.has(Mechanism::VolatileApply) && order.has(Mechanism::NonvolatileApply);
    let checks = [
        (PolicyWarning::NoUpdates, !append && !rpcs),
        (PolicyWarning::AppendWithRpcs, append && rpcs),
        (PolicyWarning::StreamWithoutRpcs, stream && !rpcs),
        (PolicyWarning::StreamWithPersist, stream && persists),
        (PolicyWarning::ApplyWithoutAppend, applies && !append),
        (PolicyWarning::ApplyBeforeAppend, !order.all_precede(is_append, Mechanism::applies)),
        (PolicyWarning::AppliedTwice, applied_twice),
        (
            PolicyWarning::PersistBeforeUpdates,
            !order.all_precede(Mechanism::carries_updates, Mechanism::persists),
        ),
        (
            PolicyWarning::ApplyBeforePersist,
            append && !order.all_precede(Mechanism::persists, Mechanism::applies),
        ),
    ];
    let repeated = Mechanism::ALL.into_iter().filter(|mechanism| order.count(*mechanism) > 1);
    let found = checks.into_iter().filter(|(_, present)| *present).map(|(warning, _)| warning);
    found.chain(repeated.map(PolicyWarning::Repeated)).collect()
}

/// Turns the [`warnings`] into errors (P-12).
///
/// # Errors
/// EINVAL with the first warning's cause and remedy, if there is a warning.
pub fn strict(warnings: &[PolicyWarning]) -> types::Result<()> {
    match warnings.first() {
        None => Ok(()),
        Some(warning) => {
            Err(Error::new(Errno::Invalid, "policy", warning.cause()).remedy(warning.remedy()))
        }
    }
}

#[cfg(test)]
mod tests;
