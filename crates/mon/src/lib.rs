//! The monitor as a value: it keeps the cluster map, and answers questions on which all servers and
//! clients must agree (S-06).
//!
//! [`Mon::handle`] takes an input (a message, a finished store operation, the passing of time) and
//! fills [`MonEffects`] (messages to send, store operations to execute). It performs no I/O, reads
//! no clock and starts no thread, so the same code runs under the daemon and in the simulator. It
//! is not on the path of metadata operations: a cluster whose monitor is away continues to serve.
//!
//! Where to read on: `ledger` makes changes of the map last, `servers` listens to the metadata
//! servers, `forward` passes policies and decouplings on to them, `stop` ends the cluster,
//! `format` is the map as an object, `balancing` knows the balancer policies, `early`
//! keeps requests until the map is read.
//!
//! Invariants:
//! * a reply that promises something lasting is sent after the store confirmed it;
//! * a metadata server gets no part of the map that the store does not have;
//! * of two monitors on one store at most one changes the map: the other finds out at its next
//!   change and stops.

mod balancing;
mod conditions;
mod early;
mod effects;
mod figures;
mod format;
mod forward;
mod input;
mod ledger;
mod notice;
mod servers;
mod stop;

use metastore::request::{MAP_NAME, StoreFailure, StoreResult, Token};
use types::{ClientId, Clock, ConnId, Errno, Error, Rights};
use wire::{ClusterMap, Cred, Failure, Identities, Message, MonAnswer, MonOp};

pub use conditions::{SERVER_CONDITIONS, condition_codes, conditions, is_error};
pub use effects::MonEffects;
pub use figures::MonFigures;
pub use format::{decode as read_map, encode as map_bytes};
pub use input::{MonInput, MonSettings};
pub use notice::MonNotice;

use balancing::Balancing;
use early::Early;
use effects::Asker;
use forward::Forwards;
use ledger::{Ledger, StoreOutcome};
use servers::Servers;
use stop::Stop;

/// How many client ids are recorded as given out at a time: a restart wastes at most this many.
pub const CLIENT_BLOCK: u64 = 1000;
/// How many requests may wait for a metadata server or for the store.
pub const WAITING_MAX: usize = 1024;
/// How many ranks a cluster has at most.
pub const RANKS_MAX: u16 = 256;
/// How many bytes of paths and policies the map holds at most: with everything else it must fit
/// one message.
pub const POLICY_BYTES_MAX: usize = 4 * 1024 * 1024;

/// How many revoked keys the map lists at most.
pub const REVOKED_MAX: usize = 100_000;

/// A request to the monitor.
#[derive(Debug)]
struct Call<'a> {
    asker: Asker,
    cred: Cred,
    op: MonOp<'a>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    /// The map is being read.
    Loading,
    Serving,
    /// The map cannot be decoded: every request gets this failure. Writing a new map would give
    /// client ids out a second time.
    Refusing(Failure),
    Stopped,
}

/// See the crate documentation.
#[derive(Debug)]
pub struct Mon {
    settings: MonSettings,
    phase: Phase,
    early: Early,
    ledger: Ledger,
    /// The next id to give out; below the map's `next_client`, which is the end of the block.
    next_client: ClientId,
    identities: Identities,
    servers: Servers,
    forwards: Forwards,
    balancing: Balancing,
    stop: Option<Stop>,
    noticed: notice::Noticed,
}

impl Mon {
    /// A monitor that has not started.
    #[must_use]
    pub fn new(settings: MonSettings) -> Self {
        Self {
            settings,
            phase: Phase::Loading,
            early: Early::default(),
            ledger: Ledger::default(),
            next_client: ClientId(0),
            identities: Identities::default(),
            servers: Servers::default(),
            forwards: Forwards::default(),
            balancing: Balancing::default(),
            stop: None,
            noticed: notice::Noticed::default(),
        }
    }

    /// Takes one input in and appends its consequences to `effects`.
    pub fn handle(&mut self, clock: Clock, input: MonInput<'_>, effects: &mut MonEffects) {
        if !matches!(self.phase, Phase::Stopped) {
            self.take_in(clock, input, effects);
        }
        if !matches!(self.phase, Phase::Stopped) {
            // In this order: losses are recorded, stored changes are announced, and changes that
            // every server knows may end.
            self.ledger.flush(effects);
            self.balancing.log.advance(clock.now, self.stop.is_some(), effects);
            self.servers.distribute(self.ledger.stored(), effects);
            self.advance_stop(clock, effects);
        }
        effects.stopped |= matches!(self.phase, Phase::Stopped);
        self.notice(clock.now, effects);
        debug_assert_eq!(self.check(), Ok(()), "the state agrees with itself after every input");
    }

    /// The map as a status request shows it: with the servers' last reports, and with changes that
    /// are still being stored.
    #[must_use]
    pub fn status(&self) -> ClusterMap {
        self.servers.status(self.ledger.map())
    }

    /// The same, for a peer with a limited key without the paths that the key may not see.
    fn status_for(&self, conn: ConnId) -> ClusterMap {
        let mut map = self.status();
        if self.identities.check_path(conn, Rights::READ, b"/").is_err() {
            map.policies.retain(|entry| self.identities.may_see(conn, &entry.path));
            map.decoupled.retain(|subtree| self.identities.may_see(conn, &subtree.path));
            map.warnings.clear();
        }
        map
    }

    /// The ids of the keys that were revoked on any host, in order.
    #[must_use]
    pub fn revoked(&self) -> &[u64] {
        &self.ledger.map().revoked
    }

    fn take_in(&mut self, clock: Clock, input: MonInput<'_>, effects: &mut MonEffects) {
        match input {
            MonInput::Start => self.ledger.load(effects),
            MonInput::Opened { conn, peer } => self.identities.opened(conn, peer),
            MonInput::Message { conn, message } => self.message(clock, conn, message, effects),
            MonInput::Closed { conn } => {
                // Not before: messages may still come from a connection that this monitor closes.
                self.identities.closed(conn);
                self.closed(conn, effects);
            }
            MonInput::Stored { token, result } => self.stored(clock, token, result, effects),
            MonInput::Revoked { keys } => self.revoke(keys),
            MonInput::Tick => {
                self.early.tick(clock.now, effects);
                self.ledger.tick(clock.now, effects);
                self.tick_servers(clock.now, effects);
            }
            MonInput::Terminate => self.begin_stop(clock, None, effects),
        }
    }

    fn message(
        &mut self,
        clock: Clock,
        conn: ConnId,
        message: Message<'_>,
        effects: &mut MonEffects,
    ) {
        match message {
            Message::MonRequest { tid, cred, op } => {
                let asker = Asker { conn, tid };
                let identified = self.identities.identify(conn, &cred).and_then(|own| {
                    let call = Call { asker, cred: own.unwrap_or(cred), op };
                    self.request(clock, call, effects)
                });
                if let Err(failure) = identified {
                    effects.reply(asker, Err(failure));
                }
            }
            // A process that is no daemon says that it is a metadata server.
            Message::Beacon(_)
            | Message::Reply(_)
            | Message::Heartbeat(_)
            | Message::Balanced(_)
                if !self.identities.is_trusted(conn) =>
            {
                self.close(conn, effects);
            }
            Message::Beacon(beacon) => self.beacon(clock, conn, beacon, effects),
            Message::Reply(reply) => self.forward_done(conn, reply, effects),
            Message::Heartbeat(bytes) => self.heartbeat(conn, bytes, effects),
            Message::Balanced(record) => self.balanced(conn, record),
            // No message for a monitor: the peer took it for another daemon.
            Message::Hello(_)
            | Message::Welcome(_)
            | Message::Request(_)
            | Message::Batch(_)
            | Message::Chunk { .. }
            | Message::MonReply { .. }
            | Message::Trace { .. }
            | Message::Traced(_)
            | Message::Map(_)
            | Message::Moved { .. }
            | Message::Peer(_)
            | Message::Recall { .. }
            | Message::Revoke { .. }
            | Message::Stop => self.close(conn, effects),
        }
    }

    /// Carries a request out, or starts to. An error is the reply.
    fn request(
        &mut self,
        clock: Clock,
        call: Call<'_>,
        effects: &mut MonEffects,
    ) -> Result<(), Failure> {
        let asker = call.asker;
        self.check_identity(&call)?;
        match &self.phase {
            Phase::Loading => {
                let Call { asker: Asker { tid, .. }, cred, op } = call;
                let request = Message::MonRequest { tid, cred, op };
                return self.early.hold(clock.now, asker, &request);
            }
            Phase::Refusing(failure) => return Err(failure.clone()),
            Phase::Serving | Phase::Stopped => {}
        }
        match call.op {
            MonOp::Status => {
                let map = self.status_for(asker.conn);
                effects.reply(asker, Ok(MonAnswer::Map(Box::new(map))));
            }
            MonOp::Stop => {
                self.check_waiting()?;
                self.begin_stop(clock, Some(asker), effects);
            }
            MonOp::Fail { rank } => {
                let Some(server) = self.servers.conn_of(rank) else {
                    return Err(again(&format!("no server of {rank} is connected")));
                };
                effects.send(server, &Message::Stop);
                effects.reply(asker, Ok(MonAnswer::Done));
            }
            MonOp::Remove { rank } => {
                self.remove_rank(rank, effects)?;
                effects.reply(asker, Ok(MonAnswer::Done));
            }
            MonOp::Register => {
                self.check_waiting()?;
                self.register(asker, effects)?;
            }
            MonOp::Decouple { .. } | MonOp::SetPolicy { .. } => {
                self.check_waiting()?;
                self.forward(call, effects)?;
            }
            MonOp::SetBalancer { name, text } => {
                self.check_waiting()?;
                self.set_balancer(asker, name, text, effects)?;
            }
            MonOp::RevertBalancer => {
                self.check_waiting()?;
                self.revert_balancer(clock, asker, effects)?;
            }
            MonOp::BalancerLog { after } => self.balancing.log.ask(asker, after, effects)?,
        }
        Ok(())
    }

    /// Refuses a request that its peer may not send: for the client of another user, or about the
    /// whole cluster.
    fn check_identity(&self, call: &Call<'_>) -> Result<(), Failure> {
        let conn = call.asker.conn;
        match call.op {
            MonOp::Stop | MonOp::Fail { .. } | MonOp::Remove { .. } => {
                self.identities.check_command(conn, Rights::ADMIN)
            }
            MonOp::SetBalancer { .. } | MonOp::RevertBalancer => {
                self.identities.check_command(conn, Rights::BALANCE)
            }
            MonOp::Status | MonOp::Register => Ok(()),
            // It names directories.
            MonOp::BalancerLog { .. } => self.identities.check_path(conn, Rights::READ, b"/"),
            MonOp::SetPolicy { path, client, .. } => {
                self.identities.check_path(conn, Rights::POLICY, path)?;
                // A policy may be set by a client that owns no subtree.
                if client.0 == 0 { Ok(()) } else { self.check_client(conn, client) }
            }
            MonOp::Decouple { path, client, .. } => {
                self.identities.check_path(conn, Rights::DECOUPLE, path)?;
                self.check_client(conn, client)
            }
        }
    }

    fn check_client(&self, conn: ConnId, client: ClientId) -> Result<(), Failure> {
        if self.identities.may_be(conn, client) {
            return Ok(());
        }
        Err(failure(Errno::NotPermitted, format!("{client} belongs to another user")))
    }

    /// Refuses a request that may have to wait when the cluster is stopping or too many wait
    /// already.
    fn check_waiting(&self) -> Result<(), Failure> {
        let stopping = self.stop.as_ref().map_or(0, Stop::waiting);
        if self.forwards.len() + self.ledger.waiting() + stopping >= WAITING_MAX {
            return Err(again("too many requests wait for the monitor"));
        }
        Ok(())
    }

    /// Gives out a client id, which names the user of the process that asks. It is never given out
    /// again, not even after a restart: the block it is from is stored first.
    fn register(&mut self, asker: Asker, effects: &mut MonEffects) -> Result<(), Failure> {
        self.check_not_stopping()?;
        let end = self.ledger.map().next_client.0;
        if self.next_client.0 == end {
            let Some(end) = end.checked_add(CLIENT_BLOCK) else {
                return Err(failure(Errno::NoSpace, "every client id was given out"));
            };
            self.ledger.change().next_client = ClientId(end);
        }
        let client = self.next_client;
        let Ok(number) = u32::try_from(client.0) else {
            return Err(failure(Errno::NoSpace, "every client id was given out"));
        };
        self.next_client.0 += 1;
        let user = self.identities.uid(asker.conn);
        let answer = MonAnswer::Client(ClientId::of_user(user, number));
        if client < self.ledger.stored().next_client {
            effects.reply(asker, Ok(answer));
        } else {
            self.ledger.reply_when_stored(asker, answer, effects);
        }
        Ok(())
    }

    /// Notes keys that no daemon accepts any more; the map brings them to all hosts. A monitor that
    /// has not read its map yet hears of them again.
    fn revoke(&mut self, keys: Vec<u64>) {
        if !matches!(self.phase, Phase::Serving) {
            return;
        }
        let room = REVOKED_MAX.saturating_sub(self.ledger.map().revoked.len());
        let known = &self.ledger.map().revoked;
        let new: Vec<u64> =
            keys.into_iter().filter(|key| known.binary_search(key).is_err()).take(room).collect();
        if !new.is_empty() {
            let revoked = &mut self.ledger.change().revoked;
            revoked.extend(new);
            revoked.sort_unstable();
            revoked.dedup();
        }
    }

    fn check_not_stopping(&self) -> Result<(), Failure> {
        if self.stop.is_some() { Err(again("the cluster is stopping")) } else { Ok(()) }
    }

    fn stored(
        &mut self,
        clock: Clock,
        token: Token,
        result: Result<StoreResult, Box<StoreFailure>>,
        effects: &mut MonEffects,
    ) {
        self.noticed.store.note(clock.now, &result);
        if Balancing::is_mine(token) {
            return self.balancer_stored(clock, token, result, effects);
        }
        match self.ledger.stored_result(clock.now, token, result, effects) {
            StoreOutcome::Nothing => {}
            StoreOutcome::Loaded => {
                self.ledger.take_over(&self.settings);
                self.begin_balancing(clock.time);
                self.next_client = self.ledger.map().next_client;
                self.forwards.start_at(self.ledger.map().epoch);
                self.servers.expect(self.ledger.map(), clock.now);
                self.phase = Phase::Serving;
                self.answer_early(clock, effects);
            }
            StoreOutcome::Unreadable(error) => {
                self.phase = Phase::Refusing(explain(&error));
                self.answer_early(clock, effects);
            }
            StoreOutcome::TakenOver => self.taken_over(effects),
        }
    }

    /// Takes requests up that came before the map was read.
    fn answer_early(&mut self, clock: Clock, effects: &mut MonEffects) {
        for (conn, frame) in self.early.release() {
            if let Some(request) = early::request(&frame) {
                self.message(clock, conn, request, effects);
            }
        }
    }

    /// Another monitor changed the map: this one knows nothing any more.
    fn taken_over(&mut self, effects: &mut MonEffects) {
        let error = Error::new(Errno::Busy, MAP_NAME, "another monitor took over this cluster")
            .remedy("a cluster has one monitor: find the other with `cudele status`");
        let reply = again("another monitor took over this cluster; ask that one");
        self.ledger.fail_waiting(&reply, effects);
        self.forwards.fail_all(&reply, effects);
        self.balancing.fail_waiting(&reply, effects);
        for asker in self.stop.take().into_iter().flat_map(Stop::into_askers) {
            effects.reply(asker, Err(reply.clone()));
        }
        effects.fatal = Some(error);
        self.phase = Phase::Stopped;
    }

    fn close(&mut self, conn: ConnId, effects: &mut MonEffects) {
        effects.close.push(conn);
        self.closed(conn, effects);
    }

    /// Forgets a connection: requests that waited there are not answered any more.
    fn closed(&mut self, conn: ConnId, effects: &mut MonEffects) {
        self.early.forget(conn);
        self.ledger.forget(conn);
        self.forwards.forget(conn);
        self.balancing.forget(conn);
        if let Some(stop) = &mut self.stop {
            stop.forget(conn);
        }
        self.servers.forget_starting(conn);
        if let Some(rank) = self.servers.rank_of(conn) {
            self.lose(rank, effects);
        }
    }

    fn check(&self) -> Result<(), &'static str> {
        if matches!(self.phase, Phase::Stopped) {
            return Ok(());
        }
        self.ledger.check()?;
        if self.next_client > self.ledger.map().next_client {
            return Err("client ids come from the recorded block");
        }
        self.forwards.check(|conn| self.servers.rank_of(conn).is_some())
    }
}

/// A failure with words.
fn failure(errno: Errno, text: impl Into<String>) -> Failure {
    Failure { errno, text: text.into() }
}

fn again(text: &str) -> Failure {
    failure(Errno::Again, text)
}

/// An error as a reply. The error number is not repeated in the text.
fn explain(error: &Error) -> Failure {
    let Error { errno, subject, cause, remedy } = error;
    let mut text = if subject.is_empty() { cause.clone() } else { format!("{subject}: {cause}") };
    if !remedy.is_empty() {
        text.push_str("; ");
        text.push_str(remedy);
    }
    failure(*errno, text)
}

#[cfg(test)]
mod tests;
