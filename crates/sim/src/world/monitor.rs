//! A minimal monitor, as far as a metadata server sees it: it passes policies and decouplings on,
//! distributes the map and the heartbeats of other ranks, and receives beacons.

use std::collections::BTreeMap;

use types::Tid;
use wire::{Answer, BalancerEntry, Failure, Message};

use super::{Event, World};

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Monitor {
    questions: u64,
    /// Its questions, and in which term of the first rank they were asked.
    asked: BTreeMap<Tid, u64>,
    pub(crate) answers: BTreeMap<Tid, Result<Answer, Failure>>,
    /// The policy in force according to the map.
    pub(crate) balancers: Vec<BalancerEntry>,
}

impl World {
    /// The number of the next question of the monitor; it gets an answer if it is `sent`.
    pub(super) fn next_question(&mut self, sent: bool) -> Tid {
        self.monitor.questions += 1;
        let tid = Tid((1 << 32) + self.monitor.questions);
        if sent {
            self.monitor.asked.insert(tid, self.servers[0].term);
        }
        tid
    }

    /// Whether the server that was asked still runs.
    pub(crate) fn is_asked(&self, tid: Tid) -> bool {
        self.monitor.asked.get(&tid) == Some(&self.servers[0].term)
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
                self.monitor.answers.insert(reply.tid, reply.result);
            }
            _ => {}
        }
    }
}
