//! What the client has open and locked, told to a server that does not know it.

use types::{Cred, Ino, Tid};
use wire::{Message, Op, Replay, Request};

use super::mark::Mark;
use super::{Effects, Session};
use crate::held::Carried;

impl Session {
    /// Tells the server what the client has. That needs nothing of the namespace.
    pub(super) fn tell_held(&mut self, effects: &mut Effects) {
        self.told.clear();
        let held: Vec<_> = self.held.tell().collect();
        self.tell_ops(held, effects);
    }

    fn tell_ops(&mut self, ops: Vec<Op<'_>>, effects: &mut Effects) {
        for op in ops {
            let tid = Tid(self.next_tid);
            self.next_tid += 1;
            if let Op::Lock { ino, lock, .. } = op {
                self.told.insert(tid, (ino, lock));
            }
            let request = Request::new(tid, self.heard(tid), Cred::root(), op);
            let request = Request { replay: Some(Replay::default()), ..request };
            Message::Request(request).append_frame(&mut effects.frames);
        }
    }

    /// Whether a file is open, as far as is known, or locked, or the root of a subtree that is merged on demand.
    #[must_use]
    pub fn has(&self, ino: Ino) -> bool {
        self.held.has(ino)
    }

    /// Takes out what there is of a file that another rank serves, for the session with that one. Who is still opening
    /// it will hear that from this server, and ask the other one. This server may have been started anew, and been told of it
    /// since: so it is told that it is over.
    pub fn take_out(&mut self, ino: Ino, effects: &mut Effects) -> Carried {
        let opening = |writes: bool| {
            let of = |mark: &&Mark| matches!(mark, Mark::Open { ino: of, write } if *of == ino && *write == writes);
            u32::try_from(self.marks.values().filter(of).count()).unwrap_or(u32::MAX)
        };
        let opening = (opening(false), opening(true));
        let carried = self.held.take_out(ino, opening);
        if self.connected {
            self.tell_ops(carried.given_up(ino), effects);
        }
        carried
    }

    /// Puts in what was taken out of the session with the rank that served a file before, and tells the server what is open
    /// of it, or that nothing is. The session was connected; if it is not any more, the server is told when it is again.
    pub fn put_in(&mut self, ino: Ino, carried: Option<Carried>, effects: &mut Effects) {
        let told = self.held.put_in(ino, carried.unwrap_or_default());
        if self.connected {
            self.tell_ops(told, effects);
        }
    }
}
