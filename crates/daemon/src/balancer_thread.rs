//! The thread of the balancer: it runs a policy, which is a program of a user, while the metadata
//! server serves requests.
//!
//! A policy is ended by its steps, or by the clock at its next step. A step that does not end
//! keeps its thread: that thread is abandoned, and another one answers the questions that follow.
//!
//! Invariant: at most [`ABANDONED_MAX`] threads are abandoned at a time; with so many no question
//! is answered, and the balancer moves nothing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use balancer::{BalancerAnswer, Expired, Question};
use crossbeam_channel::{Receiver, Sender, unbounded};
use net::Waker;

/// Bounds of the time for a policy, which is half a tick: a busy machine needs the lower one. The
/// limit on steps ends a policy long before, unless single steps are very slow.
const DECISION_MIN: Duration = Duration::from_secs(1);
const DECISION_MAX: Duration = Duration::from_secs(5);

/// A thread that owes an answer for so long is abandoned: the loads and the decision each end at
/// [`DECISION_MAX`], and the machine may be busy.
const ABANDON_AFTER: Duration = Duration::from_secs(20);
const ABANDONED_MAX: usize = 4;

/// See the module documentation. The thread starts with the first question, and ends after the drop
/// of this value, which does not wait for it.
#[derive(Debug)]
pub(crate) struct BalancerThread {
    waker: Waker,
    thread: Option<Thread>,
    /// Held by every thread that runs, abandoned or not.
    alive: Arc<()>,
    abandon_after: Duration,
    answer: fn(Question) -> BalancerAnswer,
}

/// A thread that answers questions.
#[derive(Debug)]
struct Thread {
    questions: Sender<Question>,
    answers: Receiver<BalancerAnswer>,
    /// Questions that it has not answered, and since when it owes the next answer.
    owed: usize,
    since: Instant,
}

impl BalancerThread {
    pub(crate) fn new(waker: Waker) -> Self {
        let alive = Arc::default();
        Self { waker, thread: None, alive, abandon_after: ABANDON_AFTER, answer: timed }
    }

    /// Has a question answered. Where no thread can be had it is not, and the next one may be.
    pub(crate) fn ask(&mut self, question: Question) {
        let late =
            |thread: &Thread| thread.owed > 0 && thread.since.elapsed() >= self.abandon_after;
        if self.thread.as_ref().is_some_and(late) {
            // The thread ends when no receiver is left for its answer.
            self.thread = None;
        }
        if self.thread.is_none() {
            self.thread = self.start();
        }
        let Some(thread) = &mut self.thread else { return };
        // The thread ends when this end is gone, and not before.
        if thread.questions.send(question).is_ok() {
            if thread.owed == 0 {
                thread.since = Instant::now();
            }
            thread.owed += 1;
        }
    }

    pub(crate) fn answered(&mut self) -> Option<BalancerAnswer> {
        let thread = self.thread.as_mut()?;
        let answer = thread.answers.try_recv().ok()?;
        thread.owed = thread.owed.saturating_sub(1);
        thread.since = Instant::now();
        Some(answer)
    }

    /// Threads that run.
    fn running(&self) -> usize {
        Arc::strong_count(&self.alive) - 1
    }

    fn start(&self) -> Option<Thread> {
        if self.running() >= ABANDONED_MAX {
            return None;
        }
        let (sender, questions) = unbounded::<Question>();
        let (answers, receiver) = unbounded();
        let (alive, waker, answer) = (self.alive.clone(), self.waker.clone(), self.answer);
        let run = move || {
            let _alive = alive;
            for question in questions {
                if answers.send(answer(question)).is_err() {
                    return;
                }
                waker.wake();
            }
        };
        std::thread::Builder::new().name("balancer".into()).spawn(run).ok()?;
        Some(Thread { questions: sender, answers: receiver, owed: 0, since: Instant::now() })
    }
}

/// Answers a question within its time.
fn timed(question: Question) -> BalancerAnswer {
    let patience = half(question.view.tick_seconds).clamp(DECISION_MIN, DECISION_MAX);
    let begun = Instant::now();
    let expired = Expired::when(move || begun.elapsed() > patience);
    let mut answer = question.answer(&expired);
    answer.micros = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
    answer
}

/// Half a tick.
fn half(tick_seconds: f64) -> Duration {
    Duration::try_from_secs_f64(tick_seconds / 2.0).unwrap_or(DECISION_MAX)
}

#[cfg(test)]
mod tests {
    use balancer::{BalancerView, Metrics, State, preset};
    use net::Reactor;
    use types::Rank;

    use super::*;

    fn question(version: u64) -> Question {
        let view = BalancerView {
            whoami: Rank(0),
            ranks: vec![Metrics::default()],
            ..BalancerView::default()
        };
        let policy = preset("greedy-spill").unwrap();
        Question { version, policy, view, state: State::Nothing, skipped: None }
    }

    /// Never answers the first question.
    fn stuck(question: Question) -> BalancerAnswer {
        if question.version == 1 {
            loop {
                std::thread::park();
            }
        }
        timed(question)
    }

    #[test]
    fn a_thread_that_does_not_answer_is_abandoned_and_the_next_question_is_answered() {
        let dir = tempfile::tempdir().unwrap();
        let reactor =
            Reactor::listen(&net::Address::Unix(dir.path().join("s")), &net::Keyring::default())
                .unwrap();
        let mut thinker = BalancerThread::new(reactor.waker());
        (thinker.answer, thinker.abandon_after) = (stuck, Duration::ZERO);
        for _ in 1..ABANDONED_MAX {
            thinker.ask(question(1));
        }
        thinker.abandon_after = Duration::from_secs(3600);
        let asked = thinker.thread.take().expect("the thread that was started last");
        drop(asked);
        thinker.ask(question(2));
        let begun = Instant::now();
        let answer = loop {
            if let Some(answer) = thinker.answered() {
                break answer;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "no answer");
            std::thread::yield_now();
        };
        assert_eq!((answer.question.version, thinker.running()), (2, ABANDONED_MAX));
        // With so many nothing is asked any more.
        thinker.abandon_after = Duration::ZERO;
        thinker.ask(question(1));
        thinker.ask(question(2));
        assert!(thinker.thread.is_none() && thinker.running() == ABANDONED_MAX);
    }
}
