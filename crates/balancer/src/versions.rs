//! Which version of the policy is in force, and when to go back.
//!
//! The monitor numbers policies and switches all ranks together; every rank watches how its version
//! does. A version that fails [`FAILURES_MAX`] ticks in a row is given up for the last one that was
//! good, or for CephFS's own balancer if there is none.
//!
//! Invariant: an abandoned version is not taken again under the same number.

use crate::{BalancerPolicy, Decision, DecisionKind, Fault};

/// So many failed ticks in a row, and a version is given up.
pub const FAILURES_MAX: u32 = 3;
/// So many ticks in a row without a fault, and a version is one to go back to.
pub const PROOF_TICKS: u32 = 3;

/// The result of a tick with the version in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VersionVerdict {
    /// All is well.
    Fine,
    /// The policy failed; the rank does nothing in this tick, and warns.
    Warn {
        /// What happened.
        fault: Fault,
        /// Failed ticks in a row.
        failures: u32,
    },
    /// The policy failed once too often: the earlier version is in force from now on. To be told to
    /// the monitor, so that all ranks go back.
    Reverted {
        /// What happened.
        fault: Fault,
        /// The version that was given up.
        from: u64,
        /// The one in force.
        to: u64,
    },
}

/// See the module documentation. A value of one rank; the monitor keeps one, too.
#[derive(Clone, Debug)]
pub struct Versions {
    current: (u64, BalancerPolicy),
    good: (u64, BalancerPolicy),
    failures: u32,
    proof: u32,
    given_up: Option<u64>,
}

impl Versions {
    /// Starts with a policy that is trusted, such as [`crate::default_policy`] as version 0.
    #[must_use]
    pub fn new(version: u64, policy: BalancerPolicy) -> Self {
        let current = (version, policy);
        Self { good: current.clone(), current, failures: 0, proof: PROOF_TICKS, given_up: None }
    }

    /// The version and policy in force.
    #[must_use]
    pub fn current(&self) -> (u64, &BalancerPolicy) {
        (self.current.0, &self.current.1)
    }

    /// The version and policy to go back to.
    #[must_use]
    pub fn good(&self) -> (u64, &BalancerPolicy) {
        (self.good.0, &self.good.1)
    }

    /// Puts a version in force. Says whether it did: not for the one that is in force, nor for one
    /// that was given up.
    pub fn install(&mut self, version: u64, policy: BalancerPolicy) -> bool {
        if version == self.current.0 || self.given_up.is_some_and(|given| version <= given) {
            return false;
        }
        self.current = (version, policy);
        self.failures = 0;
        self.proof = 0;
        true
    }

    /// Goes back by hand (`balancer revert`). Says whether there was something to go back to.
    pub fn revert(&mut self) -> bool {
        if self.current.0 == self.good.0 {
            return false;
        }
        self.give_up();
        true
    }

    /// Takes note of a decision that the version in force made.
    pub fn observe(&mut self, decision: &Decision) -> VersionVerdict {
        let fault = match &decision.outcome {
            DecisionKind::Failed(fault) => fault.clone(),
            DecisionKind::Balanced | DecisionKind::Migrate | DecisionKind::NoNeighbour(_) => {
                self.failures = 0;
                self.proof = self.proof.saturating_add(1);
                if self.proof >= PROOF_TICKS && self.good.0 != self.current.0 {
                    self.good = self.current.clone();
                }
                return VersionVerdict::Fine;
            }
        };
        // A view that makes no sense says nothing about the policy.
        if fault.kind == crate::FaultKind::View {
            return VersionVerdict::Warn { fault, failures: self.failures };
        }
        self.proof = 0;
        self.failures = self.failures.saturating_add(1);
        let from = self.current.0;
        if self.failures < FAILURES_MAX || from == self.good.0 {
            return VersionVerdict::Warn { fault, failures: self.failures };
        }
        self.give_up();
        VersionVerdict::Reverted { fault, from, to: self.current.0 }
    }

    fn give_up(&mut self) {
        self.given_up = self.given_up.max(Some(self.current.0));
        self.current = self.good.clone();
        self.failures = 0;
        self.proof = PROOF_TICKS;
    }
}

#[cfg(test)]
mod tests;
