//! Replies that are held back until the journal has their event.

use std::collections::VecDeque;

use types::{Errno, Seq, Timestamp};
use wire::Answer;

use super::{Log, Waiter};
use crate::{MdsEffects, ReplyTo};

impl Log {
    /// Answers now if everything up to `seq` is durable, else as soon as it is.
    pub(crate) fn answer_when_safe(
        &mut self,
        (seq, time): (Seq, Timestamp),
        at: ReplyTo,
        answer: Answer,
        effects: &mut MdsEffects,
    ) {
        self.answer_once_safe(seq, (seq, time), at, answer, effects);
    }

    /// The same of a change that is answered as soon as everything up to `until` is durable.
    pub(crate) fn answer_once_safe(
        &mut self,
        until: Seq,
        (seq, time): (Seq, Timestamp),
        at: ReplyTo,
        answer: Answer,
        effects: &mut MdsEffects,
    ) {
        if let Some(errno) = self.failed
            && seq > self.safe
        {
            effects.reply_error(at, errno.into());
        } else if until <= self.safe {
            effects.reply(at, seq, time, Ok(answer));
        } else {
            assert!(until <= self.last(), "{until} is an event, and will be durable");
            self.waiters.push_back(Waiter { until, seq, time, at, answer });
        }
    }

    pub(super) fn answer_waiters(&mut self, effects: &mut MdsEffects) {
        let safe = self.safe;
        let mut left = VecDeque::new();
        for waiter in std::mem::take(&mut self.waiters) {
            if waiter.until <= safe {
                let Waiter { seq, time, at, answer, .. } = waiter;
                effects.reply(at, seq, time, Ok(answer));
            } else {
                left.push_back(waiter);
            }
        }
        self.waiters = left;
    }

    pub(super) fn refuse_waiters(&mut self, errno: Errno, effects: &mut MdsEffects) {
        for waiter in std::mem::take(&mut self.waiters) {
            effects.reply_error(waiter.at, errno.into());
        }
    }
}
