//! Clients: a [`Session`] each, its pending request, and its next step.

use std::collections::{BTreeMap, VecDeque};

use client::{Session, SessionEffects, SessionInput};
use types::{ClientId, ConnId, Epoch, Errno, Ino, Moment, Tid};
use wire::{Answer, Failure, Message, WantsExclusive};

use crate::async_ops::AsyncClient;
use crate::call::{Call, CallKind};
use crate::project::Project;
use crate::region::{Region, RegionKind};
use crate::world::{Conn, Event, World};

/// The numbers of questions without a request begin here.
const ITS_OWN: u64 = 1 << 50;
/// So many of its last questions a client that remembers asks again.
const RECENT_MAX: usize = 12;
/// How often a request is repeated after its path was walked again.
const REPEATS_MAX: u8 = 3;

/// See the module documentation.
#[derive(Debug)]
pub struct Client {
    pub(crate) session: Session,
    pub(crate) conn: Option<ConnId>,
    pub(crate) alive: bool,
    /// Requests without an answer, and how often each was repeated.
    pub(crate) outstanding: BTreeMap<Tid, (Call, u8)>,
    /// Requests to be made next.
    pub(crate) again: VecDeque<(Call, u8)>,
    /// When requests were made that are not answered, and the newest that was.
    made: BTreeMap<Tid, u64>,
    last_reply: Option<u64>,
    /// Questions that it answered itself.
    answered_here: u64,
    /// Its last questions, which it repeats if it caches replies.
    recent: Option<VecDeque<Call>>,
    /// Its local answers that the server does not know yet.
    pub(crate) async_ops: AsyncClient,
    /// Requests of the simulation itself, with their answers when they are there.
    pub(crate) asked: BTreeMap<Tid, Option<Result<Answer, Failure>>>,
    /// Requests it still wants to make in this round.
    pub(crate) left: u64,
    /// Whether it works, without other clients, in the region that acknowledges only safe changes.
    pub(crate) careful: bool,
    pub(crate) project: Option<Project>,
    /// The newest term that ended without a clean stop, as the server says.
    pub(crate) crashed: Epoch,
    /// It keeps a log that a new server may need before anything else.
    pub(crate) logs: bool,
    /// It has a new connection, and its pending request waits until its log was read.
    pub(crate) returning: bool,
    pub(crate) effects: SessionEffects,
}

impl Client {
    /// A client that is not connected.
    #[must_use]
    pub fn new(id: ClientId, first_tid: u64) -> Self {
        Self {
            session: Session::new(id, Tid(first_tid)),
            conn: None,
            alive: true,
            outstanding: BTreeMap::new(),
            again: VecDeque::new(),
            made: BTreeMap::new(),
            last_reply: None,
            answered_here: 0,
            recent: None,
            async_ops: AsyncClient::default(),
            asked: BTreeMap::new(),
            left: 0,
            careful: false,
            project: None,
            crashed: Epoch(0),
            logs: false,
            returning: false,
            effects: SessionEffects::default(),
        }
    }

    /// Who it is.
    #[must_use]
    pub fn id(&self) -> ClientId {
        self.session.client()
    }

    /// Whether it waits for nothing.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        !self.alive
            || (self.outstanding.is_empty() && self.again.is_empty() && !self.session.is_async())
    }
}

impl World {
    /// Adds a client, which connects soon. Returns its place.
    pub fn add_client(&mut self) -> usize {
        let id = ClientId(self.next_client);
        self.next_client += 1;
        self.clients.push(Client::new(id, 1));
        if id.0.is_multiple_of(2)
            && let Some(new) = self.clients.last_mut()
        {
            new.session.remember();
            if self.plan.exclusive {
                new.session.take_exclusive(WantsExclusive::Always);
            }
            new.recent = Some(VecDeque::new());
        }
        let client = self.clients.len() - 1;
        let after = self.delay();
        self.schedule(after, Event::Connect(client));
        client
    }

    pub(crate) fn connect(&mut self, client: usize) {
        if !self.clients[client].alive || self.clients[client].conn.is_some() {
            return;
        }
        if self.mds.is_none() {
            return self.schedule(5_000_000, Event::Connect(client));
        }
        let conn = self.open_conn(client);
        self.clients[client].conn = Some(conn);
        self.drive(client, SessionInput::Connected);
        if self.clients[client].logs {
            self.clients[client].session.set_aside();
            self.clients[client].returning = true;
        }
    }

    fn open_conn(&mut self, client: usize) -> ConnId {
        let id = ConnId(self.next_conn);
        self.next_conn += 1;
        let (term, to_server_at, to_client_at) = (self.term, 0, 0);
        let conn = Conn { client, term, alive: true, to_server_at, to_client_at };
        self.conns.insert(id, conn);
        self.send_to_server(id, Event::Opened(id));
        id
    }

    /// Gives a session an input and sends its messages.
    pub(crate) fn drive(&mut self, client: usize, input: SessionInput<'_>) {
        let Client { session, effects, .. } = &mut self.clients[client];
        session.handle(input, effects);
        self.flush(client);
    }

    pub(crate) fn flush(&mut self, client: usize) {
        let Client { effects, session, project, .. } = &mut self.clients[client];
        session.validate();
        project.iter().for_each(Project::validate);
        let frames = std::mem::take(&mut effects.frames);
        let completed = std::mem::take(&mut effects.completed);
        let restarted = std::mem::take(&mut effects.restarted);
        if std::mem::take(&mut effects.async_acknowledged) {
            let sent = self.clients[client].async_ops.sent.take();
            self.clients[client].last_reply = self.clients[client].last_reply.max(sent);
        }
        let Client { conn, .. } = &mut self.clients[client];
        let conn = *conn;
        let mut rest = frames.as_slice();
        while let Ok(Some((_, length))) = wire::frame::decode(rest) {
            if let Some(conn) = conn {
                self.send_to_server(conn, Event::ToServer(conn, rest[..length].to_vec()));
            }
            rest = &rest[length..];
        }
        if restarted
            && let Some(project) = &mut self.clients[client].project
            && project.server_restarted()
        {
            self.oracle.regions[project.region].known = false;
        }
        for (tid, result) in completed {
            self.completed(client, tid, result);
        }
    }

    /// Makes a request.
    pub(crate) fn call(&mut self, client: usize, call: Call, repeats: u8, journal: Vec<u8>) -> Tid {
        let now = self.clock_of(client);
        let Client { session, effects, .. } = &mut self.clients[client];
        session.at(now);
        let tid = session.call(&call.cred, call.what.op(), effects);
        let id = session.client();
        self.clients[client].made.insert(tid, self.now);
        self.clients[client].outstanding.insert(tid, (call.clone(), repeats));
        self.note(format_args!("{id} {tid} {call:?}"));
        if client != 0 {
            self.history.asked((id, tid), &call.what, self.now);
        }
        match &call.what {
            CallKind::SetData { ino, data, size } if !data.is_empty() || *size == 0 => {
                self.removed.shrunk(*ino);
            }
            CallKind::Merge { object, .. } if object.is_empty() => self.removed.merged(),
            _ => {}
        }
        self.oracle.issue((id, tid), call, journal);
        self.flush(client);
        tid
    }

    /// Whether a client could answer a question itself. Then it is judged like an answer of the
    /// server.
    fn answers_itself(&mut self, client: usize, call: &Call, repeats: u8) -> bool {
        let known = &self.clients[client];
        let fresh =
            known.last_reply.is_some_and(|last_reply| self.now - last_reply < client::VALID.0);
        if client == 0 {
            return false;
        }
        let tid = Tid(ITS_OWN + known.answered_here);
        self.clients[client].answered_here += 1;
        (fresh && self.says(client, call, tid, repeats))
            || self.says_leased(client, call, tid, fresh)
    }

    /// The clock of a client: each has its own offset, and some run as much slower as the promise
    /// allows, or faster.
    pub(crate) fn clock_of(&self, client: usize) -> Moment {
        let id = self.clients[client].id().0;
        let per_mille = [991, 1000, 1009, 1200][usize::try_from(id / 2 % 4).unwrap_or(0)];
        Moment(id * 1_000_000_000_000 + self.now / 1000 * per_mille)
    }

    /// The moment of a client's answer from its cache. A client that has not noticed a crash
    /// answers as of the moment before it: the new server serves no client before this one has
    /// noticed, or its cache has expired.
    pub(crate) fn moment_of(&self, client: usize) -> u64 {
        let known = &self.clients[client];
        let connected = known.conn.is_some_and(|conn| self.conns[&conn].alive);
        let crash = self.history.last_crash();
        let crash = crash.filter(|crash| !connected && Some(*crash) > known.last_reply);
        crash.map_or(self.now, |crash| crash - 1)
    }

    /// A client answers from its cache.
    pub(crate) fn knows(
        &mut self,
        client: usize,
        call: &Call,
        tid: Tid,
        result: Result<Answer, Failure>,
    ) {
        let known = &self.clients[client];
        let (id, epoch) = (known.id(), known.session.epoch().0);
        let connected = known.conn.is_some_and(|conn| self.conns[&conn].alive);
        self.answered_here += 1;
        self.note(format_args!("{id} knows {call:?}: {result:?}"));
        let (seq, safe, time) = (types::Seq(0), types::Seq(0), types::Timestamp(0));
        let reply = wire::Reply { tid, seq, time, safe, grants: None, result };
        let at = self.moment_of(client);
        self.history.asked((id, tid), &call.what, at);
        self.history.note_reply(id, epoch, &reply, at);
        if connected && self.mds.as_ref().is_some_and(mds::Mds::is_active) {
            self.oracle.issue((id, tid), call.clone(), Vec::new());
            let judged = self.oracle.emitted(id, &Message::Reply(reply));
            self.check(judged);
        }
    }

    pub(crate) fn arrived_at_client(&mut self, conn: ConnId, frame: &[u8]) {
        let (client, alive) = (self.conns[&conn].client, self.conns[&conn].alive);
        if !alive || self.clients[client].conn != Some(conn) {
            return;
        }
        let Ok(Some((frame, _))) = wire::frame::decode(frame) else { return };
        if let Ok(message) = Message::decode(frame.payload) {
            if let Message::Welcome(welcome) = &message {
                self.clients[client].crashed = welcome.crashed;
            }
            let session = &self.clients[client].session;
            let (id, epoch) = (session.client(), session.epoch().0);
            if let (Message::Reply(reply), true) = (&message, client != 0) {
                self.history.note_reply(id, epoch, reply, self.now);
            }
            let is_refused = matches!(&message, Message::Reply(reply)
                if reply.result.is_err() && self.oracle.is_async((id, reply.tid)));
            self.clients[client].async_ops.wrong &= !is_refused;
            self.drive(client, SessionInput::Message(message));
            let resent = self.clients[client].session.resent_count();
            self.history.returned(id, resent, self.plan.settings.reconnect, self.now);
        }
    }

    pub(crate) fn client_closed(&mut self, conn: ConnId) {
        let client = self.conns[&conn].client;
        if self.clients[client].conn != Some(conn) || !self.clients[client].alive {
            return;
        }
        let id = self.clients[client].id();
        self.note(format_args!("{id} lost {conn}"));
        self.clients[client].conn = None;
        self.clients[client].async_ops.wrong = false;
        self.drive(client, SessionInput::Disconnected);
        self.merge_interrupted(client);
        let away = self.plan.faults.away_max.max(1_000_000);
        let after = if client == 0 { 1_000_000 } else { self.rng.between(100_000, away) };
        self.oracle.late |= after + 300_000_000 > self.plan.settings.reconnect.0;
        self.schedule(after, Event::Connect(client));
    }

    fn completed(&mut self, client: usize, tid: Tid, result: Result<Answer, Failure>) {
        let id = self.clients[client].id();
        self.oracle.delivered((id, tid), result.is_ok());
        let asked = self.clients[client].outstanding.remove(&tid);
        let made = self.clients[client].made.remove(&tid);
        self.clients[client].last_reply = self.clients[client].last_reply.max(made);
        if let Some(answer) = self.clients[client].asked.get_mut(&tid) {
            *answer = Some(result);
            return;
        }
        let Some((call, repeats)) = asked else { return };
        if self.project_answered(client, tid, &call, &result) {
            return;
        }
        let stale = result.is_err_and(|failure| failure.errno == Errno::Stale);
        if stale && repeats < REPEATS_MAX {
            self.walk_again(client, call, repeats);
        }
    }

    /// The server does not know an inode by its number: its path is walked, which brings it back.
    fn walk_again(&mut self, client: usize, call: Call, repeats: u8) {
        let inos = call.what.touched().0;
        let paths: Vec<_> = inos.iter().filter_map(|ino| self.path_of(*ino)).collect();
        if paths.len() < inos.len() {
            return;
        }
        for path in paths {
            let walk = Call::root(CallKind::Walk { base: Ino::ROOT, path });
            self.clients[client].again.push_back((walk, REPEATS_MAX));
        }
        self.clients[client].again.push_back((call, repeats + 1));
        self.schedule(1, Event::Turn(client));
    }

    /// The path of an inode in the model.
    pub(crate) fn path_of(&self, ino: Ino) -> Option<String> {
        let mut path = String::new();
        let mut at = ino;
        for _ in 0..200 {
            if at == Ino::ROOT {
                return Some(if path.is_empty() { "/".into() } else { path });
            }
            let (parent, name) = self.oracle.model.names_of(at).into_iter().next()?;
            path = format!("/{}{path}", String::from_utf8_lossy(&name));
            at = parent;
        }
        None
    }

    /// A client's turn to do something.
    pub(crate) fn turn(&mut self, client: usize) {
        if !self.clients[client].alive {
            return;
        }
        let window = if self.clients[client].careful { 1 } else { self.plan.window };
        if self.clients[client].outstanding.len() < window {
            if let Some((call, repeats)) = self.clients[client].again.pop_front() {
                if !self.answers_itself(client, &call, repeats) {
                    self.call(client, call, repeats, Vec::new());
                }
            } else if self.issuing && self.clients[client].left > 0 {
                self.clients[client].left -= 1;
                self.work(client);
            }
        }
        let more = !self.clients[client].again.is_empty()
            || (self.issuing && self.clients[client].left > 0);
        if more {
            let after = self.delay();
            self.schedule(after, Event::Turn(client));
        }
    }

    fn work(&mut self, client: usize) {
        if self.clients[client].project.is_some() && self.rng.percent(60) {
            return self.work_on_project(client);
        }
        if let Some(call) = self.look_again(client).or_else(|| crate::workload::next(self, client))
            && !self.answers_itself(client, &call, 0)
        {
            self.look_later(client, &call);
            self.call(client, call, 0, Vec::new());
        }
    }

    /// Something that a client was told before, if it remembers that.
    fn look_again(&mut self, client: usize) -> Option<Call> {
        let recent = self.clients[client].recent.as_ref()?;
        if recent.is_empty() || !self.rng.percent(40) {
            return None;
        }
        let at = self.rng.below(recent.len() as u64);
        let call = recent.get(usize::try_from(at).ok()?).cloned()?;
        // Only where it works in another way: decoupled subtrees have other rules.
        let careful = self.clients[client].careful;
        let works = |at: &usize| {
            let Region { known, closed, kind, .. } = self.oracle.regions[*at];
            let kinds = if careful {
                [RegionKind::AckSafe; 2]
            } else {
                [RegionKind::Strong, RegionKind::Volatile]
            };
            known && !closed && kinds.contains(&kind)
        };
        let regions = self.oracle.regions_of(&call);
        (!regions.is_empty() && regions.iter().all(works)).then_some(call)
    }

    fn look_later(&mut self, client: usize, call: &Call) {
        let Some(recent) = self.clients[client].recent.as_mut() else { return };
        let cred = call.cred.clone();
        let looks = match &call.what {
            CallKind::Lookup { .. } | CallKind::GetAttr { .. } => vec![call.what.clone()],
            CallKind::Create { parent, name, .. }
            | CallKind::Unlink { parent, name }
            | CallKind::Rmdir { parent, name } => {
                let (parent, name) = (*parent, name.clone());
                vec![CallKind::Lookup { parent, name }, CallKind::GetAttr { ino: parent }]
            }
            CallKind::Rename { from, to, .. } => {
                let look = |(parent, name): &(Ino, String)| CallKind::Lookup {
                    parent: *parent,
                    name: name.clone(),
                };
                vec![look(from), look(to)]
            }
            _ => return,
        };
        for what in looks {
            recent.push_back(Call { cred: cred.clone(), what });
        }
        while recent.len() > RECENT_MAX {
            recent.pop_front();
        }
    }

    pub(crate) fn break_one(&mut self, which: u64) {
        let alive = self.conns.iter().filter(|(_, conn)| conn.alive && conn.client != 0);
        let alive: Vec<ConnId> = alive.map(|(conn, _)| *conn).collect();
        if let Some(at) = which.checked_rem(alive.len() as u64) {
            let conn = alive[usize::try_from(at).unwrap_or(0)];
            self.note(format_args!("$ break {conn}"));
            self.break_conn(conn, true);
        }
    }

    pub(crate) fn kill(&mut self, which: u64) {
        let count = self.clients.len() as u64 - 1;
        let Some(at) = which.checked_rem(count) else { return };
        let client = usize::try_from(at).unwrap_or(0) + 1;
        if !self.clients[client].alive {
            return;
        }
        self.oracle.late = true;
        self.end_process(client);
    }

    /// A client ends without a word.
    pub(crate) fn end_process(&mut self, client: usize) {
        let id = self.clients[client].id();
        self.note(format_args!("$ kill {id}"));
        self.drop_async(client);
        self.clients[client].alive = false;
        self.history.killed(id);
        if let Some(conn) = self.clients[client].conn.take() {
            self.break_conn(conn, true);
        }
    }
}
