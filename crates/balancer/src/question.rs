//! The question of a rank at a tick, and its answer: values, so that another thread can compute the
//! answer while the rank serves requests.

use crate::{BalancerPolicy, BalancerView, Decision, Expired, State, decide_until, heartbeat};

/// The question of a rank at a tick.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// The version of the policy.
    pub version: u64,
    /// The policy in force.
    pub policy: BalancerPolicy,
    /// The rank's view. Its own entry has no `auth` and `all`: the policy computes them, and they
    /// are part of the answer.
    pub view: BalancerView,
    /// The policy's state.
    pub state: State,
    /// Why nothing is to be decided, if so: then only the loads are wanted.
    pub skipped: Option<String>,
}

/// The answer to a [`Question`].
#[derive(Clone, Debug, PartialEq)]
pub struct BalancerAnswer {
    /// The question, with the rank's own loads in its view.
    pub question: Question,
    /// The decision, if the question asked for one.
    pub decision: Option<Decision>,
    /// The time that the answer took, in microseconds, if the caller measured it.
    pub micros: u64,
}

impl Question {
    /// Computes the answer: first the rank's loads, for the heartbeat and for its own entry, then
    /// its decision.
    #[must_use]
    pub fn answer(mut self, expired: &Expired) -> BalancerAnswer {
        let (auth, all) = heartbeat::loads(&self.policy, &self.view.auth, &self.view.all, expired);
        if let Some(own) = self.view.ranks.get_mut(usize::from(self.view.whoami.0)) {
            (own.auth, own.all) = (auth, all);
        }
        let decide = || decide_until(&self.policy, &self.view, &self.state, expired);
        let decision = self.skipped.is_none().then(decide);
        BalancerAnswer { question: self, decision, micros: 0 }
    }
}

#[cfg(test)]
mod tests {
    use types::Rank;

    use super::*;
    use crate::{Counts, DecisionKind, Metrics, preset};

    fn question(skipped: Option<String>) -> Question {
        let counts = Counts { inode_writes: 100.0, ..Counts::default() };
        let view = BalancerView {
            whoami: Rank(0),
            ranks: vec![Metrics::default(); 2],
            auth: counts,
            all: counts,
            ..BalancerView::default()
        };
        let policy = preset("greedy-spill").unwrap();
        Question { version: 1, policy, view, state: State::Nothing, skipped }
    }

    #[test]
    fn the_loads_of_the_rank_are_known_before_it_decides() {
        let answer = question(None).answer(&Expired::never());
        let own = answer.question.view.ranks[0];
        assert_eq!((own.auth, own.all), (100.0, 100.0));
        assert_eq!(answer.decision.unwrap().outcome, DecisionKind::Migrate);
    }

    #[test]
    fn a_rank_that_may_not_decide_still_sends_its_load() {
        let answer = question(Some("a rank is away".into())).answer(&Expired::never());
        assert_eq!((answer.question.view.ranks[0].all, answer.decision), (100.0, None));
    }
}
