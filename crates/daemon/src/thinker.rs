//! The thread on which the balancer's questions are answered: it runs a policy, which is somebody's
//! program, beside the requests that the metadata server goes on serving.

use std::time::{Duration, Instant};

use balancer::{Answer, Expired, Question};
use crossbeam_channel::{Receiver, Sender, unbounded};
use net::Waker;

/// How long a policy may take: half a tick, but not less than this, as the machine may be busy, nor more.
/// Steps end it long before, unless single steps are very slow.
const DECISION_MIN: Duration = Duration::from_secs(1);
const DECISION_MAX: Duration = Duration::from_secs(5);

/// See the module documentation. The thread begins with the first question, and ends with this; nobody
/// waits for it, as nothing but an answer comes of it.
#[derive(Debug)]
pub(crate) struct Thinker {
    waker: Waker,
    questions: Option<Sender<Question>>,
    answers: (Sender<Answer>, Receiver<Answer>),
}

impl Thinker {
    pub(crate) fn new(waker: Waker) -> Self {
        Self { waker, questions: None, answers: unbounded() }
    }

    /// Has a question answered. Where no thread can be had it is not, and the next one may be.
    pub(crate) fn ask(&mut self, question: Question) {
        if self.questions.is_none() {
            self.questions = self.start();
        }
        if let Some(questions) = &self.questions {
            // The thread ends when this end is gone, and not before.
            let _ = questions.send(question);
        }
    }

    pub(crate) fn answered(&self) -> Option<Answer> {
        self.answers.1.try_recv().ok()
    }

    fn start(&self) -> Option<Sender<Question>> {
        let (sender, questions) = unbounded::<Question>();
        let (answers, waker) = (self.answers.0.clone(), self.waker.clone());
        let run = move || {
            for question in questions {
                let patience = half(question.view.tick_seconds).clamp(DECISION_MIN, DECISION_MAX);
                let begun = Instant::now();
                let expired = Expired::when(move || begun.elapsed() > patience);
                let mut answer = question.answer(&expired);
                answer.micros = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
                if answers.send(answer).is_err() {
                    return;
                }
                waker.wake();
            }
        };
        std::thread::Builder::new().name("balancer".into()).spawn(run).ok().map(|_| sender)
    }
}

/// Half a tick.
fn half(tick_seconds: f64) -> Duration {
    Duration::try_from_secs_f64(tick_seconds / 2.0).unwrap_or(DECISION_MAX)
}
