//! Lets events happen, and carries the effects of servers and sessions out.

use client::{RouteInput, SessionEffects, SessionInput};
use mds::{Mds, MdsEffects, MdsInput, Observed};
use metastore::request::{StoreOp, Token};
use types::{ConnId, Cred, Error, Moment, Rank, Tid};
use wire::{Answer, Message, Request};

use super::route::connection_lost;
use super::{Conn, Event, Link, MS, Routed, Routes, World};
use crate::call::CallKind;

/// Makes the requests of clients, and judges the answers.
pub(crate) trait Workload: Sized {
    fn world(&self) -> &World;
    fn world_mut(&mut self) -> &mut World;

    /// An event that only workloads know.
    fn happens(&mut self, event: Event);

    /// A request has its result.
    fn answered(
        &mut self,
        client: usize,
        number: u64,
        routed: Routed,
        result: types::Result<Answer>,
    );

    /// A request, or a walk for it, is sent, and not a question of its route; and the answer of a
    /// server is there.
    fn sent(&mut self, _client: usize, _: Tid, _: &Routed) {}
    fn replied(&mut self, _client: usize, _: Tid, _ok: bool) {}

    fn clock_of(&self, _client: usize) -> Moment {
        self.world().moment()
    }

    /// A client lost its connection. Returns how long it stays away.
    fn disconnected(&mut self, _client: usize) -> u64 {
        MS
    }

    /// A server told the monitor something.
    fn told_monitor(&mut self, message: &Message<'_>);

    /// A message of a client reaches a server.
    fn arriving(&mut self, _client: usize, _: &Message<'_>) {}

    /// A server executed a change.
    fn observed(&mut self, _: &Observed) {}

    /// A server sends a message to a client, which may never get it.
    fn emitted(&mut self, _client: usize, _: &Message<'_>) {}

    /// A server has handled an input.
    fn handled(&mut self) {}

    /// A server starts a store operation, and it takes effect.
    fn submitted(&mut self, _: &StoreOp) {}
    fn executing(&mut self, _server: usize, _: Token) {}

    /// A server notices that time passed.
    fn ticked(&mut self, _server: usize) {}

    /// A server died.
    fn crashed(&mut self, _: &Mds) {}

    /// A client has a new connection.
    fn connected(&mut self, _client: usize) {}

    /// A message reached a client, and its session has handled it.
    fn received(&mut self, _client: usize, _: &Message<'_>) {}
    fn followed(&mut self, _client: usize) {}

    /// The messages of a session are sent.
    fn flushed(&mut self, _client: usize, _: Rank, _: &SessionEffects) {}
}

/// See the module documentation.
pub(crate) trait Drive: Workload {
    /// Lets the next event happen. Returns false if there is none, or a promise is broken.
    fn step(&mut self) -> bool {
        let Some(event) = self.world_mut().next_event() else { return false };
        self.happen(event);
        true
    }

    /// Lets events happen until a condition holds. Returns whether it does before the time is up.
    fn run_until(&mut self, within: u64, mut done: impl FnMut(&Self) -> bool) -> bool {
        let end = self.world().now + within;
        while !done(self) {
            if self.world().now > end || !self.step() {
                return false;
            }
        }
        true
    }

    fn happen(&mut self, event: Event) {
        let world = self.world_mut();
        match event {
            Event::Opened(conn) => {
                if world.is_reached(conn) {
                    let server = world.conns[&conn].server();
                    self.handle(server, MdsInput::Opened(conn, types::Peer::Trusted));
                }
            }
            Event::ToServer(conn, frame) => self.arrived_at_server(conn, &frame),
            Event::ToClient(conn, frame) => self.arrived_at_client(conn, &frame),
            Event::ServerSawClose(conn) => {
                let (server, term) = (world.conns[&conn].server(), world.conns[&conn].term);
                if world.is_term(server, term) {
                    self.handle(server, MdsInput::Closed(conn));
                }
            }
            Event::ClientSawClose(conn) => self.client_closed(conn),
            Event::Execute(server, term, _)
            | Event::Ended(server, term, _)
            | Event::Tick(server, term)
            | Event::Work(server, term)
            | Event::Answer(server, term, _) => {
                if world.is_term(server, term) {
                    self.happen_in_term(event);
                }
            }
            Event::Start(server) => self.start(server),
            Event::Terminate(server) => {
                world.note(format_args!("$ terminate"));
                world.servers[server].leaves_rest = true;
                self.handle(server, MdsInput::Terminate);
            }
            Event::EndCluster(server) => {
                world.note(format_args!("$ end the cluster"));
                world.servers[server].leaves_rest = false;
                self.handle(server, MdsInput::FromMonitor(Message::Stop));
            }
            Event::Connect(client, rank) => self.connect(client, rank),
            Event::Peer(server, frame) => match decode(&frame) {
                Some(message) => {
                    world.note(format_args!("mds.{server} <- {message:?}"));
                    // A server does not answer on this connection.
                    self.handle(server, MdsInput::Message(ConnId::PEER, message));
                }
                None => world.check(Err("a message between ranks that cannot be read".into())),
            },
            Event::Heartbeat(server, bytes) => {
                self.handle(server, MdsInput::FromMonitor(Message::Heartbeat(&bytes)));
            }
            Event::Resume(client, number) => self.resume(client, number),
            Event::Carry(client, from) => self.carry(client, from),

            Event::Turn(_)
            | Event::SendAsync(_)
            | Event::ReturnLapsed(_)
            | Event::Snapshot
            | Event::Move
            | Event::Crash
            | Event::Break(_)
            | Event::Recalled(..)
            | Event::Kill(_) => self.happens(event),
        }
    }

    /// An event of a server that runs.
    fn happen_in_term(&mut self, event: Event) {
        match event {
            Event::Execute(server, term, token) => {
                self.executing(server, token);
                let world = self.world_mut();
                world.servers[server].disk.execute(token, &mut world.rng);
                let after = world.delay();
                world.schedule(after, Event::Ended(server, term, token));
                if let Some(left) = &mut world.servers[server].doomed {
                    *left = left.saturating_sub(1);
                    if *left == 0 {
                        self.crash(server);
                    }
                }
            }
            Event::Ended(server, _, token) => {
                let world = self.world_mut();
                if let Some(ended) = world.servers[server].disk.end(token) {
                    let text = crate::print::ended(&ended);
                    world.note(format_args!("mds.{server}  <- store   {token:?} {text}"));
                    self.handle(server, MdsInput::Stored(token, ended));
                }
            }
            Event::Tick(server, term) => {
                let world = self.world_mut();
                let after = world.rng.between(3 * MS / 2, 3 * MS);
                world.schedule(after, Event::Tick(server, term));
                self.ticked(server);
                self.handle(server, MdsInput::Tick);
            }
            Event::Answer(server, _, question) => {
                let answer = question.answer(&balancer::Expired::never());
                self.handle(server, MdsInput::Answered(Box::new(answer)));
            }
            Event::Work(server, _) => self.handle(server, MdsInput::Work),
            _ => {}
        }
    }

    /// Starts a server now.
    fn start(&mut self, server: usize) {
        let world = self.world_mut();
        if world.servers[server].mds.is_some() {
            return;
        }
        world.note(format_args!("$ start"));
        let (mds, map) = (Mds::new(Rank(server as u16), world.settings.clone()), world.map());
        let known = &mut world.servers[server];
        known.term += 1;
        (known.mds, known.recovered, known.stopped) = (Some(mds), false, false);
        known.leaves_rest = false;
        let term = known.term;
        world.schedule(MS, Event::Tick(server, term));
        self.handle(server, MdsInput::FromMonitor(Message::Map(Box::new(map))));
        self.handle(server, MdsInput::Start);
    }

    /// A server dies now.
    fn crash(&mut self, server: usize) {
        let world = self.world_mut();
        if world.servers[server].mds.is_some() {
            world.note(format_args!("$ crash mds.{server}"));
        }
        if let Some(mds) = world.kill_server(server) {
            self.crashed(&mds);
        }
    }

    /// Gives a server an input and carries its effects out.
    fn handle(&mut self, server: usize, input: MdsInput<'_>) {
        let world = self.world_mut();
        let clock = world.clock();
        let Some(mds) = &mut world.servers[server].mds else { return };
        let mut effects = MdsEffects::default();
        mds.handle(clock, input, &mut effects);
        world.inputs += 1;
        if effects.fatal.is_none() && world.inputs.is_multiple_of(world.validated_every) {
            mds.validate();
        }
        self.execute(server, effects);
    }

    fn execute(&mut self, server: usize, effects: MdsEffects) {
        let frames: Vec<(ConnId, Vec<u8>)> =
            effects.outbox.iter().map(|(conn, frame)| (conn, frame.to_vec())).collect();
        let mut observed = effects.observed.into_iter().peekable();
        for (at, (conn, frame)) in frames.into_iter().enumerate() {
            while let Some(change) = observed.next_if(|change| change.messages <= at) {
                self.observed(&change);
            }
            self.emit(server, conn, frame);
        }
        observed.for_each(|change| self.observed(&change));
        self.handled();
        let mut rest = effects.to_monitor.as_slice();
        while let Ok(Some((frame, length))) = wire::frame::decode(rest) {
            rest = &rest[length..];
            if let Ok(message) = Message::decode(frame.payload) {
                self.told_monitor(&message);
                self.world_mut().monitor_got(server, message);
            }
        }
        let term = self.world().servers[server].term;
        for (token, op) in effects.store {
            self.submitted(&op);
            let (world, text) = (self.world_mut(), crate::print::store_op(&op));
            world.note(format_args!("mds.{server}  -> store   {token:?} {text}"));
            world.fingerprint.add(text.as_bytes());
            world.servers[server].disk.submit(token, op);
            let after = world.delay();
            world.schedule(after, Event::Execute(server, term, token));
        }
        let world = self.world_mut();
        world.send_to_peers(effects.to_peers);
        for question in effects.questions {
            let after = world.delay();
            world.schedule(after, Event::Answer(server, term, question));
        }
        effects.close.into_iter().for_each(|conn| world.break_conn(conn, false));
        if let Some(error) = effects.fatal {
            world.note(format_args!("mds.{server}  fatal: {error}"));
            if world.faults.errors_percent == 0 {
                world.check(Err(format!("mds.{server} gave up: {error}")));
            }
            return self.crash(server);
        }
        if effects.stopped {
            return world.stop_server(server);
        }
        if world.servers[server].is(Mds::has_work) {
            let after = world.rng.between(1, MS / 5);
            world.schedule(after, Event::Work(server, term));
        }
    }

    fn emit(&mut self, server: usize, conn: ConnId, frame: Vec<u8>) {
        let world = self.world_mut();
        world.fingerprint.add(&frame);
        let Some(Conn { client, .. }) = world.conns.get(&conn) else { return };
        let client = *client;
        match decode(&frame) {
            Some(message) => {
                let id = world.clients[client].id;
                world.note(format_args!("mds.{server}  -> {id} {message:?}"));
                self.emitted(client, &message);
            }
            None => world.check(Err("the server sent nonsense".into())),
        }
        self.world_mut().send_to_client(conn, frame);
    }

    fn arrived_at_server(&mut self, conn: ConnId, frame: &[u8]) {
        let world = self.world_mut();
        if !world.is_reached(conn) {
            return;
        }
        let (server, client) = (world.conns[&conn].server(), world.conns[&conn].client);
        if let Some(message) = decode(frame) {
            let (id, text) = (world.clients[client].id, crate::print::message(&message));
            world.note(format_args!("{id} -> mds.{server}  {text}"));
            self.arriving(client, &message);
            self.handle(server, MdsInput::Message(conn, message));
        }
    }

    fn arrived_at_client(&mut self, conn: ConnId, frame: &[u8]) {
        let Conn { client, rank, alive, .. } = self.world().conns[&conn];
        if alive
            && self.world_mut().link(client, rank).conn == Some(conn)
            && let Some(message) = decode(frame)
        {
            self.received(client, &message);
            self.drive(client, rank, SessionInput::Message(message));
            self.followed(client);
        }
    }

    fn connect(&mut self, client: usize, rank: Rank) {
        let world = self.world_mut();
        if !world.clients[client].alive || world.link(client, rank).conn.is_some() {
            return;
        }
        if world.servers[usize::from(rank.0)].mds.is_none() {
            return world.schedule(5 * MS, Event::Connect(client, rank));
        }
        let conn = world.open_conn(client, rank);
        world.link(client, rank).conn = Some(conn);
        self.drive(client, rank, SessionInput::Connected);
        self.connected(client);
    }

    fn client_closed(&mut self, conn: ConnId) {
        let Conn { client, rank, .. } = self.world().conns[&conn];
        let world = self.world_mut();
        if world.link(client, rank).conn != Some(conn) || !world.clients[client].alive {
            return;
        }
        let id = world.clients[client].id;
        world.note(format_args!("{id} lost {conn}"));
        world.link(client, rank).conn = None;
        self.drive(client, rank, SessionInput::Disconnected);
        let after = self.disconnected(client);
        let world = self.world_mut();
        world.schedule(after, Event::Connect(client, rank));
        // A journal that follows its request goes over one connection.
        let routed = world.clients[client].routed.iter();
        let cut: Vec<_> = routed.filter_map(|(at, it)| Some((*at, it.is_cut(rank)?))).collect();
        for (number, tid) in cut {
            self.world_mut().link(client, rank).session.forget(tid);
            self.pursue(client, number, connection_lost());
        }
    }

    /// Gives a session an input and sends its messages.
    fn drive(&mut self, client: usize, rank: Rank, input: SessionInput<'_>) {
        let Link { session, effects, .. } = self.world_mut().link(client, rank);
        session.handle(input, effects);
        self.flush(client, rank);
    }

    fn flush(&mut self, client: usize, rank: Rank) {
        let world = self.world_mut();
        let Link { session, effects, conn } = world.link(client, rank);
        session.validate();
        let (conn, mut effects) = (*conn, std::mem::take(effects));
        let mut rest = effects.frames.as_slice();
        while let Ok(Some((_, length))) = wire::frame::decode(rest) {
            if let Some(conn) = conn {
                world.send_to_server(conn, Event::ToServer(conn, rest[..length].to_vec()));
            }
            rest = &rest[length..];
        }
        let completed = std::mem::take(&mut effects.completed);
        if !effects.moved.is_empty() {
            let moved = world.clients[client].moved.entry(rank).or_default();
            moved.extend(std::mem::take(&mut effects.moved));
            world.schedule(1, Event::Carry(client, rank));
        }
        self.flushed(client, rank, &effects);

        for (tid, result) in completed {
            self.replied(client, tid, result.is_ok());
            let mut routed = self.world().clients[client].routed.iter();
            let waiting = routed.find(|(_, it)| it.waits_for(rank, tid)).map(|(number, _)| *number);
            if let Some(number) = waiting {
                self.pursue(client, number, RouteInput::Answer(result.map_err(Error::from)));
            }
        }
    }

    /// Asks the first rank on behalf of a monitor. The answer, if there will be one, appears among
    /// the answers of the monitor.
    fn ask_monitor(&mut self, what: &CallKind) -> Tid {
        let world = self.world_mut();
        let (tid, is_sent) = world.next_question(what);
        world.note(format_args!("mon    -> mds.0  {tid} {what:?}"));
        if is_sent {
            let request = Request::new(tid, Tid(0), Cred::root(), what.op());
            self.handle(0, MdsInput::FromMonitor(Message::Request(request)));
        }
        tid
    }
}

impl<W: Workload> Drive for W {}

/// The message in a frame.
fn decode(frame: &[u8]) -> Option<Message<'_>> {
    let (frame, _) = wire::frame::decode(frame).ok()??;
    Message::decode(frame.payload).ok()
}
