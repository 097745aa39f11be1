//! The search for an order (Wing and Gong 1993, with the memory of Lowe 2017).
//!
//! Depth-first search: it chooses one of the requests that no other request must precede, and
//! continues without it. Two rules keep the search short. A request that changes no state is chosen
//! as early as possible, so reads add no branches. The search remembers each pair of a remaining
//! history and a state that failed once.
//!
//! Requests that may never have taken effect make searches long: each of them could explain a
//! mismatch. So orders with few of them are tried first (Harvey and Ginsberg's limited
//! discrepancies).
//!
//! Invariant: hints decide how long a search takes, never how it ends.

mod pending;
#[cfg(test)]
mod tests;

use std::hash::Hash;

use types::Set;

use self::pending::Pending;

/// The behaviour of a sequential object.
pub trait Specification {
    /// The object.
    type State: Clone + Eq + Hash;
    /// A request together with its answer, if it got one.
    type Operation;

    /// Carries an operation out on a state: which states can follow if the answer was this one.
    fn step(&self, state: &Self::State, operation: &Self::Operation) -> Next<Self::State>;
}

/// The states that can follow an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next<S> {
    /// Nothing: it cannot happen in this state with this answer.
    Impossible,
    /// The state stays as it is, and in every other state, too, the operation with this answer
    /// would change nothing or be impossible: it may as well happen now.
    Same,
    /// One of these. None of them: [`Next::Impossible`].
    One(Vec<S>),
    /// One of these, or of further states: the list is incomplete.
    Some(Vec<S>),
}

/// An operation and when it may have taken effect. Times are any numbers that grow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimedOperation<O> {
    /// When it was asked for.
    pub start: u64,
    /// The time of its answer; None if the request may also never have taken effect.
    pub end: Option<u64>,
    /// Of operations that could be next, those with smaller hints are tried first, and those
    /// without one last: it is likely that they did not take effect.
    pub hint: Option<u64>,
    /// What it was.
    pub operation: O,
}

/// The result of a search. Numbers are places in the list of entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// This order explains every answer. Entries without an end may be left out.
    Linearizable(Vec<usize>),
    /// There is no such order.
    Violation {
        /// The longest beginning of one.
        order: Vec<usize>,
        /// The entries that had to follow, although none of them could.
        stuck: Vec<usize>,
    },
    /// It took more steps than allowed, or there were more choices than could be tried.
    Unknown {
        /// As above.
        order: Vec<usize>,
        /// As above.
        stuck: Vec<usize>,
    },
}

/// A choice that was made, and those that are left.
struct Frame<S> {
    state: S,
    /// Taken at once because they change nothing.
    free: Vec<usize>,
    choices: std::vec::IntoIter<usize>,
    /// The entry that is tried now, and the states after it that were not tried yet.
    taken: Option<usize>,
    states: Vec<S>,
}

struct Search<'a, P: Specification> {
    specification: &'a P,
    entries: &'a [TimedOperation<P::Operation>],
    pending: Pending,
    order: Vec<usize>,
    hopeless: Set<(Vec<usize>, P::State)>,
    /// The longest order so far, and the entries that could not follow it.
    best: (Vec<usize>, Vec<usize>),
    steps: u64,
    /// How many unlikely operations the order has, and may have.
    unlikely: usize,
    unlikely_max: usize,
    /// Some were left out for that.
    limited: bool,
    /// Some choice had too many ends to try them all.
    incomplete: bool,
}

/// Searches for an order of a history that begins in a state. `steps_max` limits the work: the
/// number of times that the specification is asked.
pub fn check<P: Specification>(
    specification: &P,
    initial: &P::State,
    entries: &[TimedOperation<P::Operation>],
    steps_max: u64,
) -> Verdict {
    let mut search = Search {
        specification,
        entries,
        pending: Pending::new(entries),
        order: Vec::new(),
        hopeless: Set::default(),
        best: (Vec::new(), Vec::new()),
        steps: 0,
        unlikely: 0,
        unlikely_max: 0,
        limited: false,
        incomplete: false,
    };
    loop {
        let verdict = search.run(initial.clone(), steps_max);
        if !search.limited || search.steps > steps_max || verdict.is_linearizable() {
            return verdict;
        }
        search.unlikely_max = (search.unlikely_max + 1) * 3 / 2;
        search.limited = false;
        search.hopeless.clear();
    }
}

impl Verdict {
    /// Whether an order was found.
    #[must_use]
    pub fn is_linearizable(&self) -> bool {
        matches!(self, Self::Linearizable(_))
    }
}

impl<P: Specification> Search<'_, P> {
    fn run(&mut self, initial: P::State, steps_max: u64) -> Verdict {
        let mut frames = Vec::new();
        let mut entered = Some(initial);
        loop {
            if let Some(state) = entered.take() {
                frames.push(self.enter(state));
                if self.pending.required() == 0 {
                    return Verdict::Linearizable(std::mem::take(&mut self.order));
                }
            }
            if self.steps > steps_max {
                let (order, stuck) = self.best.clone();
                return Verdict::Unknown { order, stuck };
            }
            let Some(frame) = frames.last_mut() else { break };
            if let Some(taken) = frame.taken {
                if let Some(state) = frame.states.pop() {
                    entered = Some(state);
                    continue;
                }
                self.put_back(taken);
                frame.taken = None;
            }
            match frame.choices.next() {
                Some(choice) => self.choose(frame, choice),
                None => {
                    let frame = frames.pop().expect("the last one was looked at");
                    self.leave(frame);
                }
            }
        }
        let (order, stuck) = self.best.clone();
        if self.incomplete {
            return Verdict::Unknown { order, stuck };
        }
        Verdict::Violation { order, stuck }
    }

    fn take(&mut self, at: usize) {
        self.unlikely += usize::from(self.entries[at].hint.is_none());
        self.pending.take(at);
        self.order.push(at);
    }

    fn put_back(&mut self, at: usize) {
        self.unlikely -= usize::from(self.entries[at].hint.is_none());
        self.pending.put_back(at);
        self.order.pop();
    }

    /// Begins the search for the entries that can follow a state.
    fn enter(&mut self, state: P::State) -> Frame<P::State> {
        let mut free = Vec::new();
        let mut candidates = self.pending.candidates();
        while let Some(at) = self.first_free(&state, &candidates) {
            self.take(at);
            free.push(at);
            candidates = self.pending.candidates();
        }
        if self.hopeless.contains(&(self.pending.rest(), state.clone())) {
            candidates.clear();
        }
        let entries = self.entries;
        candidates.sort_by_key(|at| (entries[*at].hint.is_none(), entries[*at].hint, *at));
        let choices = candidates.into_iter();
        Frame { state, free, choices, taken: None, states: Vec::new() }
    }

    fn first_free(&mut self, state: &P::State, candidates: &[usize]) -> Option<usize> {
        candidates.iter().copied().find(|at| {
            let entry = &self.entries[*at];
            self.steps += 1;
            entry.end.is_some() && self.specification.step(state, &entry.operation) == Next::Same
        })
    }

    fn choose(&mut self, frame: &mut Frame<P::State>, choice: usize) {
        self.steps += 1;
        if self.entries[choice].hint.is_none() && self.unlikely >= self.unlikely_max {
            self.limited = true;
            return;
        }
        match self.specification.step(&frame.state, &self.entries[choice].operation) {
            // An optional entry that changes nothing is left out.
            Next::Impossible | Next::Same => return,
            Next::One(states) => frame.states = states,
            Next::Some(states) => {
                self.incomplete = true;
                frame.states = states;
            }
        }
        frame.states.reverse();
        frame.taken = Some(choice);
        self.take(choice);
    }

    /// Nothing leads on from here.
    fn leave(&mut self, frame: Frame<P::State>) {
        if self.order.len() >= self.best.0.len() {
            self.best = (self.order.clone(), self.pending.candidates());
        }
        self.hopeless.insert((self.pending.rest(), frame.state));
        for at in frame.free.into_iter().rev() {
            self.put_back(at);
        }
    }
}
