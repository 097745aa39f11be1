//! A monitor, a store and a transcript of their messages.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;

use expect_test::Expect;
use metastore::request::{Condition, MAP_NAME, StoreFailure, StoreOp, StoreResult, Token};
use types::{
    ClientId, Clock, ConnId, Epoch, Errno, Error, Moment, Rank, Seq, Span, Tid, Timestamp,
};
use wire::{
    Answer, BalancerEntry, Beacon, ChangeOp, ClusterMap, Cred, Failure, JobOp, MdsState, Message,
    MonAnswer, MonOp, Op, Reply,
};

use crate::{Mon, MonEffects, MonInput, MonSettings, format};

pub(super) const GRACE: Span = Span::from_millis(1000);

const LOG: &str = "balancer/log/";

pub(super) struct Bench {
    pub(super) mon: Mon,
    pub(super) now: Moment,
    /// The object and its version.
    pub(super) object: Option<(Vec<u8>, u64)>,
    /// Balancer policies.
    pub(super) policies: BTreeMap<String, Vec<u8>>,
    /// Parts of the balancers' log.
    pub(super) log: BTreeMap<String, Vec<u8>>,
    pub(super) pending: VecDeque<(Token, StoreOp)>,
    effects: MonEffects,
    pub(super) transcript: String,
    answer: Option<MonAnswer>,
    /// Every client id that was given out.
    clients: Vec<ClientId>,
    /// Lines of the log.
    pub(super) log_lines: Vec<String>,
}

impl Bench {
    pub(super) fn new() -> Self {
        Self::with(None)
    }

    /// A monitor that was not started, on a store that has this object.
    pub(super) fn with(object: Option<(Vec<u8>, u64)>) -> Self {
        let settings =
            MonSettings { cluster: "test".into(), store: "memory:".into(), beacon_grace: GRACE };
        Self {
            mon: Mon::new(settings),
            now: Moment(0),
            object,
            policies: BTreeMap::new(),
            log: BTreeMap::new(),
            pending: VecDeque::new(),
            effects: MonEffects::default(),
            transcript: String::new(),
            answer: None,
            clients: Vec::new(),
            log_lines: Vec::new(),
        }
    }

    /// The next monitor on the same store, which has read its map.
    pub(super) fn restarted(self) -> Self {
        let mut next = Self::with(self.object);
        next.input(MonInput::Start);
        next.settle();
        next
    }

    /// A monitor on an empty store, with an active server at `conn.1`; nothing of it is in the
    /// transcript.
    pub(super) fn serving() -> Self {
        let mut bench = Self::new();
        bench.input(MonInput::Start);
        bench.settle();
        bench.beacon(1, 0, 1, MdsState::Active);
        bench.settle();
        bench.transcript.clear();
        bench
    }

    pub(super) fn input(&mut self, input: MonInput<'_>) {
        self.transcript.push_str(&show_input(&input));
        self.effects.clear();
        let clock = Clock { now: self.now, time: Timestamp(0) };
        self.mon.handle(clock, input, &mut self.effects);
        for (conn, frame) in self.effects.outbox.iter() {
            let (frame, _) = wire::frame::decode(frame).expect("intact").expect("whole");
            let message = Message::decode(frame.payload).expect("a message");
            if let Message::MonReply { result: Ok(MonAnswer::Client(client)), .. } = message {
                self.clients.push(client);
            }
            if let Message::MonReply { result: Ok(answer), .. } = &message {
                self.answer = Some(answer.clone());
            }
            let text = show_message(&message);
            writeln!(self.transcript, "  to {conn}: {text}").expect("a string takes it");
        }
        for (_, op) in &self.effects.store {
            writeln!(self.transcript, "  store: {}", show_op(op)).expect("a string takes it");
        }
        self.pending.extend(self.effects.store.drain(..));
        self.log_lines.extend(self.effects.notices.iter().map(ToString::to_string));
        for conn in &self.effects.close {
            writeln!(self.transcript, "  close {conn}").expect("a string takes it");
        }
        if let Some(error) = &self.effects.fatal {
            writeln!(self.transcript, "  fatal: {error}").expect("a string takes it");
        }
        if self.effects.stopped {
            self.transcript.push_str("  stopped\n");
        }
    }

    /// The answer to the last request.
    pub(super) fn answer(&self) -> MonAnswer {
        self.answer.clone().expect("somebody was answered")
    }

    pub(super) fn stopped(&self) -> bool {
        self.effects.stopped
    }

    /// Carries the oldest store operation out.
    pub(super) fn store(&mut self) {
        let (token, op) = self.pending.pop_front().expect("something is under way");
        let result = Ok(self.execute(op));
        self.input(MonInput::Stored { token, result });
    }

    /// Carries store operations out until none is under way.
    pub(super) fn settle(&mut self) {
        while !self.pending.is_empty() {
            self.store();
        }
    }

    /// The store fails, though it may have carried the operation out.
    pub(super) fn store_fails(&mut self, carried_out: bool) {
        let (token, op) = self.pending.pop_front().expect("something is under way");
        // A monitor does not look at the operation that it is handed back.
        let again = StoreOp::Get { object: MAP_NAME.into() };
        if carried_out {
            self.execute(op);
        }
        let error = Error::new(Errno::Io, "store", "the disk is on fire");
        let result = Err(Box::new(StoreFailure { error, op: again }));
        self.input(MonInput::Stored { token, result });
    }

    fn execute(&mut self, op: StoreOp) -> StoreResult {
        let is = self.object.as_ref().map(|(_, version)| *version);
        if let StoreOp::Put { object, data, condition: Condition::Absent } = &op
            && object.starts_with("balancer/policy/")
        {
            if self.policies.contains_key(object) {
                return StoreResult::Conflict;
            }
            self.policies.insert(object.clone(), data.clone());
            return StoreResult::Stored(1);
        }
        if let StoreOp::List { prefix } = &op {
            let names = self.log.keys().filter(|name| name.starts_with(prefix));
            return StoreResult::Names(names.cloned().collect());
        }
        if let StoreOp::Delete { objects } = &op {
            objects.iter().for_each(|object| drop(self.log.remove(object)));
            return StoreResult::Done;
        }
        if let StoreOp::Put { object, data, .. } = &op
            && object.starts_with(LOG)
        {
            self.log.insert(object.clone(), data.clone());
            return StoreResult::Stored(1);
        }
        if let StoreOp::Get { object } = &op
            && object.starts_with(LOG)
        {
            let found = self.log.get(object).cloned();
            return found.map_or(StoreResult::Missing, |data| StoreResult::Bytes(data, 1));
        }
        if let StoreOp::Put { object, data, condition } = op {
            assert_eq!(object, MAP_NAME);
            let holds = match condition {
                Condition::Any => true,
                Condition::Absent => is.is_none(),
                Condition::Version(version) => is == Some(version),
            };
            if !holds {
                return StoreResult::Conflict;
            }
            let version = is.unwrap_or(100) + 1;
            self.object = Some((data, version));
            return StoreResult::Stored(version);
        }
        assert!(matches!(op, StoreOp::Get { .. }), "a monitor gets and puts");
        match self.object.clone() {
            Some((data, version)) => StoreResult::Bytes(data, version),
            None => StoreResult::Missing,
        }
    }

    pub(super) fn wait(&mut self, millis: u64) {
        self.now = self.now + Span::from_millis(millis);
        self.input(MonInput::Tick);
    }

    pub(super) fn message(&mut self, conn: u64, message: Message<'_>) {
        self.input(MonInput::Message { conn: ConnId(conn), message });
    }

    pub(super) fn ask(&mut self, conn: u64, tid: u64, op: MonOp<'_>) {
        self.message(conn, Message::MonRequest { tid: Tid(tid), cred: Cred::default(), op });
    }

    pub(super) fn beacon(&mut self, conn: u64, rank: u16, epoch: u64, state: MdsState) {
        let beacon = Beacon {
            rank: Rank(rank),
            epoch: Epoch(epoch),
            address: format!("unix:/{rank}"),
            state,
            pid: 7,
            ..Beacon::default()
        };
        self.message(conn, Message::Beacon(beacon));
    }

    /// A rank that has given a policy up.
    pub(super) fn given_up(&mut self, conn: u64, rank: u16, version: u64, why: &str) {
        let beacon = Beacon {
            rank: Rank(rank),
            epoch: Epoch(1),
            address: format!("unix:/{rank}"),
            state: MdsState::Active,
            pid: 7,
            given_up: (version, why.to_owned()),
            ..Beacon::default()
        };
        self.message(conn, Message::Beacon(beacon));
    }

    pub(super) fn reply(&mut self, conn: u64, tid: u64, result: Result<Answer, Failure>) {
        self.message(
            conn,
            Message::Reply(Reply {
                tid: Tid(tid),
                seq: Seq(0),
                time: Timestamp(0),
                safe: Seq(0),
                grants: None,
                result,
            }),
        );
    }

    pub(super) fn closed(&mut self, conn: u64) {
        self.input(MonInput::Closed { conn: ConnId(conn) });
    }

    /// The number that the monitor gives to its `nth` request of a server.
    pub(super) fn forward_tid(&self, nth: u64) -> u64 {
        (1 << 32) + nth
    }

    pub(super) fn stored_map(&self) -> ClusterMap {
        let (bytes, _) = self.object.as_ref().expect("a map is stored");
        format::decode(bytes).expect("it is intact")
    }

    pub(super) fn confirmed_clients(&self) -> &[ClientId] {
        &self.clients
    }

    /// Compares the last line and drops the earlier ones.
    pub(super) fn check_last(&mut self, expected: &Expect) {
        let transcript = std::mem::take(&mut self.transcript);
        expected.assert_eq(transcript.lines().last().unwrap_or_default());
    }

    /// Compares everything since the last check.
    pub(super) fn check(&mut self, expected: &Expect) {
        expected.assert_eq(&std::mem::take(&mut self.transcript));
    }
}

fn show_input(input: &MonInput<'_>) -> String {
    match input {
        MonInput::Start => "start\n".into(),
        MonInput::Opened { conn, .. } => format!("{conn} opened\n"),
        MonInput::Message { conn, message } => format!("{conn}: {}\n", show_message(message)),
        MonInput::Closed { conn } => format!("{conn} closed\n"),
        MonInput::Stored { result: Ok(StoreResult::Bytes(_, version)), .. } => {
            format!("store: bytes of version {version}\n")
        }
        MonInput::Stored { result: Ok(result), .. } => format!("store: {result:?}\n"),
        MonInput::Stored { result: Err(failure), .. } => format!("store: {}\n", failure.error),
        MonInput::Tick => "tick\n".into(),
        MonInput::Revoked { keys } => format!("revoked {keys:?}\n"),
        MonInput::Terminate => "terminate\n".into(),
    }
}

fn show_op(op: &StoreOp) -> String {
    let StoreOp::Put { object, data, condition } = op else { return format!("{op:?}") };
    if object != MAP_NAME {
        return format!("put if {condition:?}: {object}, {}", show_text(data));
    }
    let map = format::decode(data).expect("a map is put");
    format!("put if {condition:?}: {}", show_map(&map))
}

fn show_map(map: &ClusterMap) -> String {
    let mut text = format!("map {} next {}", map.epoch, map.next_client);
    for mds in &map.mds {
        write!(text, ", {} {} {} {}", mds.rank, mds.epoch, mds.state.word(), mds.address)
            .expect("a string takes it");
        for (name, value) in &mds.counters {
            write!(text, " {name}={value}").expect("a string takes it");
        }
    }
    for entry in &map.policies {
        let path = String::from_utf8_lossy(&entry.path);
        let first = entry.policy.lines().next().unwrap_or_default();
        write!(text, ", {path} v{} {first:?}", entry.version).expect("a string takes it");
    }
    for subtree in &map.decoupled {
        let path = String::from_utf8_lossy(&subtree.path);
        write!(text, ", {path} is {}'s", subtree.client).expect("a string takes it");
    }
    // Where it is the one that all begin with it is not worth a word.
    let balancer = map.balancer();
    if balancer.version > 1 {
        let BalancerEntry { version, object, name, why, .. } = balancer;
        write!(text, ", balancer {version} {name} of {object} {why:?}").expect("a string takes it");
    }
    for (rank, warning) in &map.warnings {
        write!(text, ", {rank} warns {}", warning.code).expect("a string takes it");
    }
    text
}

fn show_text(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let first = text.lines().next().unwrap_or_default();
    format!("{first:?} and {} more lines", text.lines().count().saturating_sub(1))
}

fn show_failure(failure: &Failure) -> String {
    format!("{}: {}", failure.errno.symbol(), failure.text)
}

fn show_mon_op(op: &MonOp<'_>) -> String {
    match op {
        MonOp::Decouple { path, client, policy } => {
            let path = String::from_utf8_lossy(path);
            format!("decouple {path} for {client}, {}", show_text(policy))
        }
        MonOp::SetPolicy { path, policy, .. } => {
            format!("set policy of {}, {}", String::from_utf8_lossy(path), show_text(policy))
        }
        MonOp::SetBalancer { name, text } => {
            format!("set balancer {}, {}", String::from_utf8_lossy(name), show_text(text))
        }
        MonOp::Register
        | MonOp::Status
        | MonOp::Stop
        | MonOp::Fail { .. }
        | MonOp::RevertBalancer
        | MonOp::BalancerLog { .. }
        | MonOp::Remove { .. } => format!("{op:?}").to_lowercase(),
    }
}

fn show_op_of_server(op: &Op<'_>) -> String {
    if let Op::Job(JobOp::Decouple { path, client, policy }) = op {
        let path = String::from_utf8_lossy(path);
        format!("decouple {path} for {client}, {}", show_text(policy))
    } else if let Op::Change(ChangeOp::SetPolicy { path, policy, .. }) = op {
        format!("set policy of {}, {}", String::from_utf8_lossy(path), show_text(policy))
    } else {
        format!("{op:?}")
    }
}

fn show_message(message: &Message<'_>) -> String {
    match message {
        Message::MonRequest { tid, op, .. } => format!("{tid} {}", show_mon_op(op)),
        Message::MonReply { tid, result } => match result {
            Ok(MonAnswer::Map(map)) => format!("{tid} {}", show_map(map)),
            Ok(MonAnswer::Decoupled(_)) => format!("{tid} decoupled"),
            Ok(answer) => format!("{tid} {answer:?}"),
            Err(failure) => format!("{tid} {}", show_failure(failure)),
        },
        Message::Request(request) => {
            format!("{} {}", request.tid, show_op_of_server(&request.op))
        }
        Message::Reply(reply) => match &reply.result {
            Ok(Answer::Decoupled(_)) => format!("{} decoupled", reply.tid),
            Ok(answer) => format!("{} {answer:?}", reply.tid),
            Err(failure) => format!("{} {}", reply.tid, show_failure(failure)),
        },
        Message::Beacon(beacon) => {
            format!("beacon {} {} {}", beacon.rank, beacon.epoch, beacon.state.word())
        }
        Message::Map(map) => show_map(map),
        Message::Hello(_)
        | Message::Welcome(_)
        | Message::Chunk { .. }
        | Message::Recall { .. }
        | Message::Revoke { .. }
        | Message::Batch(_)
        | Message::Peer(_)
        | Message::Heartbeat(_)
        | Message::Trace { .. }
        | Message::Traced(_)
        | Message::Balanced(_)
        | Message::Moved { .. }
        | Message::Stop => format!("{message:?}").to_lowercase(),
    }
}
