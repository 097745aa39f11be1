//! Directories under leases: a server, a store and sessions, with every clock in the test's hands.

#![allow(clippy::unwrap_used, reason = "the harness of tests")]

use std::collections::BTreeMap;

use client::Session;
use mds::{Mds, Settings};
use metastore::request::{StoreOp, StoreResult};
use objstore::{Memory, carry_out};
use types::{ClientId, Clock, ConnId, Cred, Errno, Ino, Moment, Rank, Tid, Timestamp};
use wire::{Answer, Failure, Message, NewInode, Op, Request};

const LEASE: u64 = 1000;
const SLACK: u64 = 10;
/// What a driver adds: it ticks every millisecond here.
const TICK: u64 = 1;
const DIR: u32 = 0o040_755;

type Answered = Result<Answer, Failure>;

/// A client, whose clock stands elsewhere and runs at a rate of its own.
struct Client {
    session: Session,
    per_mille: u64,
    answers: BTreeMap<Tid, Answered>,
}

impl Client {
    fn moment(&self, real: u64) -> Moment {
        Moment(self.session.client().0 * 1_000_000_000_000 + real * 1000 * self.per_mille)
    }
}

struct World {
    mds: Mds,
    effects: mds::Effects,
    memory: Memory,
    /// Milliseconds since the start.
    now: u64,
    clients: Vec<Client>,
    monitor: Vec<Answered>,
}

impl World {
    /// A server whose root has a policy, and so many clients, which are connected.
    fn new(policy: &str, clients: usize) -> Self {
        let mut world = Self {
            mds: Mds::new(Rank(0), Settings::default()),
            effects: mds::Effects::default(),
            memory: Memory::default(),
            now: 0,
            clients: Vec::new(),
            monitor: Vec::new(),
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

    fn start(&mut self) {
        self.mds = Mds::new(Rank(0), Settings::default());
        self.handle(mds::Input::Start);
        self.until(|world| world.mds.is_active());
    }

    fn set_policy(&mut self, policy: &str) {
        let client = ClientId(0);
        let op = Op::SetPolicy { path: b"/", policy: policy.as_bytes(), client };
        let request = Request::new(Tid(1), Tid(0), Cred::root(), op);
        self.handle(mds::Input::FromMonitor(Message::Request(request)));
    }

    fn add_client(&mut self, per_mille: u64) {
        let id = ClientId(self.clients.len() as u64 + 1);
        let mut session = Session::new(id, Tid(1));
        session.remember();
        self.clients.push(Client { session, per_mille, answers: BTreeMap::new() });
        self.connect(self.clients.len() - 1);
    }

    fn connect(&mut self, client: usize) {
        self.handle(mds::Input::Opened(conn(client)));
        let mut effects = client::Effects::default();
        self.clients[client].session.handle(client::Input::Connected, &mut effects);
        self.send(client, &effects.frames);
    }

    /// Everything that was sent and stored is there at once.
    fn handle(&mut self, input: mds::Input<'_>) {
        let time = Timestamp(1_000_000_000 + i64::try_from(self.now).unwrap() * 1_000_000);
        let clock = Clock { now: Moment(1 + self.now * 1_000_000), time };
        self.mds.handle(clock, input, &mut self.effects);
        let mut stored = Vec::new();
        for (token, op) in self.effects.store.drain(..) {
            stored.push((token, self::store(&self.memory, op)));
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
        for (token, ended) in stored {
            self.handle(mds::Input::Stored(token, ended));
        }
        for (conn, frame) in sent {
            self.receive(usize::try_from(conn.0).unwrap() - 1, &frame);
        }
        while self.mds.has_work() {
            self.handle(mds::Input::Work);
        }
    }

    fn receive(&mut self, client: usize, frame: &[u8]) {
        let now = self.clients[client].moment(self.now);
        let mut effects = client::Effects::default();
        let known = &mut self.clients[client];
        known.session.at(now);
        for message in messages(frame) {
            let message = Message::decode(&message).unwrap();
            known.session.handle(client::Input::Message(message), &mut effects);
        }
        known.answers.extend(effects.completed.drain(..));
        self.send(client, &effects.frames);
    }

    fn send(&mut self, client: usize, frames: &[u8]) {
        for message in messages(frames) {
            let message = Message::decode(&message).unwrap();
            self.handle(mds::Input::Message(conn(client), message));
        }
    }

    fn ask(&mut self, client: usize, op: Op<'_>) -> Tid {
        let now = self.clients[client].moment(self.now);
        let mut effects = client::Effects::default();
        let known = &mut self.clients[client];
        known.session.at(now);
        let tid = known.session.call(&Cred::root(), op, &mut effects);
        self.send(client, &effects.frames);
        tid
    }

    /// What a client says by itself.
    fn says(&self, client: usize, op: &Op<'_>) -> Option<Answered> {
        let known = &self.clients[client];
        known.session.leased(&Cred::root(), op, known.moment(self.now), false)
    }

    fn pass(&mut self, millis: u64) {
        for _ in 0..millis {
            self.now += TICK;
            self.handle(mds::Input::Tick);
        }
    }

    /// Lets time pass until something holds; returns how much did.
    fn until(&mut self, done: impl Fn(&Self) -> bool) -> u64 {
        let start = self.now;
        while !done(self) {
            assert!(self.now - start < 20_000, "it never came about");
            self.pass(1);
        }
        self.now - start
    }

    fn is_answered(&self, client: usize, tid: Tid) -> bool {
        self.clients[client].answers.contains_key(&tid)
    }

    /// Looks a name up until the client remembers it: the first lease comes when the store knows that
    /// there are any.
    fn learn(&mut self, client: usize, name: &[u8]) {
        let op = lookup(name);
        for _ in 0..10_000 {
            if self.says(client, &op).is_some() {
                return;
            }
            self.ask(client, op);
            self.pass(u64::from(self.says(client, &op).is_none()));
        }
        panic!("it is never told");
    }

    fn counted(&self, name: &str) -> u64 {
        let counters = self.mds.counters();
        counters.iter().find(|(known, _)| known == name).expect("it is counted").1
    }

    fn table_bytes(&self) -> usize {
        let object = metastore::request::rank_name(Rank(0));
        match carry_out(&self.memory, StoreOp::Get { object }) {
            Ok(StoreResult::Bytes(bytes, _)) => bytes.len(),
            other => panic!("{other:?}"),
        }
    }
}

fn store(
    memory: &Memory,
    op: StoreOp,
) -> Result<StoreResult, Box<metastore::request::StoreFailure>> {
    if let StoreOp::Append { object, data } = &op {
        objstore::ObjectStore::append(memory, object, data).unwrap();
        return Ok(StoreResult::Done);
    }
    carry_out(memory, op)
}

fn conn(client: usize) -> ConnId {
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

fn lookup(name: &[u8]) -> Op<'_> {
    Op::Lookup { parent: Ino::ROOT, name }
}

fn mkdir(name: &[u8]) -> Op<'_> {
    Op::Create { parent: Ino::ROOT, name, new: NewInode { mode: DIR, ..NewInode::default() } }
}

fn is_absent(answer: Option<&Answered>) -> bool {
    matches!(answer, Some(Err(failure)) if failure.errno == Errno::NotFound)
}

/// What a server keeps when so many clients have looked at its root: leases, capabilities, and the
/// bytes of its table.
fn kept(policy: &str, clients: usize) -> (u64, u64, usize) {
    let mut world = World::new(policy, clients);
    for _ in 0..2 {
        // The first answer comes before the store knows that somebody remembers.
        for client in 0..clients {
            world.ask(client, lookup(b"none"));
        }
        world.pass(10);
    }
    assert_eq!(world.counted("sessions"), clients as u64);
    (world.counted("leases"), world.counted("caps"), world.table_bytes())
}

#[test]
fn ten_thousand_clients_under_leases_cost_what_one_does() {
    let (leases, caps, bytes) = kept("cache: lease\n", 1);
    assert_eq!((leases, caps), (1, 0));
    assert_eq!(kept("cache: lease\n", 10_000), (leases, caps, bytes));
    // Capabilities are kept for each.
    let (one, many) = (kept("cache: caps\n", 1), kept("cache: caps\n", 200));
    assert_eq!((one.0, one.1, many.0, many.1), (0, 1, 0, 200));
    assert!(many.2 > one.2);
}

#[test]
fn a_change_waits_for_the_lease_and_nobody_is_told_more_meanwhile() {
    // As much slower as is promised to be harmless, and faster.
    let mut world = World::new("cache: lease\n", 0);
    for per_mille in [991, 1000, 1009, 1300] {
        world.add_client(per_mille);
    }
    for round in 0..5 {
        let name = format!("d{round}");
        let name = name.as_bytes();
        for client in 0..4 {
            world.learn(client, name);
            assert!(is_absent(world.says(client, &lookup(name)).as_ref()));
        }
        world.pass(200 * round);
        for client in 0..4 {
            world.ask(client, lookup(name));
        }
        // Also one's own change: the server does not know who remembers.
        let changer = usize::try_from(round % 4).unwrap();
        let tid = world.ask(changer, mkdir(name));
        assert!(!world.is_answered(changer, tid));
        let mut waited = 0;
        while !world.is_answered(changer, tid) {
            world.pass(1);
            waited += 1;
            assert!(waited <= LEASE + SLACK + TICK, "{waited} ms");
            for client in 0..4 {
                // Questions are answered, and give no lease that would have to be waited for.
                let asked = (client != changer).then(|| world.ask(client, lookup(name)));
                let is_done = world.is_answered(changer, tid);
                let answer = asked.map(|asked| &world.clients[client].answers[&asked]);
                assert!(answer.is_none_or(|_| is_absent(answer) != is_done), "{answer:?}");
                let says = world.says(client, &lookup(name));
                assert!(!(is_done && is_absent(says.as_ref())), "{client} says what was");
            }
        }
        assert!(waited > LEASE - 50, "{waited} ms");
        assert!(world.clients[changer].answers[&tid].is_ok());
        // Until it is quiet again; then it is told anew.
        world.until(|world| world.counted("leases") == 0);
        world.learn(0, name);
        assert!(world.says(0, &lookup(name)).unwrap().is_ok());
        world.pass(2 * LEASE);
    }
    assert!(world.counted("lease_waits") > 0);
}

#[test]
fn a_change_elsewhere_does_not_wait_with_it() {
    let mut world = World::new("cache: lease\n", 2);
    let tid = world.ask(0, mkdir(b"other"));
    let Ok(Answer::Attr(other)) = world.clients[0].answers[&tid].clone() else { panic!() };
    world.learn(0, b"none");
    let waits = world.ask(0, mkdir(b"waits"));
    let op = Op::Create {
        parent: other.ino,
        name: b"d",
        new: NewInode { mode: DIR, ..NewInode::default() },
    };
    let goes = world.ask(1, op);
    assert!(world.is_answered(1, goes) && !world.is_answered(0, waits));
    world.until(|world| world.is_answered(0, waits));
}

#[test]
fn another_policy_waits_for_the_leases_of_this_one() {
    let mut world = World::new("cache: lease\n", 2);
    world.learn(0, b"none");
    world.monitor.clear();
    let told_at = world.now;
    world.set_policy("cache: caps\n");
    while world.monitor.is_empty() {
        // Others ask on, and that does not put it off.
        world.ask(1, lookup(b"none"));
        world.pass(1);
        assert!(world.now - told_at <= LEASE + SLACK + TICK);
    }
    assert!(world.monitor[0].is_ok() && world.says(0, &lookup(b"none")).is_none());
    assert!(world.now - told_at > LEASE - 50);
    world.ask(0, lookup(b"none"));
    world.pass(10);
    world.ask(0, lookup(b"none"));
    assert!(world.says(0, &lookup(b"none")).is_none() && world.counted("caps") > 0);
}

#[test]
fn a_new_server_does_nothing_before_the_leases_of_the_old_one_are_over() {
    let mut world = World::new("cache: lease\n", 1);
    world.learn(0, b"d");
    // Its predecessor is gone without a word, and its client has not noticed.
    let lost = world.now;
    world.mds = Mds::new(Rank(0), Settings::default());
    world.handle(mds::Input::Start);
    while !world.mds.is_active() {
        world.pass(1);
    }
    assert!(world.now - lost >= LEASE + SLACK, "{} ms", world.now - lost);
    assert!(world.now - lost <= LEASE + SLACK + 100, "{} ms", world.now - lost);
    assert!(world.says(0, &lookup(b"d")).is_none(), "nothing is left of what it was told");
}

#[test]
fn a_new_server_waits_for_nothing_where_there_were_no_leases() {
    let mut world = World::new("cache: caps\n", 0);
    world.add_client(1000);
    let start = world.now;
    world.mds = Mds::new(Rank(0), Settings::default());
    world.handle(mds::Input::Start);
    let waited = world.until(|world| world.mds.is_active());
    assert!(waited < 100, "{waited} ms since {start}");
}
