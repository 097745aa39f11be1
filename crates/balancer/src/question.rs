//! What a rank has asked at a tick, and is answered: a value, so that it can be worked out beside the
//! rank's own work, on another thread, while requests go on.

use crate::{Decision, Expired, Policy, State, View, decide_until, heartbeat};

/// What a rank wants to know at a tick.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// The version of the policy.
    pub version: u64,
    /// The policy in force.
    pub policy: Policy,
    /// What the rank knows. Its own entry is without `auth` and `all`: they are the policy's to say,
    /// and part of the answer.
    pub view: View,
    /// What the policy remembers.
    pub state: State,
    /// Why nothing is to be decided, if so: then only the loads are wanted.
    pub skipped: Option<String>,
}

/// The answer to a [`Question`].
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The question, with the rank's own loads in its view.
    pub question: Question,
    /// What was decided, unless nothing was to be.
    pub decision: Option<Decision>,
    /// How long that took, in microseconds, if somebody looked at a clock.
    pub micros: u64,
}

impl Question {
    /// Works the answer out: the rank's loads first, for the others to hear and for its own entry, and
    /// then what it decides.
    #[must_use]
    pub fn answer(mut self, expired: &Expired) -> Answer {
        let (auth, all) = heartbeat::loads(&self.policy, &self.view.auth, &self.view.all);
        if let Some(own) = self.view.ranks.get_mut(usize::from(self.view.whoami.0)) {
            (own.auth, own.all) = (auth, all);
        }
        let decide = || decide_until(&self.policy, &self.view, &self.state, expired);
        let decision = self.skipped.is_none().then(decide);
        Answer { question: self, decision, micros: 0 }
    }
}

#[cfg(test)]
mod tests {
    use types::Rank;

    use super::*;
    use crate::{Counts, Metrics, Outcome, preset};

    fn question(skipped: Option<String>) -> Question {
        let counts = Counts { inode_writes: 100.0, ..Counts::default() };
        let view = View {
            whoami: Rank(0),
            ranks: vec![Metrics::default(); 2],
            auth: counts,
            all: counts,
            ..View::default()
        };
        let policy = preset("greedy-spill").unwrap();
        Question { version: 1, policy, view, state: State::Nothing, skipped }
    }

    #[test]
    fn the_loads_of_the_rank_are_known_before_it_decides() {
        let answer = question(None).answer(&Expired::never());
        let own = answer.question.view.ranks[0];
        assert_eq!((own.auth, own.all), (100.0, 100.0));
        assert_eq!(answer.decision.unwrap().outcome, Outcome::Migrate);
    }

    #[test]
    fn nothing_is_decided_where_nothing_is_to_be_but_the_others_hear_of_the_load() {
        let answer = question(Some("a rank is away".into())).answer(&Expired::never());
        assert_eq!((answer.question.view.ranks[0].all, answer.decision), (100.0, None));
    }
}
