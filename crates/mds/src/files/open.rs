//! Opening, sharing and closing files.

use metastore::request::{Condition, StoreFailure, StoreOp, StoreResult};
use namespace::Hit;
use types::{Attr, AttrChange, ClientId, Cred, Errno, FileType, Ino, Origin, Pool, Seq, Timestamp};
use wire::{Access, Answer, Failure, Message, Opened};

use super::FilesCx;
use crate::admission::Incoming;
use crate::balance::note_use;
use crate::fetch::decode;
use crate::op::{Performed, Performing, Refused};
use crate::opens::Verdict;
use crate::store::Waiting;
use crate::{MdsEffects, ReplyTo};

impl FilesCx<'_> {
    /// Opens a file, at once or when it is shared.
    pub(crate) fn open(
        &mut self,
        from @ Incoming { conn, client, request }: Incoming<'_>,
        ino: Ino,
        write: bool,
        effects: &mut MdsEffects,
    ) -> Performing {
        note_use(self.namespace, ino, Hit::Read);
        let attr = self.namespace.getattr(ino)?;
        match attr.file_type() {
            FileType::Regular => {}
            FileType::Directory => return Err(Errno::IsDirectory.into()),
            FileType::Symlink
            | FileType::Fifo
            | FileType::Socket
            | FileType::CharDevice
            | FileType::BlockDevice => return Err(Errno::Invalid.into()),
        }
        self.may_open(&request.cred, &attr, write)?;
        let data = self.namespace.data(ino)?.to_vec();
        let moved = match self.opens.judge(client, ino, write) {
            Verdict::Private => None,
            Verdict::Shared(moved) if data.is_empty() => Some(moved),
            Verdict::Shared(_) | Verdict::Wait => {
                let frame = Message::Request(request.clone()).to_frame();
                self.begin_sharing(ino, client, effects);
                if let Some(sharing) = self.opens.sharing(ino) {
                    sharing.waiting.push((conn, frame));
                }
                self.share(ino, effects);
                return Ok(Performed::Later);
            }
        };
        self.opens.enter(client, ino, write);
        self.counters.opens += 1;
        let answer = Answer::Opened(Opened { attr, data, shared: moved.is_some() });
        let Some(moved) = moved else { return Ok(Performed::Answer(answer)) };
        self.log.answer_when_safe(moved, Timestamp(0), from.at(), answer, effects);
        Ok(Performed::Later)
    }

    /// An owner always may: the mode of a new file must not keep its creator out. And the kernel
    /// may read a program that may be executed.
    fn may_open(&self, cred: &Cred, attr: &Attr, write: bool) -> Result<(), Refused> {
        if cred.uid == attr.uid {
            return Ok(());
        }
        if write {
            self.namespace.access(cred, attr.ino, 2)?;
        } else if self.namespace.access(cred, attr.ino, 1).is_err() {
            self.namespace.access(cred, attr.ino, 4)?;
        }
        Ok(())
    }

    fn begin_sharing(&mut self, ino: Ino, asker: ClientId, effects: &mut MdsEffects) {
        let until = self.clock.now + self.settings.recall;
        let told = self.opens.begin(ino, asker, until);
        self.recall(ino, &told, effects);
    }

    fn recall(&mut self, ino: Ino, clients: &[ClientId], effects: &mut MdsEffects) {
        for client in clients {
            if let Some(conn) = self.sessions.conn_of(*client) {
                self.counters.recalls += 1;
                effects.outbox.send(conn, &Message::Recall { ino });
            }
        }
    }

    /// A client caches nothing of a file any more. The answer comes when the file is shared: later
    /// writes of the client must not overtake the content that the server moves.
    pub(crate) fn yield_file(
        &mut self,
        at: ReplyTo,
        client: ClientId,
        ino: Ino,
        effects: &mut MdsEffects,
    ) -> Performing {
        let late = self.opens.yielded(client, ino);
        let inline = self.namespace.data(ino).is_ok_and(|data| !data.is_empty());
        if late || (inline && self.opens.is_shared(ino)) {
            self.begin_sharing(ino, client, effects);
        }
        let Some(sharing) = self.opens.sharing(ino) else {
            return Ok(Performed::Answer(Answer::Done));
        };
        sharing.yields.push(at);
        self.share(ino, effects);
        Ok(Performed::Later)
    }

    pub(crate) fn close_file(
        &mut self,
        client: ClientId,
        ino: Ino,
        write: bool,
        effects: &mut MdsEffects,
    ) -> Performing {
        if let Some(freed) = self.opens.close(client, ino, write) {
            self.purges.queue_closed(freed);
        }
        self.share(ino, effects);
        Ok(Performed::Answer(Answer::Done))
    }

    /// A client reports a file that it had open before its connection broke, the server was
    /// restarted, or the file became this rank's; or that it has closed the file.
    pub(crate) fn reopen(
        &mut self,
        client: ClientId,
        ino: Ino,
        access: Access,
        effects: &mut MdsEffects,
    ) -> Performing {
        let is_closed = !access.read && !access.write;
        if !is_closed {
            if self.opens.reopen(client, ino, access) {
                self.begin_sharing(ino, ClientId(0), effects);
            } else if self.opens.must_give_up(client, ino) {
                // The client forgot an earlier recall with its connection.
                self.recall(ino, &[client], effects);
            }
            self.share(ino, effects);
        }
        Ok(Performed::Answer(Answer::Done))
    }

    /// Continues to share a file if every client has answered: its content moves to the object
    /// store first, where all of them write.
    pub(crate) fn share(&mut self, ino: Ino, effects: &mut MdsEffects) {
        if !self.opens.start_moving(ino) {
            return;
        }
        if !self.opens.is_open(ino) {
            return self.finish_sharing(ino, &Ok(None), effects);
        }
        match self.namespace.data(ino).map(<[u8]>::to_vec) {
            Ok(data) if !data.is_empty() => {
                let pool = self
                    .namespace
                    .getattr(ino)
                    .map_or_else(|_| Pool::USUAL, |attr| attr.stripe.pool());
                let (object, condition) = (metastore::data_name(ino, pool, 0), Condition::Any);
                self.store.begin(
                    Waiting::Share(ino),
                    StoreOp::Put { object, data, condition },
                    effects,
                );
            }
            // A file that has lost its name has none either.
            Ok(_) | Err(_) => self.finish_sharing(ino, &Ok(Some(Seq(0))), effects),
        }
    }

    /// The content of a file is in the object store: nothing of it stays inline.
    pub(crate) fn share_stored(
        &mut self,
        ino: Ino,
        result: Result<StoreResult, Box<StoreFailure>>,
        effects: &mut MdsEffects,
    ) {
        if let Err(failure) = result {
            let text = failure.error.to_string();
            let failure = Failure { errno: failure.error.errno, text };
            return self.finish_sharing(ino, &Err(failure), effects);
        }
        let moved = self.empty_inline(ino).unwrap_or_default();
        self.finish_sharing(ino, &Ok(Some(moved)), effects);
    }

    fn empty_inline(&mut self, ino: Ino) -> Option<Seq> {
        let root = Cred::root();
        // The file does not change, and a client that may only read it can have it shared.
        let Attr { size, mtime, ctime: time, .. } = self.namespace.getattr(ino).ok()?;
        let planned = self.namespace.plan().setdata(&root, ino, b"", size, time).ok()?;
        self.applying().journal_and_apply(Origin::default(), ino, ino, &planned.event());
        let change = AttrChange { mtime: Some(mtime), ..AttrChange::default() };
        let planned = self.namespace.plan().setattr(&root, ino, &change, time).ok()?;
        self.applying().journal_and_apply(Origin::default(), ino, ino, &planned.event()).0
    }

    fn finish_sharing(
        &mut self,
        ino: Ino,
        moved: &Result<Option<Seq>, Failure>,
        effects: &mut MdsEffects,
    ) {
        let shared = moved.clone().ok().flatten();
        let Some(sharing) = self.opens.finish(ino, shared) else { return };
        if let Some(freed) = sharing.freed {
            self.purges.queue_closed(freed);
        }
        for yielded in sharing.yields {
            match moved {
                Ok(seq) => {
                    let (seq, time) = (seq.unwrap_or_default(), Timestamp(0));
                    self.log.answer_when_safe(seq, time, yielded, Answer::Done, effects);
                }
                Err(failure) => effects.reply_error(yielded, failure.clone()),
            }
        }
        for (conn, frame) in sharing.waiting {
            match moved {
                Ok(_) => self.fetches.wake_frame(conn, frame),
                Err(failure) => {
                    if let Some(Message::Request(request)) = decode(&frame) {
                        let at = ReplyTo { conn, tid: request.tid };
                        effects.reply_error(at, failure.clone());
                    }
                }
            }
        }
    }
}
