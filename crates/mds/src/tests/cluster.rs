//! Servers, a store and clients, with every clock in the test's hands: an input is handled at once,
//! and so is each operation on the store, unless a test holds it or lets it fail.

use std::collections::{BTreeMap, VecDeque};

use metastore::request::{StoreFailure, StoreOp, StoreResult, Token};
use types::{
    AttrChange, ClientId, Clock, ConnId, Cred, Epoch, Errno, Error, Ino, LogEvent, Moment, Peer,
    Rank, Tid, Timestamp,
};
use wire::{
    AdminOp, Answer, ChangeOp, ClusterMap, Failure, Hello, MdsEntry, MdsState, Message, NewInode,
    Op, PeerBody, PeerMessage, ReadOp, Reply, Request, Welcome,
};

use super::store::Store;
use super::words::Words;
use crate::{Mds, MdsEffects, MdsInput, PeerFrame, Settings};

/// The questions of tests in the name of a rank have numbers from here on.
const PEER_QUESTIONS: u64 = 1 << 63;
/// A test gives up waiting after so many milliseconds.
const PATIENCE: u64 = 60_000;

/// A test gives up after so many steps of one settling: a server makes no progress.
const STEPS_MAX: u32 = 100_000;

/// A message of a server to a client that is no reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    Welcome(Welcome),
    Recall(Ino),
    Revoke(Ino),
    Moved(Rank, Vec<Ino>),
}

/// See the module documentation.
pub(crate) struct Cluster {
    pub(crate) servers: Vec<Option<Mds>>,
    pub(crate) settings: Settings,
    pub(crate) store: Store,
    /// Milliseconds since the start.
    pub(crate) now: u64,
    /// Operations that stay in the store, and those that fail.
    pub(crate) holds: fn(&StoreOp) -> bool,
    pub(crate) fails: fn(&StoreOp) -> Option<Errno>,
    pending: VecDeque<(usize, Token, StoreOp)>,
    held: VecDeque<(usize, Token, StoreOp)>,
    /// Messages between ranks.
    mail: VecDeque<PeerFrame>,
    conns: BTreeMap<(u64, usize), ConnId>,
    next_conn: u64,
    next_tid: u64,
    /// Replies, by client and request, and those to the monitor.
    pub(crate) replies: BTreeMap<(u64, Tid), Reply>,
    pub(crate) monitor: BTreeMap<Tid, Reply>,
    /// Answers to questions that a test asks in the name of rank 1.
    peer_answers: BTreeMap<u64, Result<Answer, Failure>>,
    pub(crate) notices: Vec<(u64, Notice)>,
    /// The logs of all servers.
    pub(crate) log: Vec<LogEvent>,
    /// Connections that servers closed, by client.
    pub(crate) closed: Vec<u64>,
    pub(crate) stopped: Vec<usize>,
    /// The states of servers, as they told the monitor.
    pub(crate) states: BTreeMap<usize, MdsState>,
    pub(crate) fatal: Option<Error>,
    /// The policy of the balancer by the map.
    pub(crate) balancer: wire::BalancerEntry,
    /// Each step in words, if a test wants them.
    pub(crate) words: Option<Words>,
}

impl Cluster {
    /// An active server of a new cluster.
    pub(crate) fn new() -> Self {
        Self::with(Settings::default(), 1)
    }

    /// So many active servers of a new cluster.
    pub(crate) fn with(settings: Settings, ranks: usize) -> Self {
        let mut cluster = Self {
            servers: (0..ranks).map(|_| None).collect(),
            settings,
            store: Store::default(),
            now: 1,
            holds: |_| false,
            fails: |_| None,
            pending: VecDeque::new(),
            held: VecDeque::new(),
            mail: VecDeque::new(),
            conns: BTreeMap::new(),
            next_conn: 1,
            next_tid: 1,
            replies: BTreeMap::new(),
            monitor: BTreeMap::new(),
            states: BTreeMap::new(),
            peer_answers: BTreeMap::new(),
            notices: Vec::new(),
            log: Vec::new(),
            closed: Vec::new(),
            stopped: Vec::new(),
            fatal: None,
            balancer: wire::BalancerEntry::default(),
            words: None,
        };
        for rank in 0..ranks {
            cluster.start(rank);
            cluster.until(|cluster| cluster.mds(rank).is_active());
        }
        cluster
    }

    /// The server of a rank.
    pub(crate) fn mds(&self, rank: usize) -> &Mds {
        self.servers[rank].as_ref().expect("the server runs")
    }

    /// The server of rank 0.
    pub(crate) fn mds_mut(&mut self) -> &mut Mds {
        self.servers[0].as_mut().expect("the server runs")
    }

    /// Starts a server: it recovers.
    pub(crate) fn start(&mut self, rank: usize) {
        let number = Rank(u16::try_from(rank).expect("a few ranks"));
        self.servers[rank] = Some(Mds::new(number, self.settings.clone()));
        self.tell_map(rank);
        self.input(rank, MdsInput::Start);
        self.settle();
    }

    /// The monitor sends its map to a server.
    pub(crate) fn tell_map(&mut self, rank: usize) {
        let entry = |rank: usize| MdsEntry {
            rank: Rank(u16::try_from(rank).expect("a few ranks")),
            epoch: Epoch(1),
            state: MdsState::Active,
            ..MdsEntry::default()
        };
        let map = ClusterMap {
            mds: (0..self.servers.len()).map(entry).collect(),
            balancers: vec![self.balancer.clone()],
            ..ClusterMap::default()
        };
        self.input(rank, MdsInput::FromMonitor(Message::Map(Box::new(map))));
    }

    /// A server dies; what it asked of the store and has no answer for may not happen.
    pub(crate) fn crash(&mut self, rank: usize) {
        self.servers[rank] = None;
        self.pending.retain(|(of, ..)| *of != rank);
        self.held.retain(|(of, ..)| *of != rank);
        self.conns.retain(|(_, of), _| *of != rank);
        self.holds = |_| false;
        self.fails = |_| None;
    }

    /// The present time of the servers.
    pub(crate) fn clock(&self) -> Clock {
        let nanos = i64::try_from(self.now).expect("a short test") * 1_000_000;
        Clock { now: Moment(self.now * 1_000_000), time: Timestamp(1_000_000_000 + nanos) }
    }

    /// A server handles an input, and its invariants hold afterwards.
    pub(crate) fn input(&mut self, rank: usize, input: MdsInput<'_>) {
        let clock = self.clock();
        let Some(mds) = &mut self.servers[rank] else { return };
        if let Some(words) = &mut self.words {
            words.input(rank, &input, mds.namespace());
        }
        let mut effects = MdsEffects::default();
        mds.handle(clock, input, &mut effects);
        // A server that gives up ends in the middle of what it does.
        if effects.fatal.is_none() {
            mds.validate();
        }
        if let Some(words) = &mut self.words {
            words.effects(&effects, mds.namespace());
        }
        self.take_effects(rank, effects);
    }

    pub(crate) fn take_effects(&mut self, rank: usize, effects: MdsEffects) {
        for (token, op) in effects.store {
            self.pending.push_back((rank, token, op));
        }
        for (conn, frame) in effects.outbox.iter() {
            let client = self.client_of(conn);
            for payload in messages(frame) {
                self.take_message(client, Message::decode(&payload).expect("a message"));
            }
        }
        for payload in messages(&effects.to_monitor) {
            match Message::decode(&payload).expect("a message") {
                Message::Reply(reply) => drop(self.monitor.insert(reply.tid, reply)),
                Message::Heartbeat(bytes) => self.heartbeat(rank, bytes),
                Message::Beacon(beacon) => drop(self.states.insert(rank, beacon.state)),
                _ => {}
            }
        }
        self.mail.extend(effects.to_peers);
        for question in effects.questions {
            let answer = question.answer(&balancer::Expired::never());
            self.input(rank, MdsInput::Answered(Box::new(answer)));
        }
        for conn in effects.close {
            let client = self.client_of(conn);
            self.closed.push(client);
        }
        self.log.extend(effects.notices.iter().map(LogEvent::from));
        if effects.stopped {
            self.stopped.push(rank);
        }
        if effects.fatal.is_some() {
            self.servers[rank] = None;
        }
        self.fatal = self.fatal.take().or(effects.fatal);
    }

    fn heartbeat(&mut self, from: usize, bytes: &[u8]) {
        for rank in (0..self.servers.len()).filter(|rank| *rank != from) {
            self.input(rank, MdsInput::FromMonitor(Message::Heartbeat(bytes)));
        }
    }

    fn take_message(&mut self, client: u64, message: Message<'_>) {
        let notice = match message {
            // The connection is none of the test's clients.
            Message::Reply(_) if client == 0 => return,
            Message::Reply(reply) => {
                let before = self.replies.insert((client, reply.tid), reply);
                assert!(before.is_none(), "a request has one reply, and not also {before:?}");
                return;
            }
            Message::Welcome(welcome) => Notice::Welcome(welcome),
            Message::Recall { ino } => Notice::Recall(ino),
            Message::Revoke { dir } => Notice::Revoke(dir),
            Message::Moved { to, files } => Notice::Moved(to, files),
            other => panic!("no server sends {other:?} to a client"),
        };
        self.notices.push((client, notice));
    }

    fn client_of(&self, conn: ConnId) -> u64 {
        let known = self.conns.iter().find(|(_, known)| **known == conn);
        known.map_or(0, |((client, _), _)| *client)
    }

    /// The store executes its operations, and servers do their work, until all of them wait.
    pub(crate) fn settle(&mut self) {
        for step in 0.. {
            assert!(step < STEPS_MAX, "the servers work on and on, and nothing comes of it");
            if let Some(PeerFrame { to, frame, .. }) = self.mail.pop_front() {
                let payload = messages(&frame).concat();
                let message = Message::decode(&payload).expect("a message");
                if let Message::Peer(peer) = &message
                    && let PeerBody::Answer { number, result } = &peer.body
                    && *number >= PEER_QUESTIONS
                {
                    self.peer_answers.insert(*number, result.clone());
                    continue;
                }
                let conn = ConnId::PEER;
                self.input(usize::from(to.0), MdsInput::Message(conn, message));
                continue;
            }
            if let Some((rank, token, op)) = self.pending.pop_front() {
                if (self.holds)(&op) {
                    self.held.push_back((rank, token, op));
                    continue;
                }
                let ended = self.execute(op);
                self.input(rank, MdsInput::Stored(token, ended));
                continue;
            }
            let busy = |server: &Option<Mds>| server.as_ref().is_some_and(Mds::has_work);
            let Some(rank) = self.servers.iter().position(busy) else { return };
            self.input(rank, MdsInput::Work);
        }
    }

    fn execute(&mut self, op: StoreOp) -> Result<StoreResult, Box<StoreFailure>> {
        match (self.fails)(&op) {
            Some(errno) => {
                let error = Error::new(errno, "store", "injected");
                Err(Box::new(StoreFailure { error, op }))
            }
            None => Ok(self.store.execute(op)),
        }
    }

    /// Notes the steps from now on in words, below a line of the test's own.
    pub(crate) fn note(&mut self, text: &str) {
        let words = self.words.get_or_insert_default();
        self.conns.iter().for_each(|((client, _), conn)| words.is_of(*conn, *client));
        words.note(text);
    }

    /// How many operations a test holds.
    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }

    /// Executes the operations that were held.
    pub(crate) fn let_go(&mut self) {
        self.holds = |_| false;
        self.pending.append(&mut self.held);
        self.settle();
    }

    /// Executes the operations that are held, and not those that follow from them.
    pub(crate) fn let_those_go(&mut self) {
        for (rank, token, op) in std::mem::take(&mut self.held) {
            let ended = self.execute(op);
            self.input(rank, MdsInput::Stored(token, ended));
        }
        self.settle();
    }

    /// Lets time pass, a tick each millisecond.
    pub(crate) fn pass(&mut self, millis: u64) {
        for _ in 0..millis {
            self.now += 1;
            for rank in 0..self.servers.len() {
                self.input(rank, MdsInput::Tick);
                self.settle();
            }
        }
    }

    /// Lets time pass until something holds; returns how much.
    pub(crate) fn until(&mut self, done: impl Fn(&Self) -> bool) -> u64 {
        let start = self.now;
        while !done(self) {
            assert!(self.now - start < PATIENCE, "it did not come about in {PATIENCE} ms");
            self.pass(1);
        }
        self.now - start
    }

    /// A client connects to rank 0.
    pub(crate) fn connect(&mut self, client: u64) {
        self.connect_to(client, 0, Epoch(0), 0);
    }

    /// A client connects to a rank, with its term before and its number of unsafe requests.
    pub(crate) fn connect_to(&mut self, client: u64, rank: usize, epoch: Epoch, unsafe_count: u64) {
        let hello = Hello { client: ClientId(client), epoch, unsafe_requests: unsafe_count };
        self.open(hello, rank, Peer::Trusted);
    }

    /// A client whose key has rules connects to a rank; it speaks for every user.
    pub(crate) fn connect_limited(&mut self, client: u64, rank: usize, rules: &[&str]) {
        let rules = rules.iter().map(|rule| types::KeyRule::parse(rule).unwrap()).collect();
        let rules = types::KeyRules::new(rules).expect("a few rules");
        let host = Box::new(Peer::host());
        let hello = Hello { client: ClientId(client), epoch: Epoch(0), unsafe_requests: 0 };
        self.open(hello, rank, Peer::Limited(host, rules));
    }

    /// A client of a user connects to rank 0, with its term before and its unsafe requests.
    pub(crate) fn connect_user(&mut self, client: ClientId, epoch: Epoch, unsafe_requests: u64) {
        let hello = Hello { client, epoch, unsafe_requests };
        self.open(hello, 0, Peer::User(user(client.user())));
    }

    fn open(&mut self, hello: Hello, rank: usize, peer: Peer) {
        let conn = ConnId(self.next_conn);
        self.next_conn += 1;
        self.conns.insert((hello.client.0, rank), conn);
        self.input(rank, MdsInput::Opened(conn, peer));
        self.input(rank, MdsInput::Message(conn, Message::Hello(hello)));
        self.settle();
    }

    /// The connection of a client to rank 0 ends, and the server notices.
    pub(crate) fn disconnect(&mut self, client: u64) {
        let conn = self.conns.remove(&(client, 0)).expect("the client is connected");
        self.input(0, MdsInput::Closed(conn));
        self.settle();
    }

    /// The connection of a client to a rank.
    pub(crate) fn conn(&self, client: u64, rank: usize) -> ConnId {
        self.conns[&(client, rank)]
    }

    /// The number of the next request.
    pub(crate) fn tid(&mut self) -> Tid {
        self.next_tid += 1;
        Tid(self.next_tid - 1)
    }

    /// A client sends a request, as it is.
    pub(crate) fn send(&mut self, client: u64, rank: usize, request: Request<'_>) {
        let conn = self.conn(client, rank);
        self.input(rank, MdsInput::Message(conn, Message::Request(request)));
        self.settle();
    }

    /// A client asks rank 0 on behalf of a user.
    pub(crate) fn ask_as(&mut self, client: u64, cred: &Cred, op: Op<'_>) -> Tid {
        let tid = self.tid();
        self.send(client, 0, Request::new(tid, Tid(tid.0 - 1), cred.clone(), op));
        tid
    }

    /// The answer to a request of a client on behalf of root.
    pub(crate) fn answer_to(&mut self, client: u64, op: Op<'_>) -> Result<Answer, Errno> {
        let tid = self.ask(client, op);
        self.reply(client, tid).result.map_err(|failure| failure.errno)
    }

    /// A client asks rank 0 on behalf of root.
    pub(crate) fn ask(&mut self, client: u64, op: Op<'_>) -> Tid {
        self.ask_as(client, &Cred::root(), op)
    }

    /// A client that caches replies asks rank 0.
    pub(crate) fn ask_caching(&mut self, client: u64, op: Op<'_>) -> Tid {
        let tid = self.tid();
        let request = Request::new(tid, Tid(tid.0 - 1), Cred::root(), op);
        self.send(client, 0, Request { remembers: true, ..request });
        tid
    }

    /// Whether a request has a reply.
    pub(crate) fn is_answered(&self, client: u64, tid: Tid) -> bool {
        self.replies.contains_key(&(client, tid))
    }

    /// The reply to a request, which is waited for.
    pub(crate) fn reply(&mut self, client: u64, tid: Tid) -> Reply {
        self.until(|cluster| cluster.is_answered(client, tid));
        self.replies[&(client, tid)].clone()
    }

    /// The answer to a request on behalf of a user.
    pub(crate) fn answer_as(&mut self, cred: &Cred, op: Op<'_>) -> Result<Answer, Errno> {
        let tid = self.ask_as(1, cred, op);
        self.reply(1, tid).result.map_err(|failure| failure.errno)
    }

    /// The answer to a request of client 1 on behalf of root.
    pub(crate) fn answer(&mut self, op: Op<'_>) -> Result<Answer, Errno> {
        self.answer_as(&Cred::root(), op)
    }

    /// The answer of rank 0 to a question of rank 1 in the name of a user.
    pub(crate) fn peer_answer(&mut self, cred: &Cred, op: Op<'_>) -> Result<Answer, Errno> {
        let number = PEER_QUESTIONS + self.tid().0;
        let body = PeerBody::Ask { number, cred: cred.clone(), op };
        let peer = PeerMessage { from: Rank(1), term: Epoch(1 << 30), to: Rank(0), body };
        self.input(0, MdsInput::Message(ConnId::PEER, Message::Peer(Box::new(peer))));
        self.settle();
        self.until(|cluster| cluster.peer_answers.contains_key(&number));
        self.peer_answers[&number].clone().map_err(|failure| failure.errno)
    }

    /// The answer to a request of the monitor, which is waited for.
    pub(crate) fn monitor(&mut self, op: Op<'_>) -> Result<Answer, Errno> {
        let tid = self.ask_monitor(op);
        self.until(|cluster| cluster.monitor.contains_key(&tid));
        self.monitor[&tid].result.clone().map_err(|failure| failure.errno)
    }

    /// The monitor asks rank 0.
    pub(crate) fn ask_monitor(&mut self, op: Op<'_>) -> Tid {
        let tid = self.tid();
        let request = Request::new(tid, Tid(0), Cred::root(), op);
        self.input(0, MdsInput::FromMonitor(Message::Request(request)));
        self.settle();
        tid
    }

    /// Sets the policy of a directory.
    pub(crate) fn set_policy(&mut self, path: &str, policy: &str) -> Result<Answer, Errno> {
        let client = ClientId(0);
        let (path, policy) = (path.as_bytes(), policy.as_bytes());
        self.monitor(Op::Change(ChangeOp::SetPolicy { path, policy, client }))
    }

    /// Makes an inode in a directory, and returns its number.
    pub(crate) fn make(&mut self, parent: Ino, name: &str, mode: u32) -> Ino {
        let new = NewInode { mode, ..NewInode::default() };
        match self.answer(Op::Change(ChangeOp::Create { parent, name: name.as_bytes(), new })) {
            Ok(Answer::Attr(attr)) => attr.ino,
            other => panic!("{name} was not made: {other:?}"),
        }
    }

    /// Makes a file with mode 644.
    pub(crate) fn file(&mut self, parent: Ino, name: &str) -> Ino {
        self.make(parent, name, FILE)
    }

    /// Makes a directory with mode 755.
    pub(crate) fn dir(&mut self, parent: Ino, name: &str) -> Ino {
        self.make(parent, name, DIR)
    }

    /// The inode under a name, or why there is none.
    pub(crate) fn lookup(&mut self, parent: Ino, name: &str) -> Result<Ino, Errno> {
        match self.answer(Op::Read(ReadOp::Lookup { parent, name: name.as_bytes() }))? {
            Answer::Attr(attr) => Ok(attr.ino),
            other => panic!("{other:?} is no answer to a lookup"),
        }
    }

    /// The attributes of an inode.
    pub(crate) fn attr(&mut self, ino: Ino) -> types::Attr {
        match self.answer(Op::Read(ReadOp::GetAttr { ino })) {
            Ok(Answer::Attr(attr)) => attr,
            other => panic!("{ino} has no attributes: {other:?}"),
        }
    }

    /// The names in a directory, sorted.
    pub(crate) fn names(&mut self, dir: Ino) -> Vec<String> {
        let op = Op::Read(ReadOp::List { dir, after: None, limit: 4096, attrs: false });
        let Ok(Answer::Entries { entries, .. }) = self.answer(op) else { panic!("no listing") };
        let names = entries.into_iter().map(|(name, _)| String::from_utf8(name).expect("text"));
        let mut names: Vec<String> = names.collect();
        names.sort_unstable();
        names
    }

    /// A counter of a server.
    pub(crate) fn counted(&self, rank: usize, name: &str) -> u64 {
        let counters = self.mds(rank).counters();
        counters.iter().find(|(known, _)| known == name).expect("the counter exists").1
    }

    /// Everything that changed is in the metadata store, and the journal is trimmed.
    pub(crate) fn checkpoint(&mut self) {
        let done = self.answer(Op::Admin(AdminOp::Checkpoint));
        assert!(matches!(done, Ok(Answer::Safe(_))), "{done:?}");
    }

    /// Stops the server of a rank with its cluster, and waits for that.
    pub(crate) fn stop(&mut self, rank: usize) {
        self.input(rank, MdsInput::FromMonitor(Message::Stop));
        self.settle();
        self.until(|cluster| cluster.stopped.contains(&rank));
        self.stopped.clear();
        self.servers[rank] = None;
        self.conns.retain(|(_, of), _| *of != rank);
    }
}

/// A regular file that all may read.
pub(crate) const FILE: u32 = 0o100_644;
/// A directory that all may read and search.
pub(crate) const DIR: u32 = 0o040_755;
/// A symbolic link.
pub(crate) const LINK: u32 = 0o120_777;

/// A user without rights of its own.
pub(crate) fn user(uid: u32) -> Cred {
    Cred { uid, gid: uid, groups: Vec::new() }
}

/// A change of the mode.
pub(crate) fn chmod(mode: u32) -> AttrChange {
    AttrChange { mode: Some(mode), ..AttrChange::default() }
}

fn messages(mut frames: &[u8]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while let Ok(Some((frame, length))) = wire::frame::decode(frames) {
        all.push(frame.payload.to_vec());
        frames = &frames[length..];
    }
    all
}
