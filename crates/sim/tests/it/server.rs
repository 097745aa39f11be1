//! A server, a store and sessions, with every clock in the test's hands.

#![allow(clippy::unwrap_used, reason = "the harness of tests")]

use std::collections::BTreeMap;

use client::Session;
use engine::execute;
use mds::{Mds, Settings};
use metastore::request::{StoreFailure, StoreOp, StoreResult, Token};
use objstore::Memory;
use types::{
    ClientId, Clock, ConnId, Cred, Epoch, Errno, Error, Ino, Moment, Rank, Tid, Timestamp,
};
use wire::{
    Answer, ChangeOp, ClusterMap, Failure, MdsEntry, MdsState, Message, Op, PeerBody, PeerMessage,
    Request, TransferStep,
};

/// The driver's share of the work: it ticks every millisecond here.
pub(crate) const TICK: u64 = 1;

pub(crate) type Answered = Result<Answer, Failure>;

/// A client, whose clock has an offset and a rate of its own.
pub(crate) struct Client {
    pub(crate) session: Session,
    pub(crate) per_mille: u64,
    pub(crate) answers: BTreeMap<Tid, Answered>,
}

impl Client {
    pub(crate) fn moment(&self, real: u64) -> Moment {
        Moment(self.session.client().0 * 1_000_000_000_000 + real * 1000 * self.per_mille)
    }
}

pub(crate) struct World {
    pub(crate) mds: Mds,
    effects: mds::MdsEffects,
    settings: Settings,
    pub(crate) memory: Memory,
    /// Milliseconds since the start.
    pub(crate) now: u64,
    pub(crate) clients: Vec<Client>,
    pub(crate) monitor: Vec<Answered>,
    /// Answers to questions in the name of another rank, by their numbers.
    pub(crate) peer_answers: BTreeMap<u64, Answered>,
    /// The fences of the places that the server has reserved, by the numbers of the transfers.
    pub(crate) reservations: BTreeMap<u64, u64>,
    /// Store operations that fail at the moment.
    pub(crate) fails: fn(&StoreOp) -> bool,
    /// Store operations that succeed and are reported as failed.
    pub(crate) lies: fn(&StoreOp) -> bool,
    /// Store operations that wait for [`World::let_go`].
    pub(crate) holds: Box<dyn Fn(&StoreOp) -> bool>,
    /// An object that can be read so many times more, and a directory that cannot be read.
    pub(crate) fails_of: Option<(String, u32)>,
    pub(crate) fails_dir: Ino,
    held: Vec<(Token, StoreOp)>,
}

impl World {
    /// A server whose root has a policy, with this many connected clients.
    pub(crate) fn new(policy: &str, clients: usize) -> Self {
        let mut world = Self {
            mds: Mds::new(Rank(0), Settings::default()),
            settings: Settings::default(),
            effects: mds::MdsEffects::default(),
            memory: Memory::default(),
            now: 0,
            clients: Vec::new(),
            monitor: Vec::new(),
            peer_answers: BTreeMap::new(),
            reservations: BTreeMap::new(),
            fails: |_| false,
            lies: |_| false,
            holds: Box::new(|_| false),
            fails_of: None,
            fails_dir: Ino(0),
            held: Vec::new(),
        };
        world.start();
        world.set_policy(policy);
        world.until(|world| !world.monitor.is_empty());
        assert!(world.monitor[0].is_ok(), "{:?}", world.monitor);
        for _ in 0..clients {
            world.add_client(1000);
        }
        world
    }

    /// Stops the server in good order, and starts one with other settings; its clients come again.
    pub(crate) fn restart(&mut self, settings: Settings, meanwhile: impl FnOnce(&Memory)) {
        self.settings = settings;
        self.stop();
        meanwhile(&self.memory);
        self.start_anew(None);
    }

    /// The same, and one client does not come again. By then the store works.
    pub(crate) fn restart_without(&mut self, client: usize) {
        self.stop();
        self.fails_of = None;
        self.start_anew(Some(client));
    }

    fn stop(&mut self) {
        self.handle(mds::MdsInput::Terminate);
        self.until(|world| world.effects.stopped);
        self.effects.stopped = false;
    }

    /// The server dies; the next one finds the state of the store at that time, and the store
    /// works. Clients reconnect.
    pub(crate) fn crash(&mut self) {
        self.die();
        self.start_anew(None);
    }

    /// The same, and one client does not come again.
    pub(crate) fn crash_without(&mut self, client: usize) {
        self.die();
        self.start_anew(Some(client));
    }

    fn die(&mut self) {
        self.effects = mds::MdsEffects::default();
        self.held.clear();
        self.fails = |_| false;
        self.lies = |_| false;
    }

    fn start_anew(&mut self, without: Option<usize>) {
        // Recovery waits for the clients of the former server.
        self.mds = Mds::new(Rank(0), self.settings.clone());
        self.handle(mds::MdsInput::Start);
        for client in (0..self.clients.len()).filter(|client| Some(*client) != without) {
            self.disconnect(client);
            self.connect(client);
        }
        self.until(|world| world.mds.is_active());
    }

    pub(crate) fn start(&mut self) {
        self.mds = Mds::new(Rank(0), self.settings.clone());
        self.handle(mds::MdsInput::Start);
        self.until(|world| world.mds.is_active());
    }

    pub(crate) fn set_policy(&mut self, policy: &str) {
        self.set_policy_of("/", policy);
    }

    pub(crate) fn set_policy_of(&mut self, path: &str, policy: &str) {
        let client = ClientId(0);
        let op = Op::Change(ChangeOp::SetPolicy {
            path: path.as_bytes(),
            policy: policy.as_bytes(),
            client,
        });
        let request = Request::new(Tid(1), Tid(0), Cred::root(), op);
        self.handle(mds::MdsInput::FromMonitor(Message::Request(request)));
    }

    pub(crate) fn add_client(&mut self, per_mille: u64) {
        let id = ClientId(self.clients.len() as u64 + 1);
        let mut session = Session::new(id, Tid(1));
        session.remember();
        self.clients.push(Client { session, per_mille, answers: BTreeMap::new() });
        self.connect(self.clients.len() - 1);
    }

    /// The client notices that its connection is gone.
    pub(crate) fn disconnect(&mut self, client: usize) {
        let mut effects = client::SessionEffects::default();
        self.clients[client].session.handle(client::SessionInput::Disconnected, &mut effects);
    }

    pub(crate) fn connect(&mut self, client: usize) {
        self.handle(mds::MdsInput::Opened(conn(client), types::Peer::Trusted));
        let mut effects = client::SessionEffects::default();
        self.clients[client].session.handle(client::SessionInput::Connected, &mut effects);
        self.send(client, &effects.frames);
    }

    /// Messages and store operations complete at once.
    pub(crate) fn handle(&mut self, input: mds::MdsInput<'_>) {
        let time = Timestamp(1_000_000_000 + i64::try_from(self.now).unwrap() * 1_000_000);
        let clock = Clock { now: Moment(1 + self.now * 1_000_000), time };
        self.mds.handle(clock, input, &mut self.effects);
        let mut stored = Vec::new();
        for (token, op) in std::mem::take(&mut self.effects.store) {
            if (self.holds)(&op) {
                self.held.push((token, op));
            } else {
                stored.push((token, self.execute(op)));
            }
        }
        assert!(self.effects.fatal.is_none(), "{:?}", self.effects.fatal);
        let sent: Vec<_> =
            self.effects.outbox.iter().map(|(conn, frame)| (conn, frame.to_vec())).collect();
        self.effects.outbox.clear();
        let to_monitor = std::mem::take(&mut self.effects.to_monitor);
        for message in messages(&to_monitor) {
            if let Ok(Message::Reply(reply)) = Message::decode(&message) {
                self.monitor.push(reply.result);
            }
        }
        for peer in std::mem::take(&mut self.effects.to_peers) {
            let frame = messages(&peer.frame).concat();
            let Ok(Message::Peer(peer)) = Message::decode(&frame) else { continue };
            if let PeerBody::Answer { number, result } = peer.body {
                self.peer_answers.insert(number, result);
            } else if let PeerBody::Transfer { number, step, .. } = peer.body
                && let TransferStep::Reserved { fence } = step
            {
                self.reservations.insert(number, fence);
            }
        }
        for (token, ended) in stored {
            self.handle(mds::MdsInput::Stored(token, ended));
        }
        for (conn, frame) in sent {
            self.receive(usize::try_from(conn.0).unwrap() - 1, &frame);
        }
        while self.mds.has_work() {
            self.handle(mds::MdsInput::Work);
        }
    }

    /// Whether something of the store waits.
    pub(crate) fn is_holding(&self) -> bool {
        !self.held.is_empty()
    }

    /// Executes the operations that were held back.
    pub(crate) fn let_go(&mut self) {
        self.holds = Box::new(|_| false);
        for (token, op) in std::mem::take(&mut self.held) {
            let ended = self.execute(op);
            self.handle(mds::MdsInput::Stored(token, ended));
        }
    }

    fn execute(&mut self, op: StoreOp) -> Result<StoreResult, Box<StoreFailure>> {
        let error = Error::new(Errno::Io, "store", "injected");
        let mut unread = matches!(&op, StoreOp::LoadDir { ino } if *ino == self.fails_dir);
        if let (StoreOp::Get { object }, Some((name, left))) = (&op, &mut self.fails_of)
            && name == object
        {
            *left = left.saturating_sub(1);
            unread = *left == 0;
        }
        if unread || (self.fails)(&op) {
            return Err(Box::new(StoreFailure { error, op }));
        }
        let lies = (self.lies)(&op);
        let ended = store(&self.memory, op);
        // The placeholder is never executed.
        let op = StoreOp::Delete { objects: Vec::new() };
        if lies { Err(Box::new(StoreFailure { error, op })) } else { ended }
    }

    pub(crate) fn receive(&mut self, client: usize, frame: &[u8]) {
        let now = self.clients[client].moment(self.now);
        let mut effects = client::SessionEffects::default();
        let known = &mut self.clients[client];
        known.session.at(now);
        for message in messages(frame) {
            let message = Message::decode(&message).unwrap();
            known.session.handle(client::SessionInput::Message(message), &mut effects);
        }
        known.answers.extend(effects.completed.drain(..));
        self.send(client, &effects.frames);
    }

    pub(crate) fn send(&mut self, client: usize, frames: &[u8]) {
        for message in messages(frames) {
            let message = Message::decode(&message).unwrap();
            self.handle(mds::MdsInput::Message(conn(client), message));
        }
    }

    pub(crate) fn ask(&mut self, client: usize, op: Op<'_>) -> Tid {
        let now = self.clients[client].moment(self.now);
        let mut effects = client::SessionEffects::default();
        let known = &mut self.clients[client];
        known.session.at(now);
        let tid = known.session.call(&Cred::root(), op, &mut effects);
        self.send(client, &effects.frames);
        tid
    }

    /// Another rank asks. Returns the number of its question.
    pub(crate) fn ask_as_rank(&mut self, from: Rank, op: Op<'_>) -> u64 {
        let entry = |rank| MdsEntry { rank, state: MdsState::Active, ..MdsEntry::default() };
        let map = ClusterMap { mds: vec![entry(Rank(0)), entry(from)], ..ClusterMap::default() };
        self.handle(mds::MdsInput::FromMonitor(Message::Map(Box::new(map))));
        let number = self.now * 1000 + self.peer_answers.len() as u64;
        self.hear(from, PeerBody::Ask { number, cred: Cred::root(), op });
        number
    }

    /// A message of another rank.
    pub(crate) fn hear(&mut self, from: Rank, body: PeerBody<'_>) {
        let peer = PeerMessage { from, term: Epoch(1), to: Rank(0), body };
        self.handle(mds::MdsInput::Message(ConnId::PEER, Message::Peer(Box::new(peer))));
    }

    /// A client's answer without a request.
    pub(crate) fn says(&self, client: usize, op: &Op<'_>) -> Option<Answered> {
        let known = &self.clients[client];
        known.session.leased(&Cred::root(), op, known.moment(self.now), false)
    }

    pub(crate) fn pass(&mut self, millis: u64) {
        for _ in 0..millis {
            self.now += TICK;
            self.handle(mds::MdsInput::Tick);
        }
    }

    /// Lets time pass until something holds; returns how much did.
    pub(crate) fn until(&mut self, done: impl Fn(&Self) -> bool) -> u64 {
        let start = self.now;
        while !done(self) {
            assert!(self.now - start < 20_000, "it never came about");
            self.pass(1);
        }
        self.now - start
    }

    pub(crate) fn is_answered(&self, client: usize, tid: Tid) -> bool {
        self.clients[client].answers.contains_key(&tid)
    }

    pub(crate) fn counted(&self, name: &str) -> u64 {
        let counters = self.mds.counters();
        counters.iter().find(|(known, _)| known == name).expect("it is counted").1
    }

    pub(crate) fn table_bytes(&self) -> usize {
        let object = metastore::request::rank_name(Rank(0));
        match execute(&self.memory, StoreOp::Get { object }) {
            Ok(StoreResult::Bytes(bytes, _)) => bytes.len(),
            other => panic!("{other:?}"),
        }
    }
}

fn store(memory: &Memory, op: StoreOp) -> Result<StoreResult, Box<StoreFailure>> {
    if let StoreOp::Append { object, data } = &op {
        objstore::ObjectStore::append(memory, object, data).unwrap();
        return Ok(StoreResult::Done);
    }
    execute(memory, op)
}

pub(crate) fn conn(client: usize) -> ConnId {
    ConnId(client as u64 + 1)
}

fn messages(mut frames: &[u8]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while let Ok(Some((frame, length))) = wire::frame::decode(frames) {
        all.push(frame.payload.to_vec());
        frames = &frames[length..];
    }
    all
}
