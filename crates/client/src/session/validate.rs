//! The invariants of a session.

use types::{Set, Tid};

use super::{Session, Unanswered};

impl Session {
    /// Checks the invariants of the session, between two inputs. The time that this takes grows
    /// with the state of the session.
    ///
    /// # Panics
    /// If one of them does not hold. The message names the invariant.
    pub fn validate(&self) {
        let mut known = Set::default();
        let mut once = |tid: Tid| {
            assert!(tid.0 < self.next_tid, "{tid} was given to a request");
            assert!(known.insert(tid), "{tid} is unanswered, set aside or unsafe: one of them");
        };
        for Unanswered { tid, frame, .. } in self.unanswered.iter().chain(&self.aside) {
            once(*tid);
            assert!(!frame.is_empty(), "{tid} can be sent again");
        }
        for (tid, request) in &self.resent {
            assert!(request.tid == *tid, "{tid} is resent under its number");
        }
        let held = self.unsafe_requests.iter().chain(self.resent.values());
        for request in held {
            once(request.tid);
            assert!(!request.frame.is_empty(), "{} can be sent again", request.tid);
        }
        for requests in [&self.unanswered, &self.aside] {
            let order = requests.iter().is_sorted_by_key(|request| request.tid);
            assert!(order, "requests wait in their order");
        }
        let is_open = |tid: &Tid| {
            let waiting = self.unanswered.iter().chain(&self.aside);
            waiting.into_iter().any(|request| request.tid == *tid)
        };
        let lost = self.marks.keys().find(|tid| !is_open(tid));
        assert!(lost.is_none(), "{lost:?} has an answer, and its mark is not taken");
        self.held.validate();
        self.leases.validate();
        self.lent.iter().for_each(|lent| lent.validate());
        self.cache.iter().for_each(|cache| cache.validate());
        self.exclusive.iter().for_each(|exclusive| exclusive.validate());
    }
}
