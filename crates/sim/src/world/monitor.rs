//! A minimal monitor, as far as a metadata server sees it: it passes policies and decouplings on,
//! distributes the map and the heartbeats of other ranks, and receives beacons.
//!
//! Invariant: as with the real monitor, at most one question about a directory is under way, even
//! if its asker is dead. The server may answer two of them in any order.

use std::collections::BTreeMap;

use types::{Errno, Tid};
use wire::{Answer, BalancerEntry, Failure, Message};

use super::{Event, World};
use crate::call::CallKind;

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Monitor {
    questions: u64,
    /// The questions that were sent to the first rank.
    asked: BTreeMap<Tid, Asked>,
    pub(crate) answers: BTreeMap<Tid, Result<Answer, Failure>>,
    /// The policy in force according to the map.
    pub(crate) balancers: Vec<BalancerEntry>,
}

/// A question to the server of the first rank.
#[derive(Debug)]
struct Asked {
    /// The term of the server.
    term: u64,
    /// The directory.
    path: String,
    is_answered: bool,
}

impl World {
    /// The number of the next question of the monitor, and whether it is sent: then it gets an
    /// answer, unless the server dies.
    pub(super) fn next_question(&mut self, what: &CallKind) -> (Tid, bool) {
        self.monitor.questions += 1;
        let tid = Tid((1 << 32) + self.monitor.questions);
        let (CallKind::SetPolicy { path, .. } | CallKind::Decouple { path, .. }) = what else {
            unreachable!("no client asks the monitor for {what:?}");
        };
        if !self.servers[0].is_recovered() {
            return (tid, false);
        }
        let term = self.servers[0].term;
        let is_open = |asked: &Asked| asked.term == term && !asked.is_answered;
        if self.monitor.asked.values().any(|asked| is_open(asked) && asked.path == *path) {
            let text = "another request for this directory is under way".to_owned();
            self.monitor.answers.insert(tid, Err(Failure { errno: Errno::Busy, text }));
            return (tid, false);
        }
        self.monitor.asked.insert(tid, Asked { term, path: path.clone(), is_answered: false });
        (tid, true)
    }

    /// Whether the server that was asked still runs.
    pub(crate) fn is_asked(&self, tid: Tid) -> bool {
        self.monitor.asked.get(&tid).is_some_and(|asked| asked.term == self.servers[0].term)
    }

    /// Whether the server may still execute a question.
    pub(crate) fn is_unanswered(&self, tid: Tid) -> bool {
        self.is_asked(tid) && !self.monitor.asked[&tid].is_answered
    }

    /// A message of a server: the other ranks receive its heartbeats, some late and some never.
    pub(super) fn monitor_got(&mut self, server: usize, message: Message<'_>) {
        match message {
            Message::Heartbeat(bytes) => {
                for other in (0..self.servers.len()).filter(|other| *other != server) {
                    if !self.is_lost() {
                        let after = self.delay();
                        self.schedule(after, Event::Heartbeat(other, bytes.to_vec()));
                    }
                }
            }
            Message::Reply(reply) => {
                self.note(format_args!("mds.{server}  -> mon    {reply:?}"));
                if let Some(asked) = self.monitor.asked.get_mut(&reply.tid) {
                    asked.is_answered = true;
                }
                self.monitor.answers.insert(reply.tid, reply.result);
            }
            _ => {}
        }
    }
}
