//! Replies that are held back until the journal has their event.

use std::collections::VecDeque;

use types::{Errno, Seq, Timestamp};
use wire::Answer;

use super::{HeldReply, Log};
use crate::{MdsEffects, ReplyTo};

impl Log {
    /// Answers now if everything up to `seq` is durable, else as soon as it is.
    pub(crate) fn answer_when_safe(
        &mut self,
        seq: Seq,
        time: Timestamp,
        at: ReplyTo,
        answer: Answer,
        effects: &mut MdsEffects,
    ) {
        self.answer_once_safe(HeldReply { until: seq, seq, time, at, answer }, effects);
    }

    /// Answers now if everything up to `until` is durable, else as soon as it is.
    pub(crate) fn answer_once_safe(&mut self, waiter: HeldReply, effects: &mut MdsEffects) {
        let HeldReply { until, seq, time, at, answer } = waiter;
        if let Some(errno) = self.failed
            && seq > self.safe
        {
            effects.reply_error(at, errno.into());
        } else if until <= self.safe {
            effects.reply(at, seq, time, Ok(answer));
        } else {
            assert!(until <= self.last(), "{until} is an event, and will be durable");
            self.waiters.push_back(HeldReply { until, seq, time, at, answer });
        }
    }

    pub(super) fn answer_waiters(&mut self, effects: &mut MdsEffects) {
        let safe = self.safe;
        let mut left = VecDeque::new();
        for waiter in std::mem::take(&mut self.waiters) {
            if waiter.until <= safe {
                let HeldReply { seq, time, at, answer, .. } = waiter;
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
