//! A change of policy during a job (P-16): pending events are kept as the new policy promises, or
//! merged if it does not decouple; then the new policy is in force. Until the end the old policy is
//! in force with its promise, also after a crash.

use policy::{Composition, Mechanism, Policy, Transition};

/// A step of a change. After a failure the change may begin again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeStep {
    /// Wait for the parts that are being merged: they belong to the old policy.
    Drain,
    /// Put the earlier journals into the store ([`super::JobRun::store_earlier`]).
    StoreEarlier,
    /// Execute this on the pending events, if there are any.
    Persist(Composition),
    /// Merge again the events that a server has lost, and that only Local Persist kept: under a
    /// policy without Local Persist no other process would. The flag says that the metadata store
    /// has them afterwards.
    MergeLost(bool),
    /// Write the note of this machine; if the flag is not set, only if there is one. If the process
    /// ends now, the next one must find the persisted events.
    Remember(bool),
    /// Set the policy at the monitor.
    Set,
    /// The new policy is in force in this process.
    Adopt,
    /// Merge, and give the subtree back: the server changes the policy in that moment.
    Merge,
}

impl ChangeStep {
    /// The steps of a client with the subtree, in their order.
    #[must_use]
    pub fn all(from: &Policy, to: &Policy) -> Vec<Self> {
        let Transition { persist, merge, .. } = Transition::between(from, to, true);
        if merge {
            return vec![Self::Set, Self::Merge];
        }
        let mut steps = vec![Self::Drain];
        if persist.contains(Mechanism::GlobalPersist) {
            steps.push(Self::StoreEarlier);
        }
        if !persist.is_nothing() {
            steps.push(Self::Persist(persist));
        }
        let persists = to.persists();
        steps.extend([
            Self::MergeLost(false),
            Self::Remember(persists),
            Self::Set,
            // The server may have been lost between the two.
            Self::MergeLost(persists),
            Self::Adopt,
            Self::Remember(persists),
        ]);
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(from: &str, to: &str) -> Vec<ChangeStep> {
        let cell = |name: &str| {
            let found = policy::Cell::all().find(|cell| cell.to_string() == name);
            Policy::of_cell(found.expect("a cell of this name"))
        };
        ChangeStep::all(&cell(from), &cell(to))
    }

    #[test]
    fn a_stronger_durability_is_reached_before_the_policy_is_set() {
        let steps = steps("weak-none", "weak-global");
        let place = |wanted: &ChangeStep| steps.iter().position(|step| step == wanted);
        let persist = ChangeStep::Persist(Mechanism::GlobalPersist.into());
        assert!(place(&persist).expect("it persists") < place(&ChangeStep::Set).expect("it sets"));
        assert_eq!(steps[1], ChangeStep::StoreEarlier);
    }

    #[test]
    fn a_weaker_durability_persists_nothing() {
        let steps = steps("weak-global", "weak-none");
        assert!(!steps.iter().any(|step| matches!(step, ChangeStep::Persist(_))));
        assert_eq!(steps.last(), Some(&ChangeStep::Remember(false)));
    }

    #[test]
    fn a_policy_that_does_not_decouple_is_set_before_the_merge_that_gives_the_subtree_back() {
        assert_eq!(steps("weak-local", "strong-global"), [ChangeStep::Set, ChangeStep::Merge]);
    }

    #[test]
    fn lost_merges_are_repeated_before_and_after_the_policy_is_set() {
        let steps = steps("weak-local", "invisible-global");
        let lost = steps.iter().filter(|step| matches!(step, ChangeStep::MergeLost(_)));
        assert_eq!(lost.count(), 2);
    }
}
