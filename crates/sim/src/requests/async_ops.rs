//! Clients that answer changes locally, in directories with an exclusive capability, and send them
//! to the server later. Such an answer is judged when the server executes the change: until then no
//! other client can have looked, and the model has the earlier state. Local answers about such a
//! directory wait in the oracle for the change before them.

use std::collections::VecDeque;

use client::LocalAnswer;
use types::{ClientId, Cred, RenameFlags, Seq, Tid, Timestamp};
use wire::{Answer, Failure, Message, Reply};

use super::Requests;
use crate::call::{Call, CallKind};
use crate::oracle::Key;
use crate::world::{Event, Link};

/// The longest time for which a client collects local answers.
const COLLECT_MAX: u64 = 20_000_000;

/// A local answer of a client.
#[derive(Debug)]
struct Said {
    /// The number of the change, or of the question.
    tid: Tid,
    /// The change before a question.
    after: Tid,
    change: bool,
    call: Call,
    result: Result<Answer, Failure>,
    at: u64,
}

/// The changes by which a client is ahead of the server.
#[derive(Debug, Default)]
pub(crate) struct AsyncClient {
    /// Changes that the server has not executed, and questions behind them.
    said: VecDeque<Said>,
    /// Answered changes that are not promised any more. The server may still execute them.
    dropped: Vec<Said>,
    /// It will tell the server.
    is_sending: bool,
    /// The server rejected a change, and the client does not know yet: its answers about its
    /// directories are wrong until the rejection arrives.
    pub(crate) wrong: bool,
    /// The time of the oldest message that the server has not settled.
    pub(crate) sent: Option<u64>,
}

impl AsyncClient {
    fn newest(&self) -> Option<Tid> {
        self.said.iter().rev().find(|said| said.change).map(|said| said.tid)
    }
}

impl Requests {
    /// Judges a local answer of a client. Returns whether there is one.
    pub(crate) fn says(&mut self, client: usize, call: &Call, tid: Tid) -> bool {
        let (clock, moment) = (self.world.clock(), self.moment_of(client));
        let id = self.world.clients[client].id;
        let Link { session, effects, .. } = self.world.home(client);
        let known = session.known(&call.cred, &call.what.op(), clock.time, effects);
        let said = |change, tid, after, result| {
            let (call, at) = (call.clone(), moment);
            Said { tid, after, change, call, result, at }
        };
        match known {
            LocalAnswer::Nothing => return false,
            // A path may lead through directories that the model does not have yet, and a name to
            // an inode in an earlier state.
            LocalAnswer::Remembered(_)
                if matches!(call.what, CallKind::Walk { .. } | CallKind::Lookup { .. })
                    && self.workers[client].async_ops.newest().is_some() => {}
            LocalAnswer::Remembered(result) => {
                self.lend(client, call, &result);
                self.knows(client, call, tid, result);
            }
            LocalAnswer::Local(_) if self.workers[client].async_ops.wrong => {}
            LocalAnswer::Local(Ok(Answer::Done))
                if matches!(call.what, CallKind::Unlink { .. }) =>
            {
                self.world.note(format_args!("{id} does {call:?} with the link before it"));
                self.becomes_rename(client, call);
            }
            LocalAnswer::Local(result) => {
                self.world.note(format_args!("{id} sees {call:?}: {result:?}"));
                match self.workers[client].async_ops.newest() {
                    None => {
                        self.lend(client, call, &result);
                        self.knows(client, call, tid, result);
                    }
                    Some(after) => {
                        let said = said(false, tid, after, result);
                        self.workers[client].async_ops.said.push_back(said);
                    }
                }
            }
            LocalAnswer::Async(tid, result) => {
                self.world.note(format_args!("{id} does {tid} {call:?}: {result:?}"));
                self.removed.requested(&call.what);
                self.oracle.issue((id, tid), call.clone(), Vec::new());
                self.oracle.answer_async((id, tid));
                self.workers[client].async_ops.said.push_back(said(true, tid, tid, result));
                self.may_unlink_next(client, call);
                self.world.tally.count("changes told later", 1);
                if !std::mem::replace(&mut self.workers[client].async_ops.is_sending, true) {
                    let after = self.world.rng.between(1, COLLECT_MAX);
                    self.world.schedule(after, Event::SendAsync(client));
                }
            }
            LocalAnswer::Soon => {
                // At its next turn, of which there is one as long as there is something to do.
                self.workers[client].again.push_front(call.clone());
            }
            LocalAnswer::WantsNumbers(count) => {
                self.workers[client].again.push_front(call.clone());
                let subtree = types::Ino(0);
                let what = CallKind::Extend { subtree, count };
                self.call(client, Call::root(what));
            }
        }
        self.send(client);
        true
    }

    /// After some links the client removes the other name, as programs do that replace no file.
    fn may_unlink_next(&mut self, client: usize, call: &Call) {
        let CallKind::Link { ino, parent, ref name } = call.what else { return };
        if !self.world.rng.percent(60) {
            return;
        }
        let (names, clock) = (self.plan.names, self.world.clock());
        let Link { session, effects, .. } = self.world.home(client);
        let mut leads_there = |other: &String| {
            let lookup = CallKind::Lookup { parent, name: other.clone() };
            let known = session.known(&Cred::root(), &lookup.op(), clock.time, effects);
            other != name
                && matches!(known, LocalAnswer::Local(Ok(Answer::Attr(attr))) if attr.ino == ino)
        };
        let other = (0..names).map(|number| format!("n{number}")).find(&mut leads_there);
        if let Some(name) = other {
            let what = CallKind::Unlink { parent, name };
            self.workers[client].again.push_front(Call { what, ..call.clone() });
        }
    }

    /// A client removes the other name of a file that it has just linked: its change is a rename,
    /// under the number of the link. Its answers in between are those of a state that nobody else
    /// sees, and are not judged.
    fn becomes_rename(&mut self, client: usize, removal: &Call) {
        let id = self.world.clients[client].id;
        let said = &mut self.workers[client].async_ops.said;
        let is_link = |said: &Said| said.change && matches!(said.call.what, CallKind::Link { .. });
        let (Some(at), CallKind::Unlink { parent, name }) =
            (said.iter().rposition(is_link), &removal.what)
        else {
            return self.world.check(Err(format!("{id} has no link before {removal:?}")));
        };
        let CallKind::Link { parent: dir, name: to, .. } = &said[at].call.what else { return };
        if dir != parent {
            return self.world.check(Err(format!("{id} has a link elsewhere: {removal:?}")));
        }
        let (from, to) = ((*parent, name.clone()), (*dir, to.clone()));
        let flags = RenameFlags { no_replace: true, ..RenameFlags::default() };
        let call = Call { what: CallKind::Rename { from, to, flags }, ..removal.clone() };
        let tid = said[at].tid;
        said[at].call = call.clone();
        let behind = said.split_off(at + 1);
        said.extend(behind.into_iter().filter(|said| said.change));
        self.removed.requested(&call.what);
        self.oracle.issue((id, tid), call, Vec::new());
        self.oracle.answer_async((id, tid));
        self.world.tally.count("links that became renames", 1);
    }

    /// Judges an answer from a lease. Returns whether there is one.
    pub(crate) fn says_leased(
        &mut self,
        client: usize,
        call: &Call,
        tid: Tid,
        fresh: bool,
    ) -> bool {
        let (now, session) = (self.moment_at(client), self.world.session(client));
        let leased = session.leased(&call.cred, &call.what.op(), now, fresh);
        let Some(result) = leased else { return false };
        // As above.
        let leads = matches!(call.what, CallKind::Walk { .. } | CallKind::Lookup { .. });
        if self.workers[client].async_ops.newest().is_none() || !leads {
            self.world.tally.count("answers under leases", 1);
            self.knows(client, call, tid, result);
        }
        true
    }

    /// A client sends its local changes to the server.
    pub(crate) fn send_async_of(&mut self, client: usize) {
        let now = self.world.now;
        let async_ops = &mut self.workers[client].async_ops;
        async_ops.is_sending = false;
        if !self.world.clients[client].alive {
            return;
        }
        async_ops.sent.get_or_insert(now);
        let Link { session, effects, .. } = self.world.home(client);
        session.send_async(effects);
        self.send(client);
    }

    /// The server executed a change that a client had answered locally.
    pub(crate) fn note_applied(&mut self, (id, tid): Key, seq: Seq, time: Timestamp) {
        let Some(client) = self.world.clients.iter().position(|it| it.id == id) else { return };
        let async_ops = &mut self.workers[client].async_ops;
        let Some(at) = async_ops.said.iter().position(|said| said.change && said.tid == tid) else {
            if let Some(at) = async_ops.dropped.iter().position(|said| said.tid == tid) {
                // It was about nothing that is not there. Others see it.
                let Said { call, at, .. } = async_ops.dropped.swap_remove(at);
                self.history.asked((id, tid), &call.what, at);
            }
            return;
        };
        if at != 0 {
            let text = format!("{id} {tid} was carried out before what came before it");
            return self.world.check(Err(text));
        }
        let follows = |said: &mut Said| said.after == tid;
        while let Some(said) = self.workers[client].async_ops.said.pop_front_if(follows) {
            let (seq, time) = if said.change { (seq, time) } else { (Seq(0), Timestamp(0)) };
            self.judge(id, client, said, (seq, time));
        }
    }

    fn judge(&mut self, id: ClientId, client: usize, said: Said, (seq, time): (Seq, Timestamp)) {
        let Said { tid, change, call, result, at, .. } = said;
        let epoch = self.world.session(client).epoch().0;
        let reply = Reply { tid, seq, time, safe: Seq(0), grants: None, result };
        self.history.asked((id, tid), &call.what, at);
        self.history.note_reply(id, epoch, &reply, at);
        if !change {
            self.oracle.issue((id, tid), call, Vec::new());
        }
        let judged = self.oracle.emitted(id, &Message::Reply(reply));
        self.world.check(judged);
    }

    /// The server did not execute a local change, or never will: later answers of the client
    /// concern an object that does not exist.
    pub(crate) fn drop_async(&mut self, client: usize) {
        let id = self.world.clients[client].id;
        for said in std::mem::take(&mut self.workers[client].async_ops.said) {
            if said.change {
                self.oracle.lost_async((id, said.tid));
                self.workers[client].async_ops.dropped.push(said);
            }
        }
    }
}
