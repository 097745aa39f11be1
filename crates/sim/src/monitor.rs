//! A minimal monitor, as far as the metadata server sees it: it passes policies and decouplings on,
//! and receives beacons.

use mds::MdsInput;
use types::{Cred, Tid};
use wire::{Message, Op, Request};

use crate::world::World;

impl World {
    /// Asks the server on behalf of a monitor. The answer, if there will be one, appears among
    /// `monitor_answers`.
    pub(crate) fn ask_monitor(&mut self, op: &Op<'_>) -> Tid {
        self.monitor_tid += 1;
        let tid = Tid(self.monitor_tid);
        self.note(format_args!("mon    -> mds.0  {tid} {op:?}"));
        if self.recovered && self.mds.is_some() {
            self.asked.insert(tid, self.term);
            let (acked, cred) = (Tid(0), Cred::root());
            let request = Request::new(tid, acked, cred, *op);
            self.handle(MdsInput::FromMonitor(Message::Request(request)));
        }
        tid
    }

    /// Whether the server that was asked still runs.
    pub(crate) fn is_asked(&self, tid: Tid) -> bool {
        self.asked.get(&tid) == Some(&self.term)
    }

    /// Takes the server's messages to the monitor.
    pub(crate) fn to_monitor(&mut self, frames: &[u8]) {
        let mut rest = frames;
        while let Ok(Some((frame, length))) = wire::frame::decode(rest) {
            if let Ok(Message::Reply(reply)) = Message::decode(frame.payload) {
                self.note(format_args!("mds.0  -> mon    {reply:?}"));
                self.oracle.safe = self.oracle.safe.max(reply.safe);
                self.monitor_answers.insert(reply.tid, reply.result);
            }
            rest = &rest[length..];
        }
    }
}
