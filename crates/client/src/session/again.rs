//! Requests as they are sent again, and those that are not.

use types::{Cred, Ino, Tid};
use wire::{ChangeOp, Message, Op, Replay, Request, SessionOp, WantsExclusive};

use super::{Mark, Session, SessionEffects, Unsafe};

/// The same request, now that it is known which length it gave the file.
pub(super) fn grow_frame(frame: &[u8], size: u64) -> Option<Vec<u8>> {
    let (frame, _) = wire::frame::decode(frame).ok()??;
    let Ok(Message::Request(request)) = Message::decode(frame.payload) else { return None };
    let Op::Change(ChangeOp::Grow { ino, .. } | ChangeOp::Append { ino, .. }) = request.op else {
        return None;
    };
    Some(
        Message::Request(Request { op: Op::Change(ChangeOp::Grow { ino, size }), ..request })
            .to_frame(),
    )
}

/// Sends a request again, with the values of its first reply.
pub(super) fn append_with_replay(request: &Unsafe, frames: &mut Vec<u8>) {
    let Ok(Some((frame, _))) = wire::frame::decode(&request.frame) else { return };
    let Ok(Message::Request(decoded)) = Message::decode(frame.payload) else { return };
    let wants_exclusive = WantsExclusive::Never;
    let again =
        Request { replay: Some(request.replay), remembers: false, wants_exclusive, ..decoded };
    Message::Request(again).append_frame(frames);
}

impl Session {
    /// Reports to the server that everything was sent again; or, over the same connection, that the
    /// client knows which of its reports the server rejected. No caller waits for the answer.
    pub(super) fn end_of_resent(&mut self, effects: &mut SessionEffects) {
        let tid = Tid(self.next_tid);
        self.next_tid += 1;
        let request =
            Request::new(tid, self.acked(tid), Cred::root(), Op::Session(SessionOp::Sync));
        let request = Request { replay: Some(Replay::default()), ..request };
        Message::Request(request).append_frame(&mut effects.frames);
    }

    /// Gives a request up: its answer will be ignored, and it is not sent again.
    pub fn forget(&mut self, tid: Tid) {
        self.unanswered.retain(|request| request.tid != tid);
        self.aside.retain(|request| request.tid != tid);
        if let Some(cache) = &mut self.cache {
            cache.give_up(tid);
        }
        self.leases.give_up(tid);
        match self.marks.remove(&tid) {
            Some(Mark::Open { ino, write }) => drop(self.held.closed(ino, write)),
            Some(Mark::Create) => self.forget_early(),
            Some(Mark::Yield { .. } | Mark::Lock { .. } | Mark::Length) | None => {}
        }
    }

    /// Unanswered requests are not sent with the next welcome but after [`Session::go_on`]: the
    /// caller has a step to take first.
    pub fn set_aside(&mut self) {
        self.aside.append(&mut self.unanswered);
    }

    /// Sends the requests that were set aside.
    pub fn go_on(&mut self, effects: &mut SessionEffects) {
        for request in &self.aside {
            effects.frames.extend_from_slice(&request.frame);
        }
        self.aside.append(&mut self.unanswered);
        std::mem::swap(&mut self.aside, &mut self.unanswered);
    }

    /// The server answered `ESTALE` to a request about an inode. If it has evicted the inode,
    /// only a walk that the server itself makes loads it again: a walk to this inode is not
    /// answered from memory.
    pub fn ask_for(&mut self, ino: Ino) {
        self.leases.clear();
        self.cache.iter_mut().for_each(|cache| cache.drop_attr(ino));
    }
}
