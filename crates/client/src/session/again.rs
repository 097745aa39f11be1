//! Requests as they are sent again.

use types::Ino;
use wire::{ChangeOp, Message, Op, Request, WantsExclusive};

use super::{Session, Unsafe};

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
    /// The server answered `ESTALE` to a request about an inode. If it has evicted the inode,
    /// only a walk that the server itself makes loads it again: a walk to this inode is not
    /// answered from memory.
    pub fn ask_for(&mut self, ino: Ino) {
        self.leases.clear();
        self.cache.iter_mut().for_each(|cache| cache.drop_attr(ino));
    }
}
